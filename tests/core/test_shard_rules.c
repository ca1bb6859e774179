/* Every rule of splitting alone: an operator that devices share among others that everybody computes, against the graph of
 * one device, forward and backward. */
#include "tests/support/sharded_graphs.h"

/* Operands: 'a' an activation (B,T,n) that everybody has, 'm' one of images (B,n,T,1), 'w' one of larger images (B,n,12,2), 'g' gates (B,T,n) of a choice of 2
 * experts, 'r' rows (B,EXPERTS,2,n) that such gates dispatched, 'p' a parameter, 'i' ids (B,T). */
struct rule_case {
    enum op_kind kind;
    struct op_attrs attrs;
    struct {
        char role;
        struct shape shape; /* of activations: {1, {n}} */
    } in[4];
};
enum { EXPERTS = 5 };
/* clang-format off */
#define A(n) {'a', {1, {n}}}
#define M(n) {'m', {1, {n}}}
#define W(n) {'w', {1, {n}}}
#define G {'g', {1, {EXPERTS}}}
#define R(n) {'r', {1, {n}}}
#define P1(n) {'p', {1, {n}}}
#define P2(m, n) {'p', {2, {m, n}}}
#define P3(l, m, n) {'p', {3, {l, m, n}}}
#define P4(k, l, m, n) {'p', {4, {k, l, m, n}}}
#define IDS {'i', {0, {0}}}
#define STENCIL(k, p) .stencil = {.kernel = {k, 1}, .stride = {1, 1}, .padding = {p, 0}}
#define LOOK(k, l, s, p) .stencil = {.kernel = {k, l}, .stride = {s, 1}, .padding = {p, 0}}
/* clang-format on */
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
    {OP_scale, {.scale = 2}, {A(7)}},
    {OP_softcap, {.scale = 2}, {A(7)}},
    {OP_swiglu, {0}, {A(7), A(7)}},
    {OP_layer_norm, {.eps = 1e-5}, {A(7), P1(7), P1(7)}},
    {OP_rms_norm, {.eps = 1e-5}, {A(7), P1(7)}},
    {OP_rms_norm, {.eps = 1e-5}, {A(12), P1(3)}}, /* four heads */
    {OP_embedding, {0}, {IDS, P2(V, 7)}},
    {OP_rotary, {.heads = 3, .head_dim = 4, .theta = 100}, {A(12)}},
    {OP_rotary, {.heads = 3, .head_dim = 6, .rotary_dim = 4, .interleaved = true, .theta = 100}, {A(18)}},
    {OP_attention, {.heads = 3, .kv_heads = 3, .head_dim = 2}, {A(18)}},
    {OP_attention, {.heads = 6, .kv_heads = 3, .head_dim = 2, .window = 2}, {A(24)}},
    {OP_attention, {.heads = 6, .kv_heads = 2, .head_dim = 2}, {A(12), A(4), A(4)}},
    {OP_attention, {.heads = 3, .kv_heads = 3, .head_dim = 2, .window = 3}, {A(6), A(6), A(6)}},
    {OP_attention,
     {.heads = 4, .kv_heads = 2, .head_dim = 2, .bidirectional = true},
     {A(8), A(4), A(4)}},
    {OP_attention, {.heads = 6, .kv_heads = 2, .head_dim = 2, .softcap = 2}, {A(12), A(4), A(4)}},
    {OP_cross_entropy, {0}, {A(V), IDS}},
    {OP_cross_entropy, {.counted = 2}, {A(V), IDS}},
    {OP_bias, {.dim = 1}, {A(7), P2(T, 7)}}, /* positions */
    {OP_bias, {.dim = 1}, {M(6), P1(6)}},    /* channels */
    {OP_bias, {0}, {R(7), P1(7)}},
    {OP_add, {0}, {M(4), M(4)}},
    {OP_multiply, {0}, {R(4), R(4)}},
    {OP_silu, {0}, {R(7)}},
    {OP_relu, {0}, {A(7)}},
    {OP_relu, {0}, {M(5)}},
    {OP_dropout, {.rate = 0.4, .stream = 3}, {A(7)}},
    {OP_conv2d, {STENCIL(0, 1)}, {M(4), P4(5, 4, 3, 1)}},
    {OP_conv2d, {LOOK(0, 0, 2, 1)}, {W(4), P4(5, 4, 3, 2)}},
    {OP_conv2d, {LOOK(0, 0, 3, 0)}, {W(4), P4(5, 4, 3, 2)}}, /* patches */
    {OP_conv2d, {LOOK(0, 0, 1, 0)}, {W(4), P4(5, 4, 1, 1)}},
    {OP_max_pool2d, {STENCIL(3, 1)}, {M(5)}},
    {OP_max_pool2d, {LOOK(3, 2, 2, 1)}, {W(5)}},
    {OP_max_pool2d, {LOOK(2, 2, 2, 0)}, {W(5)}},
    {OP_avg_pool2d, {LOOK(2, 1, 3, 1)}, {W(5)}},
    {OP_avg_pool2d, {LOOK(4, 1, 4, 0)}, {W(5)}},
    {OP_avg_pool2d, {LOOK(5, 1, 5, 0)}, {W(5)}}, /* lines that no window sees */
    {OP_relu, {0}, {W(5)}},
    {OP_bias, {.dim = 1}, {W(6), P1(6)}},
    {OP_avg_pool2d, {STENCIL(3, 1)}, {M(5)}},
    {OP_group_norm, {.eps = 1e-5, .groups = 3}, {M(6), P1(6), P1(6)}},
    {OP_to_rows, {0}, {M(5)}},
    {OP_to_rows, {.flat = true}, {M(5)}},
    {OP_to_rows, {0}, {W(5)}},
    {OP_prepend, {0}, {A(7), P2(2, 7)}},
    {OP_slice, {.dim = 1, .start = 1, .sequences = 3}, {A(7)}},
    {OP_slice, {.dim = 2, .start = 1, .sequences = 3}, {A(7)}},
    {OP_gating, {.chosen = 2, .renormalise = true}, {A(EXPERTS)}},
    {OP_gating, {.chosen = 2}, {A(EXPERTS)}},
    {OP_gating, {.chosen = 2, .scale = 0.7}, {A(EXPERTS)}},
    {OP_dispatch, {.chosen = 2, .capacity = 2}, {A(7), G}},
    {OP_combine, {.chosen = 2, .weighted = true}, {R(7), G}},
    {OP_combine, {.chosen = 2}, {R(7), G}},
    {OP_expert_matmul, {.chosen = 2}, {R(6), P3(EXPERTS, 6, 4), G}},
    {OP_expert_matmul, {.chosen = 2, .trans_b = true}, {R(6), P3(EXPERTS, 4, 6), G}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int32_t source(struct graph *g, const char *name, enum tensor_role role, struct shape shape,
                      enum tensor_input input)
{
    return graph_add_tensor(
        g, (struct tensor){.name = name,
                           .role = role,
                           .dtype = role == TENSOR_INPUT && input != INPUT_PIXELS ? DTYPE_int32
                                                                                  : DTYPE_fp64,
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
    int32_t both[] = {apply(g, OP_embedding, arena_printf(arena, "%s.at", name), NULL, in, 2),
                      apply(g, OP_embedding, arena_printf(arena, "%s.of", name), NULL, other, 2)};
    return apply(g, OP_add, arena_printf(arena, "%s.made", name), NULL, both, 2);
}

struct making {
    struct graph *g;
    const struct rule_case *c;
    int32_t gates, pixels; /* -1: not yet; everybody's */
};

static int32_t make_gates(struct making *m)
{
    struct op_attrs attrs = {.chosen = 2, .renormalise = true};
    if (m->gates < 0) {
        int32_t logits = looked_up(m->g, "gate", EXPERTS);
        m->gates = apply(m->g, OP_gating, "gates", &attrs, &logits, 1);
    }
    return m->gates;
}

static int32_t make_operand(struct making *m, int32_t k)
{
    struct graph *g = m->g;
    const char *name = arena_printf(arena, "in%d", k);
    const struct shape *s = &m->c->in[k].shape;
    bool loss = m->c->kind == OP_cross_entropy;
    switch (m->c->in[k].role) {
    case 'a':
        return looked_up(g, name, s->dim[0]);
    case 'p':
        return source(g, name, TENSOR_PARAMETER, *s, 0);
    case 'i':
        return ids(g, name,
                   loss ? m->c->attrs.counted ? INPUT_MASKED_TARGETS : INPUT_TARGETS
                        : INPUT_TOKENS);
    case 'g':
        return make_gates(m);
    case 'm':
    case 'w': {
        struct shape weight = {4, {s->dim[0], 3, 1, 1}}, pixels = {4, {B, 3, T, 1}};
        struct op_attrs one = {.stencil.stride = {1, 1}};
        if (m->c->in[k].role == 'w') pixels.dim[2] = 12, pixels.dim[3] = 2;
        if (m->pixels < 0) m->pixels = source(g, "pixels", TENSOR_INPUT, pixels, INPUT_PIXELS);
        int32_t in[] = {m->pixels, source(g, arena_printf(arena, "%s.weight", name),
                                          TENSOR_PARAMETER, weight, 0)};
        return apply(g, OP_conv2d, name, &one, in, 2);
    }
    default: {
        struct op_attrs attrs = {.chosen = 2, .capacity = 2};
        int32_t in[] = {looked_up(g, name, s->dim[0]), make_gates(m)};
        return apply(g, OP_dispatch, arena_printf(arena, "%s.rows", name), &attrs, in, 2);
    }
    }
}

/* Rows of anything: images by place, what stands in slots put back. */
static int32_t rows_again(struct making *m, int32_t y)
{
    const struct shape *s = &m->g->tensors[y].shape;
    struct op_attrs attrs = {.chosen = 2, .weighted = true};
    if (s->rank < 4) return y;
    if (s->dim[1] != EXPERTS || m->pixels >= 0)
        return apply(m->g, OP_to_rows, "end.rows", NULL, &y, 1);
    int32_t in[] = {y, make_gates(m)};
    return apply(m->g, OP_combine, "end.rows", &attrs, in, 2);
}

/* The operator "x" among others that everybody computes; its output meets a matrix of V columns and a loss. */
static struct graph *graph_of_case(const struct rule_case *c)
{
    struct making m = {.g = graph_new(arena, DTYPE_fp64, B, T), .c = c, .gates = -1, .pixels = -1};
    struct graph *g = m.g;
    int32_t in[4], n = 0;
    for (; n < 4 && c->in[n].role; n++) in[n] = make_operand(&m, n);
    int32_t y = apply(g, c->kind, "x", &c->attrs, in, n);
    if (c->kind != OP_cross_entropy) {
        y = rows_again(&m, y);
        struct shape targets = g->tensors[y].shape;
        int32_t end[] = {apply(g, OP_silu, "end", NULL, &y, 1),
                         source(g, "end.weight", TENSOR_PARAMETER,
                                (struct shape){2, {shape_last(&targets), V}}, 0)};
        targets.rank--;
        int32_t loss[] = {apply(g, OP_matmul, "end.columns", NULL, end, 2),
                          source(g, "targets", TENSOR_INPUT, targets, INPUT_TARGETS)};
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

/* Sums are in the view's order, a few units in the last place apart. */
START_TEST(each_rule_alone_is_the_operator)
{
    const struct rule_case *c = &cases[_i];
    int n = suites_long() ? 60 : 8;
    struct graph *forward = graph_of_case(c);
    int32_t x = op_named(forward, "x");
    const struct grain *grains = graph_grains(arena, forward);
    uint32_t set = op_index_set(forward, &forward->ops[x], grains);
    for (int index = 0; index < INDEX_COUNT; index++) {
        if (!(set >> index & 1) || index == INDEX_partial) continue;
        for (int k = 0; k < n; k++) {
            struct dice d = {(uint64_t)(1000 * _i + 100 * index + k), 0};
            struct sharding *s = sharded_graphs_sharding(&d, 1 + (int32_t)dice_roll(&d, 6), k % 2);
            struct op_choice *choices =
                ARENA_ARRAY(arena, struct op_choice, (size_t)forward->n_forward);
            choices[x].index[0] = (enum op_index)index;
            choices[x].index[1] = sharded_graphs_index(&d, set);
            for (int32_t y = 0; y < s->n_axes; y++)
                choices[x].ratio[y] = (int32_t)dice_roll(&d, s->n_ratios);
            sharded_graphs_rules(s, forward, choices);
            sharded_graphs_compare(forward, sharded_graphs_differentiated(graph_of_case(c)), s,
                                   1e-12, sharded_graphs_text(s, forward, choices));
        }
    }
}
END_TEST

START_TEST(every_kind_that_can_be_sharded_has_a_case)
{
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        bool tested = false;
        for (int i = 0; i < N_CASES; i++) tested = tested || cases[i].kind == (enum op_kind)kind;
        if (op_is_measured((enum op_kind)kind)) continue; /* no kernels; test_measured_shards */
        ck_assert_msg(tested == op_index_has_row((enum op_kind)kind), "%s",
                      op_kind_name((enum op_kind)kind));
    }
}
END_TEST

/* --- HAP's rules --- */

/* A rule of HAP (arXiv 2401.05965) as its authors write it, or one that it lacks ("+"), and what ours is called. For each
 * operand, outputs behind: a digit the dimension that is sharded, I whole, R a partial value, . kept where it is made. HAP's
 * masks (b,s,e,c) say which slot a row takes; of ours, gates (b,s,e), slots follow, so to know positions' or slots' rows one
 * must have them whole. */
struct hap_rule {
    const char *theirs;
    enum op_kind kind;
    int nth; /* case of the kind */
    enum op_index index;
    const char *operands;
};
/* clang-format off */
static const struct hap_rule hap_rules[] = {
    {"bsd,bsec->becd (G0,G0)->G0", OP_dispatch, 0, INDEX_batch, "00>0"},
    {"bsd,bsec->becd (G1,G1)->R", OP_dispatch, 0, INDEX_positions, "1I>R"},
    {"bsd,bsec->becd (G2,I)->G3", OP_dispatch, 0, INDEX_features, "2I>3"},
    {"bsd,bsec->becd (I,G2)->G1", OP_dispatch, 0, INDEX_experts, "I2>1"},
    {"bsd,bsec->becd (I,G3)->G2", OP_dispatch, 0, INDEX_slots, "II>2"},
    {"becd,bsec->bsd (G0,G0)->G0", OP_combine, 0, INDEX_batch, "00>0"},
    {"becd,bsec->bsd (G1,G2)->R", OP_combine, 0, INDEX_experts, "12>R"},
    {"becd,bsec->bsd (G2,G3)->R", OP_combine, 0, INDEX_slots, "2I>R"},
    {"becd,bsec->bsd (G3,I)->G2", OP_combine, 0, INDEX_features, "3I>2"},
    {"becd,bsec->bsd (I,G1)->G1", OP_combine, 0, INDEX_positions, "II>1"},
    {"expert matmul G0,G1->G1: experts", OP_expert_matmul, 0, INDEX_experts, "102>1"},
    {"+ expert matmul by batch", OP_expert_matmul, 0, INDEX_batch, "0I0>0"},
    {"+ expert matmul by slots", OP_expert_matmul, 0, INDEX_slots, "2II>2"},
    {"+ expert matmul by columns", OP_expert_matmul, 0, INDEX_features, "I2I>3"},
    {"+ expert matmul by rows", OP_expert_matmul, 0, INDEX_inputs, "31I>R"},
    {"gating G0", OP_gating, 0, INDEX_batch, "0>0"},
    {"gating with a balancing loss", OP_gating, 2, INDEX_batch, "0>0"},
    {"+ gating by positions", OP_gating, 0, INDEX_positions, "1>1"},
    {"linear x.G0->y.G0", OP_matmul, 0, INDEX_batch, "0I>0"},
    {"linear x.G1->y.G1", OP_matmul, 0, INDEX_positions, "1I>1"},
    {"linear W.G(out)->y.G(last)", OP_matmul, 0, INDEX_features, "I1>2"},
    {"+ row-parallel linear", OP_matmul, 0, INDEX_inputs, "20>R"},
    {"elementwise G0", OP_gelu, 0, INDEX_batch, "0>0"},
    {"elementwise G1", OP_gelu, 0, INDEX_positions, "1>1"},
    {"elementwise G2", OP_gelu, 0, INDEX_features, "2>2"},
    {"dropout G0", OP_dropout, 0, INDEX_batch, "0>0"},
    {"dropout G1", OP_dropout, 0, INDEX_positions, "1>1"},
    {"dropout G2", OP_dropout, 0, INDEX_features, "2>2"},
    {"add R,R->R", OP_add, 0, INDEX_partial, "RR>R"},
    {"layer norm G0", OP_layer_norm, 0, INDEX_batch, "0II>0."},
    {"layer norm G1", OP_layer_norm, 0, INDEX_positions, "1II>1."},
    {"softmax and cross-entropy G0; the sum of rows is partial", OP_cross_entropy, 0, INDEX_batch, "00>.."},
    {"softmax and cross-entropy G1", OP_cross_entropy, 0, INDEX_positions, "11>.."},
    {"+ vocabulary-parallel cross-entropy", OP_cross_entropy, 0, INDEX_vocabulary, "2I>.."},
    {"embedding ids.G0->G0", OP_embedding, 0, INDEX_batch, "0I>0"},
    {"embedding ids.G1->G1", OP_embedding, 0, INDEX_positions, "1I>1"},
    {"embedding W.G1->G2", OP_embedding, 0, INDEX_features, "I1>2"},
    {"+ vocabulary-parallel embedding", OP_embedding, 0, INDEX_vocabulary, "I0>R"},
    {"attention over batch", OP_attention, 0, INDEX_batch, "0>0."},
    {"+ head-parallel attention", OP_attention, 0, INDEX_heads, "2>2."},
    {"+ attention by queries, packed", OP_attention, 0, INDEX_positions, "I>1."},
    {"+ attention by queries", OP_attention, 2, INDEX_positions, "1II>1."},
    {"conv x.G0->G0", OP_conv2d, 0, INDEX_batch, "0I>0"},
    {"conv W.G0->y.G1", OP_conv2d, 0, INDEX_channels, "I0>1"},
    {"+ conv over input channels", OP_conv2d, 0, INDEX_inputs, "11>R"},
    {"+ conv over space", OP_conv2d, 0, INDEX_rows, "II>2"},
    {"+ conv over space, kernels side by side", OP_conv2d, 2, INDEX_rows, "2I>2"},
    {"+ pooling over space", OP_max_pool2d, 0, INDEX_rows, "I>2."},
    {"+ pooling over space, windows side by side", OP_max_pool2d, 2, INDEX_rows, "2>2."},
    {"+ group norm by groups of channels", OP_group_norm, 0, INDEX_channels, "100>1."},
    {"+ group norm by batch", OP_group_norm, 0, INDEX_batch, "0II>0."},
};
/* clang-format on */
enum { N_HAP_RULES = sizeof hap_rules / sizeof *hap_rules };

static const struct rule_case *nth_case(enum op_kind kind, int nth)
{
    for (int i = 0; i < N_CASES; i++)
        if (cases[i].kind == kind && nth-- == 0) return &cases[i];
    ck_abort_msg("no such case of %s", op_kind_name(kind));
}

static char placed(const struct operand_sharding *x)
{
    static const char how[] = {'I', 0, 'R', '.'};
    return x->how == PLACED_SHARDED ? (char)('0' + x->dim) : how[x->how];
}

START_TEST(every_rule_of_hap_is_one_of_ours)
{
    const struct hap_rule *r = &hap_rules[_i];
    struct graph *g = graph_of_case(nth_case(r->kind, r->nth));
    const struct graph_op *op = &g->ops[op_named(g, "x")];
    struct op_sharding sharding;
    char text[2 * OP_OPERANDS_MAX + 2];
    int n = 0;
    const struct grain *grains = graph_grains(arena, g);
    ck_assert_msg(op_index_set(g, op, grains) >> r->index & 1, "%s", r->theirs);
    ck_assert_msg(op_sharding_by(g, op, grains, r->index, &sharding, &err) == OK, "%s", err.text);
    for (int32_t k = 0; k < op->n_inputs; k++) text[n++] = placed(&sharding.input[k]);
    text[n++] = '>';
    for (int32_t k = 0; k < op->n_outputs; k++) text[n++] = placed(&sharding.output[k]);
    text[n] = '\0';
    ck_assert_msg(!strcmp(text, r->operands), "%s: %s, not %s", r->theirs, text, r->operands);
}
END_TEST

Suite *shard_rules_suite(void)
{
    Suite *suite = suite_create("shard_rules");
    TCase *c = tcase_create("shard_rules");
    tcase_add_checked_fixture(c, sharded_graphs_begin, sharded_graphs_end);
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, each_rule_alone_is_the_operator, 0, N_CASES);
    tcase_add_loop_test(c, every_rule_of_hap_is_one_of_ours, 0, N_HAP_RULES);
    tcase_add_test(c, every_kind_that_can_be_sharded_has_a_case);
    suite_add_tcase(suite, c);
    return suite;
}
