#include "core/program/lines.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <string.h>

enum {
    BUFFER_BYTES = 1 << 16,
    DOUBLES_KEPT = 64 /* a record has at most a dozen */
};

struct kept_double {
    uint64_t bits;
    size_t n; /* 0: free */
    char text[32];
};

struct lines {
    struct arena *a;
    FILE *out;
    size_t n;
    char buffer[BUFFER_BYTES];
    struct kept_double doubles[DOUBLES_KEPT];
    bool recording;
    char *recorded; /* (n_recorded) */
    size_t n_recorded, capacity;
};

struct lines *lines_new(struct arena *a, FILE *out)
{
    struct lines *l = ARENA_ARRAY(a, struct lines, 1);
    l->a = a, l->out = out;
    return l;
}

static void flush(struct lines *l)
{
    fwrite(l->buffer, 1, l->n, l->out); /* errors stay in the stream */
    l->n = 0;
}

void lines_end(struct lines *l) { flush(l); }

static void record(struct lines *l, const char *bytes, size_t n)
{
    if (l->n_recorded + n > l->capacity) {
        size_t capacity = 2 * (l->n_recorded + n) + BUFFER_BYTES;
        char *bigger = arena_alloc(l->a, capacity, 1);
        if (l->n_recorded) memcpy(bigger, l->recorded, l->n_recorded);
        l->recorded = bigger, l->capacity = capacity;
    }
    memcpy(l->recorded + l->n_recorded, bytes, n);
    l->n_recorded += n;
}

void lines_bytes(struct lines *l, const char *bytes, size_t n)
{
    if (l->recording && n) record(l, bytes, n);
    while (n > BUFFER_BYTES - l->n) {
        size_t part = BUFFER_BYTES - l->n;
        memcpy(l->buffer + l->n, bytes, part);
        l->n = BUFFER_BYTES, bytes += part, n -= part;
        flush(l);
    }
    if (n) memcpy(l->buffer + l->n, bytes, n);
    l->n += n;
}

void lines_text(struct lines *l, const char *text) { lines_bytes(l, text, strlen(text)); }

void lines_char(struct lines *l, char c) { lines_bytes(l, &c, 1); }

void lines_int(struct lines *l, int64_t x)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = x < 0 ? -(uint64_t)x : (uint64_t)x;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (x < 0) *--at = '-';
    *--at = ' ';
    lines_bytes(l, at, (size_t)(digits + sizeof digits - at));
}

void lines_double(struct lines *l, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    struct kept_double *k = &l->doubles[(bits * UINT64_C(0x9E3779B97F4A7C15) >> 32) % DOUBLES_KEPT];
    if (!k->n || k->bits != bits) {
        k->n = (size_t)snprintf(k->text, sizeof k->text, " %.17g", x);
        k->bits = bits;
    }
    lines_bytes(l, k->text, k->n);
}

void lines_name(struct lines *l, const char *name)
{
    lines_char(l, ' ');
    if (!*name) lines_char(l, '%');
    for (const unsigned char *c = (const unsigned char *)name; *c;) {
        const unsigned char *first = c;
        while (*c > ' ' && *c != '%' && *c != 0x7f) c++;
        lines_bytes(l, (const char *)first, (size_t)(c - first));
        if (!*c) return;
        char code[4];
        snprintf(code, sizeof code, "%%%02X", *c++);
        lines_text(l, code);
    }
}

void lines_record(struct lines *l)
{
    l->recording = true;
    l->n_recorded = 0;
}

struct lines_piece lines_recorded(struct lines *l)
{
    l->recording = false;
    return (struct lines_piece){arena_copy(l->a, l->recorded, l->n_recorded), l->n_recorded};
}
