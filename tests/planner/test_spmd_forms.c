/* Collective algorithms of planner/spmd/spmd: the lowered plan of an answer uses the priced algorithms. */
#include "core/sharding/shard.h"

#include "tests/support/rounds.h"
#include "tests/support/spmd_cases.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *const models[] = {
    "{model_type: gpt2, activation_function: gelu_new, n_embd: 96, n_layer: 2, n_head: 6, "
    "n_positions: 64, vocab_size: 256, tie_word_embeddings: false}",
    "{model_type: llama, hidden_act: silu, hidden_size: 96, intermediate_size: 160, "
    "num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 256, "
    "max_position_embeddings: 64, rms_norm_eps: 1e-5, tie_word_embeddings: false}"};

struct dice {
    uint64_t seed, at;
};
static int64_t roll(struct dice *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 9, d->at++, (uint64_t)n);
}

/* The case's job on two nodes of n/2 devices, which share all of it so; through the plan's text. */
static struct plan plan_of(const struct spmd_case *c, const struct sharding *s, int32_t n)
{
    const char *devices = "", *list = "";
    struct plan p = {.name = "made", .steps = 1, .seed = 1, .job = c->job}, again;
    struct node *root;
    char *text = NULL;
    size_t size = 0;
    for (int32_t i = 0; i < n / 2; i++)
        list = arena_printf(arena, "%s%s{type: v}", list, i ? ", " : "");
    devices = arena_printf(
        arena,
        "version: 1\nname: two\ndevice_types: [{name: v, device: V100-SXM2-16}]\nnodes: [{name: a, "
        "host: a, devices: [%s]}, {name: b, host: b, devices: [%s]}]\nlinks: [{name: l, between: "
        "[a], bandwidth: 12 GB/s, latency: 1 us}, {name: m, between: [b], bandwidth: 12 GB/s, "
        "latency: 1 us}, {name: f, between: "
        "[a, b], bandwidth: 1 GB/s, latency: 9 us}]\n",
        list, list);
    spmd_case_must(document_parse(arena, "cluster", devices, strlen(devices), &root, &err), &err);
    spmd_case_must(cluster_parse(arena, root, &p.cluster, &err), &err);
    p.microbatch = p.job.global_batch, p.job.global_batch *= c->q.microbatches;
    struct plan_replica *r = ARENA_ARRAY(arena, struct plan_replica, 1);
    int32_t *all = ARENA_ARRAY(arena, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) all[i] = i;
    *r = (struct plan_replica){.microbatches = c->q.microbatches,
                               .n_stages = 1,
                               .stages = ARENA_ARRAY(arena, struct plan_stage, 1)};
    r->stages[0] = (struct plan_stage){.last_layer = c->training->n_layers - 1,
                                       .warmup = 1,
                                       .receive_ahead = 2,
                                       .n_shards = n,
                                       .devices = all,
                                       .sharding = s};
    p.replicas = r, p.n_replicas = 1;
    FILE *f = open_memstream(&text, &size);
    plan_write(f, arena, &p);
    fclose(f);
    const char *copy = arena_strndup(arena, text, size);
    free(text);
    spmd_case_must(document_parse(arena, "plan", copy, size, &root, &err), &err);
    spmd_case_must(plan_parse(arena, root, ".", &again, &err), &err);
    return again;
}

/* Messages that leave the sender's node, or come to the receiver's, while everybody sends to who stands k places on. */
static int64_t beside(const struct spmd_case *c, int32_t n, int32_t from, int32_t k)
{
    const int32_t *node = c->q.node;
    int64_t out = 0, in = 0;
    if (!node || node[from] == node[(from + k) % n]) return 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t to = (i + k) % n;
        if (node[i] == node[to]) continue;
        out += node[i] == node[from], in += node[to] == node[(from + k) % n];
    }
    return out > in ? out : in;
}

struct among { /* members in rounds, not in tiers */
    const struct spmd_case *c;
    const struct cost_link *hop; /* (n, n) */
    int32_t n;
};

static struct cost_link among_hop(const void *of, int32_t from, int32_t to)
{
    const struct among *x = of;
    return x->hop[from * x->n + to];
}

static int64_t among_beside(const void *of, int32_t from, int32_t to)
{
    const struct among *x = of;
    return beside(x->c, x->n, from, (to - from + x->n) % x->n);
}

/* A collective of a program; what leaves a node at once shares its link. */
static int64_t met_ns(const struct spmd_case *c, const struct program *p,
                      const struct collective *g)
{
    const struct collective *m = g;
    int64_t size = dtype_bytes(g->dtype), bytes[64] = {0};
    struct cost_link hop[64];
    for (int32_t i = 0; i < m->n_members; i++)
        for (int32_t k = 0; k < m->n_members; k++) {
            hop[i * m->n_members + k] = spmd_case_hop(c, p->stages[g->members[i].stage].device,
                                                      p->stages[g->members[k].stage].device);
            if (i != k)
                bytes[i * m->n_members + k] =
                    collective_elements(m, i, k) * size *
                    beside(c, m->n_members, i, (k - i + m->n_members) % m->n_members);
        }
    if (m->algorithm == ALGORITHM_RING)
        return collective_ring_ns(m->n_members, collective_steps(m), m->most * size, hop);
    if (m->algorithm == ALGORITHM_PAIRS) return collective_pairs_ns(m->n_members, bytes, hop);
    if (m->tier) return rounds_alone_ns(m, size, m->n_members / m->n_tiers, hop);
    const struct among x = {c, hop, m->n_members};
    const struct collective_hops hops = {among_hop, &x, among_beside};
    int64_t end[8] = {0}, next[8], last = 0;
    collective_rounds_ns(m, size, &hops, end, next);
    for (int32_t i = 0; i < m->n_members; i++) last = end[i] > last ? end[i] : last;
    return last;
}

/* Sums of parameters' gradients, once a step, from the views. */
static int64_t reduce_ns(const struct spmd_case *c, const struct sharding *s)
{
    struct cost_link hop[64];
    struct graph *g[8];
    int64_t sum = 0;
    int32_t n = s->n_devices;
    for (int32_t i = 0; i < n * n; i++) {
        hop[i] = spmd_case_hop(c, i / n, i % n);
        hop[i].latency_ns = 0; /* all parameters' sums are one collective */
    }
    for (int32_t d = 0; d < n; d++) {
        spmd_case_must(
            shard_graph(arena, c->forward, s, d, 0, c->forward->n_layers - 1, &g[d], &err), &err);
        spmd_case_must(gradient_build(g[d], 1, &err), &err);
    }
    for (int32_t t = 0; t < g[0]->n_tensors; t++) {
        if (g[0]->tensors[t].role != TENSOR_PARAMETER_GRADIENT || !g[0]->tensors[t].partial)
            continue;
        int64_t elements = shape_elements(&g[0]->tensors[t].shape);
        sum += collective_ring_ns(n, 2 * (n - 1), 4 * ((elements + n - 1) / n), hop);
    }
    return sum;
}

struct seen {
    int32_t plans, sufficient_factors, gathered, algorithm[COLLECTIVE_ALGORITHM_COUNT];
};

/* An answer of any rules, mostly of one index; false: no route from one to another. */
static bool draw_answer(struct dice *d, const struct spmd_case *c, struct spmd_answer *x)
{
    const struct spmd_tables *t = x->tables;
    enum op_index like = (enum op_index)roll(d, INDEX_partial);
    x->found.rule = ARENA_ARRAY(arena, int32_t, (size_t)t->problem.n_ops);
    x->choices = ARENA_ARRAY(arena, struct op_choice, (size_t)c->q.g->n_forward);
    x->sufficient_factors = ARENA_ARRAY(arena, bool, (size_t)c->q.g->n_forward);
    x->gathered = ARENA_ARRAY(arena, bool, (size_t)c->q.g->n_tensors);
    for (int32_t k = 0; k < t->problem.n_ops; k++) {
        const struct spmd_op *op = &t->problem.ops[k];
        const struct spmd_meaning *m = NULL;
        for (int tries = 0; tries < 30; tries++) {
            x->found.rule[k] = (int32_t)roll(d, op->n_rules);
            m = &t->meanings[op->rules[x->found.rule[k]].tag];
            bool plain = m->choice.index[0] != INDEX_partial;
            if (plain && (m->choice.index[0] == like || tries > 12)) break;
        }
        const struct graph_op *what = &c->q.g->ops[t->first_op + k];
        x->choices[t->first_op + k] = m->choice,
                                 x->sufficient_factors[t->first_op + k] = m->sufficient_factors;
        for (int32_t j = 0; j < what->n_inputs && m->gather; j++)
            if (c->q.g->tensors[what->input[j]].role == TENSOR_PARAMETER)
                x->gathered[what->input[j]] = c->q.g->tensors[what->input[j]].shape.rank > 1;
    }
    x->ns = spmd_cost(arena, &t->problem, x->found.rule, NULL);
    return x->ns < INT64_MAX;
}

/* What the answer costs is what the collectives of its plan's program take and the views sum. */
static void compare(const struct spmd_case *c, const struct spmd_answer *x, uint64_t seed,
                    struct seen *seen)
{
    const struct spmd_tables *t = x->tables;
    struct program p;
    struct sharding *s = spmd_sharding(arena, &c->q, x);
    int64_t computing = 0, collective = 0;
    for (int32_t k = 0; k < t->problem.n_ops; k++) {
        const struct spmd_rule *r = &t->problem.ops[k].rules[x->found.rule[k]];
        computing += r->ns - t->meanings[r->tag].join_ns;
        seen->sufficient_factors += t->meanings[r->tag].sufficient_factors;
        seen->gathered += t->meanings[r->tag].gather;
    }
    struct plan plan = plan_of(c, s, c->s.n_devices);
    struct lower_options o = {.n_fused = 0};
    ck_assert_msg(lower_plan(arena, &plan, &o, &p, &err) == OK, "case %d: %s", (int)seed, err.text);
    for (int32_t i = 0; i < p.n_collectives; i++) {
        if (!collective_of_tensor(&p.collectives[i])) continue;
        collective += met_ns(c, &p, &p.collectives[i]);
        seen->algorithm[p.collectives[i].algorithm]++;
    }
    collective = collective * c->q.microbatches + reduce_ns(c, s);
    ck_assert_msg(x->ns - computing == collective, "case %d: %ld, not %ld in\n%s", (int)seed,
                  (long)(x->ns - computing), (long)collective, sharding_write(arena, s, 2));
    seen->plans++;
}

static void try_case(uint64_t seed, struct seen *seen)
{
    struct dice dice = {seed, 0}, *d = &dice;
    int32_t n = 4 + 2 * (int32_t)roll(d, 2);
    double *ratios = ARENA_ARRAY(arena, double, n);
    int32_t node[8];
    bool even = roll(d, 2), few = roll(d, 2);
    for (int32_t i = 0; i < n; i++)
        ratios[i] = even ? 1 : (double)(1 + roll(d, 4)), node[i] = i >= n / 2;
    struct spmd_case *c =
        spmd_case_new(arena, models[seed % 2], few ? 2 : 16, few ? 2 : 12, n, ratios, 1);
    struct spmd_answer x;
    c->q.gather = roll(d, 2), c->q.sufficient_factors = true, c->q.node = node;
    int64_t set = 1 + roll(d, (1 << rounds_algorithms()) - 1);
    c->q.algorithms = 0;
    for (int32_t i = 0; i < rounds_algorithms(); i++)
        if (set >> i & 1) c->q.algorithms |= 1U << rounds_algorithm(i);
    c->near.bandwidth_Bps = 1e9 * (double)(1 + roll(d, 20));
    c->far.bandwidth_Bps = 1e8 * (double)(1 + roll(d, 40));
    spmd_case_must(spmd_best(arena, &c->q, &x, &err), &err);
    if (x.ns < INT64_MAX) compare(c, &x, seed, seen);
    for (int k = 0; k < 2; k++)
        if (draw_answer(d, c, &x)) compare(c, &x, seed, seen);
}

START_TEST(the_answers_plan_uses_the_algorithms_that_were_priced)
{
    struct seen seen = {0};
    for (uint64_t seed = 0; seed < (suites_long() ? 600 : 48); seed++) {
        try_case(seed, &seen);
        arena_reset(arena);
    }
    ck_assert_int_gt(seen.plans, suites_long() ? 600 : 20);
    ck_assert_int_gt(seen.sufficient_factors, 5);
    ck_assert_int_gt(seen.gathered, 5);
    for (int32_t w = 0; w < rounds_algorithms(); w++)
        ck_assert_int_gt(seen.algorithm[rounds_algorithm(w)], 10);
}
END_TEST

/* By traffic sufficient factors win while T·(I + O) < 2·I·O: of 96 to 384 features, T rows below 153.6. */
START_TEST(factors_win_on_traffic_below_the_rows_of_the_closed_form)
{
    static const double even[4] = {1, 1, 1, 1};
    for (int64_t length = 37; length <= 40; length++) {
        struct spmd_case *c = spmd_case_new(arena, models[0], length, 4, 4, even, 1);
        struct spmd_tables *t;
        int64_t ns[2] = {0, 0};
        c->near = c->far = (struct cost_link){1e9, 0, NULL};
        c->q.sufficient_factors = true, c->q.microbatches = 1;
        spmd_case_must(spmd_tables_new(arena, &c->q, &t, &err), &err);
        for (int32_t k = 0; k < t->problem.n_ops; k++) {
            if (strcmp(c->forward->ops[t->first_op + k].name, "h.0.mlp.c_fc") != 0) continue;
            for (int32_t r = 0; r < t->problem.ops[k].n_rules; r++) {
                const struct spmd_meaning *m = &t->meanings[t->problem.ops[k].rules[r].tag];
                if (m->choice.index[0] == INDEX_batch) ns[m->sufficient_factors] = m->join_ns;
            }
        }
        ck_assert_int_eq(ns[0], 2 * 3 * 96 * 384 / 4 * 4);
        ck_assert_int_eq(ns[1], 3 * length * (96 + 384) * 4);
        ck_assert((ns[1] < ns[0]) == (4 * length * (96 + 384) < 2 * 96 * 384));
    }
}
END_TEST

Suite *spmd_forms_suite(void)
{
    Suite *s = suite_create("spmd_forms");
    TCase *c = tcase_create("spmd_forms");
    const TTest *tests[] = {the_answers_plan_uses_the_algorithms_that_were_priced,
                            factors_win_on_traffic_below_the_rows_of_the_closed_form};
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
