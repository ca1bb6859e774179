#include "exec/worker/snapshot.h"

#include "exec/worker/rank.h"
#include "exec/worker/saved_tensor.h"

/* A block that was not reserved has a quarter of the bytes before it, so that blocks are few, and at most a fifth of the memory beyond the first
 * is not used. */
#define FIRST_BLOCK_BYTES (INT64_C(1) << 20)
#define GROWTH 4
#define ALIGNED_BYTES 64

struct snapshot_block {
    char *at;
    int64_t bytes, used;
    bool pinned;
};
struct snapshot_values {
    const void *at;
    enum dtype dtype;
    int64_t n;
};

void snapshot_init(struct snapshot *s, struct rank *r) { *s = (struct snapshot){.r = r}; }

void snapshot_begin(struct snapshot *s)
{
    for (size_t i = 0; i < s->n_blocks; i++) s->blocks[i].used = 0;
    s->n_values = 0;
}

static enum status another_block(struct snapshot *s, int64_t bytes, bool pinned, struct error *err)
{
    void *at;
    if (pinned)
        TRY(s->r->backend.allocate_pinned(&s->r->backend, bytes, &at, err));
    else
        at = arena_alloc(s->r->run, (size_t)bytes, 1);
    s->blocks = arena_grow(s->r->run, s->blocks, s->n_blocks, &s->blocks_capacity, sizeof *s->blocks);
    s->blocks[s->n_blocks++] = (struct snapshot_block){.at = at, .bytes = bytes, .pinned = pinned};
    return OK;
}

static int64_t aligned(int64_t bytes) { return (bytes + ALIGNED_BYTES - 1) / ALIGNED_BYTES * ALIGNED_BYTES; }

/* A later block of a discrete device is not page-locked, because that allocation would wait for receives that are posted for the next step. */
static enum status take(struct snapshot *s, int64_t bytes, struct snapshot_block **out, struct error *err)
{
    size_t i = 0;
    while (i < s->n_blocks && s->blocks[i].bytes - s->blocks[i].used < bytes) i++;
    if (i == s->n_blocks) {
        int64_t size = snapshot_bytes(s) / GROWTH;
        if (size < FIRST_BLOCK_BYTES) size = FIRST_BLOCK_BYTES;
        TRY(another_block(s, size < bytes ? bytes : size, !s->r->discrete, err));
    }
    *out = &s->blocks[i];
    return OK;
}

enum status snapshot_reserve(struct snapshot *s, int64_t bytes, struct error *err)
{
    struct backend *b = &s->r->backend;
    s->measures = false;
    if (!s->r->discrete || !bytes) return OK;
    TRY(another_block(s, bytes, true, err));
    TRY(b->stream_make(b, &s->stream, err));
    TRY(b->event_make(b, false, &s->event, err));
    TRY(b->event_make(b, false, &s->copied, err));
    s->has_stream = true;
    return OK;
}

void snapshot_measure(struct snapshot *s)
{
    snapshot_begin(s);
    s->measures = true, s->measured = 0;
}

int64_t snapshot_measured(const struct snapshot *s) { return s->measured; }

enum status snapshot_copy(struct snapshot *s, const void *device, int64_t bytes, void **out, struct error *err)
{
    struct backend *b = &s->r->backend;
    struct snapshot_block *to;
    int64_t whole = aligned(bytes);
    if (s->measures) {
        s->measured += whole;
        *out = (void *)(uintptr_t)device;
        return OK;
    }
    TRY(take(s, whole, &to, err));
    *out = to->at + to->used;
    to->used += whole;
    if (!s->r->discrete || !to->pinned) return b->download(b, *out, device, bytes, err);
    TRY(b->event_record(b, s->event, STREAM_COMPUTE, err));
    TRY(b->event_wait(b, s->stream, s->event, err));
    return b->copy(b, s->stream, *out, device, bytes, err);
}

void snapshot_require_finite(struct snapshot *s, const void *values, enum dtype t, int64_t n)
{
    s->values = arena_grow(s->r->run, s->values, s->n_values, &s->values_capacity, sizeof *s->values);
    s->values[s->n_values++] = (struct snapshot_values){values, t, n};
}

enum status snapshot_settle(struct snapshot *s, struct error *err)
{
    struct backend *b = &s->r->backend;
    if (!s->has_stream) return OK;
    TRY(b->event_record(b, s->copied, s->stream, err));
    return b->event_wait_here(b, s->copied, err);
}

bool snapshot_finite(const struct snapshot *s)
{
    for (size_t i = 0; i < s->n_values; i++)
        if (!saved_tensor_finite(s->values[i].at, s->values[i].dtype, s->values[i].n)) return false;
    return true;
}

int64_t snapshot_bytes(const struct snapshot *s)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < s->n_blocks; i++) bytes += s->blocks[i].bytes;
    return bytes;
}

void snapshot_close(struct snapshot *s)
{
    for (size_t i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].pinned) s->r->backend.release_pinned(&s->r->backend, s->blocks[i].at);
    s->n_blocks = 0;
}
