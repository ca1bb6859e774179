#include "tests/standin/shared_memory.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 128 };

void *shared_memory_begin(const void *kernel, size_t bytes)
{
    (void)kernel;
    void *p = NULL;
    if (bytes && posix_memalign(&p, ALIGNMENT, bytes)) abort();
    return p;
}

void shared_memory_poison(const void *kernel, void *dynamic, size_t bytes)
{
    (void)kernel;
    if (bytes) memset(dynamic, 0xff, bytes);
}

void shared_memory_end(void *dynamic) { free(dynamic); }

size_t shared_memory_static(const void *kernel)
{
    (void)kernel;
    return 0;
}
