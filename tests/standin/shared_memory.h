/* tests/standin/shared_memory.h - a block's shared memory, filled with NaNs at its start. */
#ifndef TESTS_STANDIN_SHARED_MEMORY_H
#define TESTS_STANDIN_SHARED_MEMORY_H

#include <stddef.h>

struct shared_variables;

/* The __shared__ variables of a kernel and of its possible callees; never freed. */
const struct shared_variables *shared_variables_of(const void *kernel);
/* Bytes of the kernel's own variables. */
size_t shared_variables_bytes(const struct shared_variables *v);
/* Before a launch: fills all of the calling thread's copies. */
void shared_variables_poison_all(const struct shared_variables *v);
/* Before a block: fills the kernel's own. */
void shared_variables_poison(const struct shared_variables *v);

/* The launch's dynamic part, exactly `bytes`, so that the address sanitizer detects overruns; NULL for 0. */
void *shared_dynamic_new(size_t bytes);
void shared_dynamic_poison(void *p, size_t bytes);
void shared_dynamic_free(void *p);

#endif
