/* Stage costs without lowering: sums of operator prices by layer, and sizes counted as lowering lays them out.
 *
 * Times are prefix sums over layers for each device type. Sizes do not depend on the type and are kept for each range of
 * layers once asked for. Every tensor is rounded up to the 64 bytes that slots start at. What another layer of the
 * range makes and this one reads crosses no stage, so ranges are not sums of layers: a tensor is kept if an input or
 * weight gradient operator of the range reads it and the range makes it, receives it or loads it. Most tensors and
 * parameters live within one layer, and those are prefix sums after all; the others are looked at one by one.
 */
#include "sim/stage_internal.h"

#include <inttypes.h>
#include <string.h>

/* Operators from … to - 1 by layer, each layer's in their order; first: (n_layers + 1) where each begins. */
static int32_t *by_layer(struct arena *a, const struct graph *g, int32_t from, int32_t to,
                         int32_t **first)
{
    int32_t *ops = ARENA_ARRAY(a, int32_t, (size_t)(to - from));
    int32_t *next = ARENA_ARRAY(a, int32_t, (size_t)g->n_layers + 2);
    for (int32_t i = from; i < to; i++) next[g->ops[i].layer + 2]++;
    for (int32_t l = 2; l < g->n_layers + 2; l++) next[l] += next[l - 1];
    for (int32_t i = from; i < to; i++) ops[next[g->ops[i].layer + 1]++] = i;
    *first = next;
    return ops;
}

/* --- what runs again under recompute --- */

/* Operators of a layer whose outputs its backward reads, or that such operators need; with the activation that leaves the
 * layer needed as well, or not. Returns whether the activation that comes in is needed then. */
static bool rerun_layer(const struct stage_table *t, bool *need, int32_t layer, const bool *back,
                        bool cut_needed, bool *again)
{
    const struct graph *g = t->g;
    int32_t in = layer > 0 ? g->cut[layer - 1] : -1,
            out = layer + 1 < g->n_layers ? g->cut[layer] : -1;
    bool reads = in >= 0 && back[in];
    for (int32_t at = t->first_forward[layer + 1] - 1; at >= t->first_forward[layer]; at--) {
        int32_t i = t->forward[at];
        const struct graph_op *op = &g->ops[i];
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t x = op->output[k];
            again[i] |= need[x] || back[x] || (cut_needed && x == out);
        }
        for (int32_t k = 0; k < op->n_inputs && again[i]; k++) {
            need[op->input[k]] = true;
            reads |= op->input[k] == in;
        }
    }
    return reads;
}

/* need and back hold marks of tensors; a layer's own operators mark, and what they marked is wiped afterwards. */
static void find_reruns(struct stage_table *t)
{
    const struct graph *g = t->g;
    size_t n = (size_t)g->n_tensors;
    bool *need = ARENA_ARRAY(t->arena, bool, n), *back = ARENA_ARRAY(t->arena, bool, n);
    t->again_last = ARENA_ARRAY(t->arena, bool, (size_t)g->n_forward);
    t->again = ARENA_ARRAY(t->arena, bool, (size_t)g->n_forward);
    t->reads_last = ARENA_ARRAY(t->arena, bool, (size_t)g->n_layers);
    t->reads = ARENA_ARRAY(t->arena, bool, (size_t)g->n_layers);
    for (int32_t l = 0; l < g->n_layers; l++) {
        memset(back, 0, n * sizeof *back);
        for (int32_t at = t->first_back[l]; at < t->first_back[l + 1]; at++) {
            const struct graph_op *op = &g->ops[t->back[at]];
            for (int32_t k = 0; k < op->n_inputs; k++) back[op->input[k]] = true;
        }
        memset(need, 0, n * sizeof *need);
        t->reads_last[l] = rerun_layer(t, need, l, back, false, t->again_last);
        memset(need, 0, n * sizeof *need);
        t->reads[l] = rerun_layer(t, need, l, back, true, t->again);
    }
}

/* --- times --- */

static enum status price(struct stage_table *t, int32_t type, struct program_op *op, int64_t *out,
                         struct error *err)
{
    op->dtype = op->phase == PHASE_U ? dtype_master(t->g->dtype) : t->g->dtype;
    op->shapes.n_inputs = op->n_inputs, op->shapes.n_outputs = op->n_outputs;
    op->key = op_key(op->kind, &op->attrs, &op->shapes, op->dtype);
    return cost_op(t->cost, type, op, out, err);
}

static enum status price_graph_op(struct stage_table *t, int32_t type, const struct graph_op *x,
                                  int64_t *out, struct error *err)
{
    struct program_op op = {.kind = x->kind,
                            .attrs = x->attrs,
                            .name = x->name,
                            .n_inputs = x->n_inputs,
                            .n_outputs = x->n_outputs};
    graph_op_shapes(t->g, x, &op.shapes);
    for (int32_t k = 0; k < x->n_outputs; k++)
        if (t->g->tensors[x->output[k]].role == TENSOR_PARAMETER_GRADIENT)
            op.attrs.accumulate = true;
    return price(t, type, &op, out, err);
}

/* One update over tensors of this shape. */
static enum status price_update(struct stage_table *t, int32_t type, bool flat, bool decay,
                                const struct shape *shape, int64_t *out, struct error *err)
{
    bool adamw = t->optimizer->kind == OPTIMIZER_ADAMW;
    struct program_op op = {.kind = adamw  ? (flat ? OP_flat_adamw : OP_adamw)
                                    : flat ? OP_flat_sgd
                                           : OP_sgd,
                            .phase = PHASE_U,
                            .attrs = {.decay = decay},
                            .name = "update",
                            .n_inputs = adamw ? 4 : 2,
                            .n_outputs = adamw ? 4 : 2};
    for (int32_t k = 0; k < op.n_inputs; k++) op.shapes.input[k] = op.shapes.output[k] = *shape;
    return price(t, type, &op, out, err);
}

/* A second use's gradient is added to the first's and cleared. */
static enum status price_tie(struct stage_table *t, int32_t type, const struct shape *shape,
                             int64_t *out, struct error *err)
{
    struct program_op add = {
        .kind = OP_accumulate, .phase = PHASE_U, .name = "tie", .n_inputs = 1, .n_outputs = 1};
    struct program_op zero = {
        .kind = OP_zero, .phase = PHASE_U, .name = "tie.zero", .n_outputs = 1};
    int64_t zero_ns;
    add.shapes.input[0] = add.shapes.output[0] = zero.shapes.output[0] = *shape;
    TRY(price(t, type, &add, out, err));
    TRY(price(t, type, &zero, &zero_ns, err));
    *out += zero_ns;
    return OK;
}

static struct type_times *new_times(struct stage_table *t)
{
    size_t n = (size_t)t->g->n_layers;
    struct type_times *x = ARENA_ARRAY(t->arena, struct type_times, 1);
    *x = (struct type_times){ARENA_ARRAY(t->arena, int64_t, n + 1),
                             ARENA_ARRAY(t->arena, int64_t, n + 1),
                             ARENA_ARRAY(t->arena, int64_t, n + 1),
                             ARENA_ARRAY(t->arena, int64_t, n),
                             ARENA_ARRAY(t->arena, int64_t, n),
                             ARENA_ARRAY(t->arena, int64_t, n + 1),
                             ARENA_ARRAY(t->arena, int64_t, (size_t)t->n_parameters),
                             ARENA_ARRAY(t->arena, int64_t, (size_t)t->n_parameters)};
    return x;
}

static enum status make_times(struct stage_table *t, int32_t type, struct error *err)
{
    const struct graph *g = t->g;
    struct type_times *x = new_times(t);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        int64_t ns = 0;
        TRY(price_graph_op(t, type, op, &ns, err));
        int64_t *sum = op->phase == PHASE_F   ? x->forward_ns
                       : op->phase == PHASE_W ? x->weight_ns
                                              : x->input_ns;
        sum[op->layer + 1] += ns;
        if (i < g->n_forward && t->again_last[i]) x->again_last_ns[op->layer] += ns;
        if (i < g->n_forward && t->again[i]) x->again_ns[op->layer] += ns;
    }
    for (int32_t i = 0; i < t->n_parameters; i++) {
        const struct stage_parameter *p = &t->parameters[i];
        const struct tensor *tensor = &g->tensors[p->tensor];
        if (!t->flat && p->uses.n)
            TRY(price_update(t, type, false, tensor->decay, &tensor->shape, &x->update_ns[i], err));
        if (p->uses.n > 1) TRY(price_tie(t, type, &tensor->shape, &x->tie_ns[i], err));
        if (i >= t->n_across && p->uses.n)
            x->within_ns[p->used.layer[0] + 1] += x->update_ns[i] + x->tie_ns[i];
    }
    for (int32_t l = 0; l < g->n_layers; l++) {
        x->forward_ns[l + 1] += x->forward_ns[l];
        x->input_ns[l + 1] += x->input_ns[l];
        x->weight_ns[l + 1] += x->weight_ns[l];
        x->within_ns[l + 1] += x->within_ns[l];
    }
    t->times[type] = x;
    return OK;
}

static enum status flat_updates(struct stage_table *t, int32_t type, const struct sizes *s,
                                int64_t *sum, struct error *err)
{
    for (int run = 0; run < 2; run++) {
        int64_t bytes = run ? s->parameter - s->decayed : s->decayed, ns = 0;
        if (!bytes) continue;
        struct shape shape = {.rank = 1, .dim = {bytes / dtype_bytes(t->g->dtype)}};
        TRY(price_update(t, type, true, !run, &shape, &ns, err));
        *sum += ns;
    }
    return OK;
}

static enum status update_time(struct stage_table *t, int32_t first, int32_t last, int32_t type,
                               const struct sizes *s, int64_t *out, struct error *err)
{
    *out = t->times[type]->within_ns[last + 1] - t->times[type]->within_ns[first];
    for (int32_t i = 0; i < t->n_across; i++) {
        const struct readers *u = &t->parameters[i].uses;
        int32_t uses = 0;
        for (int32_t k = 0; k < u->n; k++) uses += u->layer[k] >= first && u->layer[k] <= last;
        if (uses) *out += t->times[type]->update_ns[i];
        if (uses > 1) *out += t->times[type]->tie_ns[i];
    }
    return t->flat ? flat_updates(t, type, s, out, err) : OK;
}

static int64_t recompute_time(const struct stage_table *t, const struct type_times *x,
                              int32_t first, int32_t last)
{
    int64_t ns = 0;
    bool needed = false; /* the activation that leaves layer l, by a layer of this stage */
    for (int32_t l = last; l >= first; l--) {
        ns += needed ? x->again_ns[l] : x->again_last_ns[l];
        needed = needed ? t->reads[l] : t->reads_last[l];
    }
    return ns;
}

/* --- the table --- */

static struct stage_table *table_for(struct arena *a, const struct graph *g, struct cost *k,
                                     const struct optimizer *o, int32_t cards)
{
    struct stage_table *t = ARENA_ARRAY(a, struct stage_table, 1);
    *t = (struct stage_table){.arena = a, .g = g, .cost = k, .optimizer = o, .cards = cards};
    t->sizes = ARENA_ARRAY(a, struct sizes *, (size_t)g->n_layers);
    t->times = ARENA_ARRAY(a, struct type_times *, (size_t)cost_types(k));
    t->other = ARENA_ARRAY(a, struct stage_table *, (size_t)cost_types(k));
    t->forward = by_layer(a, g, 0, g->n_forward, &t->first_forward);
    t->back = by_layer(a, g, g->n_forward, g->n_ops, &t->first_back);
    stage_sizes_prepare(t);
    find_reruns(t);
    return t;
}

struct stage_table *stage_table_new(struct arena *a, const struct graph *g, struct cost *k,
                                    const struct optimizer *o)
{
    return table_for(a, g, k, o, 1);
}

void stage_table_fused(struct stage_table *t, const enum op_kind *fused, int32_t n)
{
    enum op_kind flat = t->optimizer->kind == OPTIMIZER_ADAMW ? OP_flat_adamw : OP_flat_sgd;
    for (int32_t i = 0; i < n; i++) t->flat |= fused[i] == flat;
}

static const struct sizes *sizes_of(struct stage_table *t, int32_t first, int32_t last)
{
    if (!t->sizes[first])
        t->sizes[first] = ARENA_ARRAY(t->arena, struct sizes, (size_t)t->g->n_layers);
    struct sizes *s = &t->sizes[first][last];
    if (!s->known) *s = stage_sizes_count(t, first, last);
    return s;
}

enum status sim_stage(struct stage_table *t, int32_t first_layer, int32_t last_layer, int32_t type,
                      struct stage_cost *out, struct error *err)
{
    if (first_layer < 0 || last_layer < first_layer || last_layer >= t->g->n_layers || type < 0 ||
        type >= cost_types(t->cost))
        return error_set(err, ERR_INPUT,
                         "no stage of layers %" PRId32 " to %" PRId32 " of %" PRId32
                         " on type %" PRId32,
                         first_layer, last_layer, t->g->n_layers, type);
    const struct device_type *d = cost_type(t->cost, type);
    /* A graph of measured layers is whole; any other is one card's share already (core/model). */
    bool whole = t->g->n_ops && op_is_measured(t->g->ops[0].kind);
    int32_t cards = whole && d->tensor_parallel > 1 ? d->tensor_parallel : 1;
    if (cards != t->cards) {
        if (!t->other[type])
            t->other[type] = table_for(t->arena, t->g, t->cost, t->optimizer, cards);
        t->other[type]->flat = t->flat;
        return sim_stage(t->other[type], first_layer, last_layer, type, out, err);
    }
    if (!t->times[type]) TRY(make_times(t, type, err));
    const struct type_times *x = t->times[type];
    const struct sizes *s = sizes_of(t, first_layer, last_layer);
    *out = (struct stage_cost){
        .forward_ns = x->forward_ns[last_layer + 1] - x->forward_ns[first_layer],
        .input_ns = x->input_ns[last_layer + 1] - x->input_ns[first_layer],
        .weight_ns = x->weight_ns[last_layer + 1] - x->weight_ns[first_layer],
        .recompute_ns = recompute_time(t, x, first_layer, last_layer),
        .parameter_bytes = s->parameter / cards,
        .gradient_bytes = s->gradient / cards,
        .state_bytes = (optimizer_state_tensors(t->optimizer) + dtype_is_half(t->g->dtype)) *
                       s->parameter / dtype_bytes(t->g->dtype) * stage_master_bytes(t->g) / cards,
        .activation_bytes = s->kept,
        .input_bytes = s->input,
        .scratch_bytes = s->scratch + d->reserve_bytes,
    };
    return update_time(t, first_layer, last_layer, type, s, &out->update_ns, err);
}
