/* sim/pipeline/program.c - stages, channels and lanes of a schedule, without choices. */
#include "sim/pipeline/program.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_BUFFER_RINGS = 8, MAX_INSTRS = 3 };

struct builder {
    struct arena *a;
    const struct schedule *s;
    const struct pipeline *p;
    const int64_t *update_ns;
    enum link_sharing sharing;
    struct pipeline_program *out;
    int32_t *device_of, *chunk_of; /* (n_stages) */
    bool *fused;                   /* (n_stages) */
    int32_t *channel[2];           /* (n_stages) of what a stage sends forward, back; -1 */
    struct error *err;
};

/* --- links and channels --- */

/* The link of stage v's messages; an occupied link is shared by all messages between its two devices. */
static enum status find_link(struct builder *b, int32_t from, int32_t to, int64_t occupancy_ns,
                             int64_t latency_ns, int32_t *out)
{
    struct program *p = &b->out->program;
    struct cluster *c = &b->out->cluster;
    const char *name =
        occupancy_ns > 0
            ? arena_printf(b->a, "%" PRId32 "-%" PRId32, b->device_of[from], b->device_of[to])
            : arena_printf(b->a, "latency %" PRId32 "-%" PRId32, from, to);
    *out = occupancy_ns > 0 ? 0 : c->n_links;
    while (*out < c->n_links && strcmp(c->links[*out].name, name) != 0) ++*out;
    double latency_s = (double)latency_ns / 1e9;
    if (*out < c->n_links) {
        if (c->links[*out].latency_s != latency_s)
            return error_set(b->err, ERR_INPUT,
                             "messages from device %" PRId32 " to %" PRId32
                             " share a link with two latencies: %" PRId64 " ns and %" PRId64 " ns",
                             b->device_of[from], b->device_of[to],
                             units_ns_from_s(c->links[*out].latency_s), latency_ns);
        return OK;
    }
    c->links[c->n_links++] = (struct link){.name = name,
                                           .bandwidth_Bps = 1e9,
                                           .latency_s = latency_s,
                                           .stated = true,
                                           .sharing = b->sharing};
    p->links[p->n_links++] = (struct program_link){
        .name = name, .bandwidth_Bps = 1e9, .latency_s = latency_s, .sharing = (int32_t)b->sharing};
    return OK;
}

static enum status add_channel(struct builder *b, int32_t from, int32_t to)
{
    struct program *p = &b->out->program;
    bool back = to < from;
    struct channel c = {.from_stage = from, .to_stage = to, .link = -1, .gradient = back};
    c.receive_ahead = 2 * b->s->n_microbatches;
    if (b->device_of[from] != b->device_of[to]) {
        const struct pipeline_link *l = b->p->links ? &b->p->links[back ? to : from] : NULL;
        c.bytes = l ? l->occupancy_ns[back] : 0;
        TRY(find_link(b, from, to, c.bytes, l ? l->latency_ns[back] : 0, &c.link));
    }
    b->channel[back][from] = p->n_channels;
    p->channels[p->n_channels++] = c;
    return OK;
}

static enum status add_channels(struct builder *b)
{
    struct program *p = &b->out->program;
    size_t n = (size_t)b->p->n_stages;
    p->channels = ARENA_ARRAY(b->a, struct channel, 2 * n);
    p->links = ARENA_ARRAY(b->a, struct program_link, 2 * n);
    b->out->cluster.links = ARENA_ARRAY(b->a, struct link, 2 * n);
    for (int i = 0; i < 2; i++) {
        b->channel[i] = ARENA_ARRAY(b->a, int32_t, n);
        memset(b->channel[i], -1, n * sizeof *b->channel[i]);
    }
    for (int32_t v = 0; v + 1 < b->p->n_stages; v++) {
        TRY(add_channel(b, v, v + 1));
        TRY(add_channel(b, v + 1, v));
    }
    return OK;
}

/* --- a stage --- */

static int32_t add_slot(struct program_stage *x, const char *name, int64_t bytes,
                        struct buffer_ring buffer_ring)
{
    buffer_ring.stride_bytes = bytes;
    x->class_bytes[SLOT_BUFFER_RING] += buffer_ring.count * bytes;
    x->buffer_rings[x->n_buffer_rings] = buffer_ring;
    x->slots[x->n_slots] = (struct slot){.name = name,
                                         .class = SLOT_BUFFER_RING,
                                         .buffer_ring = x->n_buffer_rings++,
                                         .bytes = bytes,
                                         .parameter = -1,
                                         .input = -1};
    return x->n_slots++;
}

/* One operator of a given duration that writes these slots, and its messages. */
static void add_procedure(struct builder *b, struct program_stage *x, enum phase phase, int64_t ns,
                          int32_t received, int32_t sent, int32_t sent_slot)
{
    struct profile *f = &b->out->profile;
    uint64_t key = 1 + f->n_ops;
    f->ops[f->n_ops++] = (struct op_row){.base = "type:t",
                                         .key = key,
                                         .kind = OP_add,
                                         .text = "given",
                                         .samples = 1,
                                         .seconds = (double)ns / 1e9,
                                         .provenance = "profile"};
    struct program_op *op = &x->ops[x->n_ops];
    const struct shape one = {.rank = 1, .dim = {1}};
    *op = (struct program_op){.kind = OP_add, .phase = PHASE_F, .name = "given", .key = key};
    op->n_inputs = op->shapes.n_inputs = 2, op->shapes.n_outputs = 1;
    op->shapes.input[0] = op->shapes.input[1] = op->shapes.output[0] = one;
    if (sent_slot >= 0) op->output[op->n_outputs++] = sent_slot;
    struct instr *list = ARENA_ARRAY(b->a, struct instr, MAX_INSTRS);
    int32_t n = 0;
    if (received >= 0) list[n++] = (struct instr){INSTR_RECEIVE, received};
    list[n++] = (struct instr){INSTR_COMPUTE, x->n_ops++};
    if (sent >= 0) list[n++] = (struct instr){INSTR_SEND, sent};
    x->procedures[x->n_procedures++] = (struct procedure){.phase = phase, .variant = "", .n_instrs = n, .instrs = list};
}

/* I and W release the memory of F; W releases the additional memory of I. */
static enum status add_activations(struct builder *b, struct program_stage *x, int32_t v)
{
    const struct pipeline_stage *y = &b->p->stages[v];
    int64_t f = y->forward_bytes, i = y->input_bytes, w = y->weight_bytes;
    int32_t m = b->s->n_microbatches;
    if (f < 0 || w > 0 || f + i + w != 0)
        return error_set(b->err, ERR_INPUT,
                         "stage %" PRId32 ": F, I and W change memory by %" PRId64 ", %" PRId64
                         " and %" PRId64 " bytes: F must allocate, W must release, and the "
                         "sum must be 0",
                         v, f, i, w);
    if (b->fused[v]) {
        if (f) add_slot(x, "kept", f, (struct buffer_ring){m, 0, -1, -1, 'F', 'B'});
        return OK;
    }
    if (i < 0) add_slot(x, "kept for I", -i, (struct buffer_ring){m, 0, -1, -1, 'F', 'I'});
    if (i > 0) add_slot(x, "kept from I", i, (struct buffer_ring){m, 0, -1, -1, 'I', 'W'});
    int64_t both = i < 0 ? f + i : f;
    if (both) add_slot(x, "kept for W", both, (struct buffer_ring){m, 0, -1, -1, 'F', 'W'});
    return OK;
}

static enum status add_stage(struct builder *b, int32_t v)
{
    struct program *p = &b->out->program;
    struct program_stage *x = &p->stages[v];
    const struct pipeline_stage *y = &b->p->stages[v];
    int32_t n = b->p->n_stages, m = b->s->n_microbatches, most = 2 * m;
    *x = (struct program_stage){.stage = v, .device = b->device_of[v], .microbatches = m};
    x->slots = ARENA_ARRAY(b->a, struct slot, MAX_BUFFER_RINGS);
    x->buffer_rings = ARENA_ARRAY(b->a, struct buffer_ring, MAX_BUFFER_RINGS);
    x->ops = ARENA_ARRAY(b->a, struct program_op, 4);
    x->procedures = ARENA_ARRAY(b->a, struct procedure, 4);
    char back = b->fused[v] ? 'B' : 'I';
    int32_t in = v ? b->channel[0][v - 1] : -1, out = b->channel[0][v],
            gradient_in = v + 1 < n ? b->channel[1][v + 1] : -1, gradient_out = b->channel[1][v];
    int32_t slot[4] = {-1, -1, -1, -1};
    if (in >= 0) slot[0] = add_slot(x, "x", 0, (struct buffer_ring){most, 0, -1, in, 'R', 'F'});
    if (out >= 0) slot[1] = add_slot(x, "y", 0, (struct buffer_ring){most, 0, out, -1, 'F', 'S'});
    if (gradient_in >= 0)
        slot[2] = add_slot(x, "dy", 0, (struct buffer_ring){most, 0, -1, gradient_in, 'R', back});
    if (gradient_out >= 0)
        slot[3] = add_slot(x, "dx", 0, (struct buffer_ring){most, 0, gradient_out, -1, back, 'S'});
    if (in >= 0) p->channels[in].to_slot = slot[0];
    if (out >= 0) p->channels[out].from_slot = slot[1];
    if (gradient_in >= 0) p->channels[gradient_in].to_slot = slot[2];
    if (gradient_out >= 0) p->channels[gradient_out].from_slot = slot[3];
    TRY(add_activations(b, x, v));
    int64_t fused = y->fused_ns ? y->fused_ns : y->input_ns + y->weight_ns;
    add_procedure(b, x, 'F', y->forward_ns, in, out, slot[1]);
    add_procedure(b, x, back, b->fused[v] ? fused : y->input_ns, gradient_in, gradient_out,
                  slot[3]);
    if (!b->fused[v]) add_procedure(b, x, 'W', y->weight_ns, -1, -1, -1);
    add_procedure(b, x, 'U', b->update_ns ? b->update_ns[v] : 0, -1, -1, -1);
    if (b->p->devices && b->chunk_of[v] == 0)
        x->class_bytes[SLOT_PARAMETER] = b->p->devices[b->device_of[v]].resident_bytes;
    return OK;
}

/* --- a device --- */

/* A program's chunks are in ascending order of stages; a schedule's in the order of its table. */
static int32_t chunk_rank(const struct builder *b, int32_t d, int32_t chunk)
{
    int32_t rank = 0, n = b->s->n_chunks;
    for (int32_t c = 0; c < n; c++) rank += b->s->stage[d * n + c] < b->s->stage[d * n + chunk];
    return rank;
}

static void add_lane(struct builder *b, int32_t d)
{
    struct program *p = &b->out->program;
    const struct schedule_lane *l = &b->s->lanes[d];
    int32_t n = b->s->n_chunks;
    struct call *calls = ARENA_ARRAY(b->a, struct call, (size_t)l->n_ops + (size_t)n);
    int32_t *stages = ARENA_ARRAY(b->a, int32_t, (size_t)n);
    int32_t *rank = ARENA_ARRAY(b->a, int32_t, (size_t)n);
    for (int32_t c = 0; c < n; c++) {
        rank[c] = chunk_rank(b, d, c);
        stages[rank[c]] = b->s->stage[d * n + c];
    }
    for (int64_t i = 0; i < l->n_ops; i++) {
        const struct schedule_op *o = &l->ops[i];
        const struct program_stage *x = &p->stages[b->s->stage[d * n + o->chunk]];
        calls[i] = (struct call){program_procedure(x, o->phase, ""), o->microbatch, rank[o->chunk]};
    }
    for (int32_t c = 0; c < n; c++)
        calls[l->n_ops + c] =
            (struct call){program_procedure(&p->stages[stages[c]], PHASE_U, ""), -1, c};
    order_code(b->a, calls, l->n_ops + n, &p->orders[d]);
    p->lanes[d] = (struct lane){d, n, stages};
    int64_t limit = b->p->devices ? b->p->devices[d].limit_bytes : PIPELINE_NO_LIMIT;
    p->devices[d] = (struct program_device){.name = arena_printf(b->a, "d%" PRId32, d),
                                            .type = "t",
                                            .host = "h",
                                            .kind = "host",
                                            .memory_bytes = limit};
}

/* Device and chunk of every stage, and whether its backward is fused. */
static enum status find_stages(struct builder *b)
{
    const struct schedule *s = b->s;
    size_t n = (size_t)b->p->n_stages;
    b->device_of = ARENA_ARRAY(b->a, int32_t, n), b->chunk_of = ARENA_ARRAY(b->a, int32_t, n);
    b->fused = ARENA_ARRAY(b->a, bool, n);
    int64_t *n_fused = ARENA_ARRAY(b->a, int64_t, n);
    for (int32_t d = 0; d < s->n_devices; d++) {
        for (int32_t c = 0; c < s->n_chunks; c++) {
            int32_t v = s->stage[d * s->n_chunks + c];
            b->device_of[v] = d, b->chunk_of[v] = c;
        }
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++)
            if (s->lanes[d].ops[i].phase == PHASE_B)
                n_fused[s->stage[d * s->n_chunks + s->lanes[d].ops[i].chunk]]++;
    }
    for (size_t v = 0; v < n; v++) {
        b->fused[v] = n_fused[v] > 0;
        if (n_fused[v] && n_fused[v] < s->n_microbatches)
            return error_set(
                b->err, ERR_INPUT,
                "stage %zu: B for %" PRId64 " of %" PRId32
                " microbatches, I and W for the others: all must use the same",
                v, n_fused[v], s->n_microbatches);
    }
    return OK;
}

static void add_team(struct builder *b)
{
    struct cluster *c = &b->out->cluster;
    *c = (struct cluster){.name = "given", .n_types = 1};
    c->types = ARENA_ARRAY(b->a, struct device_type, 1);
    c->types[0] = (struct device_type){
        .name = "t", .catalogue = "host", .slowdown = 1, .memory_bytes = PIPELINE_NO_LIMIT};
    b->out->profile = (struct profile){.pace = 1};
    b->out->profile.ops = ARENA_ARRAY(b->a, struct op_row, 4 * (size_t)b->p->n_stages);
}

enum status pipeline_program(struct arena *a, const struct schedule *s, const struct pipeline *p,
                             const int64_t *update_ns, enum link_sharing sharing,
                             struct pipeline_program *out, struct error *err)
{
    struct builder b = {
        .a = a, .s = s, .p = p, .update_ns = update_ns, .sharing = sharing, .out = out, .err = err};
    size_t devices = (size_t)s->n_devices, stages = (size_t)p->n_stages;
    TRY(schedule_check(a, s, NULL, err));
    TRY(pipeline_check(p, s, err));
    out->program = (struct program){.name = s->name,
                                    .steps = 1,
                                    .n_devices = s->n_devices,
                                    .n_stages = p->n_stages,
                                    .n_orders = s->n_devices,
                                    .microbatches = s->n_microbatches};
    out->program.devices = ARENA_ARRAY(a, struct program_device, devices);
    out->program.lanes = ARENA_ARRAY(a, struct lane, devices);
    out->program.orders = ARENA_ARRAY(a, struct order, devices);
    out->program.stages = ARENA_ARRAY(a, struct program_stage, stages);
    add_team(&b);
    TRY(find_stages(&b));
    TRY(add_channels(&b));
    for (int32_t v = 0; v < p->n_stages; v++) TRY(add_stage(&b, v));
    for (int32_t d = 0; d < s->n_devices; d++) add_lane(&b, d);
    out->cost = cost_new(a, &out->profile, &out->cluster);
    return OK;
}
