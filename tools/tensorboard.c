#include "tools/tensorboard.h"

#include "core/base/arena.h"
#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_BYTES = 512, TAG_BYTES = 128 };
enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* wire types */

/* ---- checksums -------------------------------------------------------------------------------- */

uint32_t tensorboard_crc(const void *p, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (const unsigned char *c = p; n--; c++) {
        crc ^= *c;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

static uint32_t masked(const void *p, size_t n)
{
    uint32_t crc = tensorboard_crc(p, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* ---- protocol buffers ------------------------------------------------------------------------- */

struct message {
    size_t n;
    unsigned char bytes[EVENT_BYTES];
};

static void put_byte(struct message *m, uint64_t x)
{
    if (m->n == EVENT_BYTES) BUG("an event is longer than its tag allows");
    m->bytes[m->n++] = (unsigned char)x;
}

static void put_little(struct message *m, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) put_byte(m, x >> 8 * i & 255);
}

static void put_varint(struct message *m, uint64_t x)
{
    for (; x > 127; x >>= 7) put_byte(m, (x & 127) | 128);
    put_byte(m, x);
}

static void put_key(struct message *m, unsigned field, unsigned type) { put_varint(m, field << 3 | type); }

static void put_bytes(struct message *m, unsigned field, const void *p, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    for (size_t i = 0; i < n; i++) put_byte(m, ((const unsigned char *)p)[i]);
}

static void write_little(FILE *f, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) fputc((int)(x >> 8 * i & 255), f);
}

static struct message event_of(int64_t step)
{
    struct message m = {0};
    struct timespec now;
    double wall;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &wall, sizeof bits);
    put_key(&m, 1, FIXED64);
    put_little(&m, bits, 8);
    put_key(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static void write_event(struct tensorboard *t, const struct message *m)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)m->n >> 8 * i & 255);
    fwrite(length, 1, sizeof length, t->file);
    write_little(t->file, masked(length, sizeof length), 4);
    fwrite(m->bytes, 1, m->n, t->file);
    write_little(t->file, masked(m->bytes, m->n), 4);
}

/* ---- the file --------------------------------------------------------------------------------- */

enum status tensorboard_open(struct tensorboard *t, struct arena *a, const char *dir, int64_t first_step, struct error *err)
{
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    char host[256] = "localhost";
    *t = (struct tensorboard){0};
    if (mkdir(dir, 0777) && errno != EEXIST) return error_set(err, ERR_RESOURCE, "cannot create folder '%s': %s", dir, strerror(errno));
    (void)gethostname(host, sizeof host - 1);
    t->path = arena_printf(a, "%s/events.out.tfevents.%010" PRId64 ".%s.%ld", dir, (int64_t)time(NULL), host, (long)getpid());
    t->file = fopen(t->path, "ae");
    if (!t->file) return error_set(err, ERR_RESOURCE, "cannot write %s: %s", t->path, strerror(errno));
    struct message m = event_of(0);
    put_bytes(&m, 3, version, sizeof version - 1);
    write_event(t, &m);
    if (first_step > 0) {
        m = event_of(first_step + 1);
        put_bytes(&m, 7, start, sizeof start);
        write_event(t, &m);
    }
    tensorboard_flush(t);
    return OK;
}

void tensorboard_close(struct tensorboard *t)
{
    if (t->file) fclose(t->file);
    t->file = NULL;
}

void tensorboard_scalar(struct tensorboard *t, int64_t step, const char *tag, double value)
{
    struct message summary = {0}, in = {0}, m;
    float single = (float)value;
    uint32_t bits;
    if (!t->file) return;
    memcpy(&bits, &single, sizeof bits);
    put_bytes(&in, 1, tag, strnlen(tag, TAG_BYTES));
    put_key(&in, 2, FIXED32);
    put_little(&in, bits, 4);
    put_bytes(&summary, 1, in.bytes, in.n);
    m = event_of(step);
    put_bytes(&m, 5, summary.bytes, summary.n);
    write_event(t, &m);
}

void tensorboard_flush(struct tensorboard *t)
{
    if (!t->file) return;
    errno = 0;
    if (!fflush(t->file) && !ferror(t->file)) return;
    log_warn("the event file %s ends here: %s", t->path, strerror(errno ? errno : EIO));
    tensorboard_close(t);
}
