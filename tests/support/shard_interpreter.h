/* tests/support/shard_interpreter.h - the views of all devices of a stage run in lockstep, in one process and in fp64.
 *
 * Operators run through the host kernels; conversions are plain loops over elements, written from core/graph/exchange.h and sharing
 * nothing with the executor. Values of parameters and inputs are a function of name and place in the whole tensor.
 */
#ifndef TESTS_SUPPORT_SHARD_INTERPRETER_H
#define TESTS_SUPPORT_SHARD_INTERPRETER_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/graph/gradient.h"
#include "core/sharding/shard.h"
#include "exec/host/kernels_host.h"

#include "tests/support/suites.h"

#include <math.h>

struct shard_interpreter {
    struct arena *a;
    struct host_context *x;
    const struct graph *whole; /* where shapes of sources come from */
    int32_t n;
    struct graph **g; /* (n) */
    double ***value;  /* (n, tensors); int32 inputs are int32_t */
    int64_t seed, counted;
};

/* --- shards of whole tensors --- */

/* Element of the whole dimension that is element i of the shard. */
static inline int64_t shard_interpreter_place_in_whole(const struct tensor_shard *p, int32_t dim,
                                                       int64_t i)
{
    for (int32_t c = 0; c < p->n_cuts; c++) {
        if (p->cut[c].dim != dim) continue;
        for (int32_t r = 0; r < p->cut[c].n_runs; r++) {
            if (i < p->cut[c].run[r].n) return p->cut[c].run[r].first + i;
            i -= p->cut[c].run[r].n;
        }
        ck_abort_msg("outside its part");
    }
    return i;
}

static inline int64_t shard_interpreter_whole_size(const struct tensor *t, int32_t dim)
{
    for (int32_t c = 0; c < t->shard.n_cuts; c++)
        if (t->shard.cut[c].dim == dim) return t->shard.cut[c].whole;
    return t->shape.dim[dim];
}

static inline int64_t shard_interpreter_whole_elements(const struct tensor *t)
{
    int64_t n = 1;
    for (int32_t d = 0; d < t->shape.rank; d++) n *= shard_interpreter_whole_size(t, d);
    return n;
}

/* Where element i of a device's tensor stands in the whole. */
static inline int64_t shard_interpreter_index_in_whole(const struct tensor *t, int64_t i)
{
    int64_t at[SHAPE_RANK_MAX] = {0}, out = 0;
    for (int32_t d = t->shape.rank - 1; d >= 0; d--) {
        at[d] = i % t->shape.dim[d];
        i /= t->shape.dim[d];
    }
    for (int32_t d = 0; d < t->shape.rank; d++)
        out = out * shard_interpreter_whole_size(t, d) +
              shard_interpreter_place_in_whole(&t->shard, d, at[d]);
    return out;
}

/* --- sources --- */

/* Ids below 11, two kinds of segments; of the targets of a sequence those at its first positions count. */
static inline int32_t shard_interpreter_input_value(const struct shard_interpreter *m,
                                                    const struct tensor *t, int64_t i)
{
    int64_t at = i % shard_interpreter_whole_size(t, t->shape.rank - 1);
    uint64_t below = t->input == INPUT_SEGMENTS ? 2 : 11;
    if (t->input == INPUT_POSITIONS) return (int32_t)at;
    if (t->input == INPUT_MASKED_TARGETS && at >= m->counted) return -1;
    return (int32_t)rng_below((uint64_t)m->seed, (uint64_t)(90 + t->input), (uint64_t)i, below);
}

static inline double shard_interpreter_parameter_value(const struct shard_interpreter *m,
                                                       const struct tensor *t, int64_t i)
{
    double x = rng_normal((uint64_t)m->seed, rng_hash_text(7, t->name), (uint64_t)i);
    return t->init == INIT_ONES ? 1 + 0.1 * x : 0.3 * x;
}

static inline void shard_interpreter_fill_source(struct shard_interpreter *m,
                                                 const struct tensor *t, void *out)
{
    int64_t n = shape_elements(&t->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = shard_interpreter_index_in_whole(t, i);
        if (t->input == INPUT_PIXELS)
            ((double *)out)[i] = rng_normal((uint64_t)m->seed, 80, (uint64_t)at);
        else if (t->role == TENSOR_INPUT)
            ((int32_t *)out)[i] = shard_interpreter_input_value(m, t, at);
        else
            ((double *)out)[i] = shard_interpreter_parameter_value(m, t, at);
    }
}

/* --- conversions --- */

struct strided { /* a tensor as (outer, dimension, inner) */
    int64_t outer, n, inner;
};
static inline struct strided strided(const struct shape *s, int32_t dim)
{
    struct strided x = {1, s->dim[dim], 1};
    for (int32_t d = 0; d < dim; d++) x.outer *= s->dim[d];
    for (int32_t d = dim + 1; d < s->rank; d++) x.inner *= s->dim[d];
    return x;
}

/* Between whole (outer, whole, inner) and the shard of member k. */
static inline void shard_interpreter_move(const struct division *d, int32_t k, struct strided x,
                                          double *whole, double *shard, bool take)
{
    const struct run *run = d->run + k * d->n_runs;
    for (int64_t o = 0; o < x.outer; o++)
        for (int32_t r = 0; r < d->n_runs; r++)
            for (int64_t i = 0; i < run[r].n * x.inner; i++, shard++) {
                double *at = whole + (o * d->whole + run[r].first) * x.inner + i;
                if (take)
                    *shard = *at;
                else
                    *at = *shard;
            }
}

/* Operator i of all members of the group of device `device`, whose member 0 it is. */
static inline void shard_interpreter_convert_group(struct shard_interpreter *m, int32_t i,
                                                   int32_t device)
{
    const struct graph_op *op = &m->g[device]->ops[i];
    const struct exchange *e = op->attrs.exchange;
    struct shape whole = m->g[device]->tensors[op->input[0]].shape;
    bool shards_in = op->kind == OP_group_all_gather || op->kind == OP_group_all_to_all;
    if (shards_in) whole.dim[e->dim] = e->shards->whole;
    int64_t n = shape_elements(&whole);
    double *sum = ARENA_ARRAY(m->a, double, (size_t)n + 1);
    for (int32_t k = 0; k < e->n; k++) {
        int32_t d = e->member[k];
        double *in = m->value[d][m->g[d]->ops[i].input[0]];
        if (shards_in)
            shard_interpreter_move(e->shards, k, strided(&whole, e->dim), sum, in, false);
        else
            for (int64_t j = 0; j < n; j++) sum[j] += in[j];
    }
    for (int32_t k = 0; k < e->n; k++) {
        int32_t d = e->member[k];
        const struct graph_op *mine = &m->g[d]->ops[i];
        ck_assert_int_eq(mine->kind, op->kind);
        ck_assert_int_eq(mine->attrs.exchange->self, k);
        double *out = m->value[d][mine->output[0]];
        if (op->kind == OP_group_reduce_scatter)
            shard_interpreter_move(e->shards, k, strided(&whole, e->dim), sum, out, true);
        else if (op->kind == OP_group_all_to_all)
            shard_interpreter_move(e->to, k, strided(&whole, e->to_dim), sum, out, true);
        else
            memcpy(out, sum, sizeof *out * (size_t)n);
    }
}

/* --- running --- */

static inline void shard_interpreter_run_op(struct shard_interpreter *m, int32_t d, int32_t i)
{
    const struct graph *g = m->g[d];
    const struct graph_op *op = &g->ops[i];
    struct op_shapes shapes;
    struct error err = {0};
    struct op_call c = {
        .kind = op->kind, .dtype = DTYPE_fp64, .attrs = &op->attrs, .shapes = &shapes, .seed = 9};
    graph_op_shapes(g, op, &shapes);
    for (int32_t k = 0; k < op->n_inputs; k++) c.input[k] = m->value[d][op->input[k]];
    for (int32_t k = 0; k < op->n_outputs; k++) c.output[k] = m->value[d][op->output[k]];
    ck_assert_msg(kernels_host_run(m->x, &c, &err) == OK, "%s: %s", op->name, err.text);
}

static inline void shard_interpreter_run(struct shard_interpreter *m)
{
    m->value = ARENA_ARRAY(m->a, double **, (size_t)m->n);
    for (int32_t d = 0; d < m->n; d++) {
        ck_assert_int_eq(m->g[d]->n_ops, m->g[0]->n_ops);
        ck_assert_int_eq(m->g[d]->n_tensors, m->g[0]->n_tensors);
        m->value[d] = ARENA_ARRAY(m->a, double *, (size_t)m->g[d]->n_tensors);
        for (int32_t t = 0; t < m->g[d]->n_tensors; t++) {
            const struct tensor *x = &m->g[d]->tensors[t];
            int64_t n = shape_elements(&x->shape);
            m->value[d][t] = ARENA_ARRAY(m->a, double, (size_t)n + 1);
            bool source = x->role == TENSOR_PARAMETER || x->role == TENSOR_INPUT;
            if (source)
                shard_interpreter_fill_source(m, x, m->value[d][t]);
            else if (x->role != TENSOR_PARAMETER_GRADIENT)
                for (int64_t i = 0; i < n; i++) m->value[d][t][i] = NAN;
        }
    }
    for (int32_t i = 0; i < m->g[0]->n_ops; i++)
        for (int32_t d = 0; d < m->n; d++) {
            const struct graph_op *op = &m->g[d]->ops[i];
            ck_assert_int_eq(op->kind, m->g[0]->ops[i].kind);
            ck_assert_str_eq(op->name, m->g[0]->ops[i].name);
            if (!op_is_group(op->kind))
                shard_interpreter_run_op(m, d, i);
            else if (op->attrs.exchange->self == 0)
                shard_interpreter_convert_group(m, i, d);
        }
}

/* Do devices that differ along axis k alone have different shards of tensor t? */
static inline bool shard_interpreter_is_cut(const struct shard_interpreter *m,
                                            const struct sharding *s, int32_t t, int32_t k)
{
    int32_t member[64];
    for (int32_t d = 0; d < m->n; d++) {
        sharding_group(s, d, k, member);
        const struct tensor *x = &m->g[d]->tensors[t], *y = &m->g[member[0]]->tensors[t];
        if (!shape_equal(&x->shape, &y->shape)) return true;
        for (int64_t i = 0; i < shape_elements(&x->shape); i++)
            if (shard_interpreter_index_in_whole(x, i) != shard_interpreter_index_in_whole(y, i))
                return true;
    }
    return false;
}

/* The whole of tensor t: shards put together, partial values added over the axes of `partial`; where an axis neither cuts it nor
 * owes a sum all its devices must have the same. */
static inline double *shard_interpreter_assembled(struct shard_interpreter *m,
                                                  const struct sharding *s, int32_t t,
                                                  uint8_t partial)
{
    int64_t n = shard_interpreter_whole_elements(&m->g[0]->tensors[t]);
    double *out = ARENA_ARRAY(m->a, double, (size_t)n + 1);
    bool cut[MESH_AXES_MAX] = {false};
    for (int32_t k = 0; k < s->n_axes; k++) cut[k] = shard_interpreter_is_cut(m, s, t, k);
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t d = 0; d < m->n; d++) {
            const struct tensor *x = &m->g[d]->tensors[t];
            bool same = false;
            for (int32_t k = 0; k < s->n_axes; k++)
                same = same || (sharding_place(s, d, k) && !(partial >> k & 1) && !cut[k]);
            for (int64_t i = 0; i < shape_elements(&x->shape); i++) {
                double v = m->value[d][t][i], *at = &out[shard_interpreter_index_in_whole(x, i)];
                if (pass == 0 && !same) *at += v;
                if (pass == 1 && same && !partial) ck_assert_double_eq_tol(v, *at, 1e-9);
            }
        }
    return out;
}

/* Largest difference relative to the largest value (at least 1e-3). */
static inline double shard_interpreter_distance(const double *x, const double *y, int64_t n)
{
    double most = 1e-3, d = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(y[i])) return INFINITY;
        most = fmax(most, fabs(y[i])), d = fmax(d, fabs(x[i] - y[i]));
    }
    return d / most;
}

static inline int32_t shard_interpreter_tensor_named(const struct graph *g, const char *name)
{
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (!strcmp(g->tensors[t].name, name)) return t;
    return -1;
}

#endif
