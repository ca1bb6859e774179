/* tests/preload/disk.c - a disk that is slow or full, or a rank that dies at it: LD_PRELOAD replaces fsync and unlink.
 *
 * DISK_NAME=TEXT    concerned is each file whose path has TEXT in it, and nothing without it
 * DISK_SIGNAL=N     the process gets signal N: 9 ends it, 19 stops it
 * DISK_GONE=TEXT    it gets the signal when a file with TEXT in its name has been removed, instead
 * DISK_SECONDS=S    fsync takes so long
 * DISK_FULL=1       fsync fails for want of space, as it does where space is given out late
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int concerned(int fd)
{
    const char *name = getenv("DISK_NAME");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return name && strstr(path, name) != NULL;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

int fsync(int fd)
{
    if (!concerned(fd)) return (int)syscall(SYS_fsync, fd);
    if (number("DISK_SIGNAL")) raise((int)number("DISK_SIGNAL"));
    struct timespec left = {.tv_sec = number("DISK_SECONDS")};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
    if (!number("DISK_FULL")) return (int)syscall(SYS_fsync, fd);
    errno = ENOSPC;
    return -1;
}

int unlink(const char *path)
{
    const char *name = getenv("DISK_GONE");
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (!result && name && strstr(path, name)) raise((int)number("DISK_SIGNAL"));
    return result;
}
