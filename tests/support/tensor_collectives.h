/* tests/support/collectives.h - random programs of collectives made by hand, one a seed: for the suites and for ranks that run them.
 *
 * Every device is one stage. A collective's operands are parameters with first values of their own; what comes out is
 * multiplied by other parameters and summed up to one number, the stage's loss, so that a single element in a wrong place shows.
 * A gradient all-reduce is in flight while the lanes meet.
 */
#ifndef TESTS_SUPPORT_TENSOR_COLLECTIVES_H
#define TESTS_SUPPORT_TENSOR_COLLECTIVES_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/engine/sim.h"
#include "tests/support/rounds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MET_DEVICES = 8, MET_MAX = 16, MET_SLOTS = 128, MET_INSTRS = 128 };

struct met {
    struct arena *a;
    struct program p;
    struct profile profile;
    struct cluster cluster;
    struct cost *cost;
    double expected; /* loss of every step */
    uint64_t seed, draws;
    size_t row_capacity;
    struct instr list[MET_DEVICES][2][MET_INSTRS]; /* F, B */
    int32_t n_list[MET_DEVICES][2], acc[MET_DEVICES];
};

static inline int64_t met_draw(struct met *m, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(7, m->seed, m->draws++, (uint64_t)(high - low + 1));
}

static inline int32_t met_link(const struct met *m, int32_t i, int32_t k, int32_t *direction)
{
    int32_t low = i < k ? i : k, high = i < k ? k : i;
    *direction = i > k;
    return m->p.n_links == 1 ? 0 : high * (high - 1) / 2 + low;
}

static inline int32_t met_slot(struct met *m, int32_t s, const char *name, enum slot_class class,
                               struct shape shape, struct buffer_ring buffer_ring)
{
    struct program_stage *x = &m->p.stages[s];
    int64_t bytes = shape_elements(&shape) * dtype_bytes(m->p.dtype), room = (bytes + 63) / 64 * 64;
    struct slot slot = {name, class, m->p.dtype, shape, -1, 0, 0, bytes, -1, -1, NULL};
    if (class == SLOT_BUFFER_RING) {
        slot.buffer_ring = x->n_buffer_rings;
        buffer_ring.stride_bytes = room;
        x->buffer_rings[x->n_buffer_rings++] = buffer_ring;
        x->class_bytes[class] += room * buffer_ring.count;
    } else {
        slot.offset_bytes = x->class_bytes[class];
        x->class_bytes[class] += room;
    }
    x->slots[x->n_slots] = slot;
    return x->n_slots++;
}

static inline int32_t met_parameter(struct met *m, int32_t s, const char *name, struct shape shape)
{
    struct program_stage *x = &m->p.stages[s];
    int32_t slot = met_slot(m, s, name, SLOT_PARAMETER, shape, (struct buffer_ring){0});
    x->slots[slot].parameter = x->n_parameters;
    x->parameters[x->n_parameters++] = (struct program_parameter){
        name, shape, INIT_NORMAL, 1, false, slot, {-1, -1}, {-1, -1}, -1, {0}, 0, 0, {0}, NULL};
    return slot;
}

static inline double met_value(const struct met *m, const char *name, int64_t element)
{
    double v = rng_normal(m->p.seed, rng_hash_text(0, name), (uint64_t)element);
    return m->p.dtype == DTYPE_fp32 ? (double)(float)v : v;
}

static inline void met_op(struct met *m, int32_t s, enum op_kind kind, int32_t in0, int32_t in1,
                          int32_t out)
{
    struct program_stage *x = &m->p.stages[s];
    struct program_op *op = &x->ops[x->n_ops];
    *op = (struct program_op){.kind = kind,
                              .phase = PHASE_F,
                              .dtype = m->p.dtype,
                              .name = "check",
                              .n_inputs = in1 < 0 ? 1 : 2,
                              .n_outputs = 1,
                              .input = {in0, in1},
                              .output = {out}};
    op->shapes.n_inputs = op->n_inputs, op->shapes.n_outputs = 1;
    for (int i = 0; i < op->n_inputs; i++) op->shapes.input[i] = x->slots[op->input[i]].shape;
    op->shapes.output[0] = x->slots[out].shape;
    op->key = op_key(kind, &op->attrs, &op->shapes, op->dtype);
    struct profile *f = &m->profile;
    f->ops = arena_grow(m->a, f->ops, f->n_ops, &m->row_capacity, sizeof *f->ops);
    f->ops[f->n_ops++] = (struct op_row){.base = "type:t",
                                         .key = op->key,
                                         .kind = kind,
                                         .text = "check",
                                         .samples = 1,
                                         .seconds = 1e-6,
                                         .provenance = "profile"};
    m->list[s][1][m->n_list[s][1]++] = (struct instr){INSTR_COMPUTE, x->n_ops++};
}

/* The dimension shared out among n members, in runs. */
static inline struct collective_cut met_cut(struct met *m, int32_t n, int32_t dimension, int64_t dim,
                                         int32_t runs)
{
    struct collective_cut c = {dimension, runs, NULL, NULL};
    size_t all = (size_t)n * (size_t)runs;
    c.first = ARENA_ARRAY(m->a, int64_t, all), c.count = ARENA_ARRAY(m->a, int64_t, all);
    int64_t at = 0;
    for (int32_t r = 0; r < runs; r++) {
        int64_t end = r + 1 == runs ? dim : at + met_draw(m, 0, dim - at);
        for (int32_t i = 0; i < n; i++) {
            int64_t take = i + 1 == n ? end - at : met_draw(m, 0, end - at);
            if (i + 1 < n && met_draw(m, 0, 2))
                take = take < (end - at) / 2 ? take : (end - at) / 2;
            c.first[i * runs + r] = at, c.count[i * runs + r] = take;
            at += take;
        }
    }
    return c;
}

/* Whose index g of the dimension is, and which of its own. */
static inline int32_t met_owner(const struct collective_cut *c, int32_t n, int64_t g, int64_t *own)
{
    for (int32_t i = 0; i < n; i++) {
        *own = 0;
        for (int32_t r = 0; r < c->n_runs; r++) {
            int64_t first = c->first[i * c->n_runs + r], count = c->count[i * c->n_runs + r];
            if (g >= first && g < first + count) {
                *own += g - first;
                return i;
            }
            *own += count;
        }
    }
    return -1;
}

static inline int64_t met_flat(const struct shape *s, const int64_t *at)
{
    int64_t e = 0;
    for (int32_t d = 0; d < s->rank; d++) e = e * s->dim[d] + at[d];
    return e;
}

static inline const char *met_name(struct met *m, char what, int32_t collective, int32_t member)
{
    return arena_printf(m->a, "%c.%d.%d", what, (int)collective, (int)member);
}

/* Element `at` of the whole, as the members' operands say. */
static inline double met_whole(struct met *m, const struct collective *x, int32_t k,
                               const int64_t *at)
{
    if (!collective_has_from(x->kind)) {
        double sum = 0;
        for (int32_t i = 0; i < x->n_members; i++)
            sum += met_value(m, met_name(m, 'x', k, i), met_flat(&x->whole, at));
        return sum;
    }
    int64_t own[SHAPE_RANK_MAX];
    memcpy(own, at, sizeof own);
    int32_t i = met_owner(&x->from, x->n_members, at[x->from.dimension], &own[x->from.dimension]);
    struct shape s = collective_in(x, i);
    return met_value(m, met_name(m, 'x', k, i), met_flat(&s, own));
}

/* What the members' checks add up to, element by element of the whole. */
static inline double met_check(struct met *m, const struct collective *x, int32_t k)
{
    double total = 0;
    int64_t at[SHAPE_RANK_MAX] = {0}, n = shape_elements(&x->whole);
    for (int64_t e = 0; e < n; e++) {
        double v = met_whole(m, x, k, at);
        int64_t own[SHAPE_RANK_MAX];
        for (int32_t i = 0; i < x->n_members; i++) {
            struct shape s = collective_out(x, i);
            memcpy(own, at, sizeof own);
            if (collective_has_to(x->kind) &&
                met_owner(&x->to, x->n_members, at[x->to.dimension], &own[x->to.dimension]) != i)
                continue;
            total += v * met_value(m, met_name(m, 'w', k, i), met_flat(&s, own));
        }
        for (int32_t d = x->whole.rank - 1; d >= 0 && ++at[d] == x->whole.dim[d]; d--) at[d] = 0;
    }
    return total;
}

/* Multiplied, summed up, added to what the stage has so far. */
static inline void met_project(struct met *m, int32_t s, int32_t out, int32_t k, int32_t member)
{
    struct shape shape = m->p.stages[s].slots[out].shape, one = {1, {1}};
    if (!shape_elements(&shape)) return;
    int32_t w = met_parameter(m, s, met_name(m, 'w', k, member), shape);
    int32_t t = met_slot(m, s, "t", SLOT_SCRATCH, shape, (struct buffer_ring){0});
    int32_t c = met_slot(m, s, "c", SLOT_SCRATCH, one, (struct buffer_ring){0});
    met_op(m, s, OP_multiply, out, w, t);
    met_op(m, s, OP_bias_grad, t, -1, c);
    if (m->acc[s] >= 0) {
        int32_t sum = met_slot(m, s, "sum", SLOT_SCRATCH, one, (struct buffer_ring){0});
        met_op(m, s, OP_add, m->acc[s], c, sum);
        c = sum;
    }
    m->acc[s] = c;
}

static inline void met_links(struct met *m, struct collective *x)
{
    size_t n = (size_t)x->n_members;
    x->link = ARENA_ARRAY(m->a, int32_t, n), x->direction = ARENA_ARRAY(m->a, int32_t, n);
    x->pair_link = x->algorithm != ALGORITHM_RING ? ARENA_ARRAY(m->a, int32_t, n * n) : NULL;
    x->pair_direction = x->algorithm != ALGORITHM_RING ? ARENA_ARRAY(m->a, int32_t, n * n) : NULL;
    for (int32_t i = 0; i < x->n_members; i++) {
        int32_t next = x->members[(i + 1) % x->n_members].stage;
        x->link[i] = -1;
        if (x->n_members > 1) x->link[i] = met_link(m, x->members[i].stage, next, &x->direction[i]);
        for (int32_t k = 0; x->pair_link && k < x->n_members; k++) {
            int32_t at = i * x->n_members + k;
            x->pair_link[at] = -1;
            if (collective_sends(x, i, k))
                x->pair_link[at] =
                    met_link(m, x->members[i].stage, x->members[k].stage, &x->pair_direction[at]);
        }
    }
}

static inline void met_members(struct met *m, struct collective *x)
{
    int32_t order[MET_DEVICES];
    for (int32_t i = 0; i < m->p.n_devices; i++) order[i] = i;
    for (int32_t i = m->p.n_devices - 1; i > 0; i--) {
        int32_t k = (int32_t)met_draw(m, 0, i), other = order[i];
        order[i] = order[k], order[k] = other;
    }
    x->n_members = met_draw(m, 0, 2) ? m->p.n_devices : (int32_t)met_draw(m, 1, m->p.n_devices);
    while (collective_misfit(x->algorithm, x->n_members, true)) x->n_members--;
    x->members = ARENA_ARRAY(m->a, struct collective_member, (size_t)x->n_members);
    for (int32_t i = 0; i < x->n_members; i++)
        x->members[i] = (struct collective_member){.stage = order[i], .chain_ring = -1};
}

/* Tiers of as many members each, anywhere among the members. */
static inline void met_tiers(struct met *m, struct collective *x)
{
    int32_t *node = ARENA_ARRAY(m->a, int32_t, (size_t)x->n_members),
            *tier = ARENA_ARRAY(m->a, int32_t, (size_t)x->n_members);
    int32_t each = (int32_t)met_draw(m, 1, x->n_members);
    while (x->n_members % each) each--;
    for (int32_t i = 0; i < x->n_members; i++) node[i] = i / each;
    for (int32_t i = x->n_members - 1; i > 0 && met_draw(m, 0, 2) == 0; i--) {
        int32_t k = (int32_t)met_draw(m, 0, i), other = node[i];
        node[i] = node[k], node[k] = other;
    }
    if (collective_tiers_of(node, x->n_members, tier) != each) BUG("tiers of %d", (int)each);
    x->tier = tier;
    collective_set_tiers(m->a, x);
}

static inline void met_collective(struct met *m, int32_t k)
{
    struct collective *x = &m->p.collectives[m->p.n_collectives];
    *x = (struct collective){.name = arena_printf(m->a, "collective %d", (int)k),
                             .kind = rounds_kinds[met_draw(m, 0, COLLECTIVE_CALL_KINDS - 1)],
                             .dtype = m->p.dtype,
                             .each_call = true};
    x->algorithm = rounds_algorithm(met_draw(m, 0, rounds_algorithms() - 1));
    while (!collective_in_calls(x->kind, x->algorithm))
        x->algorithm = rounds_algorithm(met_draw(m, 0, rounds_algorithms() - 1));
    met_members(m, x);
    x->whole.rank = (int32_t)met_draw(m, 2, 4);
    for (int32_t d = 0; d + 1 < x->whole.rank; d++)
        x->whole.dim[d] = met_draw(m, 0, 20) ? met_draw(m, 1, d ? 6 : 24) : 0;
    x->whole.dim[x->whole.rank - 1] = 1;
    x->from.dimension = x->to.dimension = -1;
    int32_t from = (int32_t)met_draw(m, 0, x->whole.rank - 2),
            to = (int32_t)met_draw(m, 0, x->whole.rank - 2);
    if (collective_has_from(x->kind))
        x->from = met_cut(m, x->n_members, from, x->whole.dim[from], (int32_t)met_draw(m, 1, 3));
    if (collective_has_to(x->kind))
        x->to = met_cut(m, x->n_members, to, x->whole.dim[to], (int32_t)met_draw(m, 1, 3));
    if (collective_rounds_of(x->algorithm)->tiers) met_tiers(m, x);
    x->most = collective_max(x);
    x->elements = shape_elements(&x->whole);
    met_links(m, x);
    x->in = ARENA_ARRAY(m->a, int32_t, (size_t)x->n_members);
    x->out = ARENA_ARRAY(m->a, int32_t, (size_t)x->n_members);
    int32_t when = (int32_t)met_draw(m, 0, 1), kept = (int32_t)met_draw(m, 0, 1);
    for (int32_t i = 0; i < x->n_members; i++) {
        int32_t s = x->members[i].stage;
        struct buffer_ring buffer_ring = {
            when ? 1 : m->p.stages[s].microbatches, 0, -1, -1, when ? 'B' : 'F', 'B'};
        x->in[i] = met_parameter(m, s, met_name(m, 'x', k, i), collective_in(x, i));
        x->out[i] =
            met_slot(m, s, "y", kept || !when ? SLOT_BUFFER_RING : SLOT_SCRATCH, collective_out(x, i), buffer_ring);
        m->list[s][when][m->n_list[s][when]++] =
            (struct instr){INSTR_COLLECTIVE, m->p.n_collectives};
        int64_t staging = collective_tensor_staging_bytes(x, x->dtype);
        if (staging > m->p.stages[s].buffer_bytes) m->p.stages[s].buffer_bytes = staging;
    }
    m->expected += met_check(m, x, k) / m->p.n_devices;
    m->p.n_collectives++;
}

/* A ring over all devices, launched by the last F somewhere among its collectives, awaited by the update. */
static inline void met_reduce(struct met *m)
{
    struct collective *g = &m->p.collectives[m->p.n_collectives++];
    int32_t n = m->p.n_devices;
    *g = (struct collective){.name = "sum", .dtype = m->p.dtype, .n_members = n};
    g->elements = met_draw(m, 0, 3) ? met_draw(m, 1, 300) : 0;
    g->members = ARENA_ARRAY(m->a, struct collective_member, (size_t)n);
    g->link = ARENA_ARRAY(m->a, int32_t, (size_t)n);
    g->direction = ARENA_ARRAY(m->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        int32_t *segments = ARENA_ARRAY(m->a, int32_t, 1);
        segments[0] =
            met_slot(m, i, "g", SLOT_GRADIENT, (struct shape){1, {g->elements}}, (struct buffer_ring){0});
        g->members[i] = (struct collective_member){
            .stage = i, .n_segments = 1, .segments = segments, .chain_ring = -1};
        g->link[i] = n > 1 ? met_link(m, i, (i + 1) % n, &g->direction[i]) : -1;
        int64_t staging = program_collective_staging_bytes(g, &g->members[i], &m->p.stages[i]);
        if (staging > m->p.stages[i].buffer_bytes) m->p.stages[i].buffer_bytes = staging;
    }
}

static inline struct procedure met_procedure(struct met *m, enum phase phase, const char *variant,
                                             const struct instr *list, int32_t n)
{
    return (struct procedure){phase, variant, 0, 0, n,
                              n ? arena_copy(m->a, list, (size_t)n * sizeof *list) : NULL};
}

static inline void met_stage(struct met *m, int32_t s, int32_t place)
{
    struct program_stage *x = &m->p.stages[s];
    struct instr last[MET_INSTRS];
    int32_t n = m->n_list[s][0], sum = m->p.n_collectives - 1, at = 0, calls = 0;
    for (int32_t i = 0; i <= n; i++) {
        bool here = i == n ? at == i : m->list[s][0][i].arg >= place && at == i;
        if (here) last[at++] = (struct instr){INSTR_COLLECTIVE_START, sum};
        if (i < n) last[at++] = m->list[s][0][i];
    }
    if (m->acc[s] >= 0) m->list[s][1][m->n_list[s][1]++] = (struct instr){INSTR_LOSS, m->acc[s]};
    struct instr update = {INSTR_COLLECTIVE_WAIT, sum};
    x->procedures = ARENA_ARRAY(m->a, struct procedure, 4);
    x->n_procedures = 4;
    x->procedures[0] = met_procedure(m, 'F', "", m->list[s][0], n);
    x->procedures[1] = met_procedure(m, 'F', "last", last, at);
    x->procedures[2] = met_procedure(m, 'B', "", m->list[s][1], m->n_list[s][1]);
    x->procedures[3] = met_procedure(m, 'U', "", &update, 1);
    struct call list[64];
    for (int32_t i = 0; i < x->microbatches; i++)
        list[calls++] = (struct call){i + 1 == x->microbatches, i, 0};
    for (int32_t i = 0; i < x->microbatches; i++) list[calls++] = (struct call){2, i, 0};
    list[calls++] = (struct call){3, -1, 0};
    order_code(m->a, list, calls, &m->p.orders[s]);
}

static inline void met_team(struct met *m, int32_t n, int32_t microbatches, bool bus)
{
    struct program *p = &m->p;
    p->devices = ARENA_ARRAY(m->a, struct program_device, (size_t)n);
    p->lanes = ARENA_ARRAY(m->a, struct lane, (size_t)n);
    p->stages = ARENA_ARRAY(m->a, struct program_stage, (size_t)n);
    p->orders = ARENA_ARRAY(m->a, struct order, (size_t)n);
    p->collectives = ARENA_ARRAY(m->a, struct collective, MET_MAX + 1);
    p->n_links = bus ? 1 : n * (n - 1) / 2;
    p->links = ARENA_ARRAY(m->a, struct program_link, (size_t)p->n_links + 1);
    m->cluster = (struct cluster){.name = "c", .n_types = 1, .n_links = p->n_links};
    m->cluster.types = ARENA_ARRAY(m->a, struct device_type, 1);
    m->cluster.types[0] = (struct device_type){
        .name = "t", .catalogue = "host", .slowdown = 1, .memory_bytes = INT64_C(1) << 40};
    m->cluster.links = ARENA_ARRAY(m->a, struct link, (size_t)p->n_links + 1);
    for (int32_t i = 0; i < p->n_links; i++) {
        struct program_link *l = &p->links[i];
        *l = (struct program_link){.name = arena_printf(m->a, "l%d", (int)i),
                                   .bandwidth_Bps = 1e6 * (double)met_draw(m, 1, 20),
                                   .latency_s = 1e-6 * (double)met_draw(m, 0, 40),
                                   .emulated = true,
                                   .half_duplex = bus && met_draw(m, 0, 1)};
        m->cluster.links[i] = (struct link){.name = l->name,
                                            .bandwidth_Bps = l->bandwidth_Bps,
                                            .latency_s = l->latency_s,
                                            .stated = true,
                                            .half_duplex = l->half_duplex};
    }
    for (int32_t i = 0; i < n; i++) {
        p->devices[i] = (struct program_device){.name = arena_printf(m->a, "d%d", (int)i),
                                                .type = "t",
                                                .host = "localhost",
                                                .kind = "host",
                                                .slowdown = 1,
                                                .memory_bytes = INT64_C(1) << 40};
        p->lanes[i] = (struct lane){i, 1, arena_copy(m->a, &i, sizeof i)};
        p->stages[i] = (struct program_stage){.replica = i,
                                              .device = i,
                                              .microbatches = microbatches,
                                              .first_microbatch = i * microbatches};
        p->stages[i].slots = ARENA_ARRAY(m->a, struct slot, MET_SLOTS);
        p->stages[i].buffer_rings = ARENA_ARRAY(m->a, struct buffer_ring, MET_MAX);
        p->stages[i].ops = ARENA_ARRAY(m->a, struct program_op, 3 * MET_MAX);
        p->stages[i].parameters = ARENA_ARRAY(m->a, struct program_parameter, 2 * MET_MAX);
        m->acc[i] = -1;
    }
}

/* n: devices, each with the same microbatches. bus: all messages cross one link. */
static inline struct met *tensor_collectives_make(struct arena *a, uint64_t seed, int32_t n, bool bus)
{
    struct met *m = ARENA_ARRAY(a, struct met, 1);
    m->a = a, m->seed = seed;
    int32_t microbatches = (int32_t)met_draw(m, 1, 3), collectives = (int32_t)met_draw(m, 1, 8);
    m->p = (struct program){.name = "collectives",
                            .seed = seed,
                            .dtype = met_draw(m, 0, 1) ? DTYPE_fp64 : DTYPE_fp32,
                            .emulated = true,
                            .steps = 2,
                            .microbatch = 1,
                            .sequence_length = 1,
                            .vocabulary = 1,
                            .microbatches = n * microbatches,
                            .n_devices = n,
                            .n_stages = n,
                            .n_orders = n};
    m->profile = (struct profile){.pace = 1};
    met_team(m, n, microbatches, bus);
    for (int32_t k = 0; k < collectives; k++) met_collective(m, k);
    for (int32_t k = 0; k < m->p.n_collectives; k++) {
        const struct collective *g = &m->p.collectives[k];
        for (int32_t i = 0; i < g->n_members; i++)
            met_project(m, g->members[i].stage, g->out[i], k, i);
    }
    int32_t place = (int32_t)met_draw(m, 0, collectives);
    met_reduce(m);
    for (int32_t s = 0; s < n; s++) met_stage(m, s, place);
    m->cost = cost_new(a, &m->profile, &m->cluster);
    return m;
}

#endif
