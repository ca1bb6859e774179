/* core/graph/graph.c - operators, tensors, layers, fusion.
 *
 * The graph is in single assignment: every tensor has one producer, except that weight-gradient
 * tensors are added to. Order of operators is order of execution, so "live after operator i" is a
 * question of first and last position and one sweep answers it for the whole graph.
 * A default cut needs one live activation *and* that the next operator reads it: an operator that
 * reads only inputs and parameters (a second embedding) would otherwise be a layer that only forwards
 * a tensor. Nor may the next operator be one that completes the previous one (graph.h), so a job with
 * dropout has the layers of one without.
 */
#include "core/graph/graph.h"

#include "core/base/arena.h"

#include <stdio.h>
#include <string.h>

struct graph *graph_new(struct arena *a, enum dtype dtype, int64_t microbatch,
                        int64_t sequence_length)
{
    struct graph *g = ARENA_ARRAY(a, struct graph, 1);
    *g = (struct graph){
        .arena = a, .dtype = dtype, .microbatch = microbatch, .sequence_length = sequence_length};
    return g;
}

int32_t graph_add_tensor(struct graph *g, struct tensor t)
{
    bool source = t.role == TENSOR_INPUT || t.role == TENSOR_PARAMETER;
    bool gradient = t.role == TENSOR_GRADIENT || t.role == TENSOR_PARAMETER_GRADIENT;
    g->tensors = arena_grow(g->arena, g->tensors, (size_t)g->n_tensors, &g->tensor_capacity,
                            sizeof *g->tensors);
    t.name = arena_strdup(g->arena, t.name);
    if (source) t.producer = -1;
    if (!gradient) t.of = -1;
    t.gradient = -1;
    g->tensors[g->n_tensors] = t;
    return g->n_tensors++;
}

int32_t graph_push_op(struct graph *g, const struct graph_op *op)
{
    g->ops = arena_grow(g->arena, g->ops, (size_t)g->n_ops, &g->op_capacity, sizeof *g->ops);
    g->ops[g->n_ops] = *op;
    g->ops[g->n_ops].name = arena_strdup(g->arena, op->name);
    return g->n_ops++;
}

const char *graph_output_name(struct graph *g, const char *op, int32_t output, int32_t n_outputs)
{
    if (n_outputs == 1) return op;
    size_t n = strlen(op) + 16;
    char *name = arena_alloc(g->arena, n, 1);
    snprintf(name, n, "%s.%d", op, output);
    return name;
}

enum status graph_add_op(struct graph *g, enum op_kind kind, const char *name,
                         const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs,
                         int32_t *outputs, struct error *err)
{
    if (g->n_ops != g->n_forward)
        BUG("%s: forward operators stand before gradient operators", name);
    struct graph_op op = {
        .kind = kind, .phase = PHASE_F, .n_inputs = n_inputs, .forward = -1, .name = name};
    if (attrs) op.attrs = *attrs;
    for (int32_t i = 0; i < n_inputs; i++) op.input[i] = inputs[i];
    struct op_shapes shapes;
    graph_op_shapes(g, &op, &shapes);
    enum status status = op_infer(kind, &op.attrs, &shapes, err);
    if (status != OK) return error_wrap(err, status, "operator '%s'", name);
    op.n_outputs = shapes.n_outputs;
    for (int32_t i = 0; i < op.n_outputs; i++) {
        bool loss = i == 0 && (kind == OP_cross_entropy || kind == OP_cross_entropy_join ||
                               (kind == OP_measured_forward && !op.attrs.out));
        op.output[i] = graph_add_tensor(
            g,
            (struct tensor){.name = graph_output_name(g, name, i, op.n_outputs),
                            .role = loss ? TENSOR_LOSS : TENSOR_ACTIVATION,
                            .dtype = op_output_is_wide(kind, i) ? dtype_master(g->dtype) : g->dtype,
                            .shape = shapes.output[i],
                            .producer = g->n_ops});
        if (outputs) outputs[i] = op.output[i];
    }
    graph_push_op(g, &op);
    g->n_forward = g->n_ops;
    return OK;
}

int64_t shares_at(const struct shares *s, int32_t tp)
{
    int32_t i = 0;
    while (i < s->n && s->tp[i] < tp) i++;
    if (i < s->n && s->tp[i] == tp) return s->elements[i];
    if (s->n < 2) return -1;
    int32_t b = i < 1 ? 1 : i < s->n ? i : s->n - 1, a = b - 1;
    double x = 1.0 / s->tp[a], y = 1.0 / s->tp[b];
    double sharded = ((double)s->elements[a] - (double)s->elements[b]) / (x - y);
    double elements = (double)s->elements[b] + sharded * (1.0 / tp - y);
    return elements > 0 ? (int64_t)(elements + 0.5) : 0;
}

void graph_op_shapes(const struct graph *g, const struct graph_op *op, struct op_shapes *out)
{
    *out = (struct op_shapes){.n_inputs = op->n_inputs, .n_outputs = op->n_outputs};
    for (int32_t i = 0; i < op->n_inputs; i++) out->input[i] = g->tensors[op->input[i]].shape;
    for (int32_t i = 0; i < op->n_outputs; i++) out->output[i] = g->tensors[op->output[i]].shape;
}

/* No default layer begins with an operator that completes the previous one. */
static bool goes_with_what_is_before(const struct graph_op *op)
{
    static const enum op_kind kinds[] = {
        OP_bias, OP_dropout, OP_scale, OP_softcap, OP_relu, OP_group_norm, OP_to_rows, OP_prepend, OP_slice};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (op->kind == kinds[i]) return true;
    return false;
}

static bool reads(const struct graph_op *op, int32_t tensor)
{
    for (int32_t i = 0; i < op->n_inputs; i++)
        if (op->input[i] == tensor) return true;
    return false;
}

/* (n_tensors) last forward operator that reads the tensor, -1 where none does. */
static int32_t *last_readers(const struct graph *g)
{
    int32_t *last = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) last[t] = -1;
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) last[g->ops[i].input[k]] = i;
    return last;
}

/* Display name of a run of operators: the last one's name without its last part ("h.0.attn"). */
static const char *name_of_layer(const struct graph *g, const struct graph_op *last)
{
    char *name = arena_strdup(g->arena, last->name);
    char *dot = strrchr(name, '.');
    if (dot) *dot = '\0';
    return name;
}

bool graph_op_within(const struct graph *g, int32_t op, int32_t first_layer, int32_t last_layer)
{
    return g->ops[op].layer >= first_layer && g->ops[op].layer <= last_layer;
}

void graph_find_layers(struct graph *g)
{
    int32_t *last = last_readers(g);
    /* With exactly one live tensor, the sum of live ids is its id. */
    int64_t n_live = 0, sum_live = 0;
    int32_t *ends = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_forward), n = 0;
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (last[op->output[k]] > i) n_live++, sum_live += op->output[k];
        for (int32_t k = 0; k < op->n_inputs; k++) {
            int32_t t = op->input[k];
            if (last[t] != i || g->tensors[t].role != TENSOR_ACTIVATION) continue;
            n_live--, sum_live -= t;
            last[t] = -1; /* an operator may read a tensor twice */
        }
        bool last_op = i + 1 == g->n_forward;
        if (!last_op &&
            (n_live != 1 || !reads(op + 1, (int32_t)sum_live) || goes_with_what_is_before(op + 1)))
            continue;
        ends[n++] = i;
    }
    graph_set_layers(g, ends, n);
}

static void cut_add(struct arena *a, struct cut *c, size_t *capacity, int32_t tensor)
{
    c->tensor = arena_grow(a, c->tensor, (size_t)c->n, capacity, sizeof *c->tensor);
    c->tensor[c->n++] = tensor;
}

/* Adds a tensor made in layer `from` and read in layer `to` to every cut in between. */
static void cross(struct arena *a, struct cut *cut, size_t *capacity, int32_t tensor, int32_t from,
                  int32_t to)
{
    for (int32_t k = from; k < to; k++) cut_add(a, &cut[k], &capacity[k], tensor);
}

void graph_set_layers(struct graph *g, const int32_t *last, int32_t n_layers)
{
    if (n_layers && last[n_layers - 1] != g->n_forward - 1)
        BUG("the last layer ends before the last operator");
    const int32_t *read = last_readers(g);
    size_t n = (size_t)n_layers + 1, *capacity = ARENA_ARRAY(g->arena, size_t, n);
    g->n_layers = n_layers;
    g->cut = ARENA_ARRAY(g->arena, struct cut, n);
    g->layer_name = ARENA_ARRAY(g->arena, const char *, n);
    for (int32_t layer = 0, i = 0; layer < n_layers; layer++) {
        g->layer_name[layer] = "";
        if (last[layer] < i) continue;
        for (; i <= last[layer]; i++) g->ops[i].layer = layer;
        g->layer_name[layer] = name_of_layer(g, &g->ops[last[layer]]);
        /* Layers with equal names: all but the last get their last operator's name. */
        if (layer && !strcmp(g->layer_name[layer - 1], g->layer_name[layer]))
            g->layer_name[layer - 1] = g->ops[last[layer - 1]].name;
    }
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t t = g->ops[i].output[k];
            if (read[t] >= 0)
                cross(g->arena, g->cut, capacity, t, g->ops[i].layer, g->ops[read[t]].layer);
        }
}

struct cut *graph_gradient_cuts(struct arena *a, const struct graph *g)
{
    size_t n = (size_t)g->n_layers + 1, *capacity = ARENA_ARRAY(a, size_t, n);
    struct cut *cut = ARENA_ARRAY(a, struct cut, n);
    int32_t *lowest = ARENA_ARRAY(a, int32_t, (size_t)g->n_tensors); /* layer that reads it */
    for (int32_t t = 0; t < g->n_tensors; t++) lowest[t] = g->n_layers;
    for (int32_t i = g->n_forward; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
            if (g->ops[i].layer < lowest[g->ops[i].input[k]])
                lowest[g->ops[i].input[k]] = g->ops[i].layer;
    for (int32_t i = g->n_forward; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t t = g->ops[i].output[k];
            if (g->tensors[t].role == TENSOR_GRADIENT && g->tensors[t].producer == i)
                cross(a, cut, capacity, t, lowest[t], g->ops[i].layer);
        }
    return cut;
}

int64_t graph_tensor_bytes(const struct graph *g, int32_t tensor)
{
    const struct tensor *t = &g->tensors[tensor];
    return shape_elements(&t->shape) * dtype_bytes(t->dtype);
}

int64_t graph_cut_bytes(const struct graph *g, const struct cut *c)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < c->n; k++) bytes += graph_tensor_bytes(g, c->tensor[k]);
    return bytes;
}

/* --- fusion --- */

struct fusion {        /* per operator of the old graph */
    bool absorbed;     /* merged into the operator that reads its output */
    int32_t partner;   /* the operator it absorbs, or -1 */
    int32_t reader;    /* absorbed: the absorbing operator */
    enum op_kind kind; /* what it becomes */
};

/* The partner that `op` can absorb by fused kind `kind`: its output has no other reader, both are in one layer. */
static int32_t find_partner(const struct graph *g, const struct fusion *fusion,
                            const int32_t *n_readers, int32_t op, enum op_kind kind)
{
    enum op_kind parts[2];
    if (op_fuses(kind, parts) != 2 || g->ops[op].kind != parts[1]) return -1;
    for (int32_t k = 0; k < g->ops[op].n_inputs; k++) {
        int32_t t = g->ops[op].input[k], p = g->tensors[t].producer;
        if (p < 0 || n_readers[t] != 1 || g->ops[p].kind != parts[0]) continue;
        if (g->ops[p].layer != g->ops[op].layer || g->ops[p].n_outputs != 1) continue;
        if (g->ops[p].attrs.dim) continue; /* fused biases are of the last dimension */
        if (kind == OP_linear_gelu && g->ops[op].attrs.gelu_erf) continue; /* by tanh alone */
        if (!fusion[p].absorbed && fusion[p].partner < 0) return p;
    }
    return -1;
}

static struct fusion *find_fusions(const struct graph *g, const enum op_kind *list, int32_t n)
{
    struct fusion *fusion = ARENA_ARRAY(g->arena, struct fusion, (size_t)g->n_ops);
    int32_t *n_readers = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_ops; i++) {
        fusion[i] = (struct fusion){.partner = -1, .kind = g->ops[i].kind};
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) n_readers[g->ops[i].input[k]]++;
    }
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t f = 0; f < n && fusion[i].partner < 0; f++) {
            fusion[i].partner = find_partner(g, fusion, n_readers, i, list[f]);
            if (fusion[i].partner < 0) continue;
            fusion[i].kind = list[f];
            fusion[fusion[i].partner].absorbed = true;
            fusion[fusion[i].partner].reader = i;
        }
    return fusion;
}

static bool any_fusion(const struct graph *g, const struct fusion *fusion)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (fusion[i].partner >= 0) return true;
    return false;
}

/* Operands of the fused kind: the first operator's, then the second's without the tensor between them. */
static void merge_inputs(const struct graph_op *first, const struct graph_op *second,
                         struct graph_op *out)
{
    out->n_inputs = 0;
    for (int32_t k = 0; k < first->n_inputs; k++) {
        out->partial[out->n_inputs] = first->partial[k];
        out->input[out->n_inputs++] = first->input[k];
    }
    for (int32_t k = 0; k < second->n_inputs; k++)
        if (second->input[k] != first->output[0]) {
            out->partial[out->n_inputs] = second->partial[k];
            out->input[out->n_inputs++] = second->input[k];
        }
}

static int32_t *copy_tensors(struct graph *to, const struct graph *g, const struct fusion *fusion,
                             const int32_t *new_op)
{
    int32_t *new_tensor = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        int32_t p = g->tensors[t].producer;
        new_tensor[t] = -1;
        if (p >= 0 && fusion[p].absorbed && !op_fused_keeps(fusion[fusion[p].reader].kind)) continue;
        struct tensor copy = g->tensors[t];
        if (p >= 0) copy.producer = new_op[fusion[p].absorbed ? fusion[p].reader : p];
        new_tensor[t] = to->n_tensors;
        to->tensors[to->n_tensors++] = copy;
    }
    return new_tensor;
}

static int32_t n_readers(const struct graph *g, int32_t tensor)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) n += g->ops[i].input[k] == tensor;
    return n;
}

/* Logits read by a loss only, with a vocabulary that is not a multiple of the vector width, get padded rows. The loss gets the
 * number of entries. Only unsharded logits: shards of a vocabulary are identified by their columns. */
static void lengthen_logits(struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *loss = &g->ops[i];
        struct tensor *y = &g->tensors[loss->input[0]];
        if (loss->kind != OP_cross_entropy || y->producer < 0 || y->shard.n_cuts) continue;
        struct graph_op *product = &g->ops[y->producer];
        int64_t n = shape_last(&y->shape);
        if (product->kind != OP_matmul || !product->attrs.trans_b || product->factors ||
            n_readers(g, loss->input[0]) != 1 || n % LOGITS_PACK == 0)
            continue;
        product->kind = OP_logits;
        product->attrs.trans_b = false;
        loss->attrs.vocabulary = n;
        y->shape.dim[y->shape.rank - 1] = (n + LOGITS_PACK - 1) / LOGITS_PACK * LOGITS_PACK;
    }
}

bool graph_fuses(const struct graph *g, enum op_kind kind)
{
    for (int32_t i = 0; i < g->n_fused; i++)
        if (g->fused[i] == kind) return true;
    return false;
}

static const int32_t *move_uses(const struct graph *to, const struct graph *g, const int32_t *new_tensor)
{
    if (!g->uses_before) return NULL;
    int32_t *uses = ARENA_ARRAY(g->arena, int32_t, (size_t)to->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (new_tensor[t] >= 0) uses[new_tensor[t]] = g->uses_before[t];
    return uses;
}

/* One pass; names are shared with g. first: a copy in any case, else NULL if nothing is fused. */
static struct graph *fuse_pairs(const struct graph *g, const enum op_kind *list, int32_t n,
                                bool first)
{
    struct fusion *fusion = find_fusions(g, list, n);
    if (!first && !any_fusion(g, fusion)) return NULL;
    struct graph *to = graph_new(g->arena, g->dtype, g->microbatch, g->sequence_length);
    to->tensor_capacity = (size_t)g->n_tensors, to->op_capacity = (size_t)g->n_ops;
    to->tensors = ARENA_ARRAY(g->arena, struct tensor, to->tensor_capacity);
    to->ops = ARENA_ARRAY(g->arena, struct graph_op, to->op_capacity);
    for (int32_t x = 0; x < MESH_AXES_MAX; x++) to->group[x] = g->group[x];
    int32_t *new_op = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_ops), next = 0;
    for (int32_t i = 0; i < g->n_ops; i++) new_op[i] = fusion[i].absorbed ? -1 : next++;
    int32_t *new_tensor = copy_tensors(to, g, fusion, new_op);
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (fusion[i].absorbed) continue;
        struct graph_op op = g->ops[i];
        op.kind = fusion[i].kind;
        if (fusion[i].partner >= 0) {
            const struct graph_op *before = &g->ops[fusion[i].partner];
            op.attrs.trans_b |= before->attrs.trans_b; /* of a product; a bias after it has none */
            if (before->factors) op.factors = before->factors; /* of the product */
            merge_inputs(before, &g->ops[i], &op);
            if (op_fused_keeps(op.kind)) op.output[op.n_outputs++] = before->output[0];
        }
        for (int32_t k = 0; k < op.n_inputs; k++) op.input[k] = new_tensor[op.input[k]];
        for (int32_t k = 0; k < op.n_outputs; k++) op.output[k] = new_tensor[op.output[k]];
        to->ops[to->n_ops++] = op;
    }
    if (g->open) to->open = 1 + new_tensor[g->open - 1];
    to->uses_before = move_uses(to, g, new_tensor);
    to->n_forward = to->n_ops;
    to->n_layers = g->n_layers;
    to->cut = ARENA_ARRAY(g->arena, struct cut, (size_t)g->n_layers + 1);
    to->layer_name = ARENA_ARRAY(g->arena, const char *, (size_t)g->n_layers + 1);
    for (int32_t k = 0; k < g->n_layers; k++) to->layer_name[k] = g->layer_name[k];
    for (int32_t k = 0; k + 1 < g->n_layers; k++) {
        to->cut[k].n = g->cut[k].n;
        to->cut[k].tensor = ARENA_ARRAY(g->arena, int32_t, (size_t)g->cut[k].n);
        for (int32_t i = 0; i < g->cut[k].n; i++)
            to->cut[k].tensor[i] = new_tensor[g->cut[k].tensor[i]];
    }
    return to;
}

/* A fused pair may be half of another: repeated until nothing changes. */
struct graph *graph_fuse(const struct graph *g, const enum op_kind *list, int32_t n)
{
    if (g->n_ops != g->n_forward) BUG("graph_fuse: gradients come after fusion");
    struct graph *to = NULL;
    for (struct graph *next = fuse_pairs(g, list, n, true); next;
         next = fuse_pairs(to, list, n, false))
        to = next;
    enum op_kind *kept = ARENA_ARRAY(g->arena, enum op_kind, (size_t)n);
    for (int32_t i = 0; i < n; i++) kept[i] = list[i];
    to->n_fused = n, to->fused = kept;
    if (graph_fuses(to, OP_logits)) lengthen_logits(to);
    return to;
}
