/* core/base/parallel.h - a loop whose iterations run on several threads.
 *
 * Iterations are independent; each stores its result by its index, so that results depend neither on the number of threads nor
 * on their order. Threads are created for one call and take the next free index: about 30 us per thread and call.
 */
#ifndef CORE_BASE_PARALLEL_H
#define CORE_BASE_PARALLEL_H

#include <stdint.h>

/* Calls work(user, index, thread) once for every index 0 … n-1, in any order, on `threads` threads numbered from 0 (the
 * caller's included; threads that the system refuses to create are left out). Returns after the last call. */
void parallel_each(int64_t n, int32_t threads,
                   void (*work)(void *user, int64_t index, int32_t thread), void *user);
/* Processors that this process may use (its affinity mask); at least 1. */
int32_t parallel_processors(void);

#endif
