/* Ratios: the linear program against its closed form and against grids, and the alternation of search and linear program. */
#include "planner/spmd/ratio.h"

#include "tests/support/closed_ratios.h"
#include "tests/support/spmd_cases.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static double uniform(uint64_t seed, uint64_t at) { return rng_uniform(seed, 3, at); }

/* One block of `work` and one collective of `traffic`, by speeds. */
static struct ratio_problem simple(int32_t n, const double *speed, double work, double traffic)
{
    double *slope = ARENA_ARRAY(arena, double, n), *fixed = ARENA_ARRAY(arena, double, n);
    double *weight = ARENA_ARRAY(arena, double, 1);
    struct ratio_tier *tier = ARENA_ARRAY(arena, struct ratio_tier, 1);
    struct ratio_collective *collective = ARENA_ARRAY(arena, struct ratio_collective, 1);
    for (int32_t k = 0; k < n; k++) slope[k] = work / speed[k];
    *weight = 1, tier->beta_ns = traffic;
    *collective = (struct ratio_collective){.n_tiers = 1, .tiers = tier, .weight = 1};
    return (struct ratio_problem){.n_devices = n,
                                  .n_vectors = 1,
                                  .n_blocks = 1,
                                  .n_collectives = 1,
                                  .weight = weight,
                                  .fixed_ns = fixed,
                                  .slope_ns = slope,
                                  .collectives = collective};
}

START_TEST(the_linear_program_is_the_closed_form_where_that_holds)
{
    int32_t even = 0, proportional = 0, between = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 300); seed++) {
        int32_t n = 2 + (int32_t)(seed % 7);
        double speed[8], ratios[8], closed[8], ns, low = INFINITY, high = 0;
        for (int32_t k = 0; k < n; k++) speed[k] = 1 + floor(4 * uniform(seed, (uint64_t)k));
        double work = 1e6 * (1 + uniform(seed, 20)),
               traffic = work * pow(10, 2 * uniform(seed, 21) - 1.5) / n;
        struct ratio_problem p = simple(n, speed, work, traffic);
        spmd_case_must(ratio_solve(arena, &p, ratios, &ns, &err), &err);
        double best = closed_ratios(n, speed, work, traffic, closed);
        ck_assert_double_eq_tol(ns / best, 1, 1e-9);
        ck_assert_double_eq_tol(ratio_ns(&p, closed) / best, 1, 1e-9);
        for (int32_t k = 0; k < n; k++) {
            low = fmin(low, closed[k] / speed[k]), high = fmax(high, closed[k]);
        }
        even += fabs(high * n - 1) < 1e-9;
        bool all = true;
        for (int32_t k = 0; k < n; k++) all = all && fabs(closed[k] / speed[k] - low) < 1e-9;
        proportional += all, between += !all && fabs(high * n - 1) > 1e-9;
        arena_reset(arena);
    }
    ck_assert(even > 10 && proportional > 10 && between > 3);
}
END_TEST

/* Latencies, two tiers, memory and two vectors: against a fine grid of two devices. */
START_TEST(the_linear_program_is_no_worse_than_any_grid_point)
{
    int32_t bound = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 400 : 60); seed++) {
        double fixed[6], slope[12], weight[3] = {1, 2, 3}, ratios[4], ns, best = INFINITY;
        double bytes[2], grow[4], cap[2];
        for (int k = 0; k < 6; k++) fixed[k] = 1e3 * uniform(seed, (uint64_t)k);
        for (int k = 0; k < 12; k++) slope[k] = 1e4 * uniform(seed, 10 + (uint64_t)k);
        struct ratio_tier tiers[2] = {{9e2 * uniform(seed, 30), 1e4},
                                      {5e3 * uniform(seed, 31), 2e3}};
        struct ratio_collective collectives[2] = {{0, 2, tiers, 1}, {1, 1, tiers, .5}};
        for (int k = 0; k < 2; k++)
            bytes[k] = 10, cap[k] = 30 + 40 * uniform(seed, 40 + (uint64_t)k);
        for (int k = 0; k < 4; k++) grow[k] = 40 * uniform(seed, 50 + (uint64_t)k);
        struct ratio_problem p = {2,        2, 3,     2,    weight, fixed, slope,
                                  collectives, 7, bytes, grow, cap,    0};
        spmd_case_must(ratio_solve(arena, &p, ratios, &ns, &err), &err);
        double free_ns;
        struct ratio_problem unbound = p;
        unbound.fixed_bytes = NULL;
        double others[4];
        spmd_case_must(ratio_solve(arena, &unbound, others, &free_ns, &err), &err);
        for (int i = 0; i <= 100; i++)
            for (int j = 0; j <= 100; j++) {
                double r[4] = {i / 100., 1 - i / 100., j / 100., 1 - j / 100.};
                bool fits = true;
                for (int k = 0; k < 2; k++)
                    fits = fits && bytes[k] + grow[k] * r[k] + grow[2 + k] * r[2 + k] <= cap[k];
                if (fits) best = fmin(best, ratio_ns(&p, r));
            }
        ck_assert_double_le(ns, best * (1 + 1e-9));
        if (best < INFINITY) ck_assert_double_ge(ns, best * .97);
        for (int k = 0; k < 2 && ns < INFINITY; k++)
            ck_assert_double_le(bytes[k] + grow[k] * ratios[k] + grow[2 + k] * ratios[2 + k],
                                cap[k] * (1 + 1e-9));
        bound += ns > free_ns * (1 + 1e-9);
        arena_reset(arena);
    }
    ck_assert_int_gt(bound, 5);
}
END_TEST

/* HAP's columns end at one second: a step that takes longer is shared wrongly there (5.19 s become 21.29). */
START_TEST(a_step_may_take_longer_than_a_second)
{
    double speed[4] = {3858755112937e-9, 3858755112937e-9, 2149250936815e-9, 2149250936815e-9},
           ratios[4], ns;
    double work = 21.29e9 * (2 * speed[0] + 2 * speed[2]);
    struct ratio_problem p = simple(4, speed, work, 0);
    spmd_case_must(ratio_solve(arena, &p, ratios, &ns, &err), &err);
    ck_assert_double_eq_tol(ns, 21.29e9, 1);
    ck_assert_double_eq_tol(ratios[0], speed[0] / (2 * speed[0] + 2 * speed[2]), 1e-9);
}
END_TEST

static const char gpt2[] =
    "{model_type: gpt2, n_embd: 256, n_layer: 1, n_head: 4, n_positions: 64, "
    "vocab_size: 512}";

/* Everything that ratios of sixteen rows on two devices can be. */
START_TEST(turns_end_where_a_grid_of_ratios_ends)
{
    for (int c = 0; c < (suites_long() ? 6 : 2); c++) {
        double start[2] = {1, 1}, best = INFINITY, *r = ARENA_ARRAY(arena, double, 2);
        struct spmd_case *x = spmd_case_new(arena, gpt2, 64, 16, 2, start, 1);
        x->far = (struct cost_link){c % 3 ? 1e9 * (1 + 5 * c) : 1e11, c % 2 ? 1000 : 50000, NULL};
        struct ratio_best turns;
        spmd_case_must(ratio_alternate(arena, &x->q, &turns, &err), &err);
        x->s.ratios = r;
        for (int k = 0; k <= 32; k++) {
            struct spmd_answer y;
            r[0] = k / 32., r[1] = 1 - k / 32.;
            spmd_case_must(spmd_best(arena, &x->q, &y, &err), &err);
            best = fmin(best, (double)y.ns);
        }
        ck_assert_double_le((double)turns.answer.ns, best * 1.02);
        ck_assert_double_le((double)turns.answer.ns, turns.first_ns);
        arena_reset(arena);
    }
}
END_TEST

/* What is given back is the pair that was best, priced again to the nanosecond: HAP emits the last round's ratios. */
START_TEST(the_best_pair_is_given_and_costs_what_it_says)
{
    for (int c = 0; c < 3; c++) {
        double start[8] = {9, 1, 1, 1, 1, 2, 3, 4};
        struct spmd_case *x = spmd_case_new(arena, gpt2, 32, 8, 4, start, 1 + c % 2);
        struct ratio_best turns;
        struct spmd_tables *t;
        spmd_case_must(ratio_alternate(arena, &x->q, &turns, &err), &err);
        struct spmd_question q = x->q;
        q.s = turns.sharding;
        spmd_case_must(spmd_tables_new(arena, &q, &t, &err), &err);
        const struct op_choice *choices;
        const bool *gathered;
        spmd_case_must(sharding_resolve(arena, turns.sharding, x->forward, &choices, &gathered, &err),
                  &err);
        ck_assert_int_eq(spmd_choices_ns(arena, t, &q, choices, gathered, NULL), turns.answer.ns);
        ck_assert_double_le((double)turns.answer.ns, turns.first_ns);
        arena_reset(arena);
    }
}
END_TEST

/* Where segments of different ratios meet, what crosses is dealt out anew, forward and back, and that is paid for. */
START_TEST(segments_of_different_ratios_pay_for_dealing_out_anew)
{
    double ratios[8] = {3, 3, 1, 1, 1, 1, 1, 1};
    struct spmd_case *x = spmd_case_new(arena, gpt2, 32, 8, 4, ratios, 2);
    struct spmd_tables *t;
    spmd_case_must(spmd_tables_new(arena, &x->q, &t, &err), &err);
    int32_t n = t->problem.n_ops, *rule = ARENA_ARRAY(arena, int32_t, n), n_anew = 0;
    for (int32_t k = 0; k < n; k++)
        for (int32_t r = 0; r < t->problem.ops[k].n_rules; r++) {
            const struct op_choice *c = &t->meanings[t->problem.ops[k].rules[r].tag].choice;
            if (c->index[0] == INDEX_batch && c->ratio[0] == (k >= n / 2)) rule[k] = r;
        }
    struct spmd_event *e;
    int32_t n_events = spmd_events(arena, &t->problem, rule, &e);
    int64_t events = 0, rules = 0, total = spmd_cost(arena, &t->problem, rule, NULL);
    ck_assert_int_ne(total, INT64_MAX);
    for (int32_t k = 0; k < n_events; k++) {
        if (e[k].op >= 0) {
            rules += t->problem.ops[e[k].op].rules[rule[e[k].op]].ns;
            continue;
        }
        int64_t ns = e[k].step.forward_ns +
                     (e[k].partial && e[k].step.gather ? e[k].step.back_partial_ns : e[k].step.back_ns);
        events += ns;
        if (e[k].step.after < 0) continue;
        const struct on_axis *from = &spmd_placement_of(t->price, e[k].from)->axis[0];
        const struct on_axis *to = &spmd_placement_of(t->price, e[k].step.after)->axis[0];
        if (from->how != PLACED_SHARDED || to->how != PLACED_SHARDED) continue;
        ck_assert_int_ne(from->ratio, to->ratio);
        ck_assert_int_gt(ns, 2 * x->near.latency_ns);
        n_anew++;
    }
    ck_assert_int_ge(n_anew, 2);
    ck_assert_int_le(rules + events, total); /* what is left is the shared parameter's */
    ck_assert_int_gt(events, 0);
}
END_TEST

/* Short memory splits what else would be held by everybody, and the program that is found fits. */
START_TEST(short_memory_makes_the_program_that_fits)
{
    double even[4] = {1, 1, 1, 1};
    struct spmd_case *x = spmd_case_new(arena, gpt2, 32, 8, 4, even, 1);
    struct spmd_answer loose, tight;
    int64_t cap[4], most = 0;
    x->q.gather = true;
    spmd_case_must(spmd_best(arena, &x->q, &loose, &err), &err);
    for (int d = 0; d < 4; d++) most = loose.bytes[d] > most ? loose.bytes[d] : most;
    for (int d = 0; d < 4; d++) cap[d] = most * 8 / 10;
    x->q.memory_bytes = cap;
    spmd_case_must(spmd_best(arena, &x->q, &tight, &err), &err);
    ck_assert_int_ne(tight.ns, INT64_MAX);
    ck_assert_int_gt(tight.ns, loose.ns);
    ck_assert_int_le(tight.found.bound_ns, tight.ns);
    ck_assert_int_ge(tight.found.bound_ns, loose.ns);
    for (int d = 0; d < 4; d++) ck_assert_int_le(tight.bytes[d], cap[d]);
    for (int d = 0; d < 4; d++) cap[d] = 1000;
    spmd_case_must(spmd_best(arena, &x->q, &tight, &err), &err);
    ck_assert_int_eq(tight.ns, INT64_MAX);
}
END_TEST

static const char mixtral[] =
    "{model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, "
    "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, num_local_experts: 4, "
    "num_experts_per_tok: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5}";

/* Convolutions compute, the classifier meets. */
static const char images[] =
    "{model_type: vgg, image_size: 32, num_channels: 3, features: [64, 64, M, 128, 128, A], "
    "classifier: [2048, 2048], norm_groups: 2, num_labels: 64}";

/* A random model on random unequal devices. */
static struct spmd_case *random_case(uint64_t seed)
{
    static const char *const models[] = {gpt2, mixtral, images};
    double *ones = ARENA_ARRAY(arena, double, 4);
    for (int d = 0; d < 4; d++) ones[d] = 1;
    int32_t n = 2 + 2 * (int32_t)rng_below(seed, 11, 0, 2);
    struct spmd_case *x =
        spmd_case_new(arena, models[seed % 3], seed % 3 == 2 ? 1 : 16 << rng_below(seed, 11, 1, 3),
                      8 << rng_below(seed, 11, 2, 5), n, ones, 1);
    x->near.bandwidth_Bps = 1e9 * (double)(1 + rng_below(seed, 11, 3, 60));
    x->far.bandwidth_Bps = x->near.bandwidth_Bps / (double)(1 + rng_below(seed, 11, 4, 8));
    x->q.microbatches = 1 + (int32_t)rng_below(seed, 11, 5, 4);
    x->q.algorithms = 1U << ALGORITHM_RING | 1U << ALGORITHM_PAIRS;
    return x;
}

/* What the sharding of an answer costs, priced afresh with the vectors that it has. */
static int64_t priced_afresh(const struct spmd_case *x, const struct ratio_best *b)
{
    struct spmd_question q = x->q;
    struct spmd_tables *t;
    const struct op_choice *choices;
    const bool *gathered;
    q.s = b->sharding;
    spmd_case_must(spmd_tables_new(arena, &q, &t, &err), &err);
    spmd_case_must(sharding_resolve(arena, b->sharding, x->forward, &choices, &gathered, &err), &err);
    return spmd_choices_ns(arena, t, &q, choices, gathered, NULL);
}

START_TEST(segments_are_never_worse_than_one_vector_and_sometimes_better)
{
    int32_t better = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 100 : 24); seed++) {
        struct spmd_case *x = random_case(seed);
        struct ratio_best one, more;
        x->q.one_vector = true;
        spmd_case_must(ratio_alternate(arena, &x->q, &one, &err), &err);
        x->q.one_vector = false;
        spmd_case_must(ratio_alternate(arena, &x->q, &more, &err), &err);
        ck_assert_int_le(more.answer.ns, one.answer.ns);
        ck_assert_int_eq(one.sharding->n_ratios, 1);
        ck_assert_int_eq(priced_afresh(x, &more), more.answer.ns);
        if (more.answer.ns < one.answer.ns && more.sharding->n_ratios > 1) better++;
        arena_reset(arena);
    }
    ck_assert_int_ge(better, 3);
}
END_TEST

Suite *ratio_suite(void)
{
    Suite *s = suite_create("ratio");
    TCase *t = tcase_create("ratio");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_linear_program_is_the_closed_form_where_that_holds);
    tcase_add_test(t, the_linear_program_is_no_worse_than_any_grid_point);
    tcase_add_test(t, a_step_may_take_longer_than_a_second);
    tcase_add_test(t, turns_end_where_a_grid_of_ratios_ends);
    tcase_add_test(t, the_best_pair_is_given_and_costs_what_it_says);
    tcase_add_test(t, segments_of_different_ratios_pay_for_dealing_out_anew);
    tcase_add_test(t, segments_are_never_worse_than_one_vector_and_sometimes_better);
    tcase_add_test(t, short_memory_makes_the_program_that_fits);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
