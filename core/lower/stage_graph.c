#include "core/lower/stage_graph.h"

#include "core/base/arena.h"
#include "core/base/intern.h"
#include "core/lower/uses.h"

#include <string.h>

struct stage_graph_pool {
    struct arena *tables;
    struct intern *contents;
};

struct parting {
    struct stage_graph_pool *pool;
    const struct graph *from;
    const struct cut *gradient_cut;
    int32_t first_layer, last_layer;
    bool *op;        /* (n_ops) kept */
    int32_t *tensor; /* (n_tensors) kept: 0, later its index; else -1 */
    int32_t *new_op; /* (n_ops), -1 */
};

struct stage_graph_pool *stage_graph_pool_new(struct arena *program, struct arena *tables)
{
    struct stage_graph_pool *x = ARENA_ARRAY(tables, struct stage_graph_pool, 1);
    *x = (struct stage_graph_pool){tables, intern_new(program, tables)};
    return x;
}

/* --- what is kept --- */

static bool owned(const struct parting *x, int32_t op)
{
    int32_t layer = x->from->ops[op].layer;
    return layer >= x->first_layer && layer <= x->last_layer;
}

static void keep_op(struct parting *x, int32_t i)
{
    const struct graph_op *op = &x->from->ops[i];
    if (x->op[i]) return;
    x->op[i] = true;
    for (int32_t k = 0; k < op->n_inputs; k++) x->tensor[op->input[k]] = 0;
    for (int32_t k = 0; k < op->n_outputs; k++) x->tensor[op->output[k]] = 0;
}

/* With the conversions that made it: its name in other views is that of the tensor before them. */
static void keep_crossing(struct parting *x, int32_t t)
{
    x->tensor[t] = 0;
    for (int32_t i; (i = x->from->tensors[t].producer) >= 0; t = x->from->ops[i].input[0]) {
        if (!op_is_group(x->from->ops[i].kind) && x->from->ops[i].kind != OP_local_slice) return;
        keep_op(x, i);
    }
}

static void keep_cut(struct parting *x, int32_t layer)
{
    const struct graph *g = x->from;
    if (layer < 0 || layer + 1 >= g->n_layers) return;
    for (int32_t k = 0; k < g->cut[layer].n; k++) {
        keep_crossing(x, g->cut[layer].tensor[k]);
        for (int32_t e = 0; e < g->n_edges; e++) {
            int32_t back = g->crossing[e][g->cut[layer].tensor[k]];
            if (g->edge[e] == layer && back >= 0) x->tensor[back] = 0;
        }
    }
    for (int32_t k = 0; k < x->gradient_cut[layer].n; k++)
        x->tensor[x->gradient_cut[layer].tensor[k]] = 0;
}

static void choose(struct parting *x)
{
    const struct graph *g = x->from;
    int32_t last = -1;
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (!owned(x, i)) continue;
        keep_op(x, i);
        if (i < g->n_forward) last = i;
    }
    /* where a block ends, and what the next one reads (core/lower/uses.c) */
    for (int32_t i = last + 1, end = lower_third_block(g, last); last >= 0 && i <= end; i++)
        keep_op(x, i);
    keep_cut(x, x->first_layer - 1);
    keep_cut(x, x->last_layer);
}

/* --- copies --- */

static const struct division *division_of(struct intern *pool, const struct division *d)
{
    if (!d) return NULL;
    struct division copy;
    memset(&copy, 0, sizeof copy);
    copy.n = d->n, copy.n_runs = d->n_runs, copy.whole = d->whole;
    copy.run = intern_bytes(pool, d->run, (size_t)d->n * (size_t)d->n_runs * sizeof *d->run);
    return intern_bytes(pool, &copy, sizeof copy);
}

static const struct exchange *exchange_of(struct intern *pool, const struct exchange *e)
{
    if (!e) return NULL;
    struct exchange copy;
    memset(&copy, 0, sizeof copy);
    copy.axis = e->axis, copy.n = e->n, copy.self = e->self, copy.dim = e->dim,
    copy.to_dim = e->to_dim;
    copy.member = intern_bytes(pool, e->member, (size_t)e->n * sizeof *e->member);
    copy.shards = division_of(pool, e->shards), copy.to = division_of(pool, e->to);
    return intern_bytes(pool, &copy, sizeof copy);
}

static const struct tensor_shard *shard_of(struct intern *pool, const struct tensor *t)
{
    bool kept = t->role == TENSOR_PARAMETER || t->role == TENSOR_INPUT;
    return kept && (t->shard.n_cuts || t->shard.order) ? intern_bytes(pool, &t->shard, sizeof t->shard) : NULL;
}

static void copy_tensors(struct parting *x, struct graph *to, const struct tensor_shard **shard)
{
    for (int32_t t = 0; t < x->from->n_tensors; t++) {
        if (x->tensor[t] < 0) continue;
        x->tensor[t] = to->n_tensors;
        struct tensor *copy = &to->tensors[to->n_tensors];
        *copy = x->from->tensors[t];
        copy->name = intern_text(x->pool->contents, copy->name);
        /* what a gradient is of precedes it */
        copy->of = copy->of >= 0 && copy->of < t ? x->tensor[copy->of] : -1;
        copy->gradient = -1; /* neither lowering nor a stage's price reads it */
        shard[to->n_tensors++] = shard_of(x->pool->contents, copy);
    }
}

static void copy_ops(struct parting *x, struct graph *to)
{
    const struct graph *g = x->from;
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (i == g->n_forward) to->n_forward = to->n_ops;
        x->new_op[i] = -1;
        if (!x->op[i]) continue;
        struct graph_op *copy = &to->ops[to->n_ops];
        *copy = g->ops[i];
        copy->name = intern_text(x->pool->contents, copy->name);
        copy->attrs.exchange = exchange_of(x->pool->contents, copy->attrs.exchange);
        copy->factors = NULL; /* differentiated already */
        if (copy->forward >= 0) copy->forward = x->new_op[copy->forward];
        for (int32_t k = 0; k < copy->n_inputs; k++) copy->input[k] = x->tensor[copy->input[k]];
        for (int32_t k = 0; k < copy->n_outputs; k++) copy->output[k] = x->tensor[copy->output[k]];
        x->new_op[i] = to->n_ops++;
    }
    for (int32_t t = 0; t < to->n_tensors; t++)
        if (to->tensors[t].producer >= 0)
            to->tensors[t].producer = x->new_op[to->tensors[t].producer];
}

static void copy_cut(const struct parting *x, const struct cut *from, struct cut *to)
{
    *to = (struct cut){from->n, ARENA_ARRAY(x->pool->tables, int32_t, (size_t)from->n)};
    for (int32_t k = 0; k < from->n; k++) to->tensor[k] = x->tensor[from->tensor[k]];
}

static void copy_cuts(const struct parting *x, struct graph *to, struct cut *gradient_cut)
{
    const struct graph *g = x->from;
    for (int32_t k = x->first_layer - 1; k <= x->last_layer; k++) {
        if (k < 0 || k + 1 >= g->n_layers) continue;
        copy_cut(x, &g->cut[k], &to->cut[k]);
        if (k >= x->first_layer && k < x->last_layer) continue; /* inside the stage */
        copy_cut(x, &x->gradient_cut[k], &gradient_cut[k]);
    }
    for (int32_t e = 0; e < g->n_edges; e++) {
        const struct cut *cut = &g->cut[g->edge[e]];
        to->crossing[e] = ARENA_ARRAY(x->pool->tables, int32_t, (size_t)to->n_tensors);
        memset(to->crossing[e], -1, (size_t)to->n_tensors * sizeof *to->crossing[e]);
        for (int32_t k = 0; k < cut->n; k++) {
            int32_t back = g->crossing[e][cut->tensor[k]];
            if (back >= 0) to->crossing[e][x->tensor[cut->tensor[k]]] = x->tensor[back];
        }
    }
}

struct stage_graph stage_graph_of(struct stage_graph_pool *pool, const struct graph *g,
                                  const char **layer_name, int32_t first_layer, int32_t last_layer)
{
    struct arena *a = pool->tables;
    struct parting x = {.pool = pool,
                        .from = g,
                        .gradient_cut = graph_gradient_cuts(g->arena, g),
                        .first_layer = first_layer,
                        .last_layer = last_layer,
                        .op = ARENA_ARRAY(g->arena, bool, (size_t)g->n_ops),
                        .tensor = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_tensors),
                        .new_op = ARENA_ARRAY(g->arena, int32_t, (size_t)g->n_ops)};
    size_t n_ops = 0, n_tensors = 0, n_cuts = (size_t)g->n_layers + 1;
    memset(x.tensor, -1, (size_t)g->n_tensors * sizeof *x.tensor);
    choose(&x);
    for (int32_t i = 0; i < g->n_ops; i++) n_ops += x.op[i];
    for (int32_t t = 0; t < g->n_tensors; t++) n_tensors += x.tensor[t] >= 0;
    struct graph *to = ARENA_ARRAY(a, struct graph, 1);
    struct cut *gradient_cut = ARENA_ARRAY(a, struct cut, n_cuts);
    const struct tensor_shard **shard = ARENA_ARRAY(a, const struct tensor_shard *, n_tensors);
    *to = (struct graph){.arena = a,
                         .serial = g->serial,
                         .dtype = g->dtype,
                         .microbatch = g->microbatch,
                         .sequence_length = g->sequence_length,
                         .tensors = ARENA_ARRAY(a, struct tensor, n_tensors),
                         .ops = ARENA_ARRAY(a, struct graph_op, n_ops),
                         .n_edges = g->n_edges,
                         .n_layers = g->n_layers,
                         .cut = ARENA_ARRAY(a, struct cut, n_cuts),
                         .layer_name = layer_name};
    memcpy(to->edge, g->edge, sizeof to->edge);
    copy_tensors(&x, to, shard);
    copy_ops(&x, to);
    copy_cuts(&x, to, gradient_cut);
    return (struct stage_graph){to, gradient_cut, shard, x.tensor};
}
