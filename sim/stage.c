/* Stage costs without lowering: sums of operator prices by layer, and sizes counted as lowering lays them out.
 *
 * Times are prefix sums over layers for each device type. Sizes do not depend on the type and are kept for each range of
 * layers once asked for. Every tensor is rounded up to the 64 bytes that slots start at. What another layer of the
 * range makes and this one reads crosses no stage, so ranges are not sums of layers: a tensor is kept if an input or
 * weight gradient operator of the range reads it and the range makes it, receives it or loads it.
 */
#include "sim/stage.h"

#include "core/arena.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Layers that read a tensor or use a parameter, ascending, each once. */
struct readers {
    int32_t n;
    int32_t *layer;
};

struct kept {                /* a tensor that some backward reads */
    int32_t tensor, made_in; /* layer; -1: an input */
    int64_t bytes;
    struct readers readers;
};

struct stage_parameter {
    int32_t tensor;
    int64_t bytes;
    struct readers used; /* by forward or backward */
    struct readers uses; /* layers of its gradients, one each use: not each once */
};

struct type_times {                             /* prefix sums: [l] is of layers before l */
    int64_t *forward_ns, *input_ns, *weight_ns; /* (n_layers + 1) */
    int64_t *again_last_ns,
        *again_ns; /* (n_layers): recompute where the layer is the last one needed, and else */
    int64_t *update_ns, *tie_ns; /* (n_parameters) */
};

struct sizes {
    bool known;
    int64_t parameter, decayed, gradient, kept, input,
        scratch; /* decayed: bytes of the decayed parameters */
};

struct stage_table {
    struct arena *arena;
    const struct graph *g;
    const struct lower_graphs *graphs; /* NULL: g alone */
    struct cost *cost;
    const struct optimizer *optimizer;
    bool flat;
    int32_t n_kept, n_parameters;
    struct kept *kept;
    struct stage_parameter *parameters;
    int64_t *scratch; /* (n_layers) */
    bool *again_last,
        *again; /* (n_forward): operator runs again; where its layer is the last needed, and else */
    bool *reads_last,
        *reads; /* (n_layers): the same: does what runs again or back read the activation before? */
    struct sizes **sizes;      /* (n_layers) rows of (n_layers), made when asked for */
    struct type_times **times; /* (n_types) */
    int32_t cards;             /* that share a stage; sizes are of one of them */
    struct stage_table *
        *other; /* (n_types): the table of a type with other cards, NULL until asked for */
};

/* What one of the table's cards holds of a tensor that they do not share alike. */
static int64_t tensor_bytes(const struct stage_table *t, const struct tensor *x)
{
    struct shape shape = x->shape;
    int64_t shared = x->shares ? shares_at(x->shares, t->cards) : -1;
    if (shared >= 0) shape.dim[shape.rank - 1] = shared;
    return (shape_elements(&shape) * dtype_bytes(x->dtype) + 63) / 64 * 64;
}

static bool reads_between(const struct readers *r, int32_t first, int32_t last)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->layer[i] >= first && r->layer[i] <= last) return true;
    return false;
}

/* --- sizes --- */

/* Lists for each tensor of the layers of operators [from, to) that read it. Two passes: count, then fill. */
static struct readers *find_readers(struct arena *a, const struct graph *g, int32_t from,
                                    int32_t to)
{
    struct readers *r = ARENA_ARRAY(a, struct readers, (size_t)g->n_tensors);
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) r[g->ops[i].input[k]].n++;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        r[t].layer = ARENA_ARRAY(a, int32_t, (size_t)r[t].n);
        r[t].n = 0;
    }
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            struct readers *x = &r[g->ops[i].input[k]];
            if (!reads_between(x, g->ops[i].layer, g->ops[i].layer))
                x->layer[x->n++] = g->ops[i].layer;
        }
    return r;
}

static void find_kept(struct stage_table *t)
{
    const struct graph *g = t->g;
    const struct readers *back = find_readers(t->arena, g, g->n_forward, g->n_ops);
    t->kept = ARENA_ARRAY(t->arena, struct kept, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const struct tensor *x = &g->tensors[i];
        bool forward = x->producer >= 0 && x->producer < g->n_forward;
        if (!back[i].n || (!forward && x->role != TENSOR_INPUT)) continue;
        t->kept[t->n_kept++] =
            (struct kept){i, forward ? g->ops[x->producer].layer : -1, tensor_bytes(t, x), back[i]};
    }
}

static void find_parameters(struct stage_table *t)
{
    const struct graph *g = t->g;
    const struct readers *all = find_readers(t->arena, g, 0, g->n_ops);
    int32_t *index = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_tensors);
    t->parameters = ARENA_ARRAY(t->arena, struct stage_parameter, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_tensors; i++) {
        if (g->tensors[i].role != TENSOR_PARAMETER) continue;
        index[i] = t->n_parameters;
        t->parameters[t->n_parameters++] =
            (struct stage_parameter){i, tensor_bytes(t, &g->tensors[i]), all[i], {0, NULL}};
    }
    for (int32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == TENSOR_PARAMETER_GRADIENT && g->tensors[i].producer >= 0)
            t->parameters[index[g->tensors[i].of]].uses.n++;
    for (int32_t i = 0; i < t->n_parameters; i++) {
        struct readers *u = &t->parameters[i].uses;
        u->layer = ARENA_ARRAY(t->arena, int32_t, (size_t)u->n);
        u->n = 0;
    }
    for (int32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == TENSOR_PARAMETER_GRADIENT && g->tensors[i].producer >= 0) {
            struct readers *u = &t->parameters[index[g->tensors[i].of]].uses;
            u->layer[u->n++] = g->ops[g->tensors[i].producer].layer;
        }
}

/* Most bytes alive inside a layer's forward or backward of tensors that live in one procedure only. */
static void find_scratch(struct stage_table *t)
{
    const struct graph *g = t->g;
    int32_t *last = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_tensors);
    int64_t *ends = ARENA_ARRAY(t->arena, int64_t, (size_t)g->n_ops), live = 0;
    t->scratch = ARENA_ARRAY(t->arena, int64_t, (size_t)g->n_layers);
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) last[g->ops[i].output[k]] = i;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) last[g->ops[i].input[k]] = i;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        int64_t *most = &t->scratch[g->ops[i].layer];
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t x = g->ops[i].output[k];
            bool one_part = (i < g->n_forward) == (last[x] < g->n_forward);
            if (g->tensors[x].role == TENSOR_PARAMETER_GRADIENT || g->tensors[x].producer != i ||
                !one_part)
                continue;
            live += tensor_bytes(t, &g->tensors[x]);
            ends[last[x]] += tensor_bytes(t, &g->tensors[x]);
        }
        if (live > *most) *most = live;
        live -= ends[i];
    }
}

static int64_t master_bytes(const struct graph *g) { return dtype_bytes(dtype_master(g->dtype)); }

static struct sizes count_sizes(const struct stage_table *t, int32_t first, int32_t last)
{
    const struct graph *g = t->g;
    struct sizes s = {.known = true};
    int64_t wide = master_bytes(g) / dtype_bytes(g->dtype);
    int32_t received = first > 0 ? g->cut[first - 1] : -1;
    for (int32_t i = 0; i < t->n_parameters; i++) {
        const struct stage_parameter *p = &t->parameters[i];
        int32_t uses = 0;
        if (!reads_between(&p->used, first, last)) continue;
        for (int32_t k = 0; k < p->uses.n; k++)
            uses += p->uses.layer[k] >= first && p->uses.layer[k] <= last;
        s.parameter += p->bytes;
        s.gradient += p->bytes * wide * (uses > 1 ? uses : 1);
        if (g->tensors[p->tensor].decay) s.decayed += p->bytes;
    }
    for (int32_t i = 0; i < t->n_kept; i++) {
        const struct kept *x = &t->kept[i];
        if (!reads_between(&x->readers, first, last)) continue;
        if (x->made_in < 0) s.input += x->bytes;
        if (x->made_in < 0 || x->tensor == received || (x->made_in >= first && x->made_in <= last))
            s.kept += x->bytes;
    }
    if (received >= 0) s.input += tensor_bytes(t, &g->tensors[received]);
    for (int32_t l = first; l <= last; l++)
        if (t->scratch[l] > s.scratch) s.scratch = t->scratch[l];
    return s;
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
    for (int32_t i = g->n_forward - 1; i >= 0; i--) {
        const struct graph_op *op = &g->ops[i];
        if (op->layer != layer) continue;
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
        for (int32_t i = g->n_forward; i < g->n_ops; i++)
            for (int32_t k = 0; g->ops[i].layer == l && k < g->ops[i].n_inputs; k++)
                back[g->ops[i].input[k]] = true;
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
    for (int32_t l = 0; l < g->n_layers; l++) {
        x->forward_ns[l + 1] += x->forward_ns[l];
        x->input_ns[l + 1] += x->input_ns[l];
        x->weight_ns[l + 1] += x->weight_ns[l];
    }
    for (int32_t i = 0; i < t->n_parameters; i++) {
        const struct stage_parameter *p = &t->parameters[i];
        const struct tensor *tensor = &g->tensors[p->tensor];
        if (!t->flat && p->uses.n)
            TRY(price_update(t, type, false, tensor->decay, &tensor->shape, &x->update_ns[i], err));
        if (p->uses.n > 1) TRY(price_tie(t, type, &tensor->shape, &x->tie_ns[i], err));
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
    for (int32_t i = 0; i < t->n_parameters; i++) {
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
    find_kept(t);
    find_parameters(t);
    find_scratch(t);
    find_reruns(t);
    return t;
}

struct stage_table *stage_table_new(struct arena *a, const struct graph *g, struct cost *k,
                                    const struct optimizer *o)
{
    return table_for(a, g, k, o, 1);
}

void stage_table_graphs(struct stage_table *t, const struct lower_graphs *graphs)
{
    t->graphs = graphs;
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
    if (!s->known) *s = count_sizes(t, first, last);
    return s;
}

/* The graph of which one card of the type computes its share; NULL where there is none. */
static const struct graph *graph_for(const struct stage_table *t, const struct device_type *d)
{
    int32_t cards = d->tensor_parallel > 1 ? d->tensor_parallel : 1;
    bool positions = cards > 1 && d->sequence_parallel;
    if ((t->g->cards > 1 ? t->g->cards : 1) == cards && t->g->sequence_parallel == positions)
        return t->g;
    return t->graphs ? lower_graphs_find(t->graphs, cards, positions, t->g->microbatch) : NULL;
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
    const struct graph *g = whole ? t->g : graph_for(t, d);
    if (!g)
        return error_set(err, ERR_INPUT,
                         "device type %s: there is no graph of %" PRId32
                         " cards that share every operator",
                         d->name, d->tensor_parallel > 1 ? d->tensor_parallel : 1);
    if (cards != t->cards || g != t->g) {
        if (!t->other[type]) t->other[type] = table_for(t->arena, g, t->cost, t->optimizer, cards);
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
                       s->parameter / dtype_bytes(t->g->dtype) * master_bytes(t->g) / cards,
        .activation_bytes = s->kept,
        .input_bytes = s->input,
        .scratch_bytes = s->scratch + d->reserve_bytes,
    };
    return update_time(t, first_layer, last_layer, type, s, &out->update_ns, err);
}
