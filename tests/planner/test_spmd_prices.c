/* Computation costs in the tables of planner/spmd/spmd equal, to the nanosecond, those of core/sharding/shard's views of the
 * same choice: every operator by every index, with all other operators replicated. */
#include "core/sharding/shard.h"
#include "planner/spmd/spmd.h"

#include "tests/support/spmd_cases.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *const models[] = {
    "{model_type: gpt2, n_embd: 96, n_layer: 1, n_head: 3, n_positions: 64, vocab_size: 512, "
    "tie_word_embeddings: false}",
    "{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1, "
    "num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 512, max_position_embeddings: 64, "
    "rms_norm_eps: 1e-5, tie_word_embeddings: false}",
    "{model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, num_local_experts: 4, "
    "num_experts_per_tok: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5}",
    "{model_type: vit, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, "
    "intermediate_size: 48, image_size: 32, patch_size: 4, num_channels: 3, num_labels: 7}",
    "{model_type: vgg, image_size: 24, num_channels: 3, features: [8, 8, M, 12, A], classifier: "
    "[24], norm_groups: 4, num_labels: 7}",
};
enum { N_MODELS = sizeof models / sizeof *models };

static int64_t roll(uint64_t seed, uint64_t *at, int64_t n)
{
    return (int64_t)rng_below(seed, 23, (*at)++, (uint64_t)n);
}

static int64_t price(const struct spmd_case *c, int32_t device, const struct graph *g,
                     const struct graph_op *op)
{
    struct program_op x = {.kind = op->kind,
                           .phase = op->phase,
                           .attrs = op->attrs,
                           .dtype = g->dtype,
                           .name = op->name,
                           .n_inputs = op->n_inputs,
                           .n_outputs = op->n_outputs};
    int64_t ns;
    graph_op_shapes(g, op, &x.shapes);
    x.key = op_key(x.kind, &x.attrs, &x.shapes, x.dtype);
    spmd_case_must(cost_op(c->q.cost, c->type[device], &x, &ns, &err), &err);
    return ns;
}

static int64_t update_price(const struct spmd_case *c, int32_t device, const struct graph *g,
                            const struct tensor *p)
{
    bool adamw = c->q.optimizer->kind == OPTIMIZER_ADAMW;
    struct program_op x = {.kind = adamw ? OP_adamw : OP_sgd,
                           .phase = PHASE_U,
                           .attrs = {.decay = p->decay},
                           .dtype = dtype_master(g->dtype),
                           .name = p->name,
                           .shapes.n_inputs = adamw ? 4 : 2};
    int64_t ns;
    for (int32_t k = 0; k < x.shapes.n_inputs; k++) x.shapes.input[k] = p->shape;
    spmd_case_must(op_infer(x.kind, &x.attrs, &x.shapes, &err), &err);
    x.n_inputs = x.shapes.n_inputs, x.n_outputs = x.shapes.n_outputs;
    x.key = op_key(x.kind, &x.attrs, &x.shapes, x.dtype);
    spmd_case_must(cost_op(c->q.cost, c->type[device], &x, &ns, &err), &err);
    return ns;
}

/* Is it no more than its operator and that one's gradients? Gradient all-reduces depend on what stands around it. */
static bool stands_alone(const struct spmd_case *c, int32_t op)
{
    const struct graph *g = c->training;
    if (g->ops[op].kind == OP_prepend)
        return false; /* the token's rows are no operand: priced whole */
    for (int32_t i = g->n_forward; i < g->n_ops; i++)
        if (g->ops[i].forward == op && g->ops[i].kind == OP_add) return false;
    for (int32_t k = 0; k < g->ops[op].n_inputs; k++) {
        int32_t t = g->ops[op].input[k];
        for (int32_t i = 0; i < g->n_forward; i++)
            for (int32_t j = 0; j < g->ops[i].n_inputs; j++)
                if (i != op && g->ops[i].input[j] == t && g->tensors[t].role == TENSOR_PARAMETER)
                    return false;
    }
    return true;
}

/* A step of the operator on the device of this view. */
static int64_t view_ns(const struct spmd_case *c, const struct graph *v, int32_t device,
                       const struct graph_op *op)
{
    const char *part = arena_printf(arena, "%s.shard", op->name);
    int64_t ns = 0, updates = 0;
    for (int32_t i = 0; i < v->n_ops; i++) {
        const struct graph_op *x = &v->ops[i];
        const char *name = i < v->n_forward ? x->name : v->ops[x->forward].name;
        if (op_is_group(x->kind)) continue;
        if (strcmp(name, op->name) != 0 && strcmp(name, part) != 0) continue;
        ns += price(c, device, v, x);
        for (int32_t k = 0; k < x->n_inputs && i < v->n_forward; k++)
            if (v->tensors[x->input[k]].role == TENSOR_PARAMETER)
                updates += update_price(c, device, v, &v->tensors[x->input[k]]);
    }
    return ns * c->q.microbatches + updates;
}

static void check_rule(struct spmd_case *c, const struct spmd_meaning *m, int32_t op)
{
    struct sharding_rule rule = {.match = c->forward->ops[op].name, .choice = m->choice};
    c->s.operators = &rule, c->s.n_operators = 1;
    for (int32_t d = 0; d < c->s.n_devices; d++) {
        struct graph *v;
        spmd_case_must(
            shard_graph(arena, c->forward, &c->s, d, 0, c->forward->n_layers - 1, &v, &err), &err);
        spmd_case_must(gradient_build(v, 1, &err), &err);
        int64_t owed = view_ns(c, v, d, &c->forward->ops[op]);
        ck_assert_msg(m->device_ns[d] == owed, "%s by %s, %s, device %d: %ld, not %ld", rule.match,
                      op_index_name(m->choice.index[0]), op_index_name(m->choice.index[1]), (int)d,
                      (long)m->device_ns[d], (long)owed);
    }
}

START_TEST(views_are_priced)
{
    int32_t n_checked = 0;
    bool seen[INDEX_COUNT] = {false};
    for (uint64_t seed = 0; seed < (suites_long() ? 6 : 2); seed++) {
        uint64_t at = 0;
        int32_t n = 2 + (int32_t)roll(seed, &at, 3);
        double *ratios = ARENA_ARRAY(arena, double, (size_t)n);
        for (int32_t i = 0; i < n; i++) ratios[i] = (double)(1 + roll(seed, &at, 4));
        struct spmd_case *c = spmd_case_new(arena, models[_i],
                                            _i == 3   ? 65
                                            : _i == 4 ? 1
                                                      : 24,
                                            6, n, ratios, 1);
        if (n == 4 && seed % 2) c->s.n_axes = 2, c->s.mesh[0] = c->s.mesh[1] = 2;
        struct spmd_tables *t;
        spmd_case_must(spmd_tables_new(arena, &c->q, &t, &err), &err);
        for (int32_t k = t->n_entries; k < t->problem.n_ops; k++) {
            int32_t op = t->first_op + k - t->n_entries;
            for (int32_t r = 0; r < t->problem.ops[k].n_rules && stands_alone(c, op); r++) {
                const struct spmd_meaning *m = &t->meanings[t->problem.ops[k].rules[r].tag];
                bool partial =
                    m->choice.index[0] == INDEX_partial || m->choice.index[1] == INDEX_partial;
                if (partial || (!suites_long() && roll(seed, &at, 3))) continue;
                seen[m->choice.index[0]] = true;
                check_rule(c, m, op);
                n_checked++;
            }
        }
        arena_reset(arena);
    }
    ck_assert_int_gt(n_checked, 20);
    ck_assert(seen[INDEX_none] && seen[INDEX_batch] && (_i > 3 || seen[INDEX_positions]));
    ck_assert(_i != 4 || seen[INDEX_rows]);
}
END_TEST

Suite *spmd_prices_suite(void)
{
    Suite *s = suite_create("spmd_prices");
    TCase *t = tcase_create("spmd_prices");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, views_are_priced, 0, N_MODELS);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
