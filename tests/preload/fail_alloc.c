/* Preloaded into a program: the FAIL_ALLOC-th request for memory after main has begun fails, the others do not; so does the
 * FAIL_MMAP-th call of mmap. FAIL_ALLOC_COUNT and FAIL_MMAP_COUNT name files that get the number of requests when the program ends. With FAIL_ALLOC_IN=NAME programs
 * of other names, such as an mpirun that the program starts, are left alone. glibc's own names are used, because
 * dlsym may ask for memory.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                             void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                             void *stack_end);

static atomic_bool counting;
static atomic_long requests, maps;
static long failing, failing_map;

static bool fails(void)
{
    if (!atomic_load(&counting) || atomic_fetch_add(&requests, 1) + 1 != failing) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t bytes) { return fails() ? NULL : __libc_realloc(old, bytes); }
void *memalign(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

/* libc's own calls do not come here. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    if (atomic_load(&counting) && atomic_fetch_add(&maps, 1) + 1 == failing_map) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, from); /* NOLINT: the address as the kernel returns it */
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static void tell(const char *name, long count)
{
    char text[32];
    const char *path = getenv(name);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    int n = snprintf(text, sizeof text, "%ld\n", count);
    if (fd >= 0 && write(fd, text, (size_t)n) == n) close(fd);
}

static int (*real_main)(int, char **, char **);
static int counted_main(int argc, char **argv, char **environment)
{
    const char *in = getenv("FAIL_ALLOC_IN");
    if (in && strcmp(in, program_invocation_short_name) != 0) return real_main(argc, argv, environment);
    failing = number("FAIL_ALLOC"), failing_map = number("FAIL_MMAP");
    atomic_store(&counting, true);
    int code = real_main(argc, argv, environment);
    atomic_store(&counting, false);
    tell("FAIL_ALLOC_COUNT", atomic_load(&requests));
    tell("FAIL_MMAP_COUNT", atomic_load(&maps));
    return code;
}

/* What starts every program; it is found by name, so that main itself can be wrapped. */
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                      void *stack_end)
{
    int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                 void (*)(void), void *);
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&start, &found, sizeof start);
    real_main = main;
    return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
