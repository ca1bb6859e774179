/* tests/gpu/plain/gzip.c - machines without zlib write and read plain traces. */
#include "traces/gzip.h"

#include <errno.h>

bool gzip_name(const char *path)
{
    (void)path;
    return false;
}

FILE *gzip_writer(struct arena *a, FILE *to)
{
    (void)a, (void)to;
    errno = ENOSYS;
    return NULL;
}

struct gzip_reader *gzip_reader_new(struct arena *a, int fd)
{
    (void)a, (void)fd;
    return NULL;
}

void gzip_reader_free(struct gzip_reader *r) { (void)r; }

ssize_t gzip_read(struct gzip_reader *r, void *to, size_t n)
{
    (void)r, (void)to, (void)n;
    errno = EBADMSG;
    return -1;
}
