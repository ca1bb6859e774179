#include "traces/gzip.h"

#include "core/base/arena.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* 16: gzip's frame. Level 3 halves the write speed of an uncompressed file on two processors' disks, and is a tenth larger than 9. */
enum { FRAME = 16, WINDOW = 15, LEVEL = 3, MEMORY = 8, ROOM = 1 << 16 };

struct writer {
    z_stream z;
    FILE *to;
    unsigned char out[ROOM];
};

bool gzip_name(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".gz");
}

static bool drive(struct writer *w, int flush)
{
    int st = Z_OK;
    do {
        w->z.next_out = w->out, w->z.avail_out = ROOM;
        st = deflate(&w->z, flush);
        size_t n = ROOM - w->z.avail_out;
        if (n && fwrite(w->out, 1, n, w->to) != n) return false;
    } while (flush == Z_FINISH ? st == Z_OK : w->z.avail_in > 0 || !w->z.avail_out);
    return true;
}

static ssize_t put(void *cookie, const char *text, size_t n)
{
    struct writer *w = cookie;
    w->z.next_in = (unsigned char *)text, w->z.avail_in = (uInt)n;
    return drive(w, Z_NO_FLUSH) ? (ssize_t)n : 0;
}

static int finish(void *cookie)
{
    struct writer *w = cookie;
    bool good = drive(w, Z_FINISH);
    deflateEnd(&w->z);
    return good ? 0 : EOF;
}

FILE *gzip_writer(struct arena *a, FILE *to)
{
    struct writer *w = ARENA_ARRAY(a, struct writer, 1);
    w->to = to;
    if (deflateInit2(&w->z, LEVEL, Z_DEFLATED, WINDOW + FRAME, MEMORY, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        errno = ENOMEM;
        return NULL;
    }
    FILE *f = fopencookie(w, "w", (cookie_io_functions_t){.write = put, .close = finish});
    if (!f) finish(w);
    return f;
}

struct gzip_reader {
    z_stream z;
    int fd;
    bool at_end, between; /* of fd; of members */
    unsigned char in[ROOM];
};

struct gzip_reader *gzip_reader_new(struct arena *a, int fd)
{
    struct gzip_reader *r = ARENA_ARRAY(a, struct gzip_reader, 1);
    r->fd = fd;
    return inflateInit2(&r->z, WINDOW + FRAME) == Z_OK ? r : NULL;
}

void gzip_reader_free(struct gzip_reader *r)
{
    if (r) inflateEnd(&r->z);
}

static bool more(struct gzip_reader *r)
{
    ssize_t got;
    do got = read(r->fd, r->in, ROOM);
    while (got < 0 && errno == EINTR);
    if (got < 0) return false;
    r->at_end = got == 0;
    r->z.next_in = r->in, r->z.avail_in = (uInt)got;
    return true;
}

ssize_t gzip_read(struct gzip_reader *r, void *to, size_t n)
{
    if (n > ROOM) n = ROOM;
    r->z.next_out = to, r->z.avail_out = (uInt)n;
    while (r->z.avail_out == n) {
        if (!r->z.avail_in && !r->at_end && !more(r)) return -1;
        if (!r->z.avail_in && r->at_end) {
            errno = EBADMSG;
            return r->between ? 0 : -1;
        }
        int st = inflate(&r->z, Z_NO_FLUSH);
        r->between = st == Z_STREAM_END;
        if (st == Z_STREAM_END) /* concatenated gzip files are one */
            st = inflateReset(&r->z);
        if (st != Z_OK && st != Z_BUF_ERROR) {
            errno = EBADMSG;
            return -1;
        }
    }
    return (ssize_t)(n - r->z.avail_out);
}
