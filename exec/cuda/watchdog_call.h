/* exec/cuda/watchdog_call.h - runs a call that may never return on a thread of its own. */
#ifndef EXEC_CUDA_WATCHDOG_CALL_H
#define EXEC_CUDA_WATCHDOG_CALL_H

#include <stdbool.h>
#include <stdint.h>

/* Runs body(owner) on another thread and waits for limit_ns at most. true: it has ended. false: it is still running
 * and still uses owner, or no thread could be created and body did not start. */
bool watchdog_call(void (*body)(void *owner), void *owner, int64_t limit_ns);

#endif
