/* core/lower/slots.c - a slot for every tensor of a stage.
 *
 * A tensor that lives across procedures is in a buffer ring, one ring for each pair of birth and death (and for each channel, whose
 * messages have their own timing). A tensor within one procedure is in scratch (core/lower/scratch.c). Parameters, gradients and optimizer
 * state have the same order and the same offsets in their regions, decayed parameters first, so one flat update covers each half. A
 * parameter starts at a multiple of 64 bytes; the padding is zero and stays zero under adamw and sgd. In half precision gradients,
 * optimizer state and master parameters are fp32 (dtype_master), so their offsets are twice the parameters'. The master follows the state;
 * updates change it and write the parameter from it. With recompute a forward tensor has two slots: one in F, one in the backward. If a
 * tensor is sent or received in pieces (core/lower/channels.c), the pieces have their messages' lifetimes and the tensor that of its
 * readers.
 */
#include "core/lower/slots.h"

#include "core/lower/channels.h"
#include "core/lower/clip.h"
#include "core/lower/codes.h"
#include "core/lower/factors.h"
#include "core/lower/groups.h"
#include "core/lower/noise.h"
#include "core/lower/offload.h"
#include "core/lower/orders.h"
#include "core/lower/outer.h"
#include "core/lower/scale.h"
#include "core/lower/servers.h"
#include "core/lower/uses.h"
#include "core/lower/versions.h"
#include "core/lower/zero.h"
#include "core/lower/zero_slots.h"

#include <string.h>

struct slot_room {
    size_t slot_capacity, buffer_ring_capacity, buffer_ring_group_capacity;
    int32_t *buffer_ring_group; /* (n_buffer_rings): group whose per-microbatch gradients the ring holds, else -1 */
};

int32_t lower_add_slot(const struct stage_scratch *h, struct slot s)
{
    struct program_stage *out = h->b->s;
    out->slots = arena_grow(h->work, out->slots, (size_t)out->n_slots, &h->slots->room->slot_capacity, sizeof *out->slots);
    s.bytes = shape_elements(&s.shape) * dtype_bytes(s.dtype);
    out->slots[out->n_slots] = s;
    return out->n_slots++;
}

int32_t lower_last_slot(const struct stage_scratch *h, struct slot s)
{
    int64_t *bytes = &h->b->s->class_bytes[s.class];
    s.offset_bytes = *bytes, s.buffer_ring = s.input = -1;
    int32_t slot = lower_add_slot(h, s);
    *bytes += slot_align(h->b->s->slots[slot].bytes);
    return slot;
}

/* Sizes of measured layers on one GPU; a sharded stage has graphs with the sizes of its degree. */
static struct shape shape_on(const struct tensor *t)
{
    struct shape shape = t->shape;
    if (t->shares) shape.dim[shape.rank - 1] = shares_at(t->shares, 1);
    return shape;
}

/* The shard, for tensors in files or from outside; not for activations. Of an unsharded stage the order of a parameter of experts. */
static const struct tensor_shard *part_on(const struct stage_scratch *h, int32_t tensor, enum slot_class class)
{
    const struct tensor *t = &h->v->g->tensors[tensor];
    bool kept = class == SLOT_PARAMETER || class == SLOT_STATE;
    if (h->v->shard) return kept || t->role == TENSOR_INPUT ? h->v->shard[tensor] : NULL;
    return kept && t->shard.order ? arena_copy(h->l->a, &t->shard, sizeof t->shard) : NULL;
}

struct slot lower_slot_like(const struct stage_scratch *h, int32_t tensor, enum slot_class class)
{
    const struct tensor *t = &h->v->g->tensors[tensor];
    return (struct slot){.name = t->name,
                         .class = class,
                         .dtype = t->dtype,
                         .shape = shape_on(t),
                         .buffer_ring = -1,
                         .parameter = -1,
                         .shard = part_on(h, tensor, class),
                         .input = t->role == TENSOR_INPUT ? (int32_t)t->input : -1};
}

/* The ring with this lifetime; group >= 0: of gradients that wait for this group. */
static int32_t find_buffer_ring(struct stage_scratch *h, struct buffer_ring want, int32_t group)
{
    struct program_stage *s = h->b->s;
    struct slot_room *room = h->slots->room;
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &s->buffer_rings[i];
        if (r->birth == want.birth && r->death == want.death && r->sent == want.sent &&
            r->received == want.received && room->buffer_ring_group[i] == group)
            return i;
    }
    s->buffer_rings =
        arena_grow(h->work, s->buffer_rings, (size_t)s->n_buffer_rings, &room->buffer_ring_capacity, sizeof *s->buffer_rings);
    room->buffer_ring_group = arena_grow(h->work, room->buffer_ring_group, (size_t)s->n_buffer_rings,
                                  &room->buffer_ring_group_capacity, sizeof *room->buffer_ring_group);
    room->buffer_ring_group[s->n_buffer_rings] = group;
    want.count = 1, want.stride_bytes = 0;
    s->buffer_rings[s->n_buffer_rings] = want;
    return s->n_buffer_rings++;
}

static int32_t add_buffer_ring_slot(struct stage_scratch *h, struct slot s, struct buffer_ring life, int32_t group)
{
    s.buffer_ring = find_buffer_ring(h, life, group);
    s.offset_bytes = h->b->s->buffer_rings[s.buffer_ring].stride_bytes;
    int32_t index = lower_add_slot(h, s);
    h->b->s->buffer_rings[s.buffer_ring].stride_bytes += slot_align(h->b->s->slots[index].bytes);
    return index;
}

int32_t lower_ring_slot(struct stage_scratch *h, int32_t tensor, struct buffer_ring life, int32_t group)
{
    return add_buffer_ring_slot(h, lower_slot_like(h, tensor, SLOT_BUFFER_RING), life, group);
}

static enum phase last_phase(uint8_t uses, enum phase born)
{
    static const enum phase later[] = {PHASE_W, PHASE_I};
    for (int k = 0; k < 2 && phase_index(later[k]) > phase_index(born); k++)
        if (uses >> phase_index(later[k]) & 1) return later[k];
    return born;
}

/* Slot of a tensor that a phase produces: in a buffer ring if it outlives the phase or leaves the stage, else scratch. */
static int32_t made_slot(struct stage_scratch *h, int32_t tensor, enum phase born, uint8_t uses, int32_t sent)
{
    enum phase last = last_phase(uses, born);
    if (last == born && sent < 0)
        return lower_add_slot(h, lower_slot_like(h, tensor, SLOT_SCRATCH));
    enum phase death = last != born ? orders_stage_phase(h->b, last) : 'S';
    return lower_ring_slot(
        h, tensor, (struct buffer_ring){.birth = orders_stage_phase(h->b, born), .death = death, .sent = sent, .received = -1}, -1);
}

/* --- tensors in pieces --- */

static int32_t code_slot(struct stage_scratch *h, const char *name, int64_t words, struct buffer_ring life)
{
    struct slot s = {.name = arena_join(h->l->a, name, ".code"),
                     .class = SLOT_BUFFER_RING,
                     .dtype = DTYPE_int32,
                     .shape = {1, {words}},
                     .parameter = -1,
                     .input = -1};
    return add_buffer_ring_slot(h, s, life, -1);
}

/* Of the piece, or of its code. */
static int32_t piece_slot(struct stage_scratch *h, int32_t tensor, struct crossing *x, struct buffer_ring life)
{
    struct slot s = lower_slot_like(h, tensor, SLOT_BUFFER_RING);
    int64_t *last = &s.shape.dim[s.shape.rank - 1];
    s.name = arena_join(h->l->a, s.name, ".shard");
    s.shape.dim[0] = x->n;
    if (x->parts > 1) lower_part(x, *last, last);
    if (!x->code.kind) return add_buffer_ring_slot(h, s, life, -1);
    s.class = SLOT_SCRATCH;
    if (x->cut) x->values = lower_add_slot(h, s);
    return code_slot(h, h->v->g->tensors[tensor].name, encoding_words(&x->code, shape_elements(&s.shape)), life);
}

/* Outgoing: the tensor's slot, or a piece cut out of it in this phase. */
static void sent_slots(struct stage_scratch *h, enum edge out, int32_t tensor, enum phase phase, int32_t home)
{
    for (int32_t i = 0; i < h->b->edge[out].n; i++) {
        struct crossing *x = &h->b->edge[out].list[i];
        struct buffer_ring life = {
            .birth = orders_stage_phase(h->b, phase), .death = PHASE_SEND, .sent = x->channel, .received = -1};
        if (x->tensor != tensor) continue;
        /* A buffer is sent to one receiver only; further receivers get a copy. */
        bool own = x->whole && x == lower_crossing(h->b, out, tensor);
        x->slot = own ? home : piece_slot(h, tensor, x, life);
    }
}

/* Incoming, one slot for each piece; the phase assembles them. */
static void received_slots(struct stage_scratch *h, enum edge in, int32_t tensor, enum phase phase)
{
    for (int32_t i = 0; i < h->b->edge[in].n; i++) {
        struct crossing *x = &h->b->edge[in].list[i];
        struct buffer_ring life = {
            .birth = PHASE_RECEIVE, .death = orders_stage_phase(h->b, phase), .sent = -1, .received = x->channel};
        if (x->tensor == tensor) x->slot = piece_slot(h, tensor, x, life);
    }
}

/* Channel whose source is the tensor's own slot; -1. */
static int32_t sent_from_home(const struct stage_build *b, enum edge out, int32_t tensor)
{
    const struct crossing *x = lower_crossing(b, out, tensor);
    return x ? x->channel : -1;
}

/* Slot of a tensor from outside, and of what is forwarded. A complete tensor that is only forwarded is
 * copied, so that a sent buffer is always one that a call wrote; an assembled one is written anyway. */
static int32_t arriving_slot(struct stage_scratch *h, enum edge in, enum edge out, int32_t tensor, uint8_t uses, enum phase phase)
{
    struct crossing *whole = lower_crossing(h->b, in, tensor);
    int32_t home, sent = sent_from_home(h->b, out, tensor);
    if (whole) {
        struct buffer_ring life = {.birth = PHASE_RECEIVE,
                            .death = orders_stage_phase(h->b, last_phase(uses, phase)),
                            .sent = -1,
                            .received = whole->channel};
        home = whole->slot = lower_ring_slot(h, tensor, life, -1);
    } else {
        received_slots(h, in, tensor, phase);
        home = made_slot(h, tensor, phase, uses, sent);
    }
    if (lower_crosses(h->b, out, tensor))
        sent_slots(h, out, tensor, phase,
                   whole && sent >= 0 ? made_slot(h, tensor, phase, 0, sent) : home);
    return home;
}

/* --- activations and gradients of activations --- */

/* Inputs: one slot for all phases. */
static void input_slot(struct stage_scratch *h, int32_t tensor)
{
    if (h->slot_forward[tensor] >= 0) return;
    enum phase last = last_phase(h->uses_forward[tensor] | h->uses_back[tensor], PHASE_F);
    struct buffer_ring life = {.birth = PHASE_F, .death = orders_stage_phase(h->b, last), .sent = -1, .received = -1};
    h->slot_forward[tensor] = h->slot_back[tensor] = lower_ring_slot(h, tensor, life, -1);
}

/* A device without sequences of a crossing tensor receives and reads nothing of it. */
static void empty_slots(struct stage_scratch *h, const struct cut *cut, int32_t *slot)
{
    for (int32_t i = 0; i < cut->n; i++)
        if (slot[cut->tensor[i]] < 0 && !shape_elements(&h->v->g->tensors[cut->tensor[i]].shape))
            slot[cut->tensor[i]] =
                lower_add_slot(h, lower_slot_like(h, cut->tensor[i], SLOT_SCRATCH));
}

static void forward_slots(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    if (h->b->plan->sharding && h->b->plan->first_layer) {
        const struct cut *cut = &g->cut[h->b->plan->first_layer - 1];
        empty_slots(h, cut, h->slot_forward);
        for (int32_t i = 0; i < cut->n; i++)
            if (h->slot_forward[cut->tensor[i]] >= 0)
                h->slot_back[cut->tensor[i]] = h->slot_forward[cut->tensor[i]];
    }
    for (int32_t i = 0; i < h->b->edge[ACTIVATIONS_IN].n; i++) {
        int32_t t = h->b->edge[ACTIVATIONS_IN].list[i].tensor;
        if (h->slot_forward[t] >= 0) continue; /* another piece of it */
        h->slot_forward[t] = h->slot_back[t] =
            arriving_slot(h, ACTIVATIONS_IN, ACTIVATIONS_OUT, t,
                          h->uses_forward[t] | h->uses_back[t], PHASE_F);
    }
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(h->b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            if (g->tensors[op->input[k]].role == TENSOR_INPUT) input_slot(h, op->input[k]);
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t t = op->output[k];
            bool keep = lower_kept(h, t);
            uint8_t uses = h->uses_forward[t] | (keep ? h->uses_back[t] : 0);
            int32_t sent = sent_from_home(h->b, ACTIVATIONS_OUT, t);
            if (lower_offload(h, t)) continue;
            h->slot_forward[t] = made_slot(h, t, PHASE_F, uses, sent);
            sent_slots(h, ACTIVATIONS_OUT, t, PHASE_F, h->slot_forward[t]);
            if (keep)
                h->slot_back[t] = h->slot_forward[t];
            else if (h->rerun[i])
                h->slot_back[t] = made_slot(h, t, PHASE_I, h->uses_back[t], -1);
        }
    }
}

/* Slots of one microbatch's gradient before it is added (deterministic), and of the accumulated
 * gradient. */
static void param_use_slots(struct stage_scratch *h, int32_t tensor)
{
    int32_t param_use = h->v->param_use_of[tensor];
    struct buffer_ring life = {
        .birth = orders_stage_phase(h->b, PHASE_W), .death = PHASE_U, .sent = -1, .received = -1};
    if (h->b->order->apart)
        h->slot_back[tensor] = h->chain_slot[param_use] =
            lower_ring_slot(h, tensor, life, lower_group_of_param_use(h->l, h->b, param_use).group);
    else if (h->l->plan->deterministic)
        h->slot_back[tensor] = lower_add_slot(h, lower_slot_like(h, tensor, SLOT_SCRATCH));
    else
        h->slot_back[tensor] = h->gradient_slot[param_use];
}

static void back_slots(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    if (h->b->plan->sharding && h->b->plan->last_layer + 1 < h->l->n_layers)
        empty_slots(h, &h->b->v->gradient_cut[h->b->plan->last_layer], h->slot_back);
    for (int32_t i = 0; i < h->b->edge[GRADIENTS_IN].n; i++) {
        int32_t t = h->b->edge[GRADIENTS_IN].list[i].tensor;
        if (h->slot_back[t] >= 0) continue;
        h->slot_back[t] =
            arriving_slot(h, GRADIENTS_IN, GRADIENTS_OUT, t, h->uses_back[t], PHASE_I);
    }
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(h->b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t t = op->output[k];
            if (g->tensors[t].role == TENSOR_PARAMETER_GRADIENT) continue;
            int32_t sent = sent_from_home(h->b, GRADIENTS_OUT, t);
            h->slot_back[t] = made_slot(h, t, orders_op_phase(h->b, op), h->uses_back[t], sent);
            sent_slots(h, GRADIENTS_OUT, t, orders_op_phase(h->b, op), h->slot_back[t]);
        }
    }
    /* In the order of parameter uses, so that per-microbatch gradients are in the order of their group. */
    for (int32_t u = 0; u < h->l->uses->n_param_uses; u++)
        if (lower_owns(h->b, h->v->param_uses[u].layer) && lower_zero_of(h->l, u) < 2)
            param_use_slots(h, h->v->param_uses[u].gradient);
}

/* --- parameters --- */

int64_t lower_wide(enum dtype t) { return dtype_bytes(dtype_master(t)) / dtype_bytes(t); }

static int32_t place_slot(struct stage_scratch *h, int32_t tensor, enum slot_class class,
                          int64_t offset, const char *name, int32_t parameter)
{
    struct slot s = lower_slot_like(h, tensor, class);
    if (class == SLOT_STATE) s.dtype = dtype_master(s.dtype);
    s.name = name, s.offset_bytes = offset, s.parameter = parameter;
    return lower_add_slot(h, s);
}

/* Gradients of uses beyond the first follow the flat runs. */
static void gradient_slots(struct stage_scratch *h, int32_t index, int32_t tensor, int64_t offset)
{
    struct program_parameter *p = &h->b->s->parameters[index];
    const int32_t *param_uses = &h->v->param_uses_of[2 * tensor];
    bool swapped =
        param_uses[0] > param_uses[1] &&
        param_uses[1] >= 0; /* uses are ordered by layer: the forward's first use is first */
    bool first = true;
    for (int k = 0; k < 2; k++) {
        int32_t u = param_uses[swapped ? 1 - k : k];
        if (u < 0 || !lower_owns(h->b, h->v->param_uses[u].layer)) continue;
        int32_t gradient = h->v->param_uses[u].gradient;
        int64_t at =
            first ? offset * lower_wide(h->v->g->dtype) : h->b->s->class_bytes[SLOT_GRADIENT];
        int32_t slot =
            place_slot(h, gradient, SLOT_GRADIENT, at, h->v->g->tensors[gradient].name, index);
        p->gradient[h->v->param_uses[u].use] = h->gradient_slot[u] = slot;
        if (!first) h->b->s->class_bytes[SLOT_GRADIENT] += slot_align(h->b->s->slots[slot].bytes);
        first = false;
    }
}

static void parameter_slots(struct stage_scratch *h, int32_t index, int32_t tensor, int64_t offset,
                            int64_t region)
{
    const struct tensor *t = &h->v->g->tensors[tensor];
    struct program_parameter *p = &h->b->s->parameters[index];
    *p = (struct program_parameter){.name = t->name,
                                    .shape = t->shape,
                                    .init = t->init,
                                    .init_std = t->init_std,
                                    .decay = t->decay,
                                    .gradient = {-1, -1},
                                    .state = {-1, -1},
                                    .master = -1};
    p->slot = h->slot_forward[tensor] = h->slot_back[tensor] =
        place_slot(h, tensor, SLOT_PARAMETER, offset, t->name, index);
    lower_previous_slot(h, index, tensor, region);
    gradient_slots(h, index, tensor, offset);
    for (int64_t k = 0; k < lower_state_tensors(h->l); k++)
        p->state[k] =
            place_slot(h, tensor, SLOT_STATE, (k * region + offset) * lower_wide(h->v->g->dtype),
                       arena_join(h->l->a, t->name, k ? ".v" : ".m"), index);
    if (dtype_is_half(h->v->g->dtype))
        p->master = place_slot(h, tensor, SLOT_STATE,
                               (lower_state_tensors(h->l) * region + offset) *
                                   lower_wide(h->v->g->dtype),
                               arena_join(h->l->a, t->name, ".master"), index);
    int64_t before = lower_state_tensors(h->l) + dtype_is_half(h->v->g->dtype);
    static const char *const outer[PROGRAM_OUTER_SLOTS] = {".anchor", ".velocity", ".sum"};
    for (int k = 0; k < PROGRAM_OUTER_SLOTS; k++) {
        int32_t place = lower_outer_place(h->l, k);
        if (place >= 0)
            p->outer[k] = 1 + place_slot(h, tensor, SLOT_STATE,
                                         ((before + place) * region + offset) * lower_wide(h->v->g->dtype),
                                         arena_join(h->l->a, t->name, outer[k]), index);
    }
    const int32_t *uses = &h->v->param_uses_of[2 * tensor];
    if (lower_is_local(h->l)) p->fragment = lower_outer_fragment(h->l, uses[0] >= 0 ? uses[0] : uses[1]);
}

/* A flat run's slots: [offset, offset + bytes) of the parameters' region, and as many elements in each other region. */
static void run_slots(struct stage_scratch *h, int run, int64_t offset, int64_t bytes,
                      int64_t region)
{
    static const char *const names[2] = {"decayed", "other"}, *const what[UPDATE_SLOTS] = {
                                                                  "", ".grad", ".m", ".v",
                                                                  ".master", ".anchor", ".velocity", ".sum", ".previous"};
    int64_t n_states = lower_state_tensors(h->l), masters = dtype_is_half(h->v->g->dtype);
    for (int k = 0; k < UPDATE_SLOTS; k++) {
        bool is_state = k == UPDATE_M || k == UPDATE_V;
        if (is_state && k - UPDATE_M >= n_states) continue;
        if (k == UPDATE_MASTER && !masters) continue;
        bool is_outer = k >= UPDATE_ANCHOR && k <= UPDATE_SUM, is_parameter = k == UPDATE_P || k == UPDATE_PREVIOUS;
        int32_t outer = is_outer ? lower_outer_place(h->l, k - UPDATE_ANCHOR) : 0;
        if (outer < 0 || (k == UPDATE_PREVIOUS && !plan_delays_gradients(h->l->plan))) continue;
        int64_t before = is_state               ? k - UPDATE_M
                         : k == UPDATE_MASTER   ? n_states
                         : is_outer             ? n_states + masters + outer
                                                : k == UPDATE_PREVIOUS;
        h->slots->run[run][k] = lower_add_slot(
            h, (struct slot){.name = arena_printf(h->l->a, "%s%s", names[run], what[k]),
                             .class = is_parameter    ? SLOT_PARAMETER
                                      : k == UPDATE_G ? SLOT_GRADIENT
                                                      : SLOT_STATE,
                             .dtype = is_parameter ? h->v->g->dtype : dtype_master(h->v->g->dtype),
                             .buffer_ring = -1,
                             .parameter = -1,
                             .input = -1,
                             .shape = {.rank = 1, .dim = {bytes / dtype_bytes(h->v->g->dtype)}},
                             .offset_bytes = (offset + before * region) *
                                             (is_parameter ? 1 : lower_wide(h->v->g->dtype))});
    }
}

bool lower_runs_flat(const struct lowering *l)
{
    if (lower_is_served(l)) return false;
    for (int32_t i = 0; i < l->o->n_fused && !optimizer_needs_norms(&l->p->optimizer); i++)
        if (l->o->fused[i] == optimizer_op(&l->p->optimizer, true)) return true;
    return false;
}

static void parameter_regions(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    struct program_stage *s = h->b->s;
    int32_t *mine = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_tensors), n = 0;
    int64_t start[3] = {0}; /* of the decayed run, the other run, the end */
    for (int run = 0; run < 2; run++) {
        start[run + 1] = start[run];
        for (int32_t t = 0; t < g->n_tensors; t++) {
            const struct tensor *x = &g->tensors[t];
            if (x->role != TENSOR_PARAMETER || x->decay != !run ||
                lower_zero_place(h->l, h->b, t).group >= 0 ||
                !(h->uses_forward[t] | h->uses_back[t]))
                continue;
            mine[n++] = t;
            start[run + 1] += slot_align(shape_elements(&x->shape) * dtype_bytes(x->dtype));
        }
    }
    s->n_parameters = n;
    s->parameters = ARENA_ARRAY(h->work, struct program_parameter, (size_t)n);
    s->class_bytes[SLOT_PARAMETER] = start[2] * (plan_delays_gradients(h->l->plan) ? 2 : 1);
    s->class_bytes[SLOT_GRADIENT] = start[2] * lower_wide(h->v->g->dtype);
    const struct cluster *c = &h->l->plan->cluster;
    const struct device_type *type = &c->types[c->devices[h->b->device].type];
    s->class_bytes[SLOT_STATE] =
        (lower_state_tensors(h->l) + dtype_is_half(g->dtype) + lower_outer_states(h->l) +
         type->parameter_copies) *
        start[2] * lower_wide(h->v->g->dtype);
    int64_t offset = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct tensor *x = &g->tensors[mine[i]];
        parameter_slots(h, i, mine[i], offset, start[2]);
        offset += slot_align(shape_elements(&x->shape) * dtype_bytes(x->dtype));
    }
    for (int run = 0; run < 2; run++)
        if (lower_runs_flat(h->l) && start[run] < start[run + 1])
            run_slots(h, run, start[run], start[run + 1] - start[run], start[2]);
    lower_zero_slots(h);
    lower_code_slots(h);
    lower_factor_slots(h);
    if (lower_scales(h->l)) h->slots->overflow = lower_scale_slots(h);
    if (lower_clips(h->l)) lower_clip_slots(h);
    if (lower_measures_noise(h->l)) lower_noise_slots(h);
}

void lower_slots_begin(struct stage_scratch *h)
{
    h->slots = ARENA_ARRAY(h->work, struct stage_slots, 1);
    memset(h->slots->run, -1, sizeof h->slots->run);
    h->slots->overflow = h->slots->squares = h->slots->squares_back = -1;
    h->slots->room = ARENA_ARRAY(h->work, struct slot_room, 1);
}

void lower_slots(struct stage_scratch *h)
{
    lower_slots_begin(h);
    parameter_regions(h);
    lower_offload_begin(h);
    forward_slots(h);
    lower_offload_end(h);
    back_slots(h);
}
