#include "traces/spill.h"

#include "core/base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIELDS = 17, MOST = 3 + 10 * FIELDS, ROOM = 1 << 15 };

struct spilled_run {
    int64_t at, end; /* of the file: what is not in the buffer */
    size_t left;     /* spans to come */
    uint64_t before[FIELDS];
    unsigned char *buffer; /* (ROOM) */
    size_t first, n;       /* [first, n) unread */
    struct span span;      /* the next one */
};

struct spill {
    struct arena *arena;
    int fd, error;
    int64_t bytes;
    size_t n_spans, n_runs, capacity;
    struct spilled_run *runs;
    unsigned char out[ROOM];
    size_t n_out;
    int32_t *to; /* (n_devices); NULL: as they are */
};

struct spill *spill_new(struct arena *a, const char *beside)
{
    struct spill *s = ARENA_ARRAY(a, struct spill, 1);
    const char *slash = strrchr(beside, '/'), *other = getenv("TMPDIR");
    const char *own = !slash            ? "."
                      : slash == beside ? "/"
                                        : arena_strndup(a, beside, (size_t)(slash - beside));
    s->arena = a;
    s->fd = strcmp(beside, "-") ? open(own, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (s->fd < 0)
        s->fd = open(other && *other ? other : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0) s->error = errno;
    return s;
}

size_t spill_spans(const struct spill *s) { return s->n_spans; }
int spill_error(const struct spill *s) { return s->error; }

void spill_close(struct spill *s)
{
    if (s && s->fd >= 0) close(s->fd);
    if (s) s->fd = -1;
}

/* --- a span as numbers --- */

static void to_fields(const struct span *x, uint64_t v[FIELDS])
{
    const int64_t all[FIELDS] = {x->kind,
                                 x->stream,
                                 x->device,
                                 x->peer,
                                 x->stage,
                                 x->phase,
                                 x->step,
                                 x->microbatch,
                                 x->op,
                                 x->part,
                                 x->uneven_ppm,
                                 x->collective,
                                 x->begin_ns,
                                 x->end_ns - x->begin_ns,
                                 x->bytes,
                                 (int64_t)x->key,
                                 (int64_t)(uintptr_t)x->name};
    memcpy(v, all, sizeof all);
}

static struct span from_fields(const uint64_t v[FIELDS])
{
    return (struct span){.kind = (enum span_kind)v[0],
                         .stream = (enum stream)v[1],
                         .device = (int32_t)v[2],
                         .peer = (int32_t)v[3],
                         .stage = (int32_t)v[4],
                         .phase = (enum phase)v[5],
                         .step = (int32_t)v[6],
                         .microbatch = (int32_t)v[7],
                         .op = (int32_t)v[8],
                         .part = (int32_t)v[9],
                         .uneven_ppm = (int32_t)v[10],
                         .collective = (int32_t)v[11],
                         .begin_ns = (int64_t)v[12],
                         .end_ns = (int64_t)(v[12] + v[13]),
                         .bytes = (int64_t)v[14],
                         .key = v[15],
                         .name = (const char *)(uintptr_t)v[16]};
}

static void put_number(struct spill *s, uint64_t x)
{
    for (; x >= 128; x >>= 7) s->out[s->n_out++] = (unsigned char)(x | 128);
    s->out[s->n_out++] = (unsigned char)x;
}

static uint64_t take_number(struct spilled_run *r)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64 && r->first < r->n; shift += 7) {
        unsigned char c = r->buffer[r->first++];
        x |= (uint64_t)(c & 127) << shift;
        if (c < 128) break;
    }
    return x;
}

/* Small differences of either sign become small numbers. */
static uint64_t zigzag(uint64_t d) { return d << 1 ^ (d >> 63 ? UINT64_MAX : 0); }
static uint64_t unzigzag(uint64_t z) { return z >> 1 ^ (z & 1 ? UINT64_MAX : 0); }

/* --- out --- */

static void flush(struct spill *s)
{
    for (size_t done = 0; done < s->n_out && !s->error;) {
        ssize_t put = pwrite(s->fd, s->out + done, s->n_out - done, s->bytes);
        if (put < 0 && errno != EINTR) s->error = errno;
        if (put > 0) done += (size_t)put, s->bytes += put;
    }
    s->n_out = 0;
}

void spill_run(struct spill *s, const struct span *spans, size_t n)
{
    uint64_t v[FIELDS], before[FIELDS] = {0};
    s->runs = arena_grow(s->arena, s->runs, s->n_runs, &s->capacity, sizeof *s->runs);
    struct spilled_run *r = &s->runs[s->n_runs++];
    *r = (struct spilled_run){.at = s->bytes, .left = n};
    for (size_t i = 0; i < n && !s->error; i++) {
        uint64_t changed = 0;
        to_fields(&spans[i], v);
        for (int k = 0; k < FIELDS; k++) changed |= (uint64_t)(v[k] != before[k]) << k;
        if (s->n_out + MOST > ROOM) flush(s);
        put_number(s, changed);
        for (int k = 0; k < FIELDS; k++)
            if (changed >> k & 1) put_number(s, zigzag(v[k] - before[k]));
        memcpy(before, v, sizeof v);
    }
    flush(s);
    r->end = s->bytes;
    s->n_spans += n;
}

/* --- in --- */

static void fill(struct spill *s, struct spilled_run *r)
{
    memmove(r->buffer, r->buffer + r->first, r->n - r->first);
    r->n -= r->first, r->first = 0;
    while (r->at < r->end && r->n < ROOM && !s->error) {
        int64_t want = r->end - r->at, room = (int64_t)(ROOM - r->n);
        ssize_t got = pread(s->fd, r->buffer + r->n, (size_t)(want < room ? want : room), r->at);
        if (got < 0 && errno != EINTR) s->error = errno;
        if (got == 0) s->error = EIO;
        if (got > 0) r->n += (size_t)got, r->at += got;
    }
}

/* The next span that is not left out into r->span; false: there is none. */
static bool advance(struct spill *s, struct spilled_run *r)
{
    while (r->left && !s->error) {
        r->left--;
        if (r->n - r->first < MOST && r->at < r->end) fill(s, r);
        uint64_t changed = take_number(r);
        for (int k = 0; k < FIELDS; k++)
            if (changed >> k & 1) r->before[k] += unzigzag(take_number(r));
        struct span *x = &r->span;
        *x = from_fields(r->before);
        if (!s->to) return true;
        int32_t device = s->to[x->device], peer = x->peer < 0 ? x->peer : s->to[x->peer];
        if (device < 0 || (x->peer >= 0 && peer < 0)) continue;
        x->device = device, x->peer = peer;
        return true;
    }
    return false;
}

static struct spilled_run *begin(struct spill *s, struct arena *scratch)
{
    struct spilled_run *all = ARENA_ARRAY(scratch, struct spilled_run, s->n_runs + 1);
    if (s->n_runs) memcpy(all, s->runs, s->n_runs * sizeof *all);
    for (size_t i = 0; i < s->n_runs; i++)
        all[i].buffer = ARENA_ARRAY(scratch, unsigned char, ROOM);
    return all;
}

void spill_renumber(struct spill *s, const int32_t *to, int32_t n_devices)
{
    struct arena *scratch = arena_new();
    if (s->to) BUG("spans that are renumbered twice");
    struct spilled_run *runs = begin(s, scratch);
    s->to = arena_copy(s->arena, to, (size_t)n_devices * sizeof *to);
    s->n_spans = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        while (advance(s, &runs[i])) s->n_spans++;
    arena_free(scratch);
}

/* --- the merge: a heap of runs by their next spans; of equal ones the earlier run is first --- */

struct merge {
    struct spilled_run *runs;
    size_t *heap, n;
};

static bool less(const struct merge *m, size_t i, size_t j)
{
    int order = trace_compare_spans(&m->runs[i].span, &m->runs[j].span);
    return order ? order < 0 : i < j;
}

static void sink(struct merge *m, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < m->n; at = child) {
        if (child + 1 < m->n && less(m, m->heap[child + 1], m->heap[child])) child++;
        if (!less(m, m->heap[child], m->heap[at])) return;
        size_t other = m->heap[at];
        m->heap[at] = m->heap[child], m->heap[child] = other;
    }
}

void spill_merge(struct spill *s, const struct span *tail, const size_t *order, size_t n_tail,
                 void (*put)(void *to, const struct span *x), void *to)
{
    struct arena *scratch = arena_new();
    struct merge m = {.runs = begin(s, scratch),
                      .heap = ARENA_ARRAY(scratch, size_t, s->n_runs + 1)};
    size_t last = s->n_runs, next = 0;
    for (size_t i = 0; i < last; i++)
        if (advance(s, &m.runs[i])) m.heap[m.n++] = i;
    if (n_tail) m.runs[last].span = tail[order ? order[next] : next], m.heap[m.n++] = last, next++;
    for (size_t i = m.n; i-- > 0;) sink(&m, i);
    while (m.n && !s->error) {
        size_t at = m.heap[0];
        bool more = at < last || next < n_tail;
        put(to, &m.runs[at].span);
        if (at < last)
            more = advance(s, &m.runs[at]);
        else if (more)
            m.runs[last].span = tail[order ? order[next] : next], next++;
        if (!more) m.heap[0] = m.heap[--m.n];
        sink(&m, 0);
    }
    arena_free(scratch);
}
