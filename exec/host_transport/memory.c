#include "exec/host_transport/memory.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/collective/tensor_shard.h"
#include "core/graph/half.h"
#include "exec/host_transport/collective.h"

#include <inttypes.h>
#include <string.h>

/* Allocates nothing for 0 bytes. */
static enum status get(struct lane_memory *m, int64_t bytes, char **out, struct error *err)
{
    void *p = NULL;
    *out = NULL;
    if (!bytes) return OK;
    TRY(m->backend->allocate(m->backend, bytes, &p, err));
    *out = p;
    m->bytes += bytes;
    return OK;
}

static enum status check_staging(const struct program *p, int32_t stage, struct error *err)
{
    const struct program_stage *s = &p->stages[stage];
    for (int32_t g = 0; g < p->n_collectives; g++)
        for (int32_t i = 0; i < p->collectives[g].n_members; i++) {
            if (p->collectives[g].members[i].stage != stage) continue;
            int64_t need = program_collective_staging_bytes(&p->collectives[g],
                                                            &p->collectives[g].members[i], s);
            if (need > s->buffer_bytes)
                return error_set(err, ERR_INPUT,
                                 "collective %s: staging needs %" PRId64
                                 " bytes, the program plans %" PRId64,
                                 p->collectives[g].name, need, s->buffer_bytes);
        }
    return OK;
}

enum status lane_memory_open(struct lane_memory *m, struct arena *a, const struct program *p,
                             int32_t stage, struct backend *b, bool staging, struct error *err)
{
    const struct program_stage *s = &p->stages[stage];
    *m = (struct lane_memory){.backend = b, .stage = s};
    for (int c = 0; c < SLOT_CLASS_COUNT; c++)
        if (get(m, s->class_bytes[c], &m->region[c], err) != OK)
            return error_wrap(err, ERR_RESOURCE, "stage %" PRId32 " of replica %" PRId32, s->stage,
                              s->replica);
    m->buffer_ring = ARENA_ARRAY(a, char *, (size_t)s->n_buffer_rings + 1);
    int64_t at = 0;
    for (int32_t r = 0; r < s->n_buffer_rings; r++) {
        m->buffer_ring[r] = m->region[SLOT_BUFFER_RING] + at;
        at += s->buffer_rings[r].count * s->buffer_rings[r].stride_bytes;
    }
    if (at > s->class_bytes[SLOT_BUFFER_RING])
        return error_set(err, ERR_INPUT,
                         "stage %" PRId32 ": rings need %" PRId64
                         " bytes, the program plans %" PRId64,
                         s->stage, at, s->class_bytes[SLOT_BUFFER_RING]);
    TRY(check_staging(p, stage, err));
    return get(m, staging ? s->buffer_bytes : 0, &m->staging, err);
}

void lane_memory_close(struct lane_memory *m)
{
    if (!m->backend) return;
    for (int c = 0; c < SLOT_CLASS_COUNT; c++)
        if (m->region[c]) m->backend->release(m->backend, m->region[c]);
    if (m->staging) m->backend->release(m->backend, m->staging);
    *m = (struct lane_memory){0};
}

struct place lane_memory_place(const struct lane_memory *m, int32_t slot)
{
    const struct slot *x = &m->stage->slots[slot];
    int64_t offset = program_slot_offset(m->stage, x);
    if (x->class != SLOT_BUFFER_RING) return (struct place){m->region[x->class] + offset, 0, 1};
    const struct buffer_ring *r = &m->stage->buffer_rings[x->buffer_ring];
    return (struct place){m->buffer_ring[x->buffer_ring] + offset, r->stride_bytes,
                          r->count};
}

void *lane_memory_slot(const struct lane_memory *m, int32_t slot, int64_t seq)
{
    struct place p = lane_memory_place(m, slot);
    return place_at(&p, seq);
}

/* ---- initialisation --------------------------------------------------------------------------- */

enum { INIT_BLOCK = 4096 }; /* elements generated and uploaded at once */

static double first_value(const struct program_parameter *p, uint64_t seed, uint64_t stream,
                          int64_t element)
{
    if (p->init == INIT_ZEROS) return 0;
    if (p->init == INIT_ONES) return 1;
    return p->init_std * rng_normal(seed, stream, (uint64_t)element);
}

/* Writes elements [first, first + n) of the parameter. */
static enum status init_elements(struct lane_memory *m, const struct program_parameter *p,
                                 enum dtype t, uint64_t seed, int64_t first, int64_t n, char *to,
                                 struct error *err)
{
    int64_t size = dtype_bytes(t);
    uint64_t stream = rng_hash_text(0, p->name);
    for (int64_t at = 0; at < n; at += INIT_BLOCK) {
        double block[INIT_BLOCK];
        float single[INIT_BLOCK];
        uint16_t half[INIT_BLOCK];
        int64_t k = n - at < INIT_BLOCK ? n - at : INIT_BLOCK;
        for (int64_t i = 0; i < k; i++) block[i] = first_value(p, seed, stream, first + at + i);
        for (int64_t i = 0; i < k; i++) single[i] = (float)block[i];
        if (dtype_is_half(t)) half_narrow(t, single, half, k);
        const void *from = t == DTYPE_fp64    ? (const void *)block
                           : dtype_is_half(t) ? (const void *)half
                                              : single;
        TRY(m->backend->upload(m->backend, to + at * size, from, k * size, err));
    }
    return OK;
}

struct initing {
    struct lane_memory *m;
    const struct program_parameter *p;
    enum dtype dtype;
    uint64_t seed;
    char *to;
    enum status status;
    struct error *err;
};

static void init_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct initing *x = owner;
    if (x->status == OK)
        x->status = init_elements(x->m, x->p, x->dtype, x->seed, first, n,
                                  x->to + packed * dtype_bytes(x->dtype), x->err);
}

/* Values depend on the element's index in the unsharded tensor. */
static enum status init_tensor_shard(struct lane_memory *m, const struct program_parameter *p,
                                     const struct slot *slot, uint64_t seed, char *to,
                                     struct error *err)
{
    struct arena *a = arena_new();
    struct region r = tensor_shard_region(a, &slot->shape, slot->shard);
    struct initing x = {m, p, slot->dtype, seed, to, OK, err};
    region_walk(&r, init_run, &x);
    arena_free(a);
    return x.status;
}

struct valuing {
    const struct program_parameter *p;
    uint64_t seed, stream;
    float *to;
};

static void value_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct valuing *x = owner;
    for (int64_t i = 0; i < n; i++)
        x->to[packed + i] = (float)first_value(x->p, x->seed, x->stream, first + i);
}

/* A master's elements of a parameter that is itself a shard, which ZeRO divides further. */
static enum status init_shard_of_tensor_shard(struct lane_memory *m,
                                              const struct program_parameter *p,
                                              const struct tensor_shard *shard, uint64_t seed,
                                              int64_t first, int64_t n, char *to, struct error *err)
{
    struct arena *a = arena_new();
    struct region r = tensor_shard_region(a, &p->shape, shard);
    struct valuing x = {p, seed, rng_hash_text(0, p->name),
                        ARENA_ARRAY(a, float, (size_t)shape_elements(&p->shape))};
    region_walk(&r, value_run, &x);
    enum status st =
        m->backend->upload(m->backend, to, x.to + first, n * (int64_t)sizeof *x.to, err);
    arena_free(a);
    return st;
}

/* The part of the parameter in the shard, possibly none. */
static enum status init_shard(struct lane_memory *m, const struct program_parameter *p,
                              int32_t slot, uint64_t seed, struct error *err)
{
    const struct slot *x = &m->stage->slots[slot];
    const struct tensor_shard *shard = p->slot >= 0 ? m->stage->slots[p->slot].shard : NULL;
    int64_t room = shape_elements(&x->shape), n = shape_elements(&p->shape);
    int64_t begin = program_shard_first(m->stage, p->shard), first = begin < 0 ? -begin : 0,
            at = begin > 0 ? begin : 0;
    char *to = (char *)lane_memory_slot(m, slot, 0) + at * dtype_bytes(x->dtype);
    n = n - first < room - at ? n - first : room - at;
    if (n <= 0) return OK;
    if (shard) return init_shard_of_tensor_shard(m, p, shard, seed, first, n, to, err);
    return init_elements(m, p, x->dtype, seed, first, n, to, err);
}

static enum status init_whole(struct lane_memory *m, const struct program_parameter *p,
                              int32_t slot, uint64_t seed, struct error *err)
{
    const struct slot *x = &m->stage->slots[slot];
    char *to = lane_memory_slot(m, slot, 0);
    if (x->shard) return init_tensor_shard(m, p, x, seed, to, err);
    return init_elements(m, p, x->dtype, seed, 0, shape_elements(&p->shape), to, err);
}

/* And its master: the values before rounding. */
static enum status init_parameter(struct lane_memory *m, const struct program_parameter *p,
                                  uint64_t seed, struct error *err)
{
    if (p->slot >= 0) TRY(init_whole(m, p, p->slot, seed, err));
    if (p->master >= 0) TRY(init_whole(m, p, p->master, seed, err));
    if (!p->shard) return OK;
    if (p->slot < 0) TRY(init_shard(m, p, p->shard->slot, seed, err));
    return p->shard->master >= 0 ? init_shard(m, p, p->shard->master, seed, err) : OK;
}

enum status lane_memory_init(struct lane_memory *m, uint64_t seed, struct error *err)
{
    for (int32_t i = 0; i < m->stage->n_parameters; i++)
        TRY(init_parameter(m, &m->stage->parameters[i], seed, err));
    return OK;
}
