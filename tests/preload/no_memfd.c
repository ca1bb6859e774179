/* tests/preload/no_memfd.c - a system without memory files: LD_PRELOAD replaces memfd_create, and ranks share no board. */
#include <errno.h>
#include <sys/mman.h>

int memfd_create(const char *name, unsigned flags)
{
    (void)name, (void)flags;
    errno = ENOSYS;
    return -1;
}
