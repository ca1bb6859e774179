/* core/lower/procedures.c - a stage's operators and procedures (instruction lists).
 *
 * F: load, receive, forward operators, each output sent right after its producer, loss. "ahead": the same with the latest parameters.
 * B: recomputation, receive, gradient operators in graph order; the gradient is sent right after its producer, before the
 * remaining weight gradients. Split: I has the input-gradient operators of that list, W the others. Recomputation precedes
 * the receive, because it needs no input from outside. "last", of B or W: the same with the launches of the gradient all-reduces, each as
 * soon as its gradients are complete and never before a group of lower number. "reduce": the launches alone, behind that call, of an island
 * that does not update in every step (core/lower/outer.h). OFFLOAD, FETCH: offload.c. U: core/lower/update.c.
 */
#include "core/lower/procedures.h"

#include "core/graph/gradient.h"
#include "core/lower/channels.h"
#include "core/lower/codes.h"
#include "core/lower/factors.h"
#include "core/lower/groups.h"
#include "core/lower/launches.h"
#include "core/lower/noise.h"
#include "core/lower/offload.h"
#include "core/lower/outer.h"
#include "core/lower/tensor_collectives.h"
#include "core/lower/scale.h"
#include "core/lower/uses.h"
#include "core/lower/versions.h"
#include "core/lower/writer.h"
#include "core/lower/zero.h"
#include "core/lower/zero_slots.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

void writer_emit(struct writer *w, enum instr_kind kind, int32_t arg)
{
    w->instrs = arena_grow(w->h->work, w->instrs, w->n, &w->capacity, sizeof *w->instrs);
    w->instrs[w->n++] = (struct instr){kind, arg};
}

int32_t writer_finish(struct writer *w, enum phase phase, const char *variant)
{
    struct program_stage *s = w->b->s;
    if (!*variant && phase != PHASE_U && phase != PHASE_W)
        lower_zero_insert(w->h, phase == PHASE_F ? PHASE_F : PHASE_I, &w->instrs, &w->n);
    s->procedures[s->n_procedures] = (struct procedure){.phase = phase, .variant = variant, .n_instrs = (int32_t)w->n, .instrs = w->instrs};
    *w = (struct writer){.h = w->h, .l = w->l, .b = w->b, .op_capacity = w->op_capacity};
    return s->n_procedures++;
}

/* The stage's next operator, all 0. An operator has about a kilobyte, most of it room for shapes, so none is copied whole. */
static struct program_op *next_op(struct writer *w)
{
    struct program_stage *s = w->b->s;
    s->ops = arena_grow(w->h->work, s->ops, (size_t)s->n_ops, &w->op_capacity, sizeof *s->ops);
    return &s->ops[s->n_ops];
}

static void finish_op(struct writer *w, struct program_op *op)
{
    struct program_stage *s = w->b->s;
    op->dtype = op->phase == PHASE_U ? dtype_master(w->h->v->g->dtype) : w->h->v->g->dtype;
    op->shapes.n_inputs = op->n_inputs, op->shapes.n_outputs = op->n_outputs;
    for (int32_t i = 0; i < op->n_inputs; i++) op->shapes.input[i] = s->slots[op->input[i]].shape;
    for (int32_t i = 0; i < op->n_outputs; i++)
        op->shapes.output[i] = s->slots[op->output[i]].shape;
    op->key = op_key(op->kind, &op->attrs, &op->shapes, op->dtype);
    writer_emit(w, INSTR_COMPUTE, s->n_ops++);
}

void writer_op(struct writer *w, const struct program_op *of)
{
    struct program_op *op = next_op(w);
    memcpy(op, of, offsetof(struct program_op, shapes));
    finish_op(w, op);
}

void writer_accumulate(struct writer *w, enum phase phase, int32_t layer, const char *name, int32_t x, int32_t y)
{
    writer_op(w, &(struct program_op){.kind = OP_accumulate,
                                     .phase = phase,
                                     .name = name,
                                     .layer = layer,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {x},
                                     .output = {y}});
}

void writer_zero(struct writer *w, enum phase phase, int32_t layer, const char *name, int32_t y)
{
    writer_op(w, &(struct program_op){.kind = OP_zero,
                                     .phase = phase,
                                     .name = name,
                                     .layer = layer,
                                     .n_outputs = 1,
                                     .output = {y}});
}

/* Accumulation in microbatch order: each gradient is complete before it is added. */
static void add_gradient(struct writer *w, const struct graph_op *op, int32_t tensor)
{
    struct lowering *l = w->l;
    int32_t param_use = w->h->v->param_use_of[tensor];
    if (l->plan->deterministic && !w->b->order->apart)
        writer_accumulate(w, PHASE_W, op->layer,
                          arena_join(l->a, w->h->v->g->tensors[tensor].name, ".sum"),
                          w->h->slot_back[tensor], w->h->gradient_slot[param_use]);
    w->h->done_at[param_use] = (int32_t)w->n - 1;
}

/* Whether the operator adds to its outputs, among them gradients of parameters. */
static bool accumulates(const struct writer *w, const struct graph_op *op)
{
    bool adds = op->attrs.accumulate;
    for (int32_t k = 0; k < op->n_outputs; k++)
        if (w->h->v->g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT)
            adds = !w->l->plan->deterministic &&
                   lower_zero_of(w->l, w->h->v->param_use_of[op->output[k]]) < 2;
    return adds;
}

/* Sizes of measured layers, of operands with their slots. */
static void set_kept(const struct writer *w, struct program_op *x)
{
    if (x->n_outputs < 2) return;
    if (x->kind == OP_measured_forward)
        x->attrs.kept = shape_last(&w->b->s->slots[x->output[1]].shape);
    if (x->kind == OP_measured_backward)
        x->attrs.kept = shape_last(&w->b->s->slots[x->input[1]].shape);
}

static void add_graph_op(struct writer *w, int32_t index, bool again)
{
    struct lowering *l = w->l;
    const struct graph_op *op = &w->h->v->g->ops[index];
    bool forward = op->phase == PHASE_F && !again, adds = accumulates(w, op);
    const int32_t *slot = forward ? w->h->slot_forward : w->h->slot_back;
    const char *name = again ? arena_join(l->a, op->name, ".again") : op->name;
    if (op_is_group(op->kind)) {
        writer_emit(w, INSTR_COLLECTIVE,
                    lower_shard_collective(l, w->b, index, again, name, slot[op->input[0]], slot[op->output[0]]));
        return;
    }
    /* This kind always adds: a gradient of this call alone is zeroed first. */
    if (op->kind == OP_accumulate && !adds)
        writer_zero(w, op->phase, op->layer, arena_join(l->a, name, ".zero"), slot[op->output[0]]);
    struct program_op *x = next_op(w);
    x->kind = op->kind, x->phase = op->phase, x->layer = op->layer, x->name = name;
    x->attrs = op->attrs, x->attrs.accumulate = adds;
    if (gradient_starts(op)) x->attrs.scaled = lower_scales(l), x->attrs.scale *= lower_outer_loss_factor(w->b, l);
    x->n_inputs = op->n_inputs, x->n_outputs = op->n_outputs;
    for (int32_t k = 0; k < op->n_inputs; k++) x->input[k] = w->ahead ? lower_latest(w->b->s, slot[op->input[k]]) : slot[op->input[k]];
    for (int32_t k = 0; k < op->n_outputs; k++) x->output[k] = slot[op->output[k]];
    set_kept(w, x);
    finish_op(w, x);
}

static const char *carrying_name(const struct writer *w, int32_t channel, bool received)
{
    static const char *const names[2][2] = {{"send", "receive"}, {"send_grad", "receive_grad"}};
    return names[w->l->p->channels[channel].gradient][received];
}

/* On a blocking link (OP_message) both ends are busy while a message passes: the sender from its issue, the receiver from its receive. */
static void add_carrying(struct writer *w, int32_t link, enum phase phase, int32_t channel, int32_t slot, bool received)
{
    if (link < 0) return;
    const struct program_stage *s = w->b->s;
    struct program_op op = {.kind = OP_message,
                            .phase = phase,
                            .attrs = {.link = link},
                            .name = carrying_name(w, channel, received),
                            .layer =
                                received == (phase == PHASE_F) ? s->first_layer : s->last_layer,
                            .n_inputs = 1,
                            .input = {slot}};
    writer_op(w, &op);
}

/* Behind a message in pieces: each GPU of a stage of measured layers has one, and they exchange these. */
static void add_assembly(struct writer *w, const struct crossing *x, enum phase phase, int32_t slot)
{
    const struct stage_build *b = w->b;
    if (x->link < 0) return;
    writer_op(w, &(struct program_op){.kind = OP_assemble,
                                      .phase = phase,
                                      .attrs = {.tp = x->parts > 1 ? b->n_shards : 0},
                                      .name = arena_join(w->l->a, carrying_name(w, x->channel, true), ".assemble"),
                                      .layer = phase == PHASE_F ? b->s->first_layer : b->s->last_layer,
                                      .n_inputs = 1,
                                      .input = {slot}});
}

/* The stage's layer next to the cut that a message crosses. */
static int32_t cut_layer(const struct stage_build *b, enum phase phase, bool sent)
{
    return (phase == PHASE_F) == sent ? b->s->last_layer : b->s->first_layer;
}

/* Copies sequences, or a part of each row, of one slot to another: SLICE or PASTE. */
static void add_piece(struct writer *w, enum op_kind kind, enum phase phase, const struct crossing *x, int32_t from, int32_t to)
{
    const struct stage_build *b = w->b;
    const char *name = b->s->slots[kind == OP_slice ? from : to].name;
    const struct shape *whole = &b->s->slots[kind == OP_slice ? from : to].shape;
    struct op_attrs attrs = {.start = x->first};
    if (x->parts > 1) {
        attrs.dim = whole->rank - 1;
        attrs.start = lower_part(x, shape_last(whole), &attrs.sequences);
    }
    attrs.sequences = b->s->slots[to].shape.dim[attrs.dim];
    writer_op(w, &(struct program_op){.kind = kind,
                                     .phase = phase,
                                     .attrs = attrs,
                                     .name = arena_printf(w->l->a, "%s.%s%" PRId64, name, op_kind_name(kind), attrs.start),
                                     .layer = cut_layer(b, phase, kind == OP_slice),
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {from},
                                     .output = {to}});
}

/* What the channel carries of `home`: a piece, or the code of the tensor or of a piece. */
static void pack_message(struct writer *w, enum phase phase, const struct crossing *x, int32_t home)
{
    if (!x->code.kind || x->cut) add_piece(w, OP_slice, phase, x, home, x->code.kind ? x->values : x->slot);
    if (x->code.kind) lower_encode_message(w, phase, cut_layer(w->b, phase, true), &x->code, x->cut ? x->values : home, x->slot);
}

static void unpack_message(struct writer *w, enum phase phase, const struct crossing *x, int32_t home)
{
    if (x->code.kind) lower_decode_message(w, phase, cut_layer(w->b, phase, false), &x->code, x->slot, x->cut ? x->values : home);
    if (!x->code.kind || x->cut) add_piece(w, OP_paste, phase, x, x->code.kind ? x->values : x->slot, home);
}

/* The next of the edge's messages of the tensor; -1: none. */
static int32_t next_of(const struct stage_build *b, enum edge e, int32_t tensor, int32_t i)
{
    while (i < b->edge[e].n && b->edge[e].list[i].tensor != tensor) i++;
    return i < b->edge[e].n ? i : -1;
}

/* The parts of a tensor that this GPU sends or receives. All GPUs of both ends are busy until the last one has its part, so GPUs of a
 * stage stay in step, as its layers were measured. */
static void carry_parts(struct writer *w, enum edge e, int32_t tensor, int32_t home)
{
    const struct stage_build *b = w->b;
    bool received = e == ACTIVATIONS_IN || e == GRADIENTS_IN;
    enum phase phase = e == GRADIENTS_IN || e == GRADIENTS_OUT ? PHASE_I : PHASE_F;
    const struct crossing *x = NULL;
    int32_t round = 0;
    for (int32_t i = next_of(b, e, tensor, 0); i >= 0; i = next_of(b, e, tensor, i + 1)) {
        x = &b->edge[e].list[i];
        if (!received) add_piece(w, OP_slice, phase, x, home, x->slot);
        writer_emit(w, received ? INSTR_RECEIVE : INSTR_SEND, x->channel);
    }
    for (int32_t i = next_of(b, e, tensor, 0); i >= 0; i = next_of(b, e, tensor, i + 1), round++) {
        x = &b->edge[e].list[i];
        add_carrying(w, x->link, phase, x->channel, x->slot, received);
    }
    for (; round < x->rounds; round++)
        add_carrying(w, x->link, phase, x->channel, x->slot, received);
    if (!received) return;
    for (int32_t i = next_of(b, e, tensor, 0); i >= 0; i = next_of(b, e, tensor, i + 1))
        add_piece(w, OP_paste, phase, &b->edge[e].list[i], b->edge[e].list[i].slot, home);
    add_assembly(w, x, phase, home);
}

/* Sends the tensor's slot to all receivers: directly, copied or in pieces. */
static void send(struct writer *w, enum edge out, int32_t tensor, int32_t home)
{
    enum phase phase = out == GRADIENTS_OUT ? PHASE_I : PHASE_F;
    for (int32_t i = 0; i < w->b->edge[out].n; i++) {
        const struct crossing *x = &w->b->edge[out].list[i];
        if (x->tensor != tensor) continue;
        if (x->parts > 1) {
            carry_parts(w, out, tensor, home);
            return;
        }
        if (!x->whole) {
            pack_message(w, phase, x, home);
        } else if (x->slot != home) {
            const char *name = w->h->v->g->tensors[tensor].name;
            writer_zero(w, phase, w->b->s->first_layer, arena_join(w->l->a, name, ".pass.zero"), x->slot);
            writer_accumulate(w, phase, w->b->s->first_layer,
                              arena_join(w->l->a, name, ".pass"), home, x->slot);
        }
        writer_emit(w, INSTR_SEND, x->channel);
        add_carrying(w, x->link, phase, x->channel, x->slot, false);
    }
}

/* The edge's messages; then those forwarded unchanged to the next stage. */
static void receive(struct writer *w, enum edge in, enum edge out)
{
    struct stage_build *b = w->b;
    enum phase phase = in == GRADIENTS_IN ? PHASE_I : PHASE_F;
    const int32_t *slot = in == GRADIENTS_IN ? w->h->slot_back : w->h->slot_forward;
    for (int32_t i = 0; i < b->edge[in].n; i++) {
        const struct crossing *x = &b->edge[in].list[i];
        if (x->parts > 1) {
            if (next_of(b, in, x->tensor, 0) == i) carry_parts(w, in, x->tensor, slot[x->tensor]);
            continue;
        }
        writer_emit(w, INSTR_RECEIVE, x->channel);
        add_carrying(w, x->link, phase, x->channel, x->slot, true);
        add_assembly(w, x, phase, x->slot);
        if (!x->whole) unpack_message(w, phase, x, slot[x->tensor]);
    }
    for (int32_t i = 0; i < b->edge[in].n; i++) {
        const struct crossing *x = &b->edge[in].list[i];
        if (x->first == 0) send(w, out, x->tensor, slot[x->tensor]); /* once per tensor */
    }
}

static int32_t forward_procedure(struct writer *w, const char *variant)
{
    const struct stage_build *b = w->b;
    const struct graph *g = w->h->v->g;
    bool loads = false;
    w->ahead = *variant;
    for (int32_t i = 0; i < b->s->n_slots; i++) loads |= b->s->slots[i].input >= 0;
    if (loads) writer_emit(w, INSTR_LOAD, -1);
    receive(w, ACTIVATIONS_IN, ACTIVATIONS_OUT);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(b, op->layer)) continue;
        add_graph_op(w, i, false);
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t slot = w->h->slot_forward[op->output[k]];
            send(w, ACTIVATIONS_OUT, op->output[k], slot);
            if (g->tensors[op->output[k]].role == TENSOR_LOSS) writer_emit(w, INSTR_LOSS, slot);
        }
        lower_offload_out(w, i);
    }
    lower_offload_out(w, -1);
    return writer_finish(w, PHASE_F, variant);
}

static void run_again(struct writer *w, int32_t first, int32_t last)
{
    for (int32_t i = first; i <= last; i++) {
        if (!w->h->rerun[i]) continue;
        add_graph_op(w, i, true);
        if (w->h->v->g->ops[i].reshard_after_forward) w->h->rerun[i] = false; /* done */
    }
}

/* Recomputes the block of `forward` before its first gradient operator. */
static void run_block_again(struct writer *w, int32_t forward, int32_t *done)
{
    int32_t first = forward, last = forward;
    if (forward < 0 || (*done >= 0 && lower_same_block(w->h, forward, *done))) return;
    while (first > 0 && lower_same_block(w->h, forward, first - 1)) first--;
    while (last + 1 < w->h->v->g->n_forward && lower_same_block(w->h, forward, last + 1)) last++;
    *done = forward;
    run_again(w, first, last);
}

/* From zero 2 on a group's gradients are reduce-scattered when complete, one group at a time, so that scratch holds those of two
 * at most. missing: (n_groups of the stage) outstanding gradients, + 1. */
static void scatter_gradient(struct writer *w, int32_t param_use)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    int32_t group = lower_zero_of(l, param_use) < 2 ? -1 : lower_group_of_param_use(l, b, param_use).group, i = 0;
    if (group < 0) return;
    if (!w->missing) w->missing = ARENA_ARRAY(w->h->work, int32_t, (size_t)b->groups->n);
    while (b->groups->group[i] != group) i++;
    if (!w->missing[i])
        w->missing[i] = lower_group_plan(l, group)->n_uses + 1;
    if (--w->missing[i] > 1) return;
    writer_emit(w, INSTR_COLLECTIVE_START, group);
    if (w->scattering) writer_emit(w, INSTR_COLLECTIVE_WAIT, w->scattering - 1);
    w->scattering = group + 1;
}

/* Gathers the operator's resharded parameters just before it; once in a procedure. */
static void gather_again(struct writer *w, const struct graph_op *reader)
{
    const struct graph *g = w->h->v->g;
    for (int32_t k = 0; k < reader->n_inputs; k++) {
        int32_t i = g->tensors[reader->input[k]].producer;
        if (i < 0 || i >= g->n_forward || !g->ops[i].reshard_after_forward || !w->h->rerun[i]) continue;
        w->h->rerun[i] = false; /* done */
        gather_again(w, &g->ops[i]);
        add_graph_op(w, i, true);
    }
}

static void gradient_ops(struct writer *w, enum phase phase)
{
    int32_t again = -1;
    bool blocks = phase == PHASE_I && w->b->plan->recompute == RECOMPUTE_BLOCKS;
    const struct graph *g = w->h->v->g;
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(w->b, op->layer) || orders_op_phase(w->b, op) != phase) continue;
        if (blocks) run_block_again(w, op->forward, &again);
        gather_again(w, op);
        lower_offload_fetch(w, i);
        add_graph_op(w, i, false);
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT) {
                add_gradient(w, op, op->output[k]);
                scatter_gradient(w, w->h->v->param_use_of[op->output[k]]);
            } else {
                send(w, GRADIENTS_OUT, op->output[k], w->h->slot_back[op->output[k]]);
            }
    }
    if (w->scattering) writer_emit(w, INSTR_COLLECTIVE_WAIT, w->scattering - 1);
}

static void backward_procedures(struct writer *w)
{
    struct stage_build *b = w->b;
    lower_offload_fetch(w, -1);
    if (b->plan->recompute != RECOMPUTE_BLOCKS && b->plan->recompute != RECOMPUTE_NONE) run_again(w, 0, w->h->v->g->n_forward - 1);
    receive(w, GRADIENTS_IN, GRADIENTS_OUT);
    gradient_ops(w, PHASE_I);
    b->procedures->back = b->procedures->w = writer_finish(w, orders_stage_phase(b, PHASE_I), "");
    if (!b->order->split) return;
    lower_offload_fetch(w, -1);
    gradient_ops(w, PHASE_W);
    b->procedures->w = writer_finish(w, PHASE_W, "");
}

/* Instruction of the last backward after which the stage launches a group. An all-reduce of shards (core/lower/hybrid.h) follows its
 * reduce-scatter, which from zero 2 on every backward launches. */
static int32_t launched_after(const struct writer *w, const struct procedure *base, int32_t group)
{
    const struct group_plan *g = lower_group_plan(w->l, group);
    int32_t end = base->n_instrs - 1, at = lower_complete_at(w->h, group, end);
    if (!g->between || at == end || lower_zero_of(w->l, g->uses[0]) < 2) return at;
    int32_t of = lower_group_of_param_use(w->l, w->b, g->uses[0]).group;
    for (at = 0; at < end && !(base->instrs[at].kind == INSTR_COLLECTIVE_START && base->instrs[at].arg == of);) at++;
    return at;
}

/* What is done with the gradients that instruction `at` completes, in front of their group's launch, which may be another chunk's
 * (core/lower/launches.c): their squares are summed, or they are encoded. */
static void use_complete(struct writer *w, int32_t at, int32_t end)
{
    const struct stage_groups *all = w->b->groups;
    for (int32_t i = 0; i < all->n; i++) {
        const struct group_plan *plan = lower_group_plan(w->l, all->group[i]);
        bool encoded = (plan->code.kind || plan->factor == FACTOR_LEFT) && !plan->outer && !plan->between;
        if (!encoded && !lower_measures_noise(w->l)) continue;
        int32_t complete = lower_complete_at(w->h, all->group[i], end);
        if (complete != at && (complete >= 0 || at)) continue;
        if (lower_measures_noise(w->l)) lower_noise_look(w, i, false);
        if (encoded && plan->factor)
            lower_factor_left(w, i);
        else if (encoded)
            lower_encode(w, i);
    }
}

static void last_procedure(struct writer *w)
{
    struct stage_build *b = w->b;
    struct procedure base = b->s->procedures[b->procedures->w];
    int32_t next = 0;
    bool alone = lower_outer_steps(w->l, b) > 1;
    b->procedures->last = b->procedures->reduce = -1;
    if (!b->launches->n && !lower_encodes(w->h, false) && !lower_measures_noise(w->l)) return;
    for (int32_t i = 0; i < base.n_instrs || i == 0; i++) {
        if (i < base.n_instrs && !alone) writer_emit(w, base.instrs[i].kind, base.instrs[i].arg);
        use_complete(w, i, base.n_instrs - 1);
        while (next < b->launches->n && launched_after(w, &base, b->launches->group[next]) <= i)
            writer_emit(w, INSTR_COLLECTIVE_START, b->launches->group[next++]);
    }
    if (!alone) b->procedures->last = writer_finish(w, orders_stage_phase(b, PHASE_W), "last");
    if (alone) b->procedures->reduce = writer_finish_update(w, "reduce");
}

/* About as many operators as the stage will have: those of its layers, some of them twice, updates. */
static size_t n_ops_of(const struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    size_t n = 64;
    for (int32_t i = 0; i < g->n_ops; i++)
        n += lower_owns(h->b, g->ops[i].layer) ? 1 + (i < g->n_forward && h->rerun[i]) : 0;
    return n + 2 * (size_t)h->b->s->n_parameters;
}

void lower_procedures(struct stage_scratch *h)
{
    struct stage_build *b = h->b;
    struct writer w = {.h = h, .l = h->l, .b = b, .op_capacity = n_ops_of(h)};
    b->s->ops = ARENA_ARRAY(h->work, struct program_op, w.op_capacity);
    b->s->procedures =
        ARENA_ARRAY(h->work, struct procedure, (size_t)(7 + lower_outer_calls(h->l))); /* F twice, B or I and W, last, check, U, exchanges */
    b->procedures = ARENA_ARRAY(h->l->tables, struct stage_procedures, 1);
    b->procedures->f = forward_procedure(&w, "");
    b->procedures->ahead = b->order->ahead ? forward_procedure(&w, "ahead") : -1;
    backward_procedures(&w);
    last_procedure(&w);
    lower_update_procedure(&w);
    lower_outer_procedures(&w);
}
