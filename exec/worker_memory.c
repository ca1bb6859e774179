#include "exec/worker_memory.h"

#include "core/arena.h"
#include "core/part.h"
#include "core/rng.h"
#include "exec/worker_collective.h"

#include <inttypes.h>
#include <string.h>

/* Nothing is asked for where nothing is planned. */
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
    for (int32_t g = 0; g < p->n_groups; g++)
        for (int32_t i = 0; i < p->groups[g].n_members; i++) {
            if (p->groups[g].members[i].stage != stage) continue;
            int64_t need = group_staging_bytes(&p->groups[g], &p->groups[g].members[i], s);
            if (need > s->buffer_bytes)
                return error_set(err, ERR_INPUT,
                                 "group %s: staging needs %" PRId64
                                 " bytes, the program plans %" PRId64,
                                 p->groups[g].name, need, s->buffer_bytes);
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
    m->ring = ARENA_ARRAY(a, char *, (size_t)s->n_rings + 1);
    int64_t at = 0;
    for (int32_t r = 0; r < s->n_rings; r++) {
        m->ring[r] = m->region[SLOT_RING] + at;
        at += s->rings[r].count * s->rings[r].stride_bytes;
    }
    if (at > s->class_bytes[SLOT_RING])
        return error_set(err, ERR_INPUT,
                         "stage %" PRId32 ": rings need %" PRId64
                         " bytes, the program plans %" PRId64,
                         s->stage, at, s->class_bytes[SLOT_RING]);
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
    if (x->class != SLOT_RING) return (struct place){m->region[x->class] + x->offset_bytes, 0, 1};
    const struct ring *r = &m->stage->rings[x->ring];
    return (struct place){m->ring[x->ring] + x->offset_bytes, r->stride_bytes, r->count};
}

void *lane_memory_slot(const struct lane_memory *m, int32_t slot, int64_t seq)
{
    struct place p = lane_memory_place(m, slot);
    return place_at(&p, seq);
}

/* ---- first values -----------------------------------------------------------------------------
 */

enum { INIT_BLOCK = 4096 }; /* elements made and uploaded at once */

static double first_value(const struct program_parameter *p, uint64_t seed, uint64_t stream,
                          int64_t element)
{
    if (p->init == INIT_ZEROS) return 0;
    if (p->init == INIT_ONES) return 1;
    return p->init_std * rng_normal(seed, stream, (uint64_t)element);
}

/* Elements [first, first + n) of the parameter, to where they stand. */
static enum status init_elements(struct lane_memory *m, const struct program_parameter *p,
                                 enum dtype t, uint64_t seed, int64_t first, int64_t n, char *to,
                                 struct error *err)
{
    int64_t size = dtype_bytes(t);
    uint64_t stream = hash_text(0, p->name);
    if (t != DTYPE_fp32 && t != DTYPE_fp64)
        return error_set(err, ERR_INPUT, "parameter %s is %s; the executor trains in fp32 and fp64",
                         p->name, dtype_name(t));
    for (int64_t at = 0; at < n; at += INIT_BLOCK) {
        double block[INIT_BLOCK];
        float narrow[INIT_BLOCK];
        int64_t k = n - at < INIT_BLOCK ? n - at : INIT_BLOCK;
        for (int64_t i = 0; i < k; i++) block[i] = first_value(p, seed, stream, first + at + i);
        for (int64_t i = 0; i < k; i++) narrow[i] = (float)block[i];
        const void *from = t == DTYPE_fp64 ? (const void *)block : narrow;
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

/* Values go by the element of the whole tensor. */
static enum status init_part(struct lane_memory *m, const struct program_parameter *p,
                             const struct slot *slot, uint64_t seed, char *to, struct error *err)
{
    struct arena *a = arena_new();
    struct region r = part_region(a, &slot->shape, slot->part);
    struct initing x = {m, p, slot->dtype, seed, to, OK, err};
    region_walk(&r, init_run, &x);
    arena_free(a);
    return x.status;
}

/* Of a parameter that this stage keeps a part of, that part; another stage's where the shard has none of it. */
static enum status init_parameter(struct lane_memory *m, const struct program_parameter *p,
                                  uint64_t seed, struct error *err)
{
    int32_t slot = p->slot >= 0 ? p->slot : p->shard->slot;
    const struct slot *x = &m->stage->slots[slot];
    int64_t n = shape_elements(&p->shape), first = 0, to = 0;
    if (p->slot < 0) {
        int64_t room = shape_elements(&x->shape);
        first = p->shard->first < 0 ? -p->shard->first : 0;
        to = p->shard->first > 0 ? p->shard->first : 0;
        n = n - first < room - to ? n - first : room - to;
        if (n <= 0) return OK;
    }
    if (x->part) return init_part(m, p, x, seed, lane_memory_slot(m, slot, 0), err);
    return init_elements(m, p, x->dtype, seed, first, n,
                         (char *)lane_memory_slot(m, slot, 0) + to * dtype_bytes(x->dtype), err);
}

enum status lane_memory_init(struct lane_memory *m, uint64_t seed, struct error *err)
{
    for (int32_t i = 0; i < m->stage->n_parameters; i++)
        TRY(init_parameter(m, &m->stage->parameters[i], seed, err));
    return OK;
}
