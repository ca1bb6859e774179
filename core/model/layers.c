#include "core/model/layers.h"

#include "core/base/arena.h"
#include "core/graph/graph.h"
#include "core/model/repeats.h"

#include <inttypes.h>
#include <string.h>

/* What the search for blocks and cuts asks about a forward graph. */
struct view {
    const struct graph *g;
    uint64_t *key; /* (n_forward): of the operator alone */
    int32_t *used; /* (n_tensors): how many operands it is */
    /* (n_forward, OP_OPERANDS_MAX): the operator that used the operand before, or -1 */
    int32_t *last_use;
    int64_t *in_bytes; /* (n_forward): what lives in front of it; -1: too many tensors for a cut */
    double *flops;     /* (n_forward) */
    bool *product;     /* (n_forward) */
};

static uint64_t key_of(const struct graph *g, const struct graph_op *op)
{
    struct op_shapes shapes;
    graph_op_shapes(g, op, &shapes);
    return op_key(op->kind, &op->attrs, &shapes, g->dtype);
}

/* Equal operands of operators i and j: one and the same, or of equal kind from as far back. */
static bool same_operand(const struct view *v, int32_t i, int32_t j, int32_t k)
{
    const struct graph *g = v->g;
    int32_t t = g->ops[i].input[k], u = g->ops[j].input[k];
    const struct tensor *x = &g->tensors[t], *y = &g->tensors[u];
    if (t == u) return true;
    if (x->role != y->role || x->dtype != y->dtype || !shape_equal(&x->shape, &y->shape))
        return false;
    if (x->role == TENSOR_INPUT) return x->input == y->input;
    if (x->role == TENSOR_PARAMETER) {
        int32_t a = v->last_use[i * OP_OPERANDS_MAX + k], b = v->last_use[j * OP_OPERANDS_MAX + k];
        return v->used[t] == v->used[u] && x->decay == y->decay &&
               (a < 0 || b < 0 ? a == b : i - a == j - b);
    }
    return i - x->producer == j - y->producer &&
           t - g->ops[x->producer].output[0] == u - g->ops[y->producer].output[0];
}

static bool same_op(const void *user, int32_t i, int32_t j)
{
    const struct view *v = user;
    const struct graph_op *a = &v->g->ops[i], *b = &v->g->ops[j];
    if (v->key[i] != v->key[j] || a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs)
        return false;
    for (int32_t k = 0; k < a->n_inputs; k++)
        if (!same_operand(v, i, j, k)) return false;
    for (int32_t k = 0; k < a->n_outputs; k++)
        if (!shape_equal(&v->g->tensors[a->output[k]].shape, &v->g->tensors[b->output[k]].shape))
            return false;
    return true;
}

static int64_t seam(const void *user, int32_t at)
{
    int64_t bytes = ((const struct view *)user)->in_bytes[at];
    return bytes < 0 ? INT64_MAX : bytes;
}

static void find_live(struct view *v)
{
    const struct graph *g = v->g;
    int32_t *last = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors), n = 0;
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) last[g->ops[i].input[k]] = i;
    int64_t bytes = 0;
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        v->in_bytes[i] = n > CUT_TENSORS_MAX ? -1 : bytes;
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (last[op->output[k]] > i) n++, bytes += graph_tensor_bytes(g, op->output[k]);
        for (int32_t k = 0; k < op->n_inputs; k++) {
            int32_t t = op->input[k];
            if (last[t] != i || g->tensors[t].producer < 0) continue;
            n--, bytes -= graph_tensor_bytes(g, t);
            last[t] = -1; /* an operator may read a tensor twice */
        }
    }
}

static struct view *view_of(const struct graph *g)
{
    size_t n = (size_t)g->n_forward;
    struct view *v = ARENA_ARRAY(g->arena, struct view, 1);
    *v = (struct view){.g = g,
                       .key = ARENA_ARRAY(g->arena, uint64_t, n),
                       .used = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors),
                       .last_use = ARENA_ARRAY(g->arena, int32_t, n * OP_OPERANDS_MAX),
                       .in_bytes = ARENA_ARRAY(g->arena, int64_t, n),
                       .flops = ARENA_ARRAY(g->arena, double, n),
                       .product = ARENA_ARRAY(g->arena, bool, n)};
    int32_t *user = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) user[t] = -1;
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        struct op_shapes shapes;
        graph_op_shapes(g, op, &shapes);
        v->key[i] = key_of(g, op);
        v->flops[i] = op_flops(op->kind, &op->attrs, &shapes);
        v->product[i] = op_is_product(op->kind);
        for (int32_t k = 0; k < op->n_inputs; k++) {
            v->used[op->input[k]]++;
            v->last_use[i * OP_OPERANDS_MAX + k] = user[op->input[k]];
            user[op->input[k]] = i;
        }
    }
    find_live(v);
    return v;
}

static int32_t products(const struct view *v, int32_t first, int32_t n)
{
    int32_t sum = 0;
    for (int32_t i = first; i < first + n; i++) sum += v->product[i];
    return sum;
}

/* Repeats with a matrix product in each piece. */
static int32_t find_blocks(const struct view *v, struct repeat **out)
{
    struct repeats_of s = {v->g->n_forward, v, same_op, seam};
    int32_t n = repeats_find(v->g->arena, &s, out), kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (products(v, (*out)[i].first, (*out)[i].period)) (*out)[kept++] = (*out)[i];
    return kept;
}

static bool cluster(const struct view *v, int32_t first, int32_t n, int32_t groups, int32_t *last)
{
    struct layers_work w = {n, v->in_bytes + first, v->flops + first, v->product + first};
    if (!layers_cluster(v->g->arena, &w, groups, last)) return false;
    for (int32_t i = 0; i < groups; i++) last[i] += first;
    return true;
}

/* Operators [first, end) outside of repeats: one layer; fine, with several products: those of the default cuts, which the
 * graph has now. Returns how many. */
static int32_t between(const struct view *v, int32_t first, int32_t end, bool fine, int32_t *last)
{
    const struct graph_op *op = v->g->ops;
    int32_t layers = 0;
    if (first >= end) return 0;
    fine = fine && products(v, first, end - first) > 1;
    for (int32_t i = first; fine && i + 1 < end; i++)
        if (op[i].layer != op[i + 1].layer) last[layers++] = i;
    last[layers++] = end - 1;
    return layers;
}

/* All of the graph with k layers in each piece of the repeats. Returns how many layers that are, 0 where there is no way. */
static int32_t layers_with(const struct view *v, const struct repeat *r, int32_t n, int32_t k,
                           bool fine, int32_t *last)
{
    int32_t layers = 0, at = 0;
    for (int32_t i = 0; i < n; i++) {
        layers += between(v, at, r[i].first, fine, last + layers);
        if (!cluster(v, r[i].first, r[i].period, k, last + layers)) return 0;
        for (int32_t c = 1; c < r[i].copies; c++)
            for (int32_t q = 0; q < k; q++)
                last[layers + c * k + q] = last[layers + q] + c * r[i].period;
        layers += k * r[i].copies;
        at = r[i].first + r[i].period * r[i].copies;
    }
    return layers + between(v, at, v->g->n_forward, fine, last + layers);
}

/* Most layers a piece: no more than its matrix products. */
static int32_t max_layers(const struct view *v, const struct repeat *r, int32_t n)
{
    int32_t most = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        int32_t p = products(v, r[i].first, r[i].period);
        if (p < most) most = p;
    }
    return most;
}

static enum status refuse(const struct view *v, const struct repeat *r, int32_t n, int32_t wanted,
                          int32_t *last, struct error *err)
{
    const char *valid = "";
    int32_t most = max_layers(v, r, n);
    for (int32_t k = 1; k <= most; k++) {
        int32_t layers = layers_with(v, r, n, k, false, last);
        if (layers)
            valid = arena_printf(v->g->arena, "%s%s%" PRId32, valid, *valid ? ", " : "", layers);
    }
    return error_set(err, ERR_INPUT,
                     "the model cannot be cut into %" PRId32 ": %" PRId32
                     " equal blocks of equally many layers, one layer before and one after them; "
                     "possible: %.200s",
                     wanted, r[0].copies, valid);
}

/* Most groups that there can be: the greatest operator alone must be less than one and a half of them. */
static int32_t max_groups(const struct view *v)
{
    double all = 0, greatest = 0;
    int32_t most = products(v, 0, v->g->n_forward);
    for (int32_t i = 0; i < v->g->n_forward; i++) {
        all += v->flops[i];
        if (v->flops[i] > greatest) greatest = v->flops[i];
    }
    return greatest * most < 1.5 * all ? most : (int32_t)(1.5 * all / greatest);
}

/* A model without repeats: one piece. */
static enum status find_plain(struct graph *g, const struct view *v, const struct layers_choice *c,
                              int32_t *last, struct error *err)
{
    int32_t n = c->by == LAYERS_FINE ? max_groups(v) : c->n;
    if (c->by == LAYERS_COARSE) {
        graph_find_layers(g);
        return OK;
    }
    while (n > 1 && c->by == LAYERS_FINE && !cluster(v, 0, g->n_forward, n, last)) n--;
    if (!cluster(v, 0, g->n_forward, n, last))
        return error_set(err, ERR_INPUT,
                         "the model cannot be cut into %" PRId32
                         " of about equal work; it has %" PRId32 " matrix products",
                         n, products(v, 0, g->n_forward));
    graph_set_layers(g, last, n);
    return OK;
}

enum status layers_find(struct graph *g, const struct layers_choice *c, struct error *err)
{
    if (c->by == LAYERS_DEFAULT) {
        graph_find_layers(g);
        return OK;
    }
    if (g->n_forward && op_is_measured(g->ops[0].kind))
        return error_set(err, ERR_INPUT,
                         "the layers of a measured model are fixed");
    struct view *v = view_of(g);
    struct repeat *r;
    int32_t n = find_blocks(v, &r), k = 1, layers = 0;
    int32_t *last = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_forward + 1);
    if (!n) return find_plain(g, v, c, last, err);
    int32_t most = max_layers(v, r, n);
    if (c->by == LAYERS_COARSE) layers = layers_with(v, r, n, 1, false, last);
    if (c->by == LAYERS_FINE) graph_find_layers(g);
    for (k = most; c->by == LAYERS_FINE && k > 0 && !layers; k--)
        layers = layers_with(v, r, n, k, true, last);
    for (k = 1; c->by == LAYERS_NUMBER && k <= most && layers != c->n; k++)
        layers = layers_with(v, r, n, k, false, last);
    if (c->by == LAYERS_NUMBER && layers != c->n) return refuse(v, r, n, c->n, last, err);
    graph_set_layers(g, last, layers);
    return OK;
}

void layers_like(struct graph *g, const struct graph *like)
{
    int32_t *last = ARENA_ARRAY(g->arena, int32_t, (size_t)like->n_layers + 1), at = -1;
    for (int32_t i = 0; i < g->n_forward; i++) {
        if (at + 1 < like->n_forward && !strcmp(g->ops[i].name, like->ops[at + 1].name)) at++;
        last[at < 0 ? 0 : like->ops[at].layer] = i;
    }
    if (at + 1 != like->n_forward) BUG("'%s' is not in the other graph", like->ops[at + 1].name);
    graph_set_layers(g, last, like->n_layers);
}
