/* core/lower/slots.c - every tensor of a stage gets its home.
 *
 * What lives from one procedure to another lives in a ring, one ring for each pair of birth and
 * death (and for each channel, whose messages come and go in their own time). What lives inside one
 * procedure lives in scratch (core/lower/scratch.c). Parameters,
 * gradients and optimizer state stand in the same order at the same offsets of their regions,
 * decayed parameters first: one flat update runs over each half. A parameter starts at a multiple
 * of 64 bytes; what lies between is zero and stays zero under adamw and sgd.
 * In half precision gradients, optimizer state and a master copy of the parameters are fp32 (dtype_master), so that their
 * offsets are twice the parameters'. The master copy stands behind the state; it is what updates change, and they write the
 * parameter from it.
 * With recompute a forward tensor has two homes: one while F runs, one in the backward.
 * Where a tensor comes or goes in pieces (core/lower/channels.c), the pieces live as its messages do and it lives as what is
 * made of them.
 */
#include "core/lower/internal.h"

#include <string.h>

int32_t lower_add_slot(struct lowering *l, struct stage_build *b, struct slot s)
{
    struct program_stage *out = b->s;
    out->slots =
        arena_grow(l->a, out->slots, (size_t)out->n_slots, &b->slot_capacity, sizeof *out->slots);
    s.bytes = shape_elements(&s.shape) * dtype_bytes(s.dtype);
    out->slots[out->n_slots] = s;
    return out->n_slots++;
}

/* A stage of several cards lays out what one of them holds. */
static struct shape shape_on(const struct stage_build *b, const struct tensor *t)
{
    struct shape shape = t->shape;
    if (t->shares) shape.dim[shape.rank - 1] = shares_at(t->shares, b->s->cards);
    return shape;
}

/* Of what stands in files or comes from outside; activations are nobody's business. */
static const struct tensor_part *part_on(const struct tensor *t, enum slot_class class)
{
    bool kept = class == SLOT_PARAMETER || class == SLOT_STATE || t->role == TENSOR_INPUT;
    return kept && t->part.n_cuts ? &t->part : NULL;
}

struct slot lower_slot_like(const struct lowering *l, const struct stage_build *b, int32_t tensor,
                            enum slot_class class)
{
    const struct tensor *t = &l->v->g->tensors[tensor];
    return (struct slot){.name = t->name,
                         .class = class,
                         .dtype = t->dtype,
                         .shape = shape_on(b, t),
                         .ring = -1,
                         .parameter = -1,
                         .part = part_on(t, class),
                         .input = t->role == TENSOR_INPUT ? (int32_t)t->input : -1};
}

/* The ring of this life; group >= 0: of gradients that wait for this group. */
static int32_t find_ring(struct lowering *l, struct stage_build *b, struct ring want, int32_t group)
{
    struct program_stage *s = b->s;
    for (int32_t i = 0; i < s->n_rings; i++) {
        const struct ring *r = &s->rings[i];
        if (r->birth == want.birth && r->death == want.death && r->sent == want.sent &&
            r->received == want.received && b->ring_group[i] == group)
            return i;
    }
    s->rings = arena_grow(l->a, s->rings, (size_t)s->n_rings, &b->ring_capacity, sizeof *s->rings);
    b->ring_group = arena_grow(l->a, b->ring_group, (size_t)s->n_rings, &b->ring_group_capacity,
                               sizeof *b->ring_group);
    b->ring_group[s->n_rings] = group;
    want.count = 1, want.stride_bytes = 0;
    s->rings[s->n_rings] = want;
    return s->n_rings++;
}

static int32_t add_ring_slot(struct lowering *l, struct stage_build *b, struct slot s,
                             struct ring life, int32_t group)
{
    s.ring = find_ring(l, b, life, group);
    s.offset_bytes = b->s->rings[s.ring].stride_bytes;
    int32_t index = lower_add_slot(l, b, s);
    b->s->rings[s.ring].stride_bytes += slot_align(b->s->slots[index].bytes);
    return index;
}

static int32_t ring_slot(struct lowering *l, struct stage_build *b, int32_t tensor,
                         struct ring life, int32_t group)
{
    return add_ring_slot(l, b, lower_slot_like(l, b, tensor, SLOT_RING), life, group);
}

static enum phase last_phase(uint8_t uses, enum phase born)
{
    static const enum phase later[] = {PHASE_W, PHASE_I};
    for (int k = 0; k < 2 && phase_index(later[k]) > phase_index(born); k++)
        if (uses >> phase_index(later[k]) & 1) return later[k];
    return born;
}

/* A tensor made in a phase: a ring where it outlives the phase or leaves the stage, else scratch. */
static int32_t made_slot(struct lowering *l, struct stage_build *b, int32_t tensor, enum phase born,
                         uint8_t uses, int32_t sent)
{
    enum phase last = last_phase(uses, born);
    if (last == born && sent < 0)
        return lower_add_slot(l, b, lower_slot_like(l, b, tensor, SLOT_SCRATCH));
    enum phase death = last != born ? stage_phase(b, last) : 'S';
    return ring_slot(
        l, b, tensor,
        (struct ring){.birth = stage_phase(b, born), .death = death, .sent = sent, .received = -1},
        -1);
}

/* --- what comes and goes in pieces --- */

static int32_t piece_slot(struct lowering *l, struct stage_build *b, int32_t tensor, int64_t n,
                          struct ring life)
{
    struct slot s = lower_slot_like(l, b, tensor, SLOT_RING);
    s.name = arena_printf(l->a, "%s.part", s.name);
    s.shape.dim[0] = n;
    return add_ring_slot(l, b, s, life, -1);
}

/* Of what leaves: home, or a piece of it that somebody cuts out in this part. */
static void sent_slots(struct lowering *l, struct stage_build *b, enum edge out, int32_t tensor,
                       enum phase phase, int32_t home)
{
    for (int32_t i = 0; i < b->edge[out].n; i++) {
        struct crossing *x = &b->edge[out].list[i];
        struct ring life = {
            .birth = stage_phase(b, phase), .death = 'S', .sent = x->channel, .received = -1};
        if (x->tensor != tensor) continue;
        /* A buffer goes to one only: who else wants all of it gets a copy. */
        bool own = x->whole && x == lower_crossing(b, out, tensor);
        x->slot = own ? home : piece_slot(l, b, tensor, x->n, life);
    }
}

/* Of what comes, one for each piece; the part puts them together. */
static void received_slots(struct lowering *l, struct stage_build *b, enum edge in, int32_t tensor,
                           enum phase phase)
{
    for (int32_t i = 0; i < b->edge[in].n; i++) {
        struct crossing *x = &b->edge[in].list[i];
        struct ring life = {
            .birth = 'R', .death = stage_phase(b, phase), .sent = -1, .received = x->channel};
        if (x->tensor == tensor) x->slot = piece_slot(l, b, tensor, x->n, life);
    }
}

/* Channel of which the tensor's own home is the source, -1. */
static int32_t sent_from_home(const struct stage_build *b, enum edge out, int32_t tensor)
{
    const struct crossing *x = lower_crossing(b, out, tensor);
    return x ? x->channel : -1;
}

/* Home of a tensor that comes from outside, and of what goes on from there. What came whole and only is handed on is
 * copied, so that a buffer that is sent is always one that a call wrote; what is put together is written anyway. */
static int32_t arriving_slot(struct lowering *l, struct stage_build *b, enum edge in, enum edge out,
                             int32_t tensor, uint8_t uses, enum phase phase)
{
    struct crossing *whole = lower_crossing(b, in, tensor);
    int32_t home, sent = sent_from_home(b, out, tensor);
    if (whole) {
        struct ring life = {.birth = 'R',
                            .death = stage_phase(b, last_phase(uses, phase)),
                            .sent = -1,
                            .received = whole->channel};
        home = whole->slot = ring_slot(l, b, tensor, life, -1);
    } else {
        received_slots(l, b, in, tensor, phase);
        home = made_slot(l, b, tensor, phase, uses, sent);
    }
    if (lower_crosses(b, out, tensor))
        sent_slots(l, b, out, tensor, phase,
                   whole && sent >= 0 ? made_slot(l, b, tensor, phase, 0, sent) : home);
    return home;
}

/* --- activations and gradients of activations --- */

/* Inputs: one home for all parts. */
static void input_slot(struct lowering *l, struct stage_build *b, int32_t tensor)
{
    if (l->slot_forward[tensor] >= 0) return;
    enum phase last = last_phase(l->uses_forward[tensor] | l->uses_back[tensor], PHASE_F);
    struct ring life = {.birth = 'F', .death = stage_phase(b, last), .sent = -1, .received = -1};
    l->slot_forward[tensor] = l->slot_back[tensor] = ring_slot(l, b, tensor, life, -1);
}

/* A device that has no sequences of what crosses gets nothing, and reads nothing of it. */
static void empty_slots(struct lowering *l, struct stage_build *b, const struct cut *cut,
                        int32_t *slot)
{
    for (int32_t i = 0; i < cut->n; i++)
        if (slot[cut->tensor[i]] < 0 && !shape_elements(&l->v->g->tensors[cut->tensor[i]].shape))
            slot[cut->tensor[i]] =
                lower_add_slot(l, b, lower_slot_like(l, b, cut->tensor[i], SLOT_SCRATCH));
}

static void forward_slots(struct lowering *l, struct stage_build *b)
{
    const struct graph *g = l->v->g;
    if (b->plan->sharding && b->plan->first_layer) {
        const struct cut *cut = &g->cut[b->plan->first_layer - 1];
        empty_slots(l, b, cut, l->slot_forward);
        for (int32_t i = 0; i < cut->n; i++)
            if (l->slot_forward[cut->tensor[i]] >= 0)
                l->slot_back[cut->tensor[i]] = l->slot_forward[cut->tensor[i]];
    }
    for (int32_t i = 0; i < b->edge[ACTIVATIONS_IN].n; i++) {
        int32_t t = b->edge[ACTIVATIONS_IN].list[i].tensor;
        if (l->slot_forward[t] >= 0) continue; /* another piece of it */
        l->slot_forward[t] = l->slot_back[t] =
            arriving_slot(l, b, ACTIVATIONS_IN, ACTIVATIONS_OUT, t,
                          l->uses_forward[t] | l->uses_back[t], PHASE_F);
    }
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            if (g->tensors[op->input[k]].role == TENSOR_INPUT) input_slot(l, b, op->input[k]);
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t t = op->output[k];
            bool keep = lower_kept(l, b, t);
            uint8_t uses = l->uses_forward[t] | (keep ? l->uses_back[t] : 0);
            int32_t sent = sent_from_home(b, ACTIVATIONS_OUT, t);
            l->slot_forward[t] = made_slot(l, b, t, PHASE_F, uses, sent);
            sent_slots(l, b, ACTIVATIONS_OUT, t, PHASE_F, l->slot_forward[t]);
            if (keep)
                l->slot_back[t] = l->slot_forward[t];
            else if (l->rerun[i])
                l->slot_back[t] = made_slot(l, b, t, PHASE_I, l->uses_back[t], -1);
        }
    }
}

/* Where the gradient of one microbatch goes before it is added (deterministic), and where the sum
 * is. */
static void unit_slots(struct lowering *l, struct stage_build *b, int32_t tensor)
{
    int32_t unit = l->v->unit_of[tensor];
    struct ring life = {.birth = stage_phase(b, PHASE_W), .death = 'U', .sent = -1, .received = -1};
    if (b->apart)
        l->slot_back[tensor] = l->apart_slot[unit] =
            ring_slot(l, b, tensor, life, lower_group_of_unit(l, b, unit));
    else if (l->plan->deterministic)
        l->slot_back[tensor] = lower_add_slot(l, b, lower_slot_like(l, b, tensor, SLOT_SCRATCH));
    else
        l->slot_back[tensor] = l->sum_slot[unit];
}

static void back_slots(struct lowering *l, struct stage_build *b)
{
    const struct graph *g = l->v->g;
    if (b->plan->sharding && b->plan->last_layer + 1 < l->n_layers)
        empty_slots(l, b, &b->v->gradient_cut[b->plan->last_layer], l->slot_back);
    for (int32_t i = 0; i < b->edge[GRADIENTS_IN].n; i++) {
        int32_t t = b->edge[GRADIENTS_IN].list[i].tensor;
        if (l->slot_back[t] >= 0) continue;
        l->slot_back[t] =
            arriving_slot(l, b, GRADIENTS_IN, GRADIENTS_OUT, t, l->uses_back[t], PHASE_I);
    }
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t t = op->output[k];
            if (g->tensors[t].role == TENSOR_PARAMETER_GRADIENT) continue;
            int32_t sent = sent_from_home(b, GRADIENTS_OUT, t);
            l->slot_back[t] = made_slot(l, b, t, op_phase(b, op), l->uses_back[t], sent);
            sent_slots(l, b, GRADIENTS_OUT, t, op_phase(b, op), l->slot_back[t]);
        }
    }
    /* In the order of the units, so that what is kept apart lies in the order of its group. */
    for (int32_t u = 0; u < l->n_units; u++)
        if (lower_owns(b, l->v->units[u].layer) && lower_zero_of(l, u) < 2)
            unit_slots(l, b, l->v->units[u].gradient);
}

/* --- parameters --- */

/* Bytes of a gradient or state for one of a parameter. */
int64_t lower_wide(const struct lowering *l)
{
    return dtype_bytes(dtype_master(l->v->g->dtype)) / dtype_bytes(l->v->g->dtype);
}

static int32_t place_slot(struct lowering *l, struct stage_build *b, int32_t tensor,
                          enum slot_class class, int64_t offset, const char *name,
                          int32_t parameter)
{
    struct slot s = lower_slot_like(l, b, tensor, class);
    if (class == SLOT_STATE) s.dtype = dtype_master(s.dtype);
    s.name = name, s.offset_bytes = offset, s.parameter = parameter;
    return lower_add_slot(l, b, s);
}

/* Gradients of uses beyond the first stand behind the flat runs. */
static void gradient_slots(struct lowering *l, struct stage_build *b, int32_t index, int32_t tensor,
                           int64_t offset)
{
    struct program_parameter *p = &b->s->parameters[index];
    const int32_t *units = &l->v->use_unit[2 * tensor];
    bool swapped =
        units[0] > units[1] &&
        units[1] >= 0; /* units stand by layer: the forward pass's first use comes first */
    bool first = true;
    for (int k = 0; k < 2; k++) {
        int32_t u = units[swapped ? 1 - k : k];
        if (u < 0 || !lower_owns(b, l->v->units[u].layer)) continue;
        int32_t gradient = l->v->units[u].gradient;
        int64_t at = first ? offset * lower_wide(l) : b->s->class_bytes[SLOT_GRADIENT];
        int32_t slot =
            place_slot(l, b, gradient, SLOT_GRADIENT, at, l->v->g->tensors[gradient].name, index);
        p->gradient[l->v->units[u].use] = l->sum_slot[u] = slot;
        if (!first) b->s->class_bytes[SLOT_GRADIENT] += slot_align(b->s->slots[slot].bytes);
        first = false;
    }
}

static void parameter_slots(struct lowering *l, struct stage_build *b, int32_t index,
                            int32_t tensor, int64_t offset, int64_t region)
{
    const struct tensor *t = &l->v->g->tensors[tensor];
    struct program_parameter *p = &b->s->parameters[index];
    *p = (struct program_parameter){.name = t->name,
                                    .shape = t->shape,
                                    .init = t->init,
                                    .init_std = t->init_std,
                                    .decay = t->decay,
                                    .gradient = {-1, -1},
                                    .state = {-1, -1},
                                    .master = -1};
    p->slot = l->slot_forward[tensor] = l->slot_back[tensor] =
        place_slot(l, b, tensor, SLOT_PARAMETER, offset, t->name, index);
    gradient_slots(l, b, index, tensor, offset);
    for (int64_t k = 0; k < optimizer_state_tensors(&l->p->optimizer); k++)
        p->state[k] = place_slot(l, b, tensor, SLOT_STATE, (k * region + offset) * lower_wide(l),
                                 arena_printf(l->a, "%s.%c", t->name, k ? 'v' : 'm'), index);
    if (dtype_is_half(l->v->g->dtype))
        p->master = place_slot(l, b, tensor, SLOT_STATE,
                               (optimizer_state_tensors(&l->p->optimizer) * region + offset) *
                                   lower_wide(l),
                               arena_printf(l->a, "%s.master", t->name), index);
}

/* A flat run's slots, over [offset, offset + bytes) of the parameters' region and of as many elements in each other one. */
static void run_slots(struct lowering *l, struct stage_build *b, int run, int64_t offset,
                      int64_t bytes, int64_t region)
{
    static const char *const names[2] = {"decayed", "other"}, *const what[UPDATE_SLOTS] = {
                                                                  "", ".grad", ".m", ".v",
                                                                  ".master"};
    int64_t n_states = optimizer_state_tensors(&l->p->optimizer);
    for (int k = 0; k < UPDATE_SLOTS; k++) {
        bool is_state = k == UPDATE_M || k == UPDATE_V;
        if (is_state && k - UPDATE_M >= n_states) continue;
        if (k == UPDATE_MASTER && !dtype_is_half(l->v->g->dtype)) continue;
        int64_t before = is_state ? k - UPDATE_M : k == UPDATE_MASTER ? n_states : 0;
        b->run_slot[run][k] = lower_add_slot(
            l, b,
            (struct slot){.name = arena_printf(l->a, "%s%s", names[run], what[k]),
                          .class = k == UPDATE_P   ? SLOT_PARAMETER
                                   : k == UPDATE_G ? SLOT_GRADIENT
                                                   : SLOT_STATE,
                          .dtype = k == UPDATE_P ? l->v->g->dtype : dtype_master(l->v->g->dtype),
                          .ring = -1,
                          .parameter = -1,
                          .input = -1,
                          .shape = {.rank = 1, .dim = {bytes / dtype_bytes(l->v->g->dtype)}},
                          .offset_bytes =
                              (offset + before * region) * (k == UPDATE_P ? 1 : lower_wide(l))});
    }
}

bool lower_runs_flat(const struct lowering *l)
{
    enum op_kind flat = l->p->optimizer.kind == OPTIMIZER_ADAMW ? OP_flat_adamw : OP_flat_sgd;
    for (int32_t i = 0; i < l->o->n_fused; i++)
        if (l->o->fused[i] == flat) return true;
    return false;
}

static void parameter_regions(struct lowering *l, struct stage_build *b)
{
    const struct graph *g = l->v->g;
    struct program_stage *s = b->s;
    int32_t *mine = ARENA_ARRAY(l->a, int32_t, (size_t)g->n_tensors), n = 0;
    int64_t start[3] = {0}; /* of the decayed run, the other run, the end */
    for (int run = 0; run < 2; run++) {
        start[run + 1] = start[run];
        for (int32_t t = 0; t < g->n_tensors; t++) {
            const struct tensor *x = &g->tensors[t];
            if (x->role != TENSOR_PARAMETER || x->decay != !run ||
                lower_zero_place(l, b, t).group >= 0 || !(l->uses_forward[t] | l->uses_back[t]))
                continue;
            mine[n++] = t;
            start[run + 1] += slot_align(shape_elements(&x->shape) * dtype_bytes(x->dtype));
        }
    }
    s->n_parameters = n;
    s->parameters = ARENA_ARRAY(l->a, struct program_parameter, (size_t)n);
    s->class_bytes[SLOT_PARAMETER] = start[2];
    s->class_bytes[SLOT_GRADIENT] = start[2] * lower_wide(l);
    const struct cluster *c = &l->plan->cluster;
    s->class_bytes[SLOT_STATE] =
        (optimizer_state_tensors(&l->p->optimizer) + dtype_is_half(g->dtype) +
         c->types[c->devices[b->device].type].parameter_copies) *
        start[2] * lower_wide(l);
    int64_t offset = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct tensor *x = &g->tensors[mine[i]];
        parameter_slots(l, b, i, mine[i], offset, start[2]);
        offset += slot_align(shape_elements(&x->shape) * dtype_bytes(x->dtype));
    }
    for (int run = 0; run < 2; run++)
        if (lower_runs_flat(l) && start[run] < start[run + 1])
            run_slots(l, b, run, start[run], start[run + 1] - start[run], start[2]);
    lower_zero_slots(l, b);
    if (lower_scales(l)) lower_scale_slots(l, b);
}

void lower_slots(struct lowering *l, struct stage_build *b)
{
    size_t n = (size_t)l->v->g->n_tensors;
    memset(l->slot_forward, -1, n * sizeof *l->slot_forward);
    memset(l->slot_back, -1, n * sizeof *l->slot_back);
    memset(l->uses_forward, 0, n);
    memset(l->uses_back, 0, n);
    memset(l->rerun, 0, (size_t)l->v->g->n_forward * sizeof *l->rerun);
    memset(l->apart_slot, -1, (size_t)l->n_units * sizeof *l->apart_slot);
    memset(l->sum_slot, -1, (size_t)l->n_units * sizeof *l->sum_slot);
    memset(b->run_slot, -1, sizeof b->run_slot);
    lower_find_uses(l, b);
    parameter_regions(l, b);
    forward_slots(l, b);
    back_slots(l, b);
}
