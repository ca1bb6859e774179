/* The best sharded program: its costs against those of core/sharding/shard's views of the same choices, and cases with known
 * optima. */
#include "core/sharding/shard.h"
#include "planner/spmd/spmd.h"
#include "sim/collective/cost.h"

#include "sim/collective/rounds.h"
#include "tests/support/spmd_cases.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char gpt2[] =
    "{model_type: gpt2, n_embd: 256, n_layer: 2, n_head: 4, n_positions: 64, "
    "vocab_size: 512, tie_word_embeddings: false}";
static const char llama[] =
    "{model_type: llama, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2, "
    "num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 512, max_position_embeddings: 64, "
    "rms_norm_eps: 1e-5, tie_word_embeddings: false}";

static const char mixtral[] =
    "{model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, num_local_experts: 4, "
    "num_experts_per_tok: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5}";
static const char vit[] =
    "{model_type: vit, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, "
    "intermediate_size: 48, layer_norm_eps: 1e-6, image_size: 12, patch_size: 4, num_channels: 3, "
    "id2label: {'0': a, '1': b, '2': c, '3': d}}";

struct dice {
    uint64_t seed, at;
};
static int64_t roll(struct dice *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 5, d->at++, (uint64_t)n);
}

/* --- steps against the simulator's closed forms --- */

struct hops {
    int32_t n;
    const struct cost_link *hop;
};
static struct cost_link hop_of(const void *of, int32_t from, int32_t to)
{
    const struct hops *h = of;
    return h->hop[from * h->n + to];
}

START_TEST(rings_and_pairs_take_what_the_simulator_says)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct dice dice = {seed, 0}, *d = &dice;
        int32_t n = 2 + (int32_t)roll(d, 7);
        struct cost_link hop[64];
        for (int32_t i = 0; i < n * n; i++)
            hop[i] = (struct cost_link){1e9 * (1 + (double)roll(d, 9)), roll(d, 40000), NULL};
        struct collective_case c = {
            COLLECTIVE_ALL_REDUCE, ALGORITHM_RING, n, n * (1 + roll(d, 100000)), 4, NULL, NULL, 0};
        struct collective_hops h = {.hop = hop_of, .of = &(struct hops){n, hop}};
        int64_t ns;
        spmd_case_must(collective_ns(&c, &h, NULL, NULL, &ns, &err), &err);
        ck_assert_int_eq(ns, collective_ring_ns(n, 2 * (n - 1), c.elements / n * 4, hop));
        int64_t shards[8], largest = 0, bytes[64] = {0};
        c.elements = 0;
        for (int32_t i = 0; i < n; i++) {
            shards[i] = roll(d, 100000) + 1, c.elements += shards[i];
            largest = shards[i] > largest ? shards[i] : largest;
        }
        c.kind = COLLECTIVE_ALL_GATHER, c.algorithm = ALGORITHM_PADDED, c.shards = shards;
        spmd_case_must(collective_ns(&c, &h, NULL, NULL, &ns, &err), &err);
        ck_assert_int_eq(ns, collective_ring_ns(n, n - 1, largest * 4, hop));
        int64_t each = 1 + roll(d, 100000);
        for (int32_t i = 0; i < n * n; i++) bytes[i] = 4 * each;
        c = (struct collective_case){
            COLLECTIVE_ALL_TO_ALL, ALGORITHM_PAIRS, n, n * each, 4, NULL, NULL, 0};
        spmd_case_must(collective_ns(&c, &h, NULL, NULL, &ns, &err), &err);
        ck_assert_int_eq(ns, collective_pairs_ns(n, bytes, hop));
    }
}
END_TEST

/* Two nodes of two: 8 MB round one ring of four is six steps of 2 MB over the slow hop, 12 ms. In tiers: two steps of 4 MB
 * inside, 0.8 ms; two steps between, in which both members send 2 MB over their node's link, 8 ms. */
START_TEST(reduces_in_tiers_are_taken_where_they_pay)
{
    double even[4] = {1, 1, 1, 1};
    struct sharding s = {
        .n_devices = 4, .n_axes = 1, .mesh = {4, 1}, .n_ratios = 1, .ratios = even};
    struct cost_link hop[16];
    static const int32_t node[4] = {0, 0, 1, 1}, odd[4] = {0, 1, 1, 1};
    for (int32_t i = 0; i < 16; i++)
        hop[i] = (struct cost_link){i / 4 / 2 == i % 4 / 2 ? 10e9 : 1e9, 0, NULL};
    struct hops h = {4, hop};
    struct shape whole = {.rank = 1, .dim = {2000000}};
    int64_t ring, tiers, uneven;
    struct spmd_price *y =
        spmd_price_new(arena, &s, hop_of, &h, 1U << ALGORITHM_RING, node, NULL, NULL);
    spmd_case_must(spmd_reduce_ns(y, &whole, 4, 0, 0, &ring, &err), &err);
    y = spmd_price_new(arena, &s, hop_of, &h, 1U << ALGORITHM_RING | 1U << ALGORITHM_HIERARCHICAL,
                       node, NULL, NULL);
    spmd_case_must(spmd_reduce_ns(y, &whole, 4, 0, 0, &tiers, &err), &err);
    y = spmd_price_new(arena, &s, hop_of, &h, 1U << ALGORITHM_RING | 1U << ALGORITHM_HIERARCHICAL,
                       odd, NULL, NULL);
    spmd_case_must(spmd_reduce_ns(y, &whole, 4, 0, 0, &uneven, &err), &err);
    ck_assert_int_eq(ring, 12000000);
    ck_assert_int_eq(tiers, 8800000);
    ck_assert_int_eq(uneven, ring);
}
END_TEST

/* --- what must be found --- */

static bool all_sharded_by(const struct spmd_case *c, const struct spmd_answer *x,
                           enum op_index index)
{
    for (int32_t i = 0; i < c->forward->n_forward; i++)
        if (x->choices[i].index[0] != index) return false;
    return true;
}

/* Many rows, small parameters: by batch everywhere, whatever else there is. And no preset that is a sharding is cheaper. */
START_TEST(no_uniform_split_is_cheaper_than_the_found_one)
{
    static const enum op_index presets[] = {INDEX_none, INDEX_batch, INDEX_positions,
                                            INDEX_features, INDEX_heads};
    double ratios[4] = {2, 2, 1, 1};
    for (int m = 0; m < 2; m++) {
        struct spmd_case *c = spmd_case_new(arena, m ? llama : gpt2, 32, 8, 4, ratios, 1);
        struct spmd_answer x;
        spmd_case_must(spmd_best(arena, &c->q, &x, &err), &err);
        const struct grain *grains = graph_grains(arena, c->forward);
        for (int k = 0; k < 5; k++) {
            struct op_choice *all = ARENA_ARRAY(arena, struct op_choice, c->forward->n_forward);
            for (int32_t i = 0; i < c->forward->n_forward; i++) {
                enum op_index meant =
                    op_index_meant(c->forward, &c->forward->ops[i], grains, presets[k]);
                all[i].index[0] = meant == INDEX_COUNT ? INDEX_none : meant;
            }
            int64_t ns = spmd_choices_ns(arena, x.tables, &c->q, all, NULL, NULL);
            ck_assert_int_ge(ns, x.ns);
        }
        ck_assert_int_eq(spmd_choices_ns(arena, x.tables, &c->q, x.choices, x.gathered, NULL),
                         x.ns);
    }
    struct spmd_case *c = spmd_case_new(arena, gpt2, 64, 1024, 4, ratios, 1);
    struct spmd_answer x;
    spmd_case_must(spmd_best(arena, &c->q, &x, &err), &err);
    ck_assert(all_sharded_by(c, &x, INDEX_batch));
}
END_TEST

/* A parameter that the embedding and the logits both read has one placement. A parameter with one reader may stay sharded. */
START_TEST(what_several_operators_read_is_never_gathered_for_one_of_them)
{
    static const char tied[] = "{model_type: gpt2, n_embd: 64, n_layer: 1, n_head: 4, n_positions: "
                               "64, vocab_size: 512, tie_word_embeddings: true}";
    double ratios[4] = {1, 1, 1, 1};
    struct spmd_case *c = spmd_case_new(arena, tied, 16, 8, 4, ratios, 1);
    const struct graph *g = c->training;
    int32_t *readers = ARENA_ARRAY(arena, int32_t, g->n_tensors), own = 0, shared = 0;
    struct spmd_answer x;
    c->q.gather = true;
    spmd_case_must(spmd_best(arena, &c->q, &x, &err), &err);
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) readers[g->ops[i].input[k]]++;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER || g->tensors[t].shape.rank < 2) continue;
        struct op_choice *batch = ARENA_ARRAY(arena, struct op_choice, g->n_forward);
        bool *gathered = ARENA_ARRAY(arena, bool, g->n_tensors);
        for (int32_t i = 0; i < g->n_forward; i++) batch[i].index[0] = INDEX_batch;
        gathered[t] = true;
        int64_t ns = spmd_choices_ns(arena, x.tables, &c->q, batch, gathered, NULL);
        ck_assert_msg((ns < INT64_MAX) == (readers[t] == 1), "%s", g->tensors[t].name);
        ck_assert(readers[t] == 1 || !x.gathered[t]);
        own += readers[t] == 1, shared += readers[t] > 1;
    }
    ck_assert_int_ge(own, 4);
    ck_assert_int_eq(shared, 1);
}
END_TEST

/* Operators with sufficient factors in the best program of those that divide the batch alone. */
static int32_t factors_by_batch(const struct spmd_tables *t)
{
    struct spmd_problem p = t->problem;
    struct spmd_op *ops = arena_copy(arena, p.ops, (size_t)p.n_ops * sizeof *ops);
    struct spmd_found found;
    int32_t n = 0;
    for (int32_t k = 0; k < p.n_ops; k++) {
        struct spmd_rule *r = ARENA_ARRAY(arena, struct spmd_rule, (size_t)ops[k].n_rules);
        int32_t kept = 0;
        for (int32_t i = 0; i < ops[k].n_rules; i++)
            if (t->meanings[ops[k].rules[i].tag].choice.index[0] == INDEX_batch)
                r[kept++] = ops[k].rules[i];
        if (kept) ops[k].rules = r, ops[k].n_rules = kept;
    }
    p.ops = ops;
    spmd_case_must(spmd_search(arena, &p, NULL, &found, &err), &err);
    ck_assert_int_lt(found.ns, INT64_MAX);
    for (int32_t k = 0; k < p.n_ops; k++)
        n += t->meanings[ops[k].rules[found.rule[k]].tag].sufficient_factors;
    return n;
}

/* Gathering x and dy in place of summing dW pays while T·(I + O) < 2·I·O by traffic, T the rows of all: 4 do, 16,384 do not. */
START_TEST(sufficient_factors_pay_for_few_rows)
{
    double even[4] = {1, 1, 1, 1};
    for (int many = 0; many < 2; many++) {
        struct spmd_case *c = spmd_case_new(arena, gpt2, many ? 64 : 1, many ? 256 : 4, 4, even, 1);
        struct spmd_answer with, without;
        struct spmd_tables *t;
        int64_t ns[2] = {0, 0};
        c->near = c->far = (struct cost_link){1e9, 1000, NULL};
        c->q.microbatches = 1;
        spmd_case_must(spmd_best(arena, &c->q, &without, &err), &err);
        c->q.sufficient_factors = true;
        spmd_case_must(spmd_best(arena, &c->q, &with, &err), &err);
        ck_assert_int_le(with.ns, without.ns);
        spmd_case_must(spmd_tables_new(arena, &c->q, &t, &err), &err);
        for (int32_t k = 0; k < t->problem.n_ops; k++) {
            if (strcmp(c->forward->ops[t->first_op + k].name, "h.0.mlp.c_fc") != 0) continue;
            for (int32_t r = 0; r < t->problem.ops[k].n_rules; r++) {
                const struct spmd_meaning *m = &t->meanings[t->problem.ops[k].rules[r].tag];
                if (m->choice.index[0] == INDEX_batch && !m->gather)
                    ns[m->sufficient_factors] = t->problem.ops[k].rules[r].ns;
            }
        }
        ck_assert(ns[0] > 0 && ns[1] > 0);
        ck_assert(many ? ns[1] > ns[0] : ns[1] < ns[0]);
        ck_assert((factors_by_batch(t) > 0) == !many);
        for (int32_t i = 0; i < c->forward->n_forward && many; i++)
            ck_assert(!with.sufficient_factors[i]);
    }
}
END_TEST

/* A stage in the middle: what comes in and what leaves is replicated or sharded by batch, and stages cost what the model does. */
START_TEST(stages_in_a_row_cost_no_less_than_the_model)
{
    double ratios[4] = {2, 2, 1, 1};
    struct spmd_case *c = spmd_case_new(arena, llama, 32, 8, 4, ratios, 1);
    struct spmd_answer whole, part;
    int64_t sum = 0;
    spmd_case_must(spmd_best(arena, &c->q, &whole, &err), &err);
    int32_t n = c->training->n_layers;
    for (int32_t k = 0; k < 2; k++) {
        c->q.first_layer = k ? n / 2 : 0, c->q.last_layer = k ? n - 1 : n / 2 - 1;
        spmd_case_must(spmd_best(arena, &c->q, &part, &err), &err);
        ck_assert_int_lt(part.ns, whole.ns);
        sum += part.ns;
    }
    ck_assert_int_ge(sum, whole.ns - 1);
    c->q.first_layer = 3, c->q.last_layer = 2;
    ck_assert_int_eq(spmd_best(arena, &c->q, &part, &err), ERR_INPUT);
}
END_TEST

/* --- prices against views --- */

struct views {
    const struct spmd_case *c;
    struct graph *g[8];
};

/* Elements that divisions i of `from` and k of `to` have in common, for operands without parts (gradients). */
static int64_t shared_runs(const struct exchange *e, const struct shape *in, int32_t i, int32_t k)
{
    int64_t others = 1;
    for (int32_t d = 0; d < in->rank; d++)
        if (d != e->dim && d != e->to_dim) others *= in->dim[d];
    if (e->dim != e->to_dim)
        return others * division_extent(e->shards, i) * division_extent(e->to, k);
    int64_t both = 0;
    for (int32_t a = 0; a < e->shards->n_runs; a++)
        for (int32_t b = 0; b < e->to->n_runs; b++) {
            struct run x = e->shards->run[i * e->shards->n_runs + a],
                       y = e->to->run[k * e->to->n_runs + b];
            int64_t first = x.first > y.first ? x.first : y.first;
            int64_t end = x.first + x.n < y.first + y.n ? x.first + x.n : y.first + y.n;
            both += end > first ? end - first : 0;
        }
    return others * both;
}

/* One collective of all groups: the slowest. */
static int64_t tensor_collective_ns(const struct views *v, int32_t op)
{
    int64_t slowest = 0;
    for (int32_t d = 0; d < v->c->s.n_devices; d++) {
        const struct graph_op *x = &v->g[d]->ops[op];
        const struct exchange *e = x->attrs.exchange;
        int64_t largest = 0, bytes[64] = {0}, ns = 0;
        struct cost_link hop[64];
        if (e->n < 2) continue;
        for (int32_t i = 0; i < e->n; i++) {
            const struct graph *g = v->g[e->member[i]];
            const struct graph_op *y = &g->ops[op];
            const struct shape *in = &g->tensors[y->input[0]].shape,
                               *out = &g->tensors[y->output[0]].shape;
            int64_t mine = x->kind == OP_group_all_gather ? shape_elements(in)
                           : x->kind == OP_group_reduce_scatter
                               ? shape_elements(out)
                               : (shape_elements(in) + e->n - 1) / e->n;
            largest = mine > largest ? mine : largest;
            for (int32_t k = 0; k < e->n; k++) {
                hop[i * e->n + k] = spmd_case_hop(v->c, e->member[i], e->member[k]);
                if (x->kind == OP_group_all_to_all && i != k)
                    bytes[i * e->n + k] = 4 * shared_runs(e, in, i, k);
            }
        }
        if (x->kind == OP_group_all_to_all)
            ns = collective_pairs_ns(e->n, bytes, hop);
        else
            ns = collective_ring_ns(e->n, (x->kind == OP_group_all_reduce ? 2 : 1) * (e->n - 1),
                                    4 * largest, hop);
        slowest = ns > slowest ? ns : slowest;
    }
    return slowest;
}

/* Sums of parameters' gradients, once a step. */
static int64_t parameters_ns(const struct views *v)
{
    int64_t sum = 0;
    const struct graph *g = v->g[0];
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER_GRADIENT) continue;
        bool all = g->tensors[t].partial == 3; /* one ring */
        for (int32_t x = 0; x < (all ? 1 : v->c->s.n_axes); x++) {
            int64_t slowest = 0;
            if (!all && !(g->tensors[t].partial >> x & 1)) continue;
            for (int32_t d = 0; d < v->c->s.n_devices; d++) {
                int32_t member[8], n = all ? v->c->s.n_devices : v->c->s.mesh[x];
                struct cost_link hop[64];
                sharding_group(&v->c->s, d, x, member);
                for (int32_t i = 0; i < n && all; i++) member[i] = i;
                for (int32_t i = 0; i < n * n; i++) {
                    hop[i] = i / n == i % n ? (struct cost_link){0}
                                            : spmd_case_hop(v->c, member[i / n], member[i % n]);
                    hop[i].latency_ns = 0; /* all parameters' sums are one collective */
                }
                int64_t elements = shape_elements(&v->g[d]->tensors[t].shape);
                int64_t ns = collective_ring_ns(n, 2 * (n - 1), 4 * ((elements + n - 1) / n), hop);
                slowest = ns > slowest ? ns : slowest;
            }
            sum += slowest;
        }
    }
    return sum;
}

/* The choices of rules, as a sharding. */
static void say(struct spmd_case *c, const struct spmd_tables *t, const int32_t *rule,
                bool *sufficient_factors)
{
    struct sharding_rule *rules = ARENA_ARRAY(arena, struct sharding_rule, t->problem.n_ops);
    struct sharding_rule *kept = ARENA_ARRAY(arena, struct sharding_rule, t->problem.n_ops);
    c->s.n_operators = 0, c->s.n_parameters = 0, *sufficient_factors = false;
    for (int32_t k = 0; k < t->problem.n_ops; k++) {
        const struct spmd_meaning *m = &t->meanings[t->problem.ops[k].rules[rule[k]].tag];
        const struct graph_op *op = &c->forward->ops[t->first_op + k];
        rules[c->s.n_operators++] = (struct sharding_rule){.match = op->name, .choice = m->choice};
        for (int32_t j = 0; j < op->n_inputs && m->gather; j++)
            if (c->forward->tensors[op->input[j]].role == TENSOR_PARAMETER &&
                c->forward->tensors[op->input[j]].shape.rank > 1)
                kept[c->s.n_parameters++] = (struct sharding_rule){
                    .match = c->forward->tensors[op->input[j]].name, .sharded = true};
    }
    c->s.operators = rules, c->s.parameters = kept;
}

static int64_t view_collectives(struct spmd_case *c)
{
    struct views v = {.c = c};
    int64_t sum = 0;
    for (int32_t d = 0; d < c->s.n_devices; d++) {
        spmd_case_must(
            shard_graph(arena, c->forward, &c->s, d, 0, c->forward->n_layers - 1, &v.g[d], &err),
            &err);
        spmd_case_must(gradient_build(v.g[d], 1, &err), &err);
    }
    for (int32_t i = 0; i < v.g[0]->n_ops; i++)
        if (op_is_group(v.g[0]->ops[i].kind)) sum += tensor_collective_ns(&v, i);
    return sum * c->q.microbatches + parameters_ns(&v);
}

static double *random_ratios(struct dice *d, int32_t n)
{
    double *r = ARENA_ARRAY(arena, double, n);
    for (int32_t i = 0; i < n; i++) r[i] = (double)(1 + roll(d, 4));
    return r;
}

/* Collectives of random choices: to the nanosecond what the views' collectives take. */
static void compare_with_views(uint64_t seed, const char *model, int32_t *compared)
{
    struct dice dice = {seed, 0}, *d = &dice;
    int32_t n = 2 + (int32_t)roll(d, 3), n_ratios = 1 + (int32_t)roll(d, 2);
    bool mesh = roll(d, 3) == 0;
    if (mesh) n = 4;
    struct spmd_case *c = spmd_case_new(arena, model, model == vit ? 10 : 16, 8, n,
                                        random_ratios(d, n * n_ratios), n_ratios);
    if (mesh) c->s.n_axes = 2, c->s.mesh[0] = c->s.mesh[1] = 2;
    c->q.gather = true;
    struct spmd_tables *t;
    spmd_case_must(spmd_tables_new(arena, &c->q, &t, &err), &err);
    for (int round = 0; round < 6; round++) {
        int32_t *rule = ARENA_ARRAY(arena, int32_t, t->problem.n_ops);
        int64_t computing = 0;
        bool sufficient_factors;
        for (int32_t k = 0; k < t->problem.n_ops;
             k++) { /* partial values only where they come from */
            const struct spmd_op *op = &t->problem.ops[k];
            bool partial = true;
            for (int tries = 0; tries < 20 && partial; tries++) {
                rule[k] = (int32_t)roll(d, op->n_rules);
                const struct op_choice *x = &t->meanings[op->rules[rule[k]].tag].choice;
                partial = x->index[0] == INDEX_partial || x->index[1] == INDEX_partial;
                partial = partial && roll(d, 20) > 0;
            }
        }
        for (int32_t k = 0; k < t->problem.n_ops; k++) {
            const struct spmd_rule *r = &t->problem.ops[k].rules[rule[k]];
            computing += r->ns - t->meanings[r->tag].join_ns;
        }
        int64_t ns = spmd_cost(arena, &t->problem, rule, NULL);
        if (ns == INT64_MAX) continue;
        say(c, t, rule, &sufficient_factors);
        int64_t owed = view_collectives(c);
        ck_assert_msg(ns - computing == owed, "case %d: %ld, not %ld", (int)seed,
                      (long)(ns - computing), (long)owed);
        ++*compared;
    }
}

START_TEST(collectives_of_random_choices_cost_what_the_views_of_them_owe)
{
    int32_t compared = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 300 : 12); seed++) {
        static const char *const models[] = {gpt2, llama, mixtral, vit};
        compare_with_views(seed, models[seed % 4], &compared);
        arena_reset(arena);
    }
    ck_assert_int_gt(compared, suites_long() ? 200 : 10);
}
END_TEST

Suite *spmd_suite(void)
{
    Suite *s = suite_create("spmd");
    TCase *t = tcase_create("spmd");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rings_and_pairs_take_what_the_simulator_says);
    tcase_add_test(t, reduces_in_tiers_are_taken_where_they_pay);
    tcase_add_test(t, what_several_operators_read_is_never_gathered_for_one_of_them);
    tcase_add_test(t, no_uniform_split_is_cheaper_than_the_found_one);
    tcase_add_test(t, sufficient_factors_pay_for_few_rows);
    tcase_add_test(t, stages_in_a_row_cost_no_less_than_the_model);
    tcase_add_test(t, collectives_of_random_choices_cost_what_the_views_of_them_owe);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
