/* The allocation functions of the whole process, so that lack of memory ends the program in the same way everywhere.
 *
 * A definition of malloc in the program is used by every library that it is linked with: the parsers, SQLite, GSL, GLPK,
 * igraph, BLAS, MPI, libc's streams and the plugins. Several of them handle lack of memory badly:
 * GLPK aborts without a message, a parser reports a malformed file, a stream drops text, thread-local data end the process with
 * code 127. Here each request is passed to the next definition (libc's, or a preloaded one), and a failure ends in
 * arena_exhausted with the requested bytes. Rejected: hooks of each library, because GLPK, libyaml, igraph
 * and libc have none.
 * Sanitizers have their own allocation functions and reports.
 */
#include "core/base/arena.h"

#include "core/base/sanitized.h"

#if !SANITIZED_ADDRESS && !SANITIZED_THREAD

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
} next;
static bool finding;

static void find(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found); /* ISO C converts no object pointer to a function's */
}

/* The first request of a process precedes its second thread, so no lock is needed. False: dlsym itself allocates;
 * an old glibc does, and falls back to a static buffer. */
static bool ready(void)
{
    if (next.posix_memalign) return true;
    if (finding) return false;
    finding = true;
    find("malloc", &next.malloc);
    find("calloc", &next.calloc);
    find("realloc", &next.realloc);
    find("memalign", &next.memalign);
    find("aligned_alloc", &next.aligned_alloc);
    find("posix_memalign", &next.posix_memalign);
    finding = false;
    return true;
}

/* A request above PTRDIFF_MAX bytes is an error of the caller, which expects NULL: PMIx takes an error code for a length
 * and requests -29 bytes. The program is not out of memory then. */
static void check(const void *p, size_t bytes)
{
    if (!p && bytes && bytes <= PTRDIFF_MAX) arena_exhausted(bytes);
}

void *malloc(size_t bytes)
{
    if (!ready()) return NULL;
    void *p = next.malloc(bytes);
    check(p, bytes);
    return p;
}

void *calloc(size_t count, size_t size)
{
    if (!ready()) return NULL;
    void *p = next.calloc(count, size);
    check(p, size && count > SIZE_MAX / size ? SIZE_MAX : count * size);
    return p;
}

void *realloc(void *old, size_t bytes)
{
    if (!ready()) return NULL;
    void *p = next.realloc(old, bytes);
    check(p, bytes);
    return p;
}

/* These also fail for an invalid alignment, which is reported to the caller. */
void *memalign(size_t alignment, size_t bytes)
{
    if (!ready()) return NULL;
    void *p = next.memalign(alignment, bytes);
    if (errno == ENOMEM) check(p, bytes);
    return p;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (!ready()) return NULL;
    void *p = next.aligned_alloc(alignment, bytes);
    if (errno == ENOMEM) check(p, bytes);
    return p;
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (!ready()) return ENOMEM;
    int why = next.posix_memalign(out, alignment, bytes);
    if (why == ENOMEM) check(NULL, bytes);
    return why;
}

#endif
