/* exec/cuda/watchdog_call.h - a call that may never return, on a thread of its own. */
#ifndef EXEC_CUDA_WATCHDOG_CALL_H
#define EXEC_CUDA_WATCHDOG_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* body(owner) on another thread; waits for its end for limit_ns at most. true: it has ended. false: it has not, and still has owner;
 * or there can be no more threads and nobody began it. */
bool watchdog_call(void (*body)(void *owner), void *owner, int64_t limit_ns);

#endif
