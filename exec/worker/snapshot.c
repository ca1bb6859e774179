#include "exec/worker/snapshot.h"

#include "exec/worker/rank.h"
#include "exec/worker/saved_tensor.h"

/* A block has a quarter of the bytes before it, because a page-locked allocation of a device costs about a millisecond, and what is not used
 * of the last block is lost: at most a fifth of the memory beyond the first. */
#define FIRST_BLOCK_BYTES (INT64_C(1) << 20)
#define GROWTH 4
#define ALIGNED_BYTES 64

struct snapshot_block {
    char *at;
    int64_t bytes, used;
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

static enum status another_block(struct snapshot *s, int64_t bytes, struct error *err)
{
    int64_t size = snapshot_bytes(s) / GROWTH;
    void *at;
    if (size < FIRST_BLOCK_BYTES) size = FIRST_BLOCK_BYTES;
    if (size < bytes) size = bytes;
    TRY(s->r->backend.allocate_pinned(&s->r->backend, size, &at, err));
    s->blocks = arena_grow(s->r->run, s->blocks, s->n_blocks, &s->blocks_capacity, sizeof *s->blocks);
    s->blocks[s->n_blocks++] = (struct snapshot_block){.at = at, .bytes = size};
    return OK;
}

static enum status take(struct snapshot *s, int64_t bytes, void **out, struct error *err)
{
    int64_t whole = (bytes + ALIGNED_BYTES - 1) / ALIGNED_BYTES * ALIGNED_BYTES;
    size_t i = 0;
    while (i < s->n_blocks && s->blocks[i].bytes - s->blocks[i].used < whole) i++;
    if (i == s->n_blocks) TRY(another_block(s, whole, err));
    *out = s->blocks[i].at + s->blocks[i].used;
    s->blocks[i].used += whole;
    return OK;
}

static enum status open_stream(struct snapshot *s, struct error *err)
{
    struct backend *b = &s->r->backend;
    if (s->has_stream) return OK;
    TRY(b->stream_make(b, &s->stream, err));
    TRY(b->event_make(b, false, &s->event, err));
    s->has_stream = true;
    return OK;
}

enum status snapshot_copy(struct snapshot *s, const void *device, int64_t bytes, void **out, struct error *err)
{
    struct backend *b = &s->r->backend;
    TRY(take(s, bytes, out, err));
    if (!s->r->discrete) return b->download(b, *out, device, bytes, err);
    TRY(open_stream(s, err));
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
    TRY(b->event_record(b, s->event, s->stream, err));
    return b->event_wait_here(b, s->event, err);
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
    for (size_t i = 0; i < s->n_blocks; i++) s->r->backend.release_pinned(&s->r->backend, s->blocks[i].at);
    s->n_blocks = 0;
}
