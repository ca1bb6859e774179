/* Every rule of splitting alone, then whole graphs by random shardings, against the graph of one device: what the devices
 * have, put together, is what one device computes, forward and backward. */
#include "core/shard.h"

#include "core/model.h"

#include "tests/shard_machine.h"

static struct arena *arena;
static struct host_context context;
static struct error err;

static void begin(void)
{
    arena = arena_new();
    host_context_init(&context);
}

static void end(void)
{
    host_context_free(&context);
    arena_free(arena);
}

struct dice {
    uint64_t seed, i;
};
static int64_t roll(struct dice *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 17, d->i++, (uint64_t)n);
}

/* --- random shardings --- */

/* Uneven, and now and then a device that gets nothing. */
static struct sharding *random_sharding(struct dice *d, int32_t n_devices, bool two_axes)
{
    struct sharding *s = ARENA_ARRAY(arena, struct sharding, 1);
    s->n_devices = n_devices, s->n_axes = 1, s->mesh[0] = n_devices, s->mesh[1] = 1;
    if (two_axes) {
        int32_t rows = 1 + (int32_t)roll(d, n_devices);
        while (n_devices % rows) rows--;
        s->n_axes = 2, s->mesh[0] = rows, s->mesh[1] = n_devices / rows;
    }
    s->n_ratios = 1 + (int32_t)roll(d, 2);
    double *ratios = ARENA_ARRAY(arena, double, (size_t)(s->n_ratios * n_devices));
    for (int32_t i = 0; i < s->n_ratios * n_devices; i++)
        ratios[i] = roll(d, 5) ? 1 + (double)roll(d, 4) : 0;
    for (int32_t v = 0; v < s->n_ratios; v++) ratios[v * n_devices + roll(d, n_devices)] = 2;
    s->ratios = ratios;
    return s;
}

static void rules_of(struct sharding *s, const struct graph *g, const struct op_choice *choices)
{
    struct sharding_rule *rules = ARENA_ARRAY(arena, struct sharding_rule, (size_t)g->n_forward);
    for (int32_t i = 0; i < g->n_forward; i++)
        rules[i] = (struct sharding_rule){.match = g->ops[i].name, .choice = choices[i]};
    s->n_operators = g->n_forward, s->operators = rules;
}

/* --- both ways of computing --- */

static struct machine machine_of(int32_t n)
{
    struct machine m = {.a = arena, .x = &context, .n = n, .seed = 5};
    m.g = ARENA_ARRAY(arena, struct graph *, (size_t)n);
    return m;
}

/* The sum over its uses: several uses of one gathered parameter are one. */
static double *gradient_of_parameter(struct machine *m, const struct sharding *s, const char *name)
{
    const struct graph *g = m->g[0];
    int32_t p = tensor_named(g, name);
    double *sum = NULL;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER_GRADIENT || g->tensors[t].of != p) continue;
        double *use = assembled(m, s, t, g->tensors[t].partial);
        int64_t n = whole_elements(&g->tensors[t]);
        for (int64_t i = 0; sum && i < n; i++) sum[i] += use[i];
        if (!sum) sum = use;
    }
    ck_assert_msg(sum, "no gradient of %s", name);
    return sum;
}

/* differentiated: a graph like `forward`, with its gradients. */
static void compare(const struct graph *forward, struct graph *differentiated,
                    const struct sharding *s, double tolerance, const char *what)
{
    struct machine one = machine_of(1), many = machine_of(s->n_devices);
    struct sharding *alone = sharding_of_batch(arena, (const double[]){1}, 1);
    one.g[0] = differentiated;
    run_machine(&one);
    double share = 0, loss = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        double mine;
        enum status status =
            shard_graph(arena, forward, s, d, 0, forward->n_layers - 1, &many.g[d], &err);
        ck_assert_msg(status == OK, "%s: %s", what, err.text);
        ck_assert_msg(gradient_build(many.g[d], 0.5, &err) == OK, "%s: %s", what, err.text);
        ck_assert_msg(shard_loss_share(arena, forward, s, d, &mine, &err) == OK, "%s", err.text);
        share += mine;
    }
    ck_assert_double_eq_tol(share, 1, 1e-12);
    run_machine(&many);
    const struct graph *g = one.g[0];
    int32_t compared = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        int32_t y = tensor_named(many.g[0], x->name);
        if (x->role == TENSOR_LOSS) {
            for (int32_t d = 0; d < s->n_devices; d++) {
                double mine;
                ck_assert(shard_loss_share(arena, forward, s, d, &mine, &err) == OK);
                loss += mine * many.value[d][y][0];
            }
            ck_assert_msg(fabs(loss - one.value[0][t][0]) <= tolerance * fabs(loss),
                          "%s: loss %.17g, not %.17g", what, loss, one.value[0][t][0]);
        }
        if (x->role != TENSOR_PARAMETER) continue;
        double *got = gradient_of_parameter(&many, s, x->name);
        double *want = gradient_of_parameter(&one, alone, x->name);
        double d = apart(got, want, shape_elements(&x->shape));
        ck_assert_msg(d <= tolerance, "%s: %s is %g apart", what, x->name, d);
        compared++;
    }
    ck_assert_int_gt(compared, 0);
}

static const char *text_of(const struct sharding *s, const struct graph *g,
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

/* --- each rule alone --- */

enum { B = 3, T = 5, V = 11 };

/* Operands: 'a' an activation (B,T,n) that everybody has, 'p' a parameter, 'i' ids (B,T). */
struct rule_case {
    enum op_kind kind;
    struct op_attrs attrs;
    struct {
        char role;
        struct shape shape; /* of a: {1, {n}} */
    } in[4];
};
#define A(n) {'a', {1, {n}}}
#define P1(n) {'p', {1, {n}}}
#define P2(m, n) {'p', {2, {m, n}}}
#define IDS {'i', {0, {0}}}
static const struct rule_case cases[] = {
    {OP_matmul, {0}, {A(6), P2(6, 7)}},
    {OP_matmul, {.trans_b = true}, {A(6), P2(7, 6)}},
    {OP_matmul, {.trans_b = true}, {A(6), P2(2, 6)}},
    {OP_bias, {0}, {A(7), P1(7)}},
    {OP_bias_gelu, {0}, {A(7), P1(7)}},
    {OP_bias_gelu, {.gelu_erf = true}, {A(7), P1(7)}},
    {OP_add, {0}, {A(7), A(7)}},
    {OP_multiply, {0}, {A(7), A(7)}},
    {OP_gelu, {0}, {A(7)}},
    {OP_silu, {0}, {A(7)}},
    {OP_swiglu, {0}, {A(7), A(7)}},
    {OP_layer_norm, {.eps = 1e-5}, {A(7), P1(7), P1(7)}},
    {OP_rms_norm, {.eps = 1e-5}, {A(7), P1(7)}},
    {OP_rms_norm, {.eps = 1e-5}, {A(12), P1(3)}}, /* four heads */
    {OP_embedding, {0}, {IDS, P2(V, 7)}},
    {OP_rotary, {.heads = 3, .head_dim = 4, .theta = 100}, {A(12)}},
    {OP_attention, {.heads = 3, .kv_heads = 3, .head_dim = 2}, {A(18)}},
    {OP_attention, {.heads = 6, .kv_heads = 3, .head_dim = 2, .window = 2}, {A(24)}},
    {OP_attention, {.heads = 6, .kv_heads = 2, .head_dim = 2}, {A(12), A(4), A(4)}},
    {OP_attention, {.heads = 3, .kv_heads = 3, .head_dim = 2, .window = 3}, {A(6), A(6), A(6)}},
    {OP_attention,
     {.heads = 4, .kv_heads = 2, .head_dim = 2, .bidirectional = true},
     {A(8), A(4), A(4)}},
    {OP_cross_entropy, {0}, {A(V), IDS}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int32_t source(struct graph *g, const char *name, enum tensor_role role, struct shape shape,
                      enum tensor_input input)
{
    return graph_add_tensor(
        g, (struct tensor){.name = name,
                           .role = role,
                           .dtype = role == TENSOR_INPUT ? DTYPE_int32 : DTYPE_fp64,
                           .shape = shape,
                           .input = input});
}

static int32_t ids(struct graph *g, const char *name, enum tensor_input which)
{
    return source(g, name, TENSOR_INPUT, (struct shape){2, {B, T}}, which);
}

static int32_t apply(struct graph *g, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, const int32_t *in, int32_t n)
{
    int32_t out[OP_OPERANDS_MAX];
    ck_assert_msg(graph_add_op(g, kind, name, attrs, in, n, out, &err) == OK, "%s", err.text);
    return out[0];
}

/* An activation (B,T,n) whose every element has a gradient of its own, by a table of its own. */
static int32_t looked_up(struct graph *g, const char *name, int64_t n)
{
    const char *text = arena_printf(arena, "%s.table", name);
    int32_t in[] = {ids(g, arena_printf(arena, "%s.positions", name), INPUT_POSITIONS),
                    source(g, text, TENSOR_PARAMETER, (struct shape){2, {T, n}}, 0)};
    int32_t other[] = {ids(g, arena_printf(arena, "%s.ids", name), INPUT_TOKENS),
                       source(g, arena_printf(arena, "%s.more", name), TENSOR_PARAMETER,
                              (struct shape){2, {V, n}}, 0)};
    int32_t both[] = {
        apply(g, OP_embedding, arena_printf(arena, "%s.at", name), NULL, in, 2),
        apply(g, OP_embedding, arena_printf(arena, "%s.of", name), NULL, other, 2)};
    return apply(g, OP_add, arena_printf(arena, "%s.made", name), NULL, both, 2);
}

/* The operator "x" among others that everybody computes; its output meets a matrix of V columns and a loss. */
static struct graph *graph_of_case(const struct rule_case *c)
{
    struct graph *g = graph_new(arena, DTYPE_fp64, B, T);
    int32_t in[4], n = 0;
    for (; n < 4 && c->in[n].role; n++) {
        const char *name = arena_printf(arena, "in%d", n);
        if (c->in[n].role == 'a') in[n] = looked_up(g, name, c->in[n].shape.dim[0]);
        if (c->in[n].role == 'p') in[n] = source(g, name, TENSOR_PARAMETER, c->in[n].shape, 0);
        if (c->in[n].role == 'i')
            in[n] = ids(g, name, c->kind == OP_cross_entropy ? INPUT_TARGETS : INPUT_TOKENS);
    }
    int32_t y = apply(g, c->kind, "x", &c->attrs, in, n);
    if (c->kind != OP_cross_entropy) {
        int64_t width = shape_last(&g->tensors[y].shape);
        int32_t end[] = {apply(g, OP_silu, "end", NULL, &y, 1),
                         source(g, "end.weight", TENSOR_PARAMETER, (struct shape){2, {width, V}},
                                0)};
        int32_t loss[] = {apply(g, OP_matmul, "end.columns", NULL, end, 2),
                          ids(g, "targets", INPUT_TARGETS)};
        apply(g, OP_cross_entropy, "loss", NULL, loss, 2);
    }
    graph_find_layers(g);
    return g;
}

static int32_t op_named(const struct graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_forward; i++)
        if (!strcmp(g->ops[i].name, name)) return i;
    ck_abort_msg("no operator %s", name);
}

static struct graph *differentiated(struct graph *g)
{
    ck_assert_msg(gradient_build(g, 0.5, &err) == OK, "%s", err.text);
    return g;
}

static enum op_index random_index(struct dice *d, uint32_t set)
{
    for (;;) {
        int64_t i = roll(d, INDEX_COUNT);
        if (set >> i & 1 && i != INDEX_terms) return (enum op_index)i;
    }
}

/* Sums are in the view's order, a few units in the last place apart. */
START_TEST(each_rule_alone_is_the_operator)
{
    const struct rule_case *c = &cases[_i];
    int n = test_long() ? 60 : 8;
    struct graph *forward = graph_of_case(c);
    int32_t x = op_named(forward, "x");
    const struct grain *grains = graph_grains(arena, forward);
    uint32_t set = op_indices(forward, &forward->ops[x], grains);
    for (int index = 0; index < INDEX_COUNT; index++) {
        if (!(set >> index & 1) || index == INDEX_terms) continue;
        for (int k = 0; k < n; k++) {
            struct dice d = {(uint64_t)(1000 * _i + 100 * index + k), 0};
            struct sharding *s = random_sharding(&d, 1 + (int32_t)roll(&d, 6), k % 2);
            struct op_choice *choices =
                ARENA_ARRAY(arena, struct op_choice, (size_t)forward->n_forward);
            choices[x].index[0] = (enum op_index)index;
            choices[x].index[1] = random_index(&d, set);
            for (int32_t y = 0; y < s->n_axes; y++)
                choices[x].ratio[y] = (int32_t)roll(&d, s->n_ratios);
            rules_of(s, forward, choices);
            compare(forward, differentiated(graph_of_case(c)), s, 1e-12,
                    text_of(s, forward, choices));
        }
    }
}
END_TEST

START_TEST(every_kind_that_can_be_split_has_a_case)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        bool tested = false;
        for (int i = 0; i < N_CASES; i++) tested = tested || cases[i].kind == (enum op_kind)kind;
        ck_assert_msg(tested == op_has_index_row((enum op_kind)kind), "%s",
                      op_kind_name((enum op_kind)kind));
    }
}
END_TEST

/* --- whole models --- */

static struct graph *model_of(int which, int64_t layers)
{
    static const char *const families[] = {"gpt2", "llama", "qwen3"};
    struct model m = {.name = "small",
                      .family = families[which],
                      .layers = layers,
                      .hidden = 12,
                      .heads = which ? 4 : 3,
                      .kv_heads = which ? 2 : 3,
                      .head_dim = 4,
                      .intermediate = 10,
                      .vocabulary = V,
                      .max_positions = 8,
                      .tied = which != 1,
                      .qk_norm = which == 2,
                      .norm_eps = 1e-5,
                      .rope_theta = 100,
                      .init_std = 0.3};
    struct graph *g;
    ck_assert_msg(model_graph(arena, &m, DTYPE_fp64, B, T, &g, &err) == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

/* Each operator by any of its indices; some models mostly by one pattern, so that nothing is converted between. */
static void random_choices(struct dice *d, const struct sharding *s, const struct graph *g,
                           struct op_choice *choices)
{
    const struct grain *grains = graph_grains(arena, g);
    for (int32_t x = 0; x < s->n_axes; x++) {
        enum op_index usual = (enum op_index)roll(d, INDEX_terms);
        int64_t often = roll(d, 4);
        for (int32_t i = 0; i < g->n_forward; i++) {
            uint32_t set = op_indices(g, &g->ops[i], grains);
            enum op_index meant = op_index_meant(g, &g->ops[i], grains, usual);
            bool any = meant == INDEX_COUNT || roll(d, 4) >= often;
            choices[i].index[x] = any ? random_index(d, set) : meant;
            choices[i].ratio[x] = (int32_t)roll(d, s->n_ratios);
        }
    }
}

static void try_model(int which, uint64_t seed, bool gather)
{
    struct dice d = {seed, 0};
    int64_t layers = 1 + roll(&d, 2);
    struct graph *forward = model_of(which, layers), *whole = model_of(which, layers);
    struct sharding *s = random_sharding(&d, 1 + (int32_t)roll(&d, 6), roll(&d, 2));
    struct op_choice *choices = ARENA_ARRAY(arena, struct op_choice, (size_t)forward->n_forward);
    random_choices(&d, s, forward, choices);
    rules_of(s, forward, choices);
    if (gather) {
        struct sharding_rule *all = ARENA_ARRAY(arena, struct sharding_rule, 2);
        all[0] = (struct sharding_rule){.match = "*.weight", .gather = true};
        all[1] = (struct sharding_rule){.match = "*", .gather = roll(&d, 2)};
        s->parameters = all, s->n_parameters = 2;
    }
    ck_assert_int_eq(whole->n_forward, forward->n_forward);
    compare(forward, differentiated(whole), s, 1e-10, text_of(s, forward, choices));
}

START_TEST(whole_models_by_random_shardings_train_as_on_one_device)
{
    int n = test_long() ? 400 : 70;
    for (int k = 0; k < n; k++) {
        try_model(_i, (uint64_t)(k + 1000 * _i), k % 3 == 2);
        arena_reset(arena);
    }
}
END_TEST

Suite *shard_suite(void)
{
    Suite *suite = suite_create("shard");
    TCase *c = tcase_create("shard");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, each_rule_alone_is_the_operator, 0, N_CASES);
    tcase_add_test(c, every_kind_that_can_be_split_has_a_case);
    tcase_add_loop_test(c, whole_models_by_random_shardings_train_as_on_one_device, 0, 3);
    suite_add_tcase(suite, c);
    return suite;
}
