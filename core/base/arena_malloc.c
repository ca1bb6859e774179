/* The allocation functions of the whole process, so that no memory ends the program in one way everywhere.
 *
 * A definition of malloc in the program is used by every library that it is linked with: the parsers, SQLite, GSL, GLPK,
 * igraph, BLAS, MPI, libc's streams and the plugins. What some of them do without memory is no way for a program to end:
 * GLPK aborts without a word, a parser calls the file malformed, a stream drops text, thread-local data end the process with
 * code 127. Here each request goes on to the next definition (libc's, or one that was preloaded), and one that fails ends in
 * arena_exhausted with the bytes that were asked for. Discarded: hooks of each library, because GLPK, libyaml, igraph
 * and libc have none.
 * Sanitizers bring their own allocation functions and their own report.
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

/* The first request of a process comes before its second thread, so this takes no lock. False: dlsym itself asks for memory;
 * an old glibc does, and has a static place where there is none. */
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

/* A request for more than PTRDIFF_MAX bytes is a mistake of the caller's, who expects NULL: PMIx takes an error code for a length
 * and asks for -29 bytes. No memory would suffice, so the program is not out of memory. */
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

/* These fail for a wrong alignment too, which is the caller's to hear of. */
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
