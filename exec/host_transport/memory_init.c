/* Initial parameters. A value is a function of (seed, name, element of the full tensor), drawn once for all slots that hold it: a
 * half-precision parameter, its fp32 master, ZeRO's shards of either. Several threads draw the pieces of a batch and round them
 * to each slot's precision in host memory; the calling thread then uploads the batch, one call per slot.
 *
 * Cost: about 75 ns of CPU per value of INIT_NORMAL (Philox, logarithm, cosine), and one upload of it per slot. */
#include "exec/host_transport/memory.h"

#include "core/base/arena.h"
#include "core/base/parallel.h"
#include "core/base/rng.h"
#include "core/collective/tensor_shard.h"
#include "core/graph/half.h"

#include <string.h>

enum {
    PIECE = 4096,    /* values that a thread draws at once: 0.3 ms; 56 KiB of its stack */
    BATCH = 1 << 20, /* values between uploads: 80 ms of CPU beside 30 us per thread to create it */
    PIECES = PIECE,  /* of a batch; a shard of short rows has many */
    COPIES = 4       /* at most: slot, its master, local SGD's anchor; with ZeRO those of the shard */
};

struct piece { /* consecutive in the full tensor and in this device's shard of it */
    int64_t element, packed, n;
};

struct copy { /* values [first, end) of this device's shard, in one slot */
    enum dtype dtype;
    int64_t first, end;
    char *to;     /* device address of the first */
    char *staged; /* of a batch */
};

struct initing {
    struct lane_memory *m;
    const struct program_parameter *p;
    uint64_t seed, stream;
    int32_t threads, n_copies, n_pieces;
    struct copy copies[COPIES];
    int64_t first, end; /* of all copies */
    struct piece *pieces;
    int64_t values; /* of the pieces */
    enum status status;
    struct error *err;
};

static bool overlap(const struct copy *c, int64_t *first, int64_t *end)
{
    if (*first < c->first) *first = c->first;
    if (*end > c->end) *end = c->end;
    return *first < *end;
}

static void store(const double *value, enum dtype t, int64_t n, char *to)
{
    float single[PIECE];
    float *narrow = dtype_is_half(t) ? single : (float *)to;
    if (t == DTYPE_fp64) {
        memcpy(to, value, (size_t)n * sizeof *value);
        return;
    }
    for (int64_t i = 0; i < n; i++) narrow[i] = (float)value[i];
    if (dtype_is_half(t)) half_narrow(t, single, (uint16_t *)to, n);
}

static double value_of(const struct initing *x, int64_t element)
{
    if (x->p->init == INIT_ZEROS) return 0;
    if (x->p->init == INIT_ONES) return 1;
    return x->p->init_std * rng_normal(x->seed, x->stream, (uint64_t)element);
}

static void draw_piece(void *user, int64_t index, int32_t thread)
{
    const struct initing *x = user;
    const struct piece *piece = &x->pieces[index];
    double value[PIECE];
    (void)thread;
    for (int64_t i = 0; i < piece->n; i++) value[i] = value_of(x, piece->element + i);
    for (int32_t k = 0; k < x->n_copies; k++) {
        const struct copy *c = &x->copies[k];
        int64_t first = piece->packed, end = piece->packed + piece->n;
        if (overlap(c, &first, &end))
            store(value + (first - piece->packed), c->dtype, end - first,
                  c->staged + (first - x->pieces[0].packed) * dtype_bytes(c->dtype));
    }
}

static enum status upload(struct initing *x)
{
    struct backend *b = x->m->backend;
    for (int32_t k = 0; k < x->n_copies; k++) {
        const struct copy *c = &x->copies[k];
        int64_t size = dtype_bytes(c->dtype), begin = x->pieces[0].packed, first = begin,
                end = begin + x->values;
        if (overlap(c, &first, &end))
            TRY(b->upload(b, c->to + (first - c->first) * size, c->staged + (first - begin) * size,
                          (end - first) * size, x->err));
    }
    return OK;
}

static void end_batch(struct initing *x)
{
    if (!x->n_pieces || x->status != OK) return;
    parallel_each(x->n_pieces, x->threads, draw_piece, x);
    x->status = upload(x);
    x->n_pieces = 0, x->values = 0;
}

/* A run of the shard, without what no slot of this device holds. */
static void add_run(void *owner, int64_t element, int64_t packed, int64_t n)
{
    struct initing *x = owner;
    int64_t first = packed < x->first ? x->first : packed,
            end = packed + n < x->end ? packed + n : x->end;
    while (first < end && x->status == OK) {
        int64_t room = BATCH - x->values < PIECE ? BATCH - x->values : PIECE,
                k = end - first < room ? end - first : room;
        x->pieces[x->n_pieces++] = (struct piece){element + (first - packed), first, k};
        first += k, x->values += k;
        if (x->values == BATCH || x->n_pieces == PIECES) end_batch(x);
    }
}

static void add_copy(struct initing *x, int32_t slot, int64_t at, int64_t first, int64_t end)
{
    const struct slot *s = &x->m->stage->slots[slot];
    if (first >= end) return;
    x->copies[x->n_copies++] =
        (struct copy){.dtype = s->dtype,
                      .first = first,
                      .end = end,
                      .to = (char *)lane_memory_slot(x->m, slot, 0) + at * dtype_bytes(s->dtype)};
    if (x->n_copies == 1 || first < x->first) x->first = first;
    if (end > x->end) x->end = end;
}

static void add_whole(struct initing *x, int32_t slot)
{
    if (slot >= 0) add_copy(x, slot, 0, 0, shape_elements(&x->p->shape));
}

/* The part of the parameter in ZeRO's shard, possibly none. */
static void add_shard(struct initing *x, int32_t slot)
{
    if (slot < 0) return;
    int64_t begin = program_shard_first(x->m->stage, x->p->shard), first = begin < 0 ? -begin : 0,
            at = begin > 0 ? begin : 0, n = shape_elements(&x->p->shape) - first,
            room = shape_elements(&x->m->stage->slots[slot].shape) - at;
    add_copy(x, slot, at, first, first + (n < room ? n : room));
}

static void add_copies(struct initing *x)
{
    const struct program_parameter *p = x->p;
    add_whole(x, p->slot);
    add_whole(x, p->master);
    add_whole(x, p->outer[0] - 1);
    add_whole(x, p->previous - 1);
    if (!p->shard) return;
    if (p->slot < 0) add_shard(x, p->shard->slot);
    add_shard(x, p->shard->master);
    add_shard(x, p->shard->outer[0] - 1);
}

static void draw(struct initing *x, struct arena *a)
{
    const struct program_parameter *p = x->p;
    const struct tensor_shard *shard = p->slot >= 0 ? x->m->stage->slots[p->slot].shard : NULL;
    int64_t most = x->end - x->first < BATCH ? x->end - x->first : BATCH;
    x->pieces = ARENA_ARRAY(a, struct piece, PIECES);
    for (int32_t k = 0; k < x->n_copies; k++)
        x->copies[k].staged =
            ARENA_ARRAY(a, char, (size_t)(most * dtype_bytes(x->copies[k].dtype)));
    if (shard) {
        struct region r = tensor_shard_region(a, &p->shape, shard);
        region_walk(&r, add_run, x);
    } else {
        add_run(x, 0, 0, shape_elements(&p->shape));
    }
    end_batch(x);
}

enum status lane_memory_init(struct lane_memory *m, uint64_t seed, int32_t threads,
                             struct error *err)
{
    struct arena *a = arena_new();
    enum status st = OK;
    for (int32_t i = 0; i < m->stage->n_parameters && st == OK; i++) {
        const struct program_parameter *p = &m->stage->parameters[i];
        struct initing x = {.m = m,
                            .p = p,
                            .seed = seed,
                            .stream = rng_hash_text(0, p->name),
                            .threads = threads,
                            .err = err};
        add_copies(&x);
        arena_reset(a);
        if (x.n_copies) draw(&x, a);
        st = x.status;
    }
    arena_free(a);
    return st;
}
