/* tests/support/sharded_graphs.h - a graph by a sharding against the same graph on one device. For the suites of core/sharding/shard. */
#ifndef TESTS_SUPPORT_SHARDED_GRAPHS_H
#define TESTS_SUPPORT_SHARDED_GRAPHS_H

#include "core/sharding/shard.h"

#include "tests/support/shard_interpreter.h"

static struct arena *arena;
static struct host_context context;
static struct error err;

static inline void sharded_graphs_begin(void)
{
    arena = arena_new();
    host_context_init(&context);
}

static inline void sharded_graphs_end(void)
{
    host_context_free(&context);
    arena_free(arena);
}

struct dice {
    uint64_t seed, i;
};
static inline int64_t dice_roll(struct dice *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 17, d->i++, (uint64_t)n);
}

/* --- random shardings --- */

/* Uneven, and now and then a device that gets nothing. */
static inline struct sharding *sharded_graphs_sharding(struct dice *d, int32_t n_devices, bool two_axes)
{
    struct sharding *s = ARENA_ARRAY(arena, struct sharding, 1);
    s->n_devices = n_devices, s->n_axes = 1, s->mesh[0] = n_devices, s->mesh[1] = 1;
    if (two_axes) {
        int32_t rows = 1 + (int32_t)dice_roll(d, n_devices);
        while (n_devices % rows) rows--;
        s->n_axes = 2, s->mesh[0] = rows, s->mesh[1] = n_devices / rows;
    }
    s->n_ratios = 1 + (int32_t)dice_roll(d, 2);
    double *ratios = ARENA_ARRAY(arena, double, (size_t)(s->n_ratios * n_devices));
    for (int32_t i = 0; i < s->n_ratios * n_devices; i++)
        ratios[i] = dice_roll(d, 5) ? 1 + (double)dice_roll(d, 4) : 0;
    for (int32_t v = 0; v < s->n_ratios; v++) ratios[v * n_devices + dice_roll(d, n_devices)] = 2;
    s->ratios = ratios;
    return s;
}

static inline void sharded_graphs_rules(struct sharding *s, const struct graph *g,
                            const struct op_choice *choices)
{
    struct sharding_rule *rules = ARENA_ARRAY(arena, struct sharding_rule, (size_t)g->n_forward);
    for (int32_t i = 0; i < g->n_forward; i++)
        rules[i] = (struct sharding_rule){.match = g->ops[i].name, .choice = choices[i]};
    s->n_operators = g->n_forward, s->operators = rules;
}

/* --- in both directions of computing --- */

static inline struct shard_interpreter sharded_graphs_interpreter(int32_t n)
{
    struct shard_interpreter m = {.a = arena, .x = &context, .n = n, .seed = 5, .counted = 2};
    m.g = ARENA_ARRAY(arena, struct graph *, (size_t)n);
    return m;
}

/* NULL: it has none. The sum over its uses: several uses of one gathered parameter are one. */
static inline double *sharded_graphs_gradient(struct shard_interpreter *m, const struct sharding *s,
                                            const char *name)
{
    const struct graph *g = m->g[0];
    int32_t p = shard_interpreter_tensor_named(g, name);
    double *sum = NULL;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER_GRADIENT || g->tensors[t].of != p) continue;
        double *use = shard_interpreter_assembled(m, s, t, g->tensors[t].partial);
        int64_t n = shard_interpreter_whole_elements(&g->tensors[t]);
        for (int64_t i = 0; sum && i < n; i++) sum[i] += use[i];
        if (!sum) sum = use;
    }
    return sum;
}

struct stage { /* its layers, and what is fused on its devices */
    int32_t first, last;
    bool fused;
};

/* The views of a stage, with their gradients. */
static inline void sharded_graphs_views(struct shard_interpreter *m, const struct graph *forward,
                              const struct sharding *s, struct stage stage, const char *what)
{
    /* of the host, and of devices whose library does more in one */
    static const enum op_kind fused[2][6] = {
        {OP_bias_gelu, OP_swiglu},
        {OP_linear, OP_linear_gelu, OP_matmul_gelu_grad, OP_logits, OP_layer_norm_grad_add, OP_swiglu}};
    int list = (stage.first + stage.last) % 2;
    for (int32_t d = 0; d < s->n_devices; d++) {
        enum status status =
            shard_graph(arena, forward, s, d, stage.first, stage.last, &m->g[d], &err);
        ck_assert_msg(status == OK, "%s: %s", what, err.text);
        if (stage.fused) m->g[d] = graph_fuse(m->g[d], fused[list], list ? 6 : 2);
        ck_assert_msg(gradient_build(m->g[d], 0.5, &err) == OK, "%s: %s", what, err.text);
    }
}

/* differentiated: a graph like `forward`, with its gradients. */
static inline void sharded_graphs_compare_stage(const struct graph *forward, struct graph *differentiated,
                                 const struct sharding *s, struct stage stage, double tolerance,
                                 const char *what)
{
    struct shard_interpreter one = sharded_graphs_interpreter(1), many = sharded_graphs_interpreter(s->n_devices);
    struct sharding *alone = sharding_of_index(arena, INDEX_batch, (const double[]){1}, 1);
    one.g[0] = differentiated;
    for (int32_t i = 0; i < forward->n_forward; i++)
        if (forward->ops[i].attrs.counted)
            one.counted = many.counted = forward->ops[i].attrs.counted;
    shard_interpreter_run(&one);
    double share = 0, loss = 0;
    sharded_graphs_views(&many, forward, s, stage, what);
    struct shard_stage *all;
    ck_assert_msg(shard_stage_new(arena, forward, s, stage.first, stage.last, &all, &err) == OK, "%s",
                  err.text);
    for (int32_t d = 0; d < s->n_devices; d++) share += shard_loss_share(arena, all, d);
    ck_assert_double_eq_tol(share, 1, 1e-12);
    shard_interpreter_run(&many);
    const struct graph *g = one.g[0];
    int32_t compared = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        int32_t y = shard_interpreter_tensor_named(many.g[0], x->name);
        if (x->role == TENSOR_LOSS && stage.last == forward->n_layers - 1) {
            for (int32_t d = 0; d < s->n_devices; d++)
                loss += shard_loss_share(arena, all, d) * many.value[d][y][0];
            ck_assert_msg(fabs(loss - one.value[0][t][0]) <= tolerance * fabs(loss),
                          "%s: loss %.17g, not %.17g", what, loss, one.value[0][t][0]);
        }
        if (x->role != TENSOR_PARAMETER) continue;
        double *got = sharded_graphs_gradient(&many, s, x->name);
        double *want = sharded_graphs_gradient(&one, alone, x->name);
        ck_assert_msg(!got == !want, "%s: gradient of %s", what, x->name);
        if (!want) continue;
        double d = shard_interpreter_distance(got, want, shape_elements(&x->shape));
        ck_assert_msg(d <= tolerance, "%s: %s is %g apart", what, x->name, d);
        compared++;
    }
    ck_assert_int_gt(compared, 0);
}

static inline void sharded_graphs_compare(const struct graph *forward, struct graph *differentiated,
                           const struct sharding *s, double tolerance, const char *what)
{
    sharded_graphs_compare_stage(forward, differentiated, s, (struct stage){0, forward->n_layers - 1, false},
                  tolerance, what);
}

static inline const char *sharded_graphs_text(const struct sharding *s, const struct graph *g,
                                  const struct op_choice *c)
{
    const char *t = arena_printf(arena, "mesh %dx%d", s->mesh[0], s->mesh[1]);
    for (int32_t i = 0; i < s->n_devices * s->n_ratios; i++)
        t = arena_printf(arena, "%s %g", t, s->ratios[i]);
    for (int32_t i = 0; i < g->n_forward; i++)
        if (c[i].index[0] || c[i].index[1])
            t = arena_printf(arena, "%s\n  %s: %s %d %s %d", t, g->ops[i].name,
                             op_index_name(c[i].index[0]), c[i].ratio[0],
                             op_index_name(c[i].index[1]), c[i].ratio[1]);
    return t;
}

enum { B = 3, T = 5, V = 11 };

static inline struct graph *sharded_graphs_differentiated(struct graph *g)
{
    ck_assert_msg(gradient_build(g, 0.5, &err) == OK, "%s", err.text);
    return g;
}

static inline enum op_index sharded_graphs_index(struct dice *d, uint32_t set)
{
    for (;;) {
        int64_t i = dice_roll(d, INDEX_COUNT);
        if (set >> i & 1 && i != INDEX_partial) return (enum op_index)i;
    }
}

#endif
