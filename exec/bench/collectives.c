#include "exec/bench/collectives.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"
#include "core/lower/lower.h"

#include <inttypes.h>

enum { ALIGN = 64 };
static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

struct maker {
    struct arena *a;
    const struct cluster *c;
    const int32_t *device;
    int32_t n;
    struct program *p;
    int64_t most; /* bytes of the largest operand: all operands start at 0 or, in scratch, after that */
};

/* ---- one collective ------------------------------------------------------------------------------ */

static void make_cut(const struct maker *m, const struct bench_collective *x, int64_t part,
                     struct collective_cut *out)
{
    int64_t at = 0;
    *out = (struct collective_cut){.dimension = 0, .n_runs = 1};
    out->first = ARENA_ARRAY(m->a, int64_t, (size_t)m->n);
    out->count = ARENA_ARRAY(m->a, int64_t, (size_t)m->n);
    for (int32_t i = 0; i < m->n; i++) {
        out->first[i] = at;
        out->count[i] = i ? part : x->first_share * part;
        at += out->count[i];
    }
}

static int32_t add_slot(struct program_stage *s, const char *name, const struct shape *shape,
                        int64_t offset)
{
    int64_t bytes = shape_elements(shape) * dtype_bytes(DTYPE_fp32);
    s->slots[s->n_slots] = (struct slot){.name = name,
                                         .class = SLOT_SCRATCH,
                                         .dtype = DTYPE_fp32,
                                         .shape = *shape,
                                         .buffer_ring = -1,
                                         .offset_bytes = offset,
                                         .bytes = bytes,
                                         .parameter = -1,
                                         .input = -1};
    return s->n_slots++;
}

static enum status find_links(const struct maker *m, struct collective *g, struct error *err)
{
    const struct cluster *c = m->c;
    for (int32_t i = 0; i < m->n; i++)
        for (int32_t k = 0; k < m->n; k++) {
            int32_t direction = 0, link = -1, from = m->device[i], to = m->device[k];
            if (i != k) link = cluster_link(c, from, to, &direction);
            if (i != k && link < 0)
                return error_set(err, ERR_INPUT, "no link joins %s and %s", c->devices[from].name,
                                 c->devices[to].name);
            if (k == (i + 1) % m->n) g->link[i] = link, g->direction[i] = direction;
            if (!g->pair_link) continue;
            g->pair_link[i * m->n + k] = link;
            g->pair_direction[i * m->n + k] = direction;
        }
    return OK;
}

static enum status make_tensor_collective(struct maker *m, const struct bench_collective *x,
                                struct collective *g, struct error *err)
{
    size_t n = (size_t)m->n;
    int64_t shares = x->first_share + m->n - 1, size = dtype_bytes(DTYPE_fp32),
            part = (x->bytes + shares * size - 1) / (shares * size);
    *g = (struct collective){.name = collective_kind_word(x->kind),
                             .kind = x->kind,
                             .algorithm = x->algorithm,
                             .n_members = m->n,
                             .dtype = DTYPE_fp32,
                             .elements = part * shares,
                             .each_call = true,
                             .whole = {1, {part * shares}},
                             .from = {.dimension = -1},
                             .to = {.dimension = -1}};
    if (collective_has_from(x->kind)) make_cut(m, x, part, &g->from);
    if (collective_has_to(x->kind)) make_cut(m, x, part, &g->to);
    g->most = collective_max(g);
    g->in = ARENA_ARRAY(m->a, int32_t, n), g->out = ARENA_ARRAY(m->a, int32_t, n);
    if (x->algorithm != ALGORITHM_RING)
        g->pair_link = ARENA_ARRAY(m->a, int32_t, n * n),
        g->pair_direction = ARENA_ARRAY(m->a, int32_t, n * n);
    g->link = ARENA_ARRAY(m->a, int32_t, n), g->direction = ARENA_ARRAY(m->a, int32_t, n);
    g->members = ARENA_ARRAY(m->a, struct collective_member, n);
    for (int32_t i = 0; i < m->n; i++)
        g->members[i] = (struct collective_member){.stage = i, .chain_ring = -1};
    if (g->elements * size > m->most) m->most = align(g->elements * size);
    return find_links(m, g, err);
}

/* ---- the program ------------------------------------------------------------------------------ */

static void make_stage(struct maker *m, int32_t i, int32_t count, int32_t repeats)
{
    struct program *p = m->p;
    struct program_stage *s = &p->stages[i];
    struct procedure *f = ARENA_ARRAY(m->a, struct procedure, 1);
    *s = (struct program_stage){
        .stage = i, .device = i, .first_layer = i, .last_layer = i, .microbatches = repeats};
    s->slots = ARENA_ARRAY(m->a, struct slot, 2 * (size_t)count);
    s->n_procedures = 1;
    s->procedures = f;
    *f = (struct procedure){.phase = PHASE_F, .variant = "", .n_instrs = count};
    f->instrs = ARENA_ARRAY(m->a, struct instr, (size_t)count);
    for (int32_t k = 0; k < count; k++) {
        struct collective *g = &p->collectives[k];
        struct shape in = collective_in(g, i), out = collective_out(g, i);
        g->in[i] = add_slot(s, "in", &in, 0);
        g->out[i] = add_slot(s, "out", &out, m->most);
        f->instrs[k] = (struct instr){INSTR_COLLECTIVE, k};
        int64_t staging = program_collective_staging_bytes(g, &g->members[i], s);
        if (staging > s->buffer_bytes) s->buffer_bytes = staging;
    }
    s->class_bytes[SLOT_SCRATCH] = 2 * m->most;
}

static void make_orders(struct maker *m, int32_t repeats)
{
    struct program *p = m->p;
    struct call *calls = ARENA_ARRAY(m->a, struct call, (size_t)repeats);
    for (int32_t i = 0; i < repeats; i++) calls[i] = (struct call){.microbatch = i};
    p->n_orders = 1;
    p->orders = ARENA_ARRAY(m->a, struct order, 1);
    order_code(m->a, calls, repeats, p->orders);
    p->lanes = ARENA_ARRAY(m->a, struct lane, (size_t)m->n);
    for (int32_t i = 0; i < m->n; i++) {
        p->lanes[i] = (struct lane){.n_stages = 1, .stages = ARENA_ARRAY(m->a, int32_t, 1)};
        p->lanes[i].stages[0] = i;
    }
}

enum status bench_collectives(struct arena *a, const struct cluster *c, const int32_t *device,
                              int32_t n, const struct bench_collective *what, int32_t count,
                              int32_t repeats, struct program *out, struct error *err)
{
    struct maker m = {.a = a, .c = c, .device = device, .n = n, .p = out};
    if (n < 2 || count < 1 || repeats < 1)
        return error_set(err, ERR_INPUT,
                         "a bench needs members, collectives and repeats, not %" PRId32 ", %" PRId32
                         " and %" PRId32,
                         n, count, repeats);
    *out = (struct program){.name = "bench of collectives",
                            .seed = 1,
                            .steps = 1,
                            .microbatch = 1,
                            .sequence_length = 1,
                            .vocabulary = 1,
                            .microbatches = repeats,
                            .emulated = c->emulated,
                            .n_devices = n,
                            .n_stages = n,
                            .n_collectives = count,
                            .n_links = c->n_links,
                            .links = lower_cluster_links(a, c),
                            .optimizer = {.kind = OPTIMIZER_SGD, .lr = 1e-6}};
    out->devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    out->stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    out->collectives = ARENA_ARRAY(a, struct collective, (size_t)count);
    for (int32_t i = 0; i < n; i++) out->devices[i] = lower_device(c, device[i]);
    for (int32_t k = 0; k < count; k++) {
        if (what[k].bytes < 1 || what[k].first_share < 1 || what[k].kind == COLLECTIVE_ALL_TO_ALL ||
            !collective_in_calls(what[k].kind, what[k].algorithm) ||
            collective_misfit(what[k].algorithm, n, false))
            return error_set(err, ERR_INPUT, "collective %" PRId32 " cannot be timed", k);
        TRY(make_tensor_collective(&m, &what[k], &out->collectives[k], err));
    }
    for (int32_t i = 0; i < n; i++) make_stage(&m, i, count, repeats);
    make_orders(&m, repeats);
    return OK;
}
