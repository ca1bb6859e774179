/* core/lower_procedures.c - a stage's operators and the lists of instructions that run them.
 *
 * F: load, receive, forward operators, each output sent right after its producer, loss.
 * B: what is run again, receive, gradient operators in graph order; the gradient leaves right after its producer, before the
 * weight gradients that are left. Split: I has the input-gradient operators of that list, W the others. What is run again comes
 * before the receive: it needs nothing from outside. "last", of B or W: the same with the launches of the sums, each as
 * soon as its gradients are complete and never before a group of lower number. U: wait for the sums, exchange tied ones,
 * update.
 */
#include "core/lower_internal.h"

#include <inttypes.h>
#include <string.h>

struct writer {
    struct lowering *l;
    struct stage_build *b;
    int32_t *missing, scattering; /* see scatter_gradient; scattering: group under way, + 1 */
    struct instr *instrs;
    size_t n, capacity;
};

static void emit(struct writer *w, enum instr_kind kind, int32_t arg)
{
    w->instrs = arena_grow(w->l->a, w->instrs, w->n, &w->capacity, sizeof *w->instrs);
    w->instrs[w->n++] = (struct instr){kind, arg};
}

static int32_t finish(struct writer *w, char letter, const char *variant)
{
    struct program_stage *s = w->b->s;
    if (!*variant && letter != 'U' && letter != 'W')
        lower_zero_insert(w->l, w->b, letter == 'F' ? PART_FORWARD : PART_BACK, &w->instrs, &w->n);
    s->procedures[s->n_procedures] = (struct procedure){letter, variant, (int32_t)w->n, w->instrs};
    *w = (struct writer){.l = w->l, .b = w->b};
    return s->n_procedures++;
}

static struct program_op *add_op(struct writer *w, struct program_op op)
{
    struct program_stage *s = w->b->s;
    s->ops = arena_grow(w->l->a, s->ops, (size_t)s->n_ops, &w->b->op_capacity, sizeof *s->ops);
    op.dtype = op.phase == PHASE_U ? dtype_master(w->l->v->g->dtype) : w->l->v->g->dtype;
    op.shapes.n_inputs = op.n_inputs, op.shapes.n_outputs = op.n_outputs;
    for (int32_t i = 0; i < op.n_inputs; i++) op.shapes.input[i] = s->slots[op.input[i]].shape;
    for (int32_t i = 0; i < op.n_outputs; i++) op.shapes.output[i] = s->slots[op.output[i]].shape;
    if (s->cards > 1) op.attrs.cards = s->cards;
    op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
    s->ops[s->n_ops] = op;
    emit(w, INSTR_COMPUTE, s->n_ops);
    return &s->ops[s->n_ops++];
}

/* x added to y; plain arithmetic that no operator of the graph stands for. */
static void add_accumulate(struct writer *w, enum phase phase, int32_t layer, const char *name,
                           int32_t x, int32_t y)
{
    add_op(w, (struct program_op){.kind = OP_accumulate,
                                  .phase = phase,
                                  .name = name,
                                  .layer = layer,
                                  .n_inputs = 1,
                                  .n_outputs = 1,
                                  .input = {x},
                                  .output = {y}});
}

static void add_zero(struct writer *w, enum phase phase, int32_t layer, const char *name, int32_t y)
{
    add_op(w, (struct program_op){.kind = OP_zero,
                                  .phase = phase,
                                  .name = name,
                                  .layer = layer,
                                  .n_outputs = 1,
                                  .output = {y}});
}

/* A sum of microbatches in their order: each gradient is whole before it is added. */
static void add_gradient(struct writer *w, const struct graph_op *op, int32_t tensor)
{
    struct lowering *l = w->l;
    int32_t unit = l->v->unit_of[tensor];
    if (l->plan->deterministic && !w->b->apart)
        add_accumulate(w, PHASE_W, op->layer,
                       arena_printf(l->a, "%s.sum", l->v->g->tensors[tensor].name),
                       l->slot_back[tensor], l->sum_slot[unit]);
    l->done_at[unit] = (int32_t)w->n - 1;
}

static void add_graph_op(struct writer *w, int32_t index, bool again)
{
    struct lowering *l = w->l;
    const struct graph_op *op = &l->v->g->ops[index];
    bool forward = op->phase == PHASE_F && !again;
    const int32_t *slot = forward ? l->slot_forward : l->slot_back;
    struct program_op x = {.kind = op->kind,
                           .phase = op->phase,
                           .attrs = op->attrs,
                           .layer = op->layer,
                           .name = again ? arena_printf(l->a, "%s.again", op->name) : op->name,
                           .n_inputs = op->n_inputs,
                           .n_outputs = op->n_outputs};
    for (int32_t k = 0; k < op->n_inputs; k++) x.input[k] = slot[op->input[k]];
    if (op_is_group(op->kind)) {
        emit(w, INSTR_COLLECT,
             lower_shard_meeting(l, w->b, index, again, x.name, x.input[0], slot[op->output[0]]));
        return;
    }
    for (int32_t k = 0; k < op->n_outputs; k++) {
        x.output[k] = slot[op->output[k]];
        if (op->kind == OP_measured_forward && k == 1)
            x.attrs.kept = shape_last(&w->b->s->slots[x.output[k]].shape);
        if (op->kind == OP_measured_backward && k == 1)
            x.attrs.kept = shape_last(&w->b->s->slots[x.input[1]].shape);
        if (l->v->g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT)
            x.attrs.accumulate =
                !l->plan->deterministic && lower_zero_of(l, l->v->unit_of[op->output[k]]) < 2;
    }
    add_op(w, x);
}

/* Where the compute stream itself carries a message, both ends are busy while it passes: the sender from when it is
 * handed over, the receiver from when it takes it up. Each of the cards that share a stage sends its part, and the
 * receiving ones make it whole again. */
static void add_carrying(struct writer *w, int32_t link, enum phase phase, int32_t channel,
                         int32_t slot, bool received)
{
    static const char *const names[2][2] = {{"send", "receive"}, {"send_grad", "receive_grad"}};
    if (link < 0) return;
    const struct program_stage *s = w->b->s;
    const char *name = names[w->l->p->channels[channel].gradient][received];
    struct program_op op = {.kind = OP_message,
                            .phase = phase,
                            .attrs = {.link = link},
                            .name = name,
                            .layer =
                                received == (phase == PHASE_F) ? s->first_layer : s->last_layer,
                            .n_inputs = 1,
                            .input = {slot}};
    add_op(w, op);
    if (!received) return;
    op.kind = OP_assemble, op.attrs = (struct op_attrs){0};
    op.name = arena_printf(w->l->a, "%s.assemble", name);
    add_op(w, op);
}

/* Sequences of one slot cut out into another, or put in there. */
static void add_piece(struct writer *w, enum op_kind kind, enum phase phase,
                      const struct crossing *x, int32_t from, int32_t to)
{
    const struct stage_build *b = w->b;
    const char *name = b->s->slots[kind == OP_slice ? from : to].name;
    struct op_attrs attrs = {.start = x->first, .sequences = b->s->slots[to].shape.dim[0]};
    add_op(w,
           (struct program_op){
               .kind = kind,
               .phase = phase,
               .attrs = attrs,
               .name = arena_printf(w->l->a, "%s.%s%" PRId64, name, op_kind_name(kind), x->first),
               .layer =
                   (phase == PHASE_F) == (kind == OP_slice) ? b->s->last_layer : b->s->first_layer,
               .n_inputs = 1,
               .n_outputs = 1,
               .input = {from},
               .output = {to}});
}

/* What stands in home, to all that want of it: as it is, copied or in pieces. */
static void send(struct writer *w, enum edge out, int32_t tensor, int32_t home)
{
    enum phase phase = out == GRADIENTS_OUT ? PHASE_I : PHASE_F;
    for (int32_t i = 0; i < w->b->edge[out].n; i++) {
        const struct crossing *x = &w->b->edge[out].list[i];
        if (x->tensor != tensor) continue;
        if (!x->whole) {
            add_piece(w, OP_slice, phase, x, home, x->slot);
        } else if (x->slot != home) {
            const char *name = w->l->v->g->tensors[tensor].name;
            add_zero(w, phase, w->b->s->first_layer, arena_printf(w->l->a, "%s.pass.zero", name),
                     x->slot);
            add_accumulate(w, phase, w->b->s->first_layer, arena_printf(w->l->a, "%s.pass", name),
                           home, x->slot);
        }
        emit(w, INSTR_SEND, x->channel);
        add_carrying(w, x->link, phase, x->channel, x->slot, false);
    }
}

/* The edge's messages; then, for the stage beyond, what is handed on as it came. */
static void receive(struct writer *w, enum edge in, enum edge out)
{
    struct stage_build *b = w->b;
    enum phase phase = in == GRADIENTS_IN ? PHASE_I : PHASE_F;
    const int32_t *slot = in == GRADIENTS_IN ? w->l->slot_back : w->l->slot_forward;
    for (int32_t i = 0; i < b->edge[in].n; i++) {
        const struct crossing *x = &b->edge[in].list[i];
        emit(w, INSTR_RECEIVE, x->channel);
        add_carrying(w, x->link, phase, x->channel, x->slot, true);
        if (!x->whole) add_piece(w, OP_paste, phase, x, x->slot, slot[x->tensor]);
    }
    for (int32_t i = 0; i < b->edge[in].n; i++) {
        const struct crossing *x = &b->edge[in].list[i];
        if (x->first == 0) send(w, out, x->tensor, slot[x->tensor]); /* once a tensor */
    }
}

static void forward_procedure(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    const struct graph *g = l->v->g;
    for (int32_t i = 0; i < b->s->n_slots; i++)
        if (b->s->slots[i].input >= 0) {
            emit(w, INSTR_LOAD, -1);
            break;
        }
    receive(w, ACTIVATIONS_IN, ACTIVATIONS_OUT);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(b, op->layer)) continue;
        add_graph_op(w, i, false);
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t slot = l->slot_forward[op->output[k]];
            send(w, ACTIVATIONS_OUT, op->output[k], slot);
            if (g->tensors[op->output[k]].role == TENSOR_LOSS) emit(w, INSTR_LOSS, slot);
        }
    }
    b->procedure_f = finish(w, 'F', "");
}

static void run_again(struct writer *w, int32_t first, int32_t last)
{
    for (int32_t i = first; i <= last; i++) {
        if (!w->l->rerun[i]) continue;
        add_graph_op(w, i, true);
        if (w->l->v->g->ops[i].again) w->l->rerun[i] = false; /* done */
    }
}

/* Forward operators of the block of `forward`, before its first gradient operator. */
static void run_block_again(struct writer *w, int32_t forward, int32_t *done)
{
    const struct lowering *l = w->l;
    int32_t first = forward, last = forward;
    if (forward < 0 || (*done >= 0 && lower_same_block(l, forward, *done))) return;
    while (first > 0 && lower_same_block(l, forward, first - 1)) first--;
    while (last + 1 < l->v->g->n_forward && lower_same_block(l, forward, last + 1)) last++;
    *done = forward;
    run_again(w, first, last);
}

/* From zero 2 on a group's gradients are scattered as soon as they are whole, one group at a time, so that those of two
 * are in scratch at most. missing: (n_groups of the stage) gradients still to come, + 1. */
static void scatter_gradient(struct writer *w, int32_t unit)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    int32_t group = lower_zero_of(l, unit) < 2 ? -1 : lower_group_of_unit(l, b, unit), i = 0;
    if (group < 0) return;
    if (!w->missing) w->missing = ARENA_ARRAY(l->a, int32_t, (size_t)b->n_groups);
    while (b->groups[i] != group) i++;
    if (!w->missing[i])
        w->missing[i] = l->group_plans[group].last_unit - l->group_plans[group].first_unit + 2;
    if (--w->missing[i] > 1) return;
    emit(w, INSTR_REDUCE, group);
    if (w->scattering) emit(w, INSTR_AWAIT, w->scattering - 1);
    w->scattering = group + 1;
}

/* What the operator reads of parameters that are gathered again, right before it; once in a procedure. */
static void gather_again(struct writer *w, const struct graph_op *reader)
{
    const struct graph *g = w->l->v->g;
    for (int32_t k = 0; k < reader->n_inputs; k++) {
        int32_t i = g->tensors[reader->input[k]].producer;
        if (i < 0 || i >= g->n_forward || !g->ops[i].again || !w->l->rerun[i]) continue;
        w->l->rerun[i] = false; /* done */
        gather_again(w, &g->ops[i]);
        add_graph_op(w, i, true);
    }
}

static void gradient_ops(struct writer *w, enum part part)
{
    int32_t again = -1;
    bool blocks = part == PART_BACK && w->b->plan->recompute == RECOMPUTE_BLOCKS;
    struct lowering *l = w->l;
    const struct graph *g = l->v->g;
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(w->b, op->layer) || op_part(w->b, op) != part) continue;
        if (blocks) run_block_again(w, op->forward, &again);
        gather_again(w, op);
        add_graph_op(w, i, false);
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT) {
                add_gradient(w, op, op->output[k]);
                scatter_gradient(w, l->v->unit_of[op->output[k]]);
            } else {
                send(w, GRADIENTS_OUT, op->output[k], l->slot_back[op->output[k]]);
            }
    }
    if (w->scattering) emit(w, INSTR_AWAIT, w->scattering - 1);
}

static void backward_procedures(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    if (b->plan->recompute != RECOMPUTE_BLOCKS && b->plan->recompute != RECOMPUTE_NONE)
        run_again(w, 0, l->v->g->n_forward - 1);
    receive(w, GRADIENTS_IN, GRADIENTS_OUT);
    gradient_ops(w, PART_BACK);
    b->procedure_back = b->procedure_w = finish(w, part_letter(b, PART_BACK), "");
    if (!b->split) return;
    gradient_ops(w, PART_WEIGHT);
    b->procedure_w = finish(w, 'W', "");
}

static void last_procedure(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    struct procedure base = b->s->procedures[b->procedure_w];
    int32_t next = 0;
    b->procedure_last = -1;
    if (!b->n_launches) return;
    for (int32_t i = 0; i < base.n_instrs || i == 0; i++) {
        if (i < base.n_instrs) emit(w, base.instrs[i].kind, base.instrs[i].arg);
        while (next < b->n_launches &&
               lower_complete_at(l, b, b->launches[next], base.n_instrs - 1) <= i)
            emit(w, INSTR_REDUCE, b->launches[next++]);
    }
    b->procedure_last = finish(w, part_letter(b, PART_WEIGHT), "last");
}

/* --- update --- */

static void await_sums(struct writer *w, const struct stage_build *b)
{
    for (int32_t i = 0; i < b->n_groups; i++)
        if (!w->l->group_plans[b->groups[i]].tied && !w->l->group_plans[b->groups[i]].zero)
            emit(w, INSTR_AWAIT, b->groups[i]);
}

/* All devices of a stage hold the same sum of a use; it counts once (lower_groups.c). */
static void clear_tied(struct writer *w, const int32_t *tied, int32_t n)
{
    const struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    for (int32_t i = 0; b->shard > 0 && i < n; i++) {
        const struct group_plan *plan = &l->group_plans[tied[i]];
        int32_t unit =
            lower_owns(b, l->v->units[plan->first_unit].layer) ? plan->first_unit : plan->last_unit;
        if (l->p->groups[tied[i]].algorithm == GROUP_LOCAL || plan->cells)
            continue; /* are silent */
        add_zero(w, PHASE_U, b->s->first_layer,
                 arena_printf(l->a, "%s.once", b->s->slots[l->sum_slot[unit]].name),
                 l->sum_slot[unit]);
    }
}

/* The first update of a device exchanges for both chunks, so the other one's sums must be there too. */
static void wait_for_sums(struct writer *w)
{
    const struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    int32_t n = 0, *tied = ARENA_ARRAY(l->a, int32_t, (size_t)b->n_groups);
    await_sums(w, b);
    for (int32_t i = 0; i < b->n_groups; i++) {
        if (!l->group_plans[b->groups[i]].tied || lower_exchanged_before(l, b, b->groups[i]))
            continue;
        const struct group *g = &l->p->groups[b->groups[i]];
        for (int32_t k = 0; g->algorithm == GROUP_LOCAL && k < g->n_members; k++)
            if (g->members[k].stage != b->index) await_sums(w, &l->stages[g->members[k].stage]);
        tied[n++] = b->groups[i];
    }
    clear_tied(w, tied, n);
    for (int32_t i = 0; i < n; i++) emit(w, INSTR_REDUCE, tied[i]);
    for (int32_t i = 0; i < n; i++) emit(w, INSTR_AWAIT, tied[i]);
}

/* slot: (UPDATE_SLOTS). In half precision the master is updated and the parameter is what it narrows to. */
static struct program_op update_op(const struct writer *w, bool flat, const char *name, bool decay,
                                   const int32_t *slot)
{
    bool adamw = w->l->p->optimizer.kind == OPTIMIZER_ADAMW, narrows = slot[UPDATE_MASTER] >= 0;
    enum op_kind kind = adamw ? (flat ? OP_flat_adamw : OP_adamw) : flat ? OP_flat_sgd : OP_sgd;
    struct program_op op = {.kind = kind,
                            .phase = PHASE_U,
                            .attrs = {.decay = decay, .narrows = narrows},
                            .name = name,
                            .layer = w->b->s->first_layer,
                            .n_inputs = adamw ? 4 : 2,
                            .n_outputs = adamw ? 4 : 2};
    static const int out_adamw[4] = {UPDATE_P, UPDATE_M, UPDATE_V, UPDATE_G};
    for (int k = 0; k < op.n_inputs; k++) {
        int out = adamw ? out_adamw[k] : k;
        op.input[k] = k == UPDATE_P && narrows ? slot[UPDATE_MASTER] : slot[k];
        op.output[k] = out == UPDATE_P && narrows ? slot[UPDATE_MASTER] : slot[out];
    }
    if (narrows) op.output[op.n_outputs++] = slot[UPDATE_P];
    return op;
}

/* The gradient that stands where the parameter stands; a second use's lies behind. */
static int32_t primary_gradient(const struct stage_build *b, const struct program_parameter *p)
{
    if (p->gradient[0] < 0 || p->gradient[1] < 0)
        return p->gradient[0] >= 0 ? p->gradient[0] : p->gradient[1];
    const struct slot *x = b->s->slots;
    int64_t wide = dtype_bytes(x[p->gradient[0]].dtype) / dtype_bytes(x[p->slot].dtype);
    return p->gradient[x[p->gradient[0]].offset_bytes != x[p->slot].offset_bytes * wide];
}

/* The part that this stage owns of one group's parameters. What a second use's gradients add up to comes on top. */
static void update_own(struct writer *w, const struct flat *f)
{
    struct lowering *l = w->l;
    const struct group_plan *g = &l->group_plans[f->group];
    const char *name = l->p->groups[f->group].name;
    if (g->zero == 1) emit(w, INSTR_AWAIT, f->group);
    for (int32_t i = 0; g->zero == 1 && i < w->b->n_flats; i++) {
        const struct flat *other = &w->b->flats[i];
        if (other == f || l->group_plans[other->group].home != f->group) continue;
        emit(w, INSTR_AWAIT, other->group);
        add_accumulate(w, PHASE_U, w->b->s->first_layer, arena_printf(l->a, "%s.tie", name),
                       other->own_gradient[0], f->own_gradient[0]);
    }
    for (int32_t k = 0; k < g->n_sections; k++) {
        int32_t slot[UPDATE_SLOTS] = {f->own_parameter[k], f->own_gradient[k], f->state[k][0],
                                      f->state[k][1], f->master[k]};
        bool decay = g->section[k].decay;
        add_op(w, update_op(w, lower_runs_flat(l),
                            arena_printf(l->a, "%s.update.%s", name, decay ? "decayed" : "other"),
                            decay, slot));
    }
    if (g->gather[PART_WEIGHT] >= 0) emit(w, INSTR_REDUCE, g->gather[PART_WEIGHT]);
}

/* Divided parameters: updates, then gathers under which the sums that others own are zeroed. */
static void update_divided(struct writer *w)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    for (int32_t i = 0; i < b->n_flats; i++)
        if (l->group_plans[b->flats[i].group].home == b->flats[i].group)
            update_own(w, &b->flats[i]);
    for (int32_t i = 0; i < b->n_flats; i++)
        for (int32_t k = 0; k < l->group_plans[b->flats[i].group].n_sections; k++)
            if (l->group_plans[b->flats[i].group].zero == 1)
                add_zero(w, PHASE_U, b->s->first_layer,
                         arena_printf(l->a, "%s.zero", l->p->groups[b->flats[i].group].name),
                         b->flats[i].gradient[k]);
    for (int32_t i = 0; i < b->n_flats; i++) {
        int32_t gather = l->group_plans[b->flats[i].group].gather[PART_WEIGHT];
        if (gather >= 0) emit(w, INSTR_AWAIT, gather);
    }
}

static void update_procedure(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    struct program_stage *s = b->s;
    bool flat = b->run_slot[0][0] >= 0 || b->run_slot[1][0] >= 0;
    wait_for_sums(w);
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *p = &s->parameters[i];
        if (p->gradient[0] < 0 || p->gradient[1] < 0 || p->shard) continue;
        int32_t sum = primary_gradient(b, p),
                other = p->gradient[0] == sum ? p->gradient[1] : p->gradient[0];
        add_accumulate(w, PHASE_U, s->first_layer, arena_printf(l->a, "%s.tie", p->name), other,
                       sum);
        add_zero(w, PHASE_U, s->first_layer, arena_printf(l->a, "%s.tie.zero", p->name), other);
    }
    for (int run = 0; run < 2; run++)
        if (b->run_slot[run][0] >= 0)
            add_op(w, update_op(w, true, run ? "update.other" : "update.decayed", !run,
                                b->run_slot[run]));
    for (int32_t i = 0; i < s->n_parameters && !flat; i++) {
        const struct program_parameter *p = &s->parameters[i];
        if (p->shard) continue;
        int32_t slot[UPDATE_SLOTS] = {p->slot, primary_gradient(b, p), p->state[0], p->state[1],
                                      p->master};
        if (slot[1] < 0) continue;
        add_op(w, update_op(w, false, arena_printf(l->a, "%s.update", p->name), p->decay, slot));
    }
    update_divided(w);
    b->procedure_u = finish(w, 'U', "");
}

void lower_procedures(struct lowering *l, struct stage_build *b)
{
    struct writer w = {.l = l, .b = b};
    b->s->procedures = ARENA_ARRAY(l->a, struct procedure, 5); /* F, B or I and W, last, U */
    forward_procedure(&w);
    backward_procedures(&w);
    last_procedure(&w);
    update_procedure(&w);
}
