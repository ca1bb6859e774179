#include "core/lower/offload.h"

#include "core/base/arena.h"
#include "core/lower/channels.h"
#include "core/lower/lowering.h"
#include "core/lower/orders.h"
#include "core/lower/slots.h"
#include "core/lower/uses.h"
#include "core/lower/writer.h"
#include "core/program/offload.h"

enum { RING_OUT = -2, RING_IN = -3 }; /* instead of a group: find_buffer_ring parts rings by it */
enum { STAYS = -1 };

struct span_of_ops { /* positions, first > last: none */
    int32_t first, last;
};

struct stage_offload {
    int32_t parts;
    int32_t *part;  /* (n_tensors) or STAYS */
    int32_t *after; /* (n_ops) several parts: of the OFFLOAD behind a forward operator, of the FETCH in front of another one; -1 */
    int64_t *bytes; /* (parts) of slots so far */
};

/* ---- which tensors ---------------------------------------------------------------------------- */

/* Parameters that the devices of a sharded stage have gathered or cut. */
static bool is_parameter(const struct graph *g, int32_t tensor)
{
    for (int32_t i; (i = g->tensors[tensor].producer) >= 0 && (op_is_group(g->ops[i].kind) || g->ops[i].kind == OP_local_slice);)
        tensor = g->ops[i].input[0];
    return g->tensors[tensor].role == TENSOR_PARAMETER;
}

static bool may_wait(const struct stage_scratch *h, int32_t tensor)
{
    return h->uses_back[tensor] && lower_kept(h, tensor) && !lower_crosses(h->b, ACTIVATIONS_OUT, tensor) &&
           !is_parameter(h->v->g, tensor);
}

/* (n_forward) number of an operator's block in the stage; -1: in none, or not the stage's. Returns the number of blocks. */
static int32_t number_blocks(const struct stage_scratch *h, int32_t *block)
{
    const struct graph *g = h->v->g;
    int32_t n = 0, last = -1;
    for (int32_t i = 0; i < g->n_forward; i++) {
        block[i] = -1;
        if (!lower_owns(h->b, g->ops[i].layer) || !lower_in_block(g, i)) continue;
        if (last < 0 || !lower_in_same_block(g, last, i)) n++;
        block[i] = n - 1, last = i;
    }
    return n;
}

static void widen(struct span_of_ops *s, int32_t op)
{
    if (op < s->first) s->first = op;
    if (op > s->last) s->last = op;
}

static struct span_of_ops *no_spans(struct arena *a, int32_t n)
{
    struct span_of_ops *out = ARENA_ARRAY(a, struct span_of_ops, (size_t)n + 1);
    for (int32_t i = 0; i <= n; i++) out[i] = (struct span_of_ops){INT32_MAX, -1};
    return out;
}

/* A tensor that gradient operators of other blocks read too stays on the device. */
static void keep_shared(const struct stage_scratch *h, const int32_t *block, int32_t *part)
{
    const struct graph *g = h->v->g;
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (!lower_owns(h->b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            if (part[op->input[k]] != STAYS && (op->forward < 0 || block[op->forward] != part[op->input[k]])) part[op->input[k]] = STAYS;
    }
}

/* Blocks without tensors have no part. Returns the number of parts. */
static int32_t number_parts(const struct graph *g, int32_t n_blocks, struct arena *a, int32_t *part)
{
    int32_t n = 0, *number = ARENA_ARRAY(a, int32_t, (size_t)n_blocks + 1);
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (part[t] != STAYS) number[part[t]] = 1;
    for (int32_t k = 0; k < n_blocks; k++) number[k] = number[k] ? n++ : STAYS;
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (part[t] != STAYS) part[t] = number[part[t]];
    return n;
}

/* Whether halves of the rings are enough: each part is made before the next one, read in F before the one behind the next is made, and read
 * by the backward before the part in front is. Sets `after`. */
static bool stand_apart(const struct stage_scratch *h, const int32_t *part, int32_t n, int32_t *after)
{
    const struct graph *g = h->v->g;
    struct span_of_ops *made = no_spans(h->work, n), *read = no_spans(h->work, n), *back = no_spans(h->work, n);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        after[i] = -1;
        if (!lower_owns(h->b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            if (part[op->input[k]] != STAYS) widen(&(i < g->n_forward ? read : back)[part[op->input[k]]], i);
        for (int32_t k = 0; k < op->n_outputs && i < g->n_forward; k++)
            if (part[op->output[k]] != STAYS) widen(&made[part[op->output[k]]], i);
    }
    bool apart = true;
    for (int32_t k = 0; k < n && apart; k++) {
        apart = made[k].last >= 0 && back[k].last >= 0 && (k + 1 == n || (made[k].last < made[k + 1].first && back[k + 1].last < back[k].first)) &&
                (k + 2 >= n || read[k].last < made[k + 2].first);
        if (apart) after[made[k].last] = after[back[k].first] = k;
    }
    return apart;
}

static bool divide(const struct stage_scratch *h, struct stage_offload *x)
{
    const struct graph *g = h->v->g;
    const struct stage_order *o = h->b->order;
    if (o->split || !o->ascending || h->b->plan->recompute != RECOMPUTE_NONE) return false;
    int32_t *block = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_forward + 1), n_blocks = number_blocks(h, block),
            *part = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) part[t] = x->part[t] == STAYS ? STAYS : block[g->tensors[t].producer];
    keep_shared(h, block, part);
    int32_t n = number_parts(g, n_blocks, h->work, part);
    if (n < 2 || !stand_apart(h, part, n, x->after)) return false;
    x->part = part, x->parts = n;
    return true;
}

void lower_offload_begin(struct stage_scratch *h)
{
    const struct graph *g = h->v->g;
    bool any = false;
    h->offload = NULL;
    if (!h->b->plan->offload) return;
    struct stage_offload *x = ARENA_ARRAY(h->work, struct stage_offload, 1);
    *x = (struct stage_offload){.parts = 1,
                                .part = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_tensors),
                                .after = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_ops)};
    for (int32_t t = 0; t < g->n_tensors; t++) x->part[t] = STAYS;
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_outputs && lower_owns(h->b, g->ops[i].layer); k++)
            if (may_wait(h, g->ops[i].output[k])) x->part[g->ops[i].output[k]] = 0, any = true;
    if (!any) return;
    divide(h, x);
    x->bytes = ARENA_ARRAY(h->work, int64_t, (size_t)x->parts);
    h->offload = x;
}

/* ---- slots ------------------------------------------------------------------------------------ */

bool lower_offload(struct stage_scratch *h, int32_t tensor)
{
    const struct buffer_ring life = {.birth = PHASE_HOST, .death = PHASE_HOST, .sent = -1, .received = -1};
    struct stage_offload *x = h->offload;
    struct offload *of = &h->b->s->offload;
    if (!x || x->part[tensor] == STAYS) return false;
    h->slot_forward[tensor] = lower_ring_slot(h, tensor, life, RING_OUT);
    h->slot_back[tensor] = lower_ring_slot(h, tensor, life, RING_IN);
    struct slot *slots = h->b->s->slots, *out = &slots[h->slot_forward[tensor]], *in = &slots[h->slot_back[tensor]];
    *of = (struct offload){out->buffer_ring, in->buffer_ring, 1}; /* 1: until its buffers are counted (orders.c) */
    out->offset_bytes = in->offset_bytes = x->bytes[x->part[tensor]];
    x->bytes[x->part[tensor]] += slot_align(out->bytes);
    return true;
}

void lower_offload_end(struct stage_scratch *h)
{
    const struct stage_offload *x = h->offload;
    struct program_stage *s = h->b->s;
    int64_t most = 0;
    if (!x || x->parts == 1) return;
    for (int32_t k = 0; k < x->parts; k++) most = x->bytes[k] > most ? x->bytes[k] : most;
    for (int32_t t = 0; t < h->v->g->n_tensors; t++)
        if (x->part[t] != STAYS) {
            s->slots[h->slot_forward[t]].offset_bytes += x->part[t] % OFFLOAD_HALVES * most;
            s->slots[h->slot_back[t]].offset_bytes += x->part[t] % OFFLOAD_HALVES * most;
        }
    s->buffer_rings[s->offload.out].stride_bytes = s->buffer_rings[s->offload.in].stride_bytes = OFFLOAD_HALVES * most;
}

/* ---- instructions ----------------------------------------------------------------------------- */

static void emit(struct writer *w, enum instr_kind kind, int32_t op)
{
    const struct stage_offload *x = w->h->offload;
    if (!x) return;
    int32_t part = x->parts == 1 ? (op < 0 ? 0 : -1) : op < 0 ? -1 : x->after[op];
    if (part >= 0) writer_emit(w, kind, part);
}

void lower_offload_out(struct writer *w, int32_t op) { emit(w, INSTR_OFFLOAD, op); }
void lower_offload_fetch(struct writer *w, int32_t op) { emit(w, INSTR_FETCH, op); }
