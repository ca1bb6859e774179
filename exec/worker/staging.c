#include "exec/worker/staging.h"

#include "core/base/arena.h"
#include "exec/host_transport/bounce.h"
#include "exec/worker/chunks.h"

#include <string.h>

enum { ALIGN = 64 };
static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static int64_t slots_bytes(const struct program_stage *s, const int32_t *slots, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += align(s->slots[slots[i]].bytes);
    return bytes;
}

static int64_t own_first(const struct program_stage *s, const struct collective_member *m)
{
    return slots_bytes(s, m->segments, m->n_segments);
}

static int64_t buffer_ring_first(const struct program_stage *s, const struct collective_member *m)
{
    return own_first(s, m) + (m->own ? slots_bytes(s, m->own, m->n_segments) : 0);
}

static int64_t buffer_ring_bytes(const struct program_stage *s, const struct collective_member *m)
{
    return m->chain_ring < 0 ? 0 : s->buffer_rings[m->chain_ring].count * s->buffer_rings[m->chain_ring].stride_bytes;
}

int64_t staging_bytes(const struct program *p, int32_t group, int32_t member)
{
    const struct collective *g = &p->collectives[group];
    const struct collective_member *m = &g->members[member];
    const struct program_stage *s = &p->stages[m->stage];
    if (collective_of_tensor(g))
        return align(s->slots[g->in[member]].bytes) + align(s->slots[g->out[member]].bytes);
    return buffer_ring_first(s, m) + align(buffer_ring_bytes(s, m));
}

struct staging staging_at(char *base, const struct program *p, int32_t group, int32_t member)
{
    const struct collective_member *m = &p->collectives[group].members[member];
    const struct program_stage *s = &p->stages[m->stage];
    struct staging x = {.segments = base};
    if (collective_of_tensor(&p->collectives[group])) return x;
    x.own = base + own_first(s, m);
    x.buffer_ring = base + buffer_ring_first(s, m);
    return x;
}

/* ---- moves ------------------------------------------------------------------------------------
 */

struct moving {
    struct arena *a;
    struct bounce_group *to;
    size_t capacity;
    char *device, *pinned;
    int64_t size; /* of an element */
    bool fetch, give;
};

static void add_move(struct moving *v, int64_t offset, int64_t bytes)
{
    struct bounce_group *g = v->to;
    struct bounce_move x = {v->device + offset, v->pinned + offset, bytes, v->fetch, v->give};
    struct bounce_move *last = g->n_moves ? &g->moves[g->n_moves - 1] : NULL;
    if (!bytes || (!v->fetch && !v->give)) return;
    if (last && last->fetch == x.fetch && last->give == x.give &&
        x.device - last->device == x.pinned - last->pinned &&
        x.device >= last->device + last->bytes && x.device - last->device - last->bytes < ALIGN &&
        offset == 0) {
        last->bytes = x.device + bytes - last->device;
        return;
    }
    g->moves = arena_grow(v->a, g->moves, (size_t)g->n_moves, &v->capacity, sizeof *g->moves);
    g->moves[g->n_moves++] = x;
}

static void move_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct moving *v = owner;
    (void)packed;
    add_move(v, first * v->size, n * v->size);
}

/* One segment of an unsharded reduction. */
static void move_segment(struct moving *v, const struct collective_member *m,
                         const struct slot *slot, int32_t segment)
{
    if (m->within && m->within[segment].n_dims)
        region_walk(&m->within[segment], move_run, v);
    else
        add_move(v, 0, slot->bytes);
}

/* Of a reduce-scatter (all of it is read, one chunk is kept) or an all-gather (the reverse). */
static void move_divided(struct moving *v, const struct collective *g,
                         const struct collective_member *m, const struct slot *slot, int32_t member)
{
    bool scatter = program_collective_scatters(g);
    int64_t chunk = shape_elements(&slot->shape) / g->n_members * v->size,
            at = program_collective_own_chunk(member, g->n_members) * chunk;
    v->fetch = scatter, v->give = !scatter;
    add_move(v, 0, slot->bytes);
    v->fetch = !scatter, v->give = scatter;
    if (!m->own) add_move(v, at, chunk);
}

void staging_group(char *base, struct arena *a, const struct program *p, const struct chunk *k,
                   int32_t group, int32_t member, struct bounce_group *out)
{
    const struct collective *g = &p->collectives[group];
    const struct collective_member *m = &g->members[member];
    const struct program_stage *s = k->stage;
    struct staging staging = staging_at(base, p, group, member);
    struct moving v = {.a = a, .to = out};
    if (g->n_members < 2 && g->algorithm != ALGORITHM_CHAIN) return;
    for (int32_t i = 0; i < m->n_segments; i++) {
        const struct slot *slot = &s->slots[m->segments[i]];
        v.device = lane_memory_slot(&k->memory, m->segments[i], 0);
        v.pinned = staging.segments + slots_bytes(s, m->segments, i);
        v.size = dtype_bytes(slot->dtype);
        v.fetch = !m->silent && m->chain_ring < 0, v.give = true;
        if (program_collective_divides(g))
            move_divided(&v, g, m, slot, member);
        else
            move_segment(&v, m, slot, i);
    }
    for (int32_t i = 0; m->own && i < m->n_segments; i++) {
        v.device = lane_memory_slot(&k->memory, m->own[i], 0);
        v.pinned = staging.own + slots_bytes(s, m->own, i);
        v.fetch = true, v.give = g->kind == COLLECTIVE_REDUCE_SCATTER;
        add_move(&v, 0, s->slots[m->own[i]].bytes);
    }
    if (m->chain_ring < 0) return;
    v.device = k->memory.buffer_ring[m->chain_ring], v.pinned = staging.buffer_ring;
    v.fetch = true, v.give = false;
    add_move(&v, 0, buffer_ring_bytes(s, m));
}

void staging_tensor(char *base, const struct program *p, const struct chunk *k, int32_t group,
                     int32_t member, struct bounce_group *out)
{
    const struct collective *m = &p->collectives[group];
    const struct slot *in = &k->stage->slots[m->in[member]];
    out->in = lane_memory_place(&k->memory, m->in[member]);
    out->out = lane_memory_place(&k->memory, m->out[member]);
    out->in_bytes = in->bytes;
    out->out_bytes = k->stage->slots[m->out[member]].bytes;
    out->in_pinned = base;
    out->out_pinned = m->in[member] == m->out[member] ? base : base + align(in->bytes);
}
