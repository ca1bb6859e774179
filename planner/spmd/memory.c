#include "planner/spmd/memory.h"

#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/program/program.h"

#include <string.h>

struct member { /* one device's own graph */
    struct arena *a;
    const struct spmd_question *q;
    const struct sharding *s;
    const struct graph *g;
    int32_t *made, *last; /* (n_tensors) producer and last reader; -1: none */
    bool *used;           /* (n_tensors) whether the stage makes or reads it */
};

static bool owns(const struct member *d, int32_t op)
{
    int32_t layer = d->g->ops[op].layer;
    return layer >= d->q->first_layer && layer <= d->q->last_layer;
}

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t bytes_of(const struct graph *g, int32_t tensor)
{
    const struct tensor *t = &g->tensors[tensor];
    return aligned(shape_elements(&t->shape) * dtype_bytes(t->dtype));
}

static void find_lives(struct member *d)
{
    const struct graph *g = d->g;
    size_t n = (size_t)g->n_tensors;
    d->made = ARENA_ARRAY(d->a, int32_t, n), d->last = ARENA_ARRAY(d->a, int32_t, n);
    d->used = ARENA_ARRAY(d->a, bool, n);
    for (size_t t = 0; t < n; t++) d->made[t] = d->last[t] = -1;
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (!owns(d, i)) continue;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
            d->last[g->ops[i].input[k]] = i, d->used[g->ops[i].input[k]] = true;
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t t = g->ops[i].output[k];
            if (d->made[t] < 0) d->made[t] = d->last[t] = i;
            d->used[t] = true;
        }
    }
}

/* Parameters with gradients and optimizer state; tensors alive from the forward to the backward pass, and inputs. */
static int64_t held(const struct member *d)
{
    const struct graph *g = d->g;
    int64_t state = 1 + optimizer_state_tensors(d->q->optimizer) + dtype_is_half(g->dtype), sum = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        if (!d->used[t]) continue;
        if (x->role == TENSOR_PARAMETER)
            sum += bytes_of(g, t) *
                   (1 + state * dtype_bytes(dtype_master(x->dtype)) / dtype_bytes(x->dtype));
        else if (x->role == TENSOR_PARAMETER_GRADIENT && x->use > 0)
            sum += bytes_of(g, t);
        else if (x->role == TENSOR_INPUT ||
                 (d->made[t] < g->n_forward && d->last[t] >= g->n_forward &&
                  x->role != TENSOR_PARAMETER_GRADIENT))
            sum += bytes_of(g, t) * d->q->in_flight;
    }
    return sum;
}

/* --- inside one procedure --- */

struct lying {
    int32_t tensor;
    int64_t at, bytes;
};

/* First fit among the live tensors, sorted by address; returns the end. */
static int64_t lay(struct lying *live, int32_t *n, int32_t tensor, int64_t bytes)
{
    int64_t at = 0;
    int32_t k = 0;
    for (; k < *n && at + bytes > live[k].at; k++) at = live[k].at + live[k].bytes;
    memmove(&live[k + 1], &live[k], (size_t)(*n - k) * sizeof *live);
    live[k] = (struct lying){tensor, at, bytes};
    ++*n;
    return at + bytes;
}

static int64_t scratch(const struct member *d, int32_t first, int32_t end)
{
    struct lying *live = ARENA_ARRAY(d->a, struct lying, (size_t)d->g->n_tensors + 1);
    int32_t n = 0;
    int64_t most = 0;
    for (int32_t i = first; i < end; i++) {
        const struct graph_op *op = &d->g->ops[i];
        if (!owns(d, i)) continue;
        for (int32_t k = 0; k < op->n_outputs; k++) {
            int32_t t = op->output[k];
            if (d->g->tensors[t].role == TENSOR_PARAMETER_GRADIENT || d->made[t] != i ||
                d->last[t] >= end)
                continue;
            int64_t top = lay(live, &n, t, bytes_of(d->g, t));
            if (top > most) most = top;
        }
        int32_t kept = 0;
        for (int32_t k = 0; k < n; k++)
            if (d->last[live[k].tensor] > i) live[kept++] = live[k];
        n = kept;
    }
    return most;
}

/* --- what collectives stage --- */

static int64_t staging(const struct member *d, const struct graph_op *op)
{
    const struct exchange *e = op->attrs.exchange;
    int32_t *node = ARENA_ARRAY(d->a, int32_t, (size_t)e->n),
            *tier = ARENA_ARRAY(d->a, int32_t, (size_t)e->n);
    for (int32_t i = 0; i < e->n && d->q->node; i++) node[i] = d->q->node[e->member[i]];
    int32_t each = d->q->node ? collective_tiers_of(node, e->n, tier) : 0;
    const struct collective *m =
        shard_collective(d->a, d->g, op, d->s, each > 1 && each < e->n ? tier : NULL);
    return collective_tensor_staging_bytes(m, d->g->tensors[op->input[0]].dtype);
}

/* Staging of the largest collective, or of all gradient all-reduces over the same axes together: a chunk in each direction. */
static int64_t buffers(const struct member *d)
{
    const struct graph *g = d->g;
    int64_t most = 0, sum[GRADIENT_PARTIALS] = {0};
    for (int32_t i = 0; i < g->n_ops; i++) {
        int64_t bytes = 0;
        if (owns(d, i) && op_is_group(g->ops[i].kind)) bytes = staging(d, &g->ops[i]);
        if (bytes > most) most = bytes;
    }
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == TENSOR_PARAMETER_GRADIENT && d->used[t])
            sum[g->tensors[t].partial] += bytes_of(g, t);
    for (int32_t m = 1; m < GRADIENT_PARTIALS; m++) {
        int32_t n = 1;
        for (int32_t k = 0; k < d->q->s->n_axes; k++)
            if (m >> k & 1) n *= d->q->s->mesh[k];
        int64_t bytes = 2 * aligned((sum[m] + n - 1) / n);
        if (n > 1 && bytes > most) most = bytes;
    }
    return most;
}

/* --- all devices --- */

/* The forward graph of the question's training graph. */
static struct graph *forward_of(struct arena *a, const struct graph *g)
{
    struct graph *f = arena_copy(a, g, sizeof *f);
    f->n_ops = f->n_forward;
    for (f->n_tensors = 0; f->n_tensors < g->n_tensors; f->n_tensors++) {
        enum tensor_role role = g->tensors[f->n_tensors].role;
        if (role == TENSOR_GRADIENT || role == TENSOR_PARAMETER_GRADIENT) break;
    }
    f->tensors = arena_copy(a, g->tensors, (size_t)f->n_tensors * sizeof *f->tensors);
    for (int32_t t = 0; t < f->n_tensors; t++) f->tensors[t].gradient = -1;
    return f;
}

static bool same_memory(const struct spmd_question *q, const int64_t *counted, int32_t i, int32_t k)
{
    bool same = q->type[i] == q->type[k] && counted[i] == counted[k] &&
                (q->s->n_axes < 2 || (sharding_place(q->s, i, 0) == sharding_place(q->s, k, 0)));
    for (int32_t v = 0; v < q->s->n_ratios; v++) {
        const double *r = q->s->ratios + (int64_t)v * q->s->n_devices;
        same = same && r[i] == r[k];
    }
    return same;
}

enum status spmd_laid_out(struct arena *a, const struct spmd_question *q, const struct sharding *s,
                          const int64_t *counted, int64_t *bytes, struct error *err)
{
    struct graph *whole = forward_of(a, q->g);
    struct shard_stage *stage;
    TRY(shard_stage_new(a, whole, s, q->first_layer, q->last_layer, &stage, err));
    for (int32_t i = 0; i < s->n_devices; i++) {
        int32_t like = 0;
        while (!same_memory(q, counted, like, i)) like++;
        bytes[i] = like < i ? bytes[like] : 0;
        if (like < i) continue;
        struct member d = {.a = arena_new(), .q = q, .s = s};
        struct graph *g;
        enum status st = shard_stage_graph(d.a, stage, i, &g, err);
        if (st == OK) st = gradient_build(g, 1, err);
        if (st == OK) {
            d.g = g;
            find_lives(&d);
            int64_t f = scratch(&d, 0, g->n_forward), b = scratch(&d, g->n_forward, g->n_ops);
            bytes[i] = held(&d) + (f > b ? f : b) + buffers(&d);
        }
        arena_free(d.a);
        TRY(st);
    }
    return OK;
}
