/* tests/support/hybrid.h - programs of tensor × pipeline × data parallel devices, made by hand.
 *
 * Stage s of replica r is shared by `tensor` devices, that meet in a collective twice a layer, forwards and backwards. Each sends
 * to its own partner in the next stage over a link of their own; equal ranks of all replicas sum gradients over a ring of
 * links of their own. 1F1B. Links carry 1 GB/s: n bytes take n nanoseconds.
 */
#ifndef TESTS_SUPPORT_HYBRID_H
#define TESTS_SUPPORT_HYBRID_H

#include "core/base/arena.h"
#include "sim/engine/sim.h"

#include "tests/support/suites.h"

struct hybrid {
    /* layers a stage, operators a layer: even */
    int32_t tensor, pipeline, data, microbatches, layers, ops;
    int64_t forward_ns, backward_ns, update_ns; /* of an operator */
    int64_t transfer_bytes, collective_elements, gradient_elements, latency_ns;
};

struct hybrid_made {
    struct arena *arena;
    const struct hybrid *in;
    struct program program;
    struct profile profile;
    struct cluster cluster;
    struct cost *cost;
    int32_t first_collective_link, first_ring_link;
};

static inline int32_t hybrid_stage(const struct hybrid *h, int32_t r, int32_t s, int32_t t)
{
    return (r * h->pipeline + s) * h->tensor + t;
}

static inline void hybrid_links(struct hybrid_made *m)
{
    const struct hybrid *h = m->in;
    struct program *p = &m->program;
    int32_t pairs = h->data * (h->pipeline - 1) * h->tensor;
    m->first_collective_link = pairs;
    m->first_ring_link = pairs + h->data * h->pipeline;
    p->n_links = m->first_ring_link + p->n_devices;
    p->links = ARENA_ARRAY(m->arena, struct program_link, (size_t)p->n_links);
    m->cluster = (struct cluster){.name = "c",
                                  .n_types = 1,
                                  .types = ARENA_ARRAY(m->arena, struct device_type, 1),
                                  .n_links = p->n_links,
                                  .links = ARENA_ARRAY(m->arena, struct link, (size_t)p->n_links)};
    m->cluster.types[0] = (struct device_type){
        .name = "t", .catalogue = "host", .slowdown = 1, .memory_bytes = INT64_C(1) << 40};
    for (int32_t i = 0; i < p->n_links; i++) {
        const char *name = arena_printf(m->arena, "l%d", i);
        double latency_s = (double)h->latency_ns / 1e9;
        m->cluster.links[i] = (struct link){
            .name = name, .bandwidth_Bps = 1e9, .latency_s = latency_s, .stated = true};
        p->links[i] =
            (struct program_link){.name = name, .bandwidth_Bps = 1e9, .latency_s = latency_s};
    }
}

/* Three operators, one price each, that all stages share: F's, B's and U's. */
static inline struct program_op *hybrid_ops(struct hybrid_made *m)
{
    const struct hybrid *h = m->in;
    const int64_t ns[3] = {h->forward_ns, h->backward_ns, h->update_ns};
    struct program_op *ops = ARENA_ARRAY(m->arena, struct program_op, 3);
    m->profile = (struct profile){.pace = 1, .ops = ARENA_ARRAY(m->arena, struct op_row, 3)};
    for (int i = 0; i < 3; i++) {
        m->profile.ops[m->profile.n_ops++] = (struct op_row){.base = "type:t",
                                                             .key = (uint64_t)i + 1,
                                                             .kind = OP_add,
                                                             .text = "op",
                                                             .samples = 1,
                                                             .seconds = (double)ns[i] / 1e9,
                                                             .provenance = "profile"};
        ops[i] = (struct program_op){
            .kind = OP_add, .phase = PHASE_F, .name = "op", .key = (uint64_t)i + 1};
        ops[i].output[0] = -1;
    }
    return ops;
}

/* What is sent and received: x and y for activations, dx and dy for gradients; -1 where there is none. */
struct hybrid_ends {
    int32_t x, y, dy, dx;
};

static inline int32_t hybrid_slot(struct program_stage *s, struct buffer_ring buffer_ring,
                                  int64_t bytes)
{
    buffer_ring.stride_bytes = bytes;
    s->class_bytes[SLOT_BUFFER_RING] += buffer_ring.count * bytes;
    s->buffer_rings[s->n_buffer_rings] = buffer_ring;
    s->slots[s->n_slots] = (struct slot){.name = "s",
                                         .class = SLOT_BUFFER_RING,
                                         .buffer_ring = s->n_buffer_rings++,
                                         .bytes = bytes,
                                         .parameter = -1,
                                         .input = -1};
    return s->n_slots++;
}

static inline void hybrid_code(struct hybrid_made *m, struct program_stage *x, enum phase phase,
                               int32_t receive, int32_t send, int32_t op, int32_t collective)
{
    const struct hybrid *h = m->in;
    struct procedure *f = &x->procedures[x->n_procedures++];
    *f = (struct procedure){.phase = phase, .variant = ""};
    f->instrs = ARENA_ARRAY(m->arena, struct instr, (size_t)(h->layers * (h->ops + 2) + 2));
    if (receive >= 0) f->instrs[f->n_instrs++] = (struct instr){INSTR_RECEIVE, receive};
    for (int32_t l = 0; l < h->layers; l++)
        for (int32_t k = 1; k <= h->ops; k++) {
            f->instrs[f->n_instrs++] = (struct instr){INSTR_COMPUTE, op};
            if (k % (h->ops / 2) == 0)
                f->instrs[f->n_instrs++] = (struct instr){INSTR_COLLECTIVE, collective};
        }
    if (send >= 0) f->instrs[f->n_instrs++] = (struct instr){INSTR_SEND, send};
}

static inline void hybrid_fill(struct hybrid_made *m, int32_t index, const struct hybrid_ends *c,
                               int32_t collective, int32_t sum)
{
    const struct hybrid *h = m->in;
    struct program *p = &m->program;
    struct program_stage *x = &p->stages[index];
    int64_t bytes = h->transfer_bytes;
    x->slots = ARENA_ARRAY(m->arena, struct slot, 4),
    x->buffer_rings = ARENA_ARRAY(m->arena, struct buffer_ring, 4);
    x->procedures = ARENA_ARRAY(m->arena, struct procedure, 3);
    if (c->x >= 0)
        p->channels[c->x].to_slot =
            hybrid_slot(x, (struct buffer_ring){h->pipeline + 2, 0, -1, c->x, 'R', 'F'}, bytes);
    if (c->y >= 0)
        p->channels[c->y].from_slot =
            hybrid_slot(x, (struct buffer_ring){4, 0, c->y, -1, 'F', 'S'}, bytes);
    if (c->dy >= 0)
        p->channels[c->dy].to_slot =
            hybrid_slot(x, (struct buffer_ring){4, 0, -1, c->dy, 'R', 'B'}, bytes);
    if (c->dx >= 0)
        p->channels[c->dx].from_slot =
            hybrid_slot(x, (struct buffer_ring){4, 0, c->dx, -1, 'B', 'S'}, bytes);
    hybrid_code(m, x, 'F', c->x, c->y, 0, collective);
    hybrid_code(m, x, 'B', c->dy, c->dx, 1, collective);
    struct procedure *u = &x->procedures[x->n_procedures++];
    *u = (struct procedure){PHASE_U, "", 0, 0, 3, ARENA_ARRAY(m->arena, struct instr, 3)};
    u->instrs[0] = (struct instr){INSTR_COLLECTIVE_START, sum},
    u->instrs[1] = (struct instr){INSTR_COLLECTIVE_WAIT, sum};
    u->instrs[2] = (struct instr){INSTR_COMPUTE, 2};
}

static inline void hybrid_orders(struct hybrid_made *m)
{
    const struct hybrid *h = m->in;
    int32_t b = h->microbatches;
    struct call *calls = ARENA_ARRAY(m->arena, struct call, (size_t)(2 * b + 1));
    for (int32_t s = 0; s < h->pipeline; s++) {
        int32_t w = h->pipeline - s < b ? h->pipeline - s : b, n = 0;
        for (int32_t i = 0; i < b + w - 1; i++) {
            if (i < b) calls[n++] = (struct call){.procedure = 0, .microbatch = i};
            if (i >= w - 1) calls[n++] = (struct call){.procedure = 1, .microbatch = i - w + 1};
        }
        calls[n++] = (struct call){.procedure = 2, .microbatch = -1};
        order_code(m->arena, calls, n, &m->program.orders[s]);
    }
}

static inline void hybrid_group(struct hybrid_made *m, int32_t group, bool each_call, int32_t n,
                                int32_t first, int32_t stride, int32_t first_link,
                                int32_t link_stride)
{
    const struct hybrid *h = m->in;
    struct collective *g = &m->program.collectives[group];
    *g = (struct collective){.name = each_call ? "collective" : "sum",
                             .algorithm = ALGORITHM_RING,
                             .n_members = n,
                             .dtype = DTYPE_fp32,
                             .each_call = each_call,
                             .elements = each_call ? h->collective_elements : h->gradient_elements};
    g->members = ARENA_ARRAY(m->arena, struct collective_member, (size_t)n);
    g->link = ARENA_ARRAY(m->arena, int32_t, (size_t)n);
    g->direction = ARENA_ARRAY(m->arena, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        g->members[i] = (struct collective_member){.stage = first + i * stride, .chain_ring = -1};
        g->link[i] = first_link + i * link_stride;
    }
}

static inline void hybrid_connect(struct hybrid_made *m)
{
    const struct hybrid *h = m->in;
    struct program *p = &m->program;
    for (int32_t r = 0; r < h->data; r++)
        for (int32_t s = 0; s < h->pipeline; s++)
            for (int32_t t = 0; t < h->tensor; t++) {
                int32_t here = hybrid_stage(h, r, s, t),
                        pair = (r * (h->pipeline - 1) + s) * h->tensor + t;
                int32_t before = pair - h->tensor;
                bool first = s == 0, last = s + 1 == h->pipeline;
                struct hybrid_ends c = {first ? -1 : 2 * before, last ? -1 : 2 * pair,
                                        last ? -1 : 2 * pair + 1, first ? -1 : 2 * before + 1};
                if (!last) {
                    struct channel a = {.from_stage = here,
                                        .to_stage = hybrid_stage(h, r, s + 1, t),
                                        .link = pair,
                                        .bytes = h->transfer_bytes,
                                        .receive_ahead = 2};
                    p->channels[2 * pair] = a;
                    a.to_stage = here, a.from_stage = hybrid_stage(h, r, s + 1, t);
                    a.direction = 1, a.gradient = true;
                    p->channels[2 * pair + 1] = a;
                }
                hybrid_fill(m, here, &c, r * h->pipeline + s,
                            h->data * h->pipeline + s * h->tensor + t);
            }
    for (int32_t i = 0; i < h->data * h->pipeline; i++)
        hybrid_group(m, i, true, h->tensor, i * h->tensor, 1, m->first_collective_link + i, 0);
    for (int32_t i = 0; i < h->pipeline * h->tensor; i++)
        hybrid_group(m, h->data * h->pipeline + i, false, h->data, i, h->pipeline * h->tensor,
                     m->first_ring_link + i, h->pipeline * h->tensor);
}

static inline struct hybrid_made *hybrid_make(struct arena *a, const struct hybrid *h)
{
    struct hybrid_made *m = ARENA_ARRAY(a, struct hybrid_made, 1);
    struct program *p = &m->program;
    int32_t n = h->data * h->pipeline * h->tensor;
    *m = (struct hybrid_made){.arena = a, .in = h};
    *p = (struct program){.name = "hybrid",
                          .steps = 1,
                          .n_devices = n,
                          .n_stages = n,
                          .n_orders = h->pipeline,
                          .n_channels = 2 * h->data * (h->pipeline - 1) * h->tensor,
                          .n_collectives = h->data * h->pipeline + h->pipeline * h->tensor,
                          .microbatches = h->microbatches * h->data};
    p->devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    p->lanes = ARENA_ARRAY(a, struct lane, (size_t)n);
    p->stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    p->orders = ARENA_ARRAY(a, struct order, (size_t)h->pipeline);
    p->channels = ARENA_ARRAY(a, struct channel, (size_t)p->n_channels);
    p->collectives = ARENA_ARRAY(a, struct collective, (size_t)p->n_collectives);
    hybrid_links(m);
    hybrid_orders(m);
    struct program_op *ops = hybrid_ops(m);
    int32_t *own = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        own[i] = i;
        p->stages[i] = (struct program_stage){.replica = i / (h->pipeline * h->tensor),
                                              .stage = i / h->tensor % h->pipeline,
                                              .device = i,
                                              .microbatches = h->microbatches,
                                              .n_ops = 3,
                                              .ops = ops};
        p->lanes[i] =
            (struct lane){.n_stages = 1, .stages = &own[i], .order = i / h->tensor % h->pipeline};
        p->devices[i] = (struct program_device){.name = arena_printf(a, "d%d", i),
                                                .type = "t",
                                                .host = "h",
                                                .kind = "host",
                                                .memory_bytes = INT64_C(1) << 40};
    }
    hybrid_connect(m);
    m->cost = cost_new(a, &m->profile, &m->cluster);
    return m;
}

#endif
