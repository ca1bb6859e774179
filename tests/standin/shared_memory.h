/* tests/standin/shared_memory.h - a block's shared memory, full of NaNs when the block begins. */
#ifndef TESTS_STANDIN_SHARED_MEMORY_H
#define TESTS_STANDIN_SHARED_MEMORY_H

#include <stddef.h>

/* The launch's dynamic part, exactly `bytes`, so that the address sanitizer sees who leaves it. */
void *shared_memory_begin(const void *kernel, size_t bytes);
/* Dynamic and static parts. */
void shared_memory_poison(const void *kernel, void *dynamic, size_t bytes);
void shared_memory_end(void *dynamic);
/* Bytes of the kernel's own __shared__ variables. */
size_t shared_memory_static(const void *kernel);

#endif
