/* tests/support/pipelines.h - programs made by hand for the suites of the simulator.
 *
 * Every lane is a stage with three operators F, B and U whose times are given, five slots and four channels at most.
 * Links carry 1 GB/s, so that a message of n bytes occupies its link for n nanoseconds.
 */
#ifndef TESTS_SUPPORT_PIPELINES_H
#define TESTS_SUPPORT_PIPELINES_H

#include "core/base/arena.h"
#include "sim/engine/sim.h"
#include "sim/jitter.h"

#include "tests/support/suites.h"

#include <stdio.h>

enum { PIPES_MAX = 64, PIPES_UNBOUND = 100 };
#define PIPES_MS 1000000

struct pipes { /* what a test fills in; 0 means what the comment says */
    int32_t n_stages, microbatches;
    int64_t forward_ns[PIPES_MAX], backward_ns[PIPES_MAX], update_ns[PIPES_MAX];
    int32_t warmup[PIPES_MAX];      /* stages behind + 1 */
    bool without_flush;             /* the next step's first forwards between the last backwards (weight_versions: 2) */
    const char *order[PIPES_MAX];   /* "F0 B0 …" instead of the warm-up; U follows by itself */
    int64_t transfer_ns[PIPES_MAX]; /* occupancy of link s, between stages s and s + 1 */
    int64_t latency_ns[PIPES_MAX];
    bool half_duplex[PIPES_MAX], one_link; /* one_link: all messages cross link 0 */
    enum link_sharing sharing;
    double compute_slowdown; /* of every link */
    int32_t ahead, buffers;  /* receives posted early, send buffers: enough never to matter */
    int64_t kept_bytes;      /* a microbatch's activations: 0 */
    int32_t ops;             /* operators of F and of B, equal in time: 1 */
    int32_t reversed;        /* lanes in reverse order */
    double pace;
    /* data parallelism: every stage is a replica of its own with one group over all */
    bool parallel;
    enum collective_algorithm algorithm;
    int64_t elements;
};

struct pipes_made {
    struct arena *arena;
    struct program program;
    struct profile profile;
    struct cluster cluster;
    struct cost *cost;
    size_t row_capacity;
};

static inline void *pipes_copy(struct arena *a, const void *from, size_t n)
{
    return n ? memcpy(arena_alloc(a, n, 1), from, n) : NULL;
}

/* An operator of so many nanoseconds; outputs are slots, -1 for none. */
static inline int32_t pipes_op(struct pipes_made *m, struct program_stage *s, const char *name,
                               int64_t ns, int32_t out0, int32_t out1)
{
    struct profile *f = &m->profile;
    uint64_t key = 1 + f->n_ops;
    f->ops = arena_grow(m->arena, f->ops, f->n_ops, &m->row_capacity, sizeof *f->ops);
    f->ops[f->n_ops++] = (struct op_row){.base = "type:t",
                                         .key = key,
                                         .kind = OP_add,
                                         .text = name,
                                         .samples = 1,
                                         .seconds = (double)ns / 1e9,
                                         .provenance = "profile"};
    struct program_op *op = &s->ops[s->n_ops];
    *op = (struct program_op){.kind = OP_add, .phase = PHASE_F, .name = name, .key = key};
    const struct shape one = {.rank = 1, .dim = {1}};
    op->n_inputs = op->shapes.n_inputs = 2;
    op->shapes.n_outputs = 1;
    op->shapes.input[0] = op->shapes.input[1] = op->shapes.output[0] = one;
    if (out0 >= 0) op->output[op->n_outputs++] = out0;
    if (out1 >= 0) op->output[op->n_outputs++] = out1;
    return s->n_ops++;
}

static inline void pipes_procedure(struct pipes_made *m, struct program_stage *s, enum phase phase,
                                   const struct instr *x, int32_t n)
{
    s->procedures[s->n_procedures++] =
        (struct procedure){phase, "", 0, 0, n, pipes_copy(m->arena, x, (size_t)n * sizeof *x)};
}

static inline int32_t pipes_slot(struct program_stage *s, const char *name, int64_t bytes,
                                 struct buffer_ring buffer_ring)
{
    buffer_ring.stride_bytes = bytes;
    s->class_bytes[SLOT_BUFFER_RING] += buffer_ring.count * bytes;
    s->buffer_rings[s->n_buffer_rings] = buffer_ring;
    s->slots[s->n_slots] = (struct slot){.name = name,
                                         .class = SLOT_BUFFER_RING,
                                         .buffer_ring = s->n_buffer_rings++,
                                         .bytes = bytes,
                                         .parameter = -1,
                                         .input = -1};
    return s->n_slots++;
}

static inline int32_t pipes_channel(struct pipes_made *m, const struct pipes *in, int32_t from,
                                    int32_t to, int32_t link, bool gradient)
{
    struct program *p = &m->program;
    p->channels[p->n_channels] =
        (struct channel){.from_stage = from,
                         .to_stage = to,
                         .link = in->one_link ? 0 : link,
                         .direction = gradient,
                         .bytes = in->transfer_ns[link],
                         .receive_ahead = in->ahead ? in->ahead : PIPES_UNBOUND,
                         .gradient = gradient};
    return p->n_channels++;
}

static inline void pipes_lane(struct pipes_made *m, const struct pipes *in, int32_t s)
{
    struct call calls[4096];
    int64_t n = 0;
    int32_t b = in->microbatches, w = in->warmup[s] ? in->warmup[s] : in->n_stages - s;
    if (w > b) w = b;
    if (in->order[s]) {
        for (const char *t = in->order[s]; *t; t += strcspn(t, " "), t += *t == ' ')
            calls[n++] = (struct call){*t == 'F' ? 0 : 1, (int32_t)strtol(t + 1, NULL, 10), 0};
    } else if (in->without_flush) {
        for (int32_t i = w - 1; i < b; i++)
            calls[n++] = (struct call){0, i, 0}, calls[n++] = (struct call){1, i - w + 1, 0};
        for (int32_t i = 0; i < w - 1; i++)
            calls[n++] = (struct call){3, i, 0}, calls[n++] = (struct call){1, b - w + 1 + i, 0};
    } else {
        for (int32_t i = 0; i < w - 1; i++) calls[n++] = (struct call){0, i, 0};
        for (int32_t i = w - 1; i < b; i++)
            calls[n++] = (struct call){0, i, 0}, calls[n++] = (struct call){1, i - w + 1, 0};
        for (int32_t i = b - w + 1; i < b; i++) calls[n++] = (struct call){1, i, 0};
    }
    calls[n++] = (struct call){2, -1, 0};
    order_code(m->arena, calls, n, &m->program.orders[s]);
}

/* Channels of stage s: activation in and out, gradient in and out; -1 where there is none. */
static inline void pipes_stage(struct pipes_made *m, const struct pipes *in, int32_t s,
                               const int32_t c[4])
{
    struct program *p = &m->program;
    struct program_stage *x = &p->stages[s];
    int32_t buffers = in->buffers ? in->buffers : PIPES_UNBOUND, n = 0, ops = in->ops ? in->ops : 1;
    struct instr list[256];
    x->slots = ARENA_ARRAY(m->arena, struct slot, 8),
    x->buffer_rings = ARENA_ARRAY(m->arena, struct buffer_ring, 8);
    x->ops = ARENA_ARRAY(m->arena, struct program_op, (size_t)(2 * ops + 1));
    x->procedures = ARENA_ARRAY(m->arena, struct procedure, 8);
    int32_t slot[5] = {-1, -1, -1, -1, -1};
    int64_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = c[i] >= 0 ? p->channels[c[i]].bytes : 0;
    if (c[0] >= 0)
        slot[0] =
            pipes_slot(x, "x", bytes[0], (struct buffer_ring){buffers, 0, -1, c[0], 'R', 'F'});
    if (c[1] >= 0)
        slot[1] =
            pipes_slot(x, "y", bytes[1], (struct buffer_ring){buffers, 0, c[1], -1, 'F', 'S'});
    if (c[2] >= 0)
        slot[2] =
            pipes_slot(x, "dy", bytes[2], (struct buffer_ring){buffers, 0, -1, c[2], 'R', 'B'});
    if (c[3] >= 0)
        slot[3] =
            pipes_slot(x, "dx", bytes[3], (struct buffer_ring){buffers, 0, c[3], -1, 'B', 'S'});
    slot[4] = pipes_slot(x, "kept", in->kept_bytes,
                         (struct buffer_ring){in->microbatches, 0, -1, -1, 'F', 'B'});
    if (c[0] >= 0) p->channels[c[0]].to_slot = slot[0];
    if (c[1] >= 0) p->channels[c[1]].from_slot = slot[1];
    if (c[2] >= 0) p->channels[c[2]].to_slot = slot[2];
    if (c[3] >= 0) p->channels[c[3]].from_slot = slot[3];
    if (c[0] >= 0) list[n++] = (struct instr){INSTR_RECEIVE, c[0]};
    for (int32_t i = 0; i < ops; i++)
        list[n++] = (struct instr){INSTR_COMPUTE,
                                   pipes_op(m, x, "f", in->forward_ns[s] / ops, slot[1], slot[4])};
    if (c[1] >= 0) list[n++] = (struct instr){INSTR_SEND, c[1]};
    pipes_procedure(m, x, 'F', list, n);
    n = 0;
    if (c[2] >= 0) list[n++] = (struct instr){INSTR_RECEIVE, c[2]};
    for (int32_t i = 0; i < ops; i++)
        list[n++] = (struct instr){INSTR_COMPUTE,
                                   pipes_op(m, x, "b", in->backward_ns[s] / ops, slot[3], -1)};
    if (c[3] >= 0) list[n++] = (struct instr){INSTR_SEND, c[3]};
    pipes_procedure(m, x, 'B', list, n);
    n = 0;
    if (in->parallel)
        list[n++] = (struct instr){INSTR_COLLECTIVE_START, 0},
        list[n++] = (struct instr){INSTR_COLLECTIVE_WAIT, 0};
    list[n++] = (struct instr){INSTR_COMPUTE, pipes_op(m, x, "u", in->update_ns[s], -1, -1)};
    pipes_procedure(m, x, 'U', list, n);
    if (!in->without_flush) return;
    x->procedures[x->n_procedures] = x->procedures[0], x->procedures[x->n_procedures++].variant = "ahead";
}

static inline void pipes_links(struct pipes_made *m, const struct pipes *in)
{
    struct program *p = &m->program;
    m->cluster = (struct cluster){.name = "c",
                                  .n_types = 1,
                                  .types = ARENA_ARRAY(m->arena, struct device_type, 1),
                                  .n_links = in->n_stages,
                                  .links = ARENA_ARRAY(m->arena, struct link, PIPES_MAX)};
    m->cluster.types[0] = (struct device_type){
        .name = "t", .catalogue = "host", .slowdown = 1, .memory_bytes = INT64_C(1) << 40};
    p->n_links = in->n_stages;
    p->links = ARENA_ARRAY(m->arena, struct program_link, PIPES_MAX);
    for (int32_t i = 0; i < p->n_links; i++) {
        const char *name = arena_printf(m->arena, "l%d", i);
        double latency_s = (double)in->latency_ns[i] / 1e9;
        m->cluster.links[i] = (struct link){.name = name,
                                            .bandwidth_Bps = 1e9,
                                            .latency_s = latency_s,
                                            .stated = true,
                                            .half_duplex = in->half_duplex[i],
                                            .sharing = in->sharing};
        p->links[i] = (struct program_link){.name = name,
                                            .bandwidth_Bps = 1e9,
                                            .latency_s = latency_s,
                                            .half_duplex = in->half_duplex[i],
                                            .sharing = (int32_t)in->sharing,
                                            .compute_slowdown = in->compute_slowdown};
    }
}

static inline void pipes_group(struct pipes_made *m, const struct pipes *in)
{
    struct program *p = &m->program;
    size_t n = (size_t)in->n_stages;
    p->n_collectives = 1;
    p->collectives = ARENA_ARRAY(m->arena, struct collective, 4);
    struct collective *g = &p->collectives[0];
    *g = (struct collective){.name = "sum",
                             .algorithm = in->algorithm,
                             .n_members = in->n_stages,
                             .dtype = DTYPE_fp32,
                             .elements = in->elements};
    g->members = ARENA_ARRAY(m->arena, struct collective_member, n);
    g->link = ARENA_ARRAY(m->arena, int32_t, n), g->direction = ARENA_ARRAY(m->arena, int32_t, n);
    g->back_link = ARENA_ARRAY(m->arena, int32_t, n),
    g->back_direction = ARENA_ARRAY(m->arena, int32_t, n);
    for (int32_t i = 0; i < in->n_stages; i++) {
        g->members[i] = (struct collective_member){.stage = i, .chain_ring = -1};
        g->link[i] = in->one_link ? 0 : i;
        g->back_link[i] = i ? (in->one_link ? 0 : i - 1) : -1;
        g->back_direction[i] = 1;
    }
}

static inline struct pipes_made *pipes_make(struct arena *a, const struct pipes *in)
{
    struct pipes_made *m = ARENA_ARRAY(a, struct pipes_made, 1);
    struct program *p = &m->program;
    size_t n = (size_t)in->n_stages;
    m->arena = a;
    *p = (struct program){.name = "made",
                          .steps = 1,
                          .n_devices = in->n_stages,
                          .n_stages = in->n_stages,
                          .n_orders = in->n_stages,
                          .microbatches = in->microbatches};
    m->profile = (struct profile){.pace = in->pace > 0 ? in->pace : 1};
    p->devices = ARENA_ARRAY(a, struct program_device, n),
    p->lanes = ARENA_ARRAY(a, struct lane, n);
    p->stages = ARENA_ARRAY(a, struct program_stage, n),
    p->orders = ARENA_ARRAY(a, struct order, n);
    p->channels = ARENA_ARRAY(a, struct channel, 2 * n + 4);
    pipes_links(m, in);
    for (int32_t s = 0; s + 1 < in->n_stages && !in->parallel; s++) {
        pipes_channel(m, in, s, s + 1, s, false);
        pipes_channel(m, in, s + 1, s, s, true);
    }
    for (int32_t s = 0; s < in->n_stages; s++) {
        int32_t lane = in->reversed ? in->n_stages - 1 - s : s;
        bool first = s == 0 || in->parallel, last = s + 1 == in->n_stages || in->parallel;
        int32_t c[4] = {first ? -1 : 2 * s - 2, last ? -1 : 2 * s, last ? -1 : 2 * s + 1,
                        first ? -1 : 2 * s - 1};
        p->stages[s] =
            (struct program_stage){.stage = s, .device = lane, .microbatches = in->microbatches};
        p->lanes[lane] = (struct lane){s, 1, pipes_copy(a, &s, sizeof s)};
        p->devices[lane] = (struct program_device){.name = arena_printf(a, "d%d", s),
                                                   .type = "t",
                                                   .host = "h",
                                                   .kind = "host",
                                                   .memory_bytes = INT64_C(1) << 40};
        pipes_stage(m, in, s, c);
        pipes_lane(m, in, s);
    }
    if (in->parallel) pipes_group(m, in);
    m->cost = cost_new(a, &m->profile, &m->cluster);
    return m;
}

static inline struct sim_result pipes_run(struct pipes_made *m, int32_t steps, bool trace)
{
    struct sim_options o = {.steps = steps, .keep_trace = trace};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(m->arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* How long step s of a trace took. */
static inline int64_t pipes_step_ns(const struct trace *t, int32_t s)
{
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_STEP && t->spans[i].step == s)
            return t->spans[i].end_ns - t->spans[i].begin_ns;
    return -1;
}

/* Makespan of one step. */
static inline int64_t pipes_makespan(struct arena *a, const struct pipes *in)
{
    return pipes_run(pipes_make(a, in), 1, false).makespan_ns;
}

/* No jitter where a test asks for none: neither of operators nor of links or collectives. */
static inline struct jitter_model pipes_quiet(const struct pipes_made *m)
{
    struct jitter_model x;
    jitter_defaults(m->arena, &m->profile, &m->cluster, &x);
    x.types[0] = (struct jitter_type){.fitted = true};
    for (int32_t i = 0; i < x.n_links; i++) x.link_cv[i] = 0;
    x.hop_cv = 0;
    return x;
}

#endif
