/* The bound on memory: values computed by hand, and never above a plan in the least memory in which the plan fits. */
#include "planner/bound/memory.h"

#include "core/base/arena.h"
#include "planner/bound/cluster.h"
#include "planner/bound/kept.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/candidate/scorer.h"
#include "planner/search.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "tests/support/random_teams.h"
#include "tests/support/spmd_stage_cases.h"
#include "tests/support/suites.h"

#include <math.h>
#include <string.h>

/* One device, one layer, ten samples of 10 us, 3 us more if recomputed; 100 bytes a sample, 50 of state. */
static double one_layer(double hold_us, double microbatch, double bytes)
{
    const double work = 10e3, again = 3e3, update = 0;
    const int64_t count = 1;
    const int32_t pool = 0;
    struct bound_memory_layer layer = {100, 50, hold_us * 1e3, &work, &again, &update};
    struct bound_memory m = {1, 1, &layer, &count, &bytes, &pool, 10, microbatch};
    return bound_memory_ns(&m, 100e3) / 1e3;
}

START_TEST(what_memory_lacks_is_recomputed)
{
    ck_assert_double_eq(one_layer(10, 1, 200), 100); /* one sample in flight: 150 bytes */
    /* 120 bytes: a part of 0.3 is recomputed */
    ck_assert_double_eq_tol(one_layer(10, 1, 120), 109, 0.02);
    /* microbatches of two samples: 200 x + 50 <= 120, so 0.65 of them */
    ck_assert_double_eq_tol(one_layer(10, 2, 120), 119.5, 0.05);
    /* In flight for 40 us, 400 / T samples: 40,000 x / T + 50 <= 250, T = 100 + 30 (1 - x): T = 130 / 1.15. */
    ck_assert_double_eq_tol(one_layer(40, 1, 250), 130 / 1.15, 0.05);
    /* Everything is recomputed, at most; the state must fit. */
    ck_assert_double_eq_tol(one_layer(10, 1, 51), 129.7, 0.05);
    ck_assert_double_gt(one_layer(10, 1, 49), 1e6);
}
END_TEST

/* Two equal layers, a class with room for state alone and one with room for a sample in flight: each class holds what it works on.
 * In one pool the same memory suffices. */
START_TEST(a_class_holds_what_it_works_on)
{
    const double work[2] = {10e3, 10e3}, again[2] = {5e3, 5e3}, update[2] = {0, 0},
                 bytes[2] = {100, 400};
    const int64_t count[2] = {1, 1};
    const int32_t apart[2] = {0, 1}, together[2] = {0, 0};
    struct bound_memory_layer layers[2] = {{100, 50, 1, work, again, update},
                                           {100, 50, 1, work, again, update}};
    struct bound_memory m = {2, 2, layers, count, bytes, together, 10, 1};
    ck_assert_double_eq(bound_memory_ns(&m, 100e3), 100e3);
    /* 100 bytes hold half the work kept, if all state is on the other: none is recomputed. */
    m.pool = apart;
    ck_assert_double_eq(bound_memory_ns(&m, 100e3), 100e3);
    /* With 50 bytes a quarter of all work is kept there. 300 on the other hold 1.25 layers more and the state:
     * nothing is missing until the other class is full as well. */
    const double less[2] = {50, 250};
    m.bytes =
        less; /* kept: 0.5 + 1.5 of 2 layers, and no more room: work of 1.5 layers on one class, or 5 us more each */
    ck_assert_double_gt(bound_memory_ns(&m, 100e3), 109e3);
}
END_TEST

/* Two layers of 4 + 3 + 3 us on 2 devices, 20 samples: 200 us of work. The first is in flight for 14 us, the second for 7. On groups of
 * both devices the times are halved. */
static double two_layers(enum bound_stages stages, double bytes)
{
    struct arena *a = arena_new();
    struct bound_any *b = bound_any_new(a, 2, 1, (int64_t[]){2}, 20);
    struct bound_certificate c;
    struct error err = {0};
    bound_any_sharded(b, stages, 2);
    for (int32_t l = 0; l < 2; l++) {
        struct bound_offer o = {1, 1, 4000, 3000, 3000, 0, 4000};
        bound_any_offer(b, 0, l, &o);
        bound_any_kept(b, l, 100, 10);
    }
    bound_any_size(b, 1);
    bound_any_memory(b, &bytes, (int32_t[]){0});
    ck_assert_int_eq(bound_any_solve(b, &c, &err), OK);
    ck_assert(!strncmp(c.binding, c.lower_bound_ns > 200001 ? "memory" : "compute", 6));
    arena_free(a);
    return (double)c.lower_bound_ns / 1e3;
}

/* At T = 200 us 1.4 samples of the first layer and one of the second are in flight: 240 bytes beside 20 of state, 130 a device. With
 * 100 bytes a device 60 are missing, so a part y of the first layer is recomputed, which takes 80 y us on two devices. */
START_TEST(a_solution_takes_the_dearest_activations_last)
{
    ck_assert_double_eq_tol(two_layers(BOUND_STAGES_WHOLE, 131), 200, 0.01);
    double T = 200; /* recomputed: y = 1 - 80 / (100 · 20 · 14 / T), and T = 200 + 40 y */
    for (int k = 0; k < 100; k++) T = 200 + 40 * (1 - 80 / (100 * fmax(1, 280 / T)));
    ck_assert_double_eq_tol(two_layers(BOUND_STAGES_WHOLE, 100), T, 0.1);
    ck_assert_double_eq_tol(two_layers(BOUND_STAGES_ON_NODE, 111), 200, 0.01);
    ck_assert_double_eq_tol(two_layers(BOUND_STAGES_ON_NODE, 100), 200 + 40 * 0.2, 0.1);
}
END_TEST

/* --- against stages and plans --- */

/* Sums over layers never exceed a stage's activations and recomputation. */
static void check_ranges(struct arena *a, const struct space *s, int64_t *ranges)
{
    struct bound_kept *k = ARENA_ARRAY(a, struct bound_kept, (size_t)s->n_layers);
    ck_assert(bound_kept_of(a, s, k));
    for (int32_t first = 0; first < s->n_layers; first++) {
        double kept = 0;
        int64_t again = 0;
        for (int32_t last = first; last < s->n_layers; last++) {
            const struct stage_cost *c = space_stage_type(s, 0, first, last);
            kept += k[last].kept_bytes * (double)s->microbatch;
            again += space_stage_type(s, 0, last, last)->recompute_ns;
            ck_assert_double_le(kept, (double)c->activation_bytes);
            ck_assert_int_le(again, c->recompute_ns);
            *ranges += kept > 0;
        }
    }
}

struct tally {
    int64_t plans, bound, alone;
    double least; /* gap where memory binds */
    double fullest,
        fullest_state; /* most that the terms for a plan come to, of the memory that it takes */
    double in_flight;  /* most microbatches in flight, at least */
};

/* Bytes of a class of slots in the program's stages of one stage of the plan; replica -1: of all. */
static double bytes_of(const struct program *p, int32_t replica, int32_t stage,
                       enum slot_class class)
{
    double bytes = 0;
    for (int32_t i = 0; i < p->n_stages; i++)
        if (replica < 0 || (p->stages[i].replica == replica && p->stages[i].stage == stage))
            bytes += (double)p->stages[i].class_bytes[class];
    return bytes;
}

static void check_part(double claimed, double taken, const char *what, const char *plan,
                       double *fullest)
{
    ck_assert_msg(claimed <= taken, "%s: %g of %g bytes: %s", what, claimed, taken, plan);
    if (taken > 0) *fullest = fmax(*fullest, claimed / taken);
}

/* The terms of the bound, for one plan: the state once, and what every stage keeps. shared: devices of a stage. */
static void check_terms(struct arena *a, const struct space *const *spaces, const struct space *s,
                        const struct plan *p, int64_t ns, double shared,
                        const struct program *program, struct tally *t)
{
    struct bound_kept *k = ARENA_ARRAY(a, struct bound_kept, (size_t)s->n_layers);
    double *hold = ARENA_ARRAY(a, double, (size_t)s->n_layers + 1), state = 0;
    const char *plan = plan_describe(a, p);
    ck_assert(bound_kept_of(a, s, k));
    for (int32_t l = s->n_layers - 1; l >= 0; l--) {
        double pass = INFINITY;
        for (int32_t i = 0; i < 2 * s->n_types; i++) {
            const struct stage_cost *c = space_stage_type(spaces[i % 2], i / 2, l, l);
            pass = fmin(pass, (double)(c->forward_ns + c->input_least_ns));
        }
        hold[l] = hold[l + 1] + pass / shared;
        state += k[l].state_bytes;
    }
    check_part(state,
               bytes_of(program, -1, 0, SLOT_PARAMETER) + bytes_of(program, -1, 0, SLOT_GRADIENT) +
                   bytes_of(program, -1, 0, SLOT_STATE),
               "state", plan, &t->fullest_state);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            double kept = 0, turns = p->replicas[r].microbatches / (double)ns;
            if (x->recompute == RECOMPUTE_STAGE || x->recompute == RECOMPUTE_BLOCKS) continue;
            for (int32_t l = x->first_layer; l <= x->last_layer; l++)
                kept += k[l].kept_bytes * (double)p->microbatch * fmax(1, turns * hold[l]);
            t->in_flight = fmax(t->in_flight, turns * hold[x->first_layer]);
            check_part(kept, bytes_of(program, r, i, SLOT_BUFFER_RING), "activations", plan,
                       &t->fullest);
        }
}

/* Sets the memory of every type to the most that the plan takes of one of its devices. */
static void shrink(struct cluster *c, const struct program *p)
{
    for (int32_t t = 0; t < c->n_types; t++) c->types[t].memory_bytes = 1;
    for (int32_t d = 0; d < p->n_devices; d++) {
        struct device_type *t = &c->types[p->devices[d].type_index];
        int64_t bytes = program_lane_bytes(p, d);
        if (bytes > t->memory_bytes) t->memory_bytes = bytes;
    }
}

/* Every class of stages with the plan. */
static void check_plan(struct arena *a, struct cluster *c, struct cost *cost,
                       const struct space *const *spaces, struct scorer *w, const struct space *s,
                       struct plan *p, uint64_t seed, struct tally *t)
{
    struct error err = {0};
    const struct program *program;
    int64_t ns, before[8];
    for (int32_t i = 0; i < c->n_types; i++) before[i] = c->types[i].memory_bytes;
    ck_assert_msg(scorer_run(w, s, p, &ns, &err) == OK, "%s", err.text);
    if (ns == INT64_MAX) return;
    ck_assert_int_eq(scorer_program(w, s, p, &program, &err), OK);
    ck_assert_ptr_nonnull(program);
    int32_t most = 1;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (plan_stage_devices(&p->replicas[r].stages[i]) > most)
                most = plan_stage_devices(&p->replicas[r].stages[i]);
    check_terms(a, spaces, s, p, ns, most, program, t);
    shrink(c, program);
    for (int k = spmd_stage_extent(p); k <= BOUND_STAGES_ANY; k++) {
        struct bound_certificate b;
        ck_assert_msg(bound_cluster(a, c, cost, spaces, 2, (enum bound_stages)k, 0, &b, &err) == OK,
                      "%s", err.text);
        ck_assert_msg(b.lower_bound_ns <= ns, "seed %d, class %d: %lld (%s) above %lld: %s",
                      (int)seed, k, (long long)b.lower_bound_ns, b.binding, (long long)ns,
                      plan_describe(a, p));
        t->plans++;
        if (!strstr(b.binding, "memory")) continue;
        t->bound++;
        t->alone += b.binding[0] == 'm'; /* not by the microbatches that fit */
        t->least = fmin(t->least, bound_gap(ns, b.lower_bound_ns));
    }
    for (int32_t i = 0; i < c->n_types; i++) c->types[i].memory_bytes = before[i];
}

static void recompute_some(struct draw *d, struct plan *p)
{
    static const enum recompute how[] = {RECOMPUTE_NONE, RECOMPUTE_NONE, RECOMPUTE_STAGE,
                                         RECOMPUTE_BLOCKS, RECOMPUTE_SELECTIVE};
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            x->recompute = how[random_teams_below(d, 5)];
            x->recompute_blocks = x->recompute == RECOMPUTE_BLOCKS ? (int32_t)random_teams_below(d, 3) : 0;
        }
}

/* Equal replicas of one stage on all devices, at a level of ZeRO. */
static void divide_state(struct arena *a, struct draw *d, const struct space *s, struct plan *out)
{
    int32_t one[16], n = s->n_devices;
    while (s->microbatches % n) n--;
    for (int32_t r = 0; r < n; r++) one[r] = 1;
    plan_skeleton(a, s, "zero", n, one, out);
    int32_t level = n > 1 ? (int32_t)random_teams_below(d, ZERO_MAX + 1) : 0;
    for (int32_t r = 0; r < n; r++) {
        struct plan_stage *x = &out->replicas[r].stages[0];
        out->replicas[r].microbatches = s->microbatches / n;
        x->device = r, x->last_layer = s->n_layers - 1, x->zero = level;
    }
}

/* Equal devices on fast links, for pipelines of many stages. */
static void pipelines_case(struct arena *a, struct draw *d, struct small *x)
{
    struct yaml_text c = {.n = 0}, j = {.n = 0};
    struct error err = {0};
    int devices = 3 + (int)random_teams_below(d, 4), blocks = 2 + (int)random_teams_below(d, 3),
        batch = 2 * (4 + (int)random_teams_below(d, 9));
    random_teams_put(&c,
                     "version: 1\nname: c\ndevice_types: [{name: t, device: host, slowdown: 1, "
                     "memory: 1 GiB}]\nnodes: [{name: n, host: localhost, devices: {type: t, "
                     "count: %d}}]\nlinks: [{name: bus, between: [n], bandwidth: 200 GB/s, "
                     "latency: 10 ns}]\n",
                     devices);
    random_teams_put(&j,
                     "version: 1\nmodel: {model_type: gpt2, n_embd: 64, n_layer: %d, n_head: 8, "
                     "n_positions: 64, vocab_size: 64%s}\nsequence_length: 64\nglobal_batch: %d\n"
                     "microbatch: [1, 2]\n",
                     blocks, random_teams_below(d, 2) ? ", attn_implementation: eager" : "", batch);
    ck_assert_msg(cluster_parse(a, random_teams_parsed(a, &c), &x->cluster, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(a, random_teams_parsed(a, &j), ".", &x->job, &err) == OK, "%s",
                  err.text);
}

/* One replica of a stage on each device, about equal, in a schedule with few or many microbatches in flight. */
static void one_pipeline(struct arena *a, struct draw *d, const struct space *s, struct plan *out)
{
    static const char *const names[] = {"1f1b", "zb-h1", "eager-1f1b", "gpipe"};
    int32_t n = s->n_devices < s->n_layers ? s->n_devices : s->n_layers;
    plan_skeleton(a, s, "pipeline", 1, &n, out);
    struct plan_replica *x = &out->replicas[0];
    x->microbatches = s->microbatches;
    x->schedule = names[random_teams_below(d, 4)], x->split = random_teams_below(d, 2);
    for (int32_t i = 0; i < n; i++) {
        x->stages[i].device = i;
        x->stages[i].first_layer = i ? x->stages[i - 1].last_layer + 1 : 0;
        x->stages[i].last_layer = (i + 1) * s->n_layers / n - 1;
        if (!random_teams_below(d, 4)) x->stages[i].recompute = RECOMPUTE_SELECTIVE;
    }
}

START_TEST(no_bound_is_above_a_plan_that_just_fits)
{
    struct arena *a = arena_new();
    struct tally t = {.least = INFINITY}, zero = {.least = INFINITY};
    uint64_t cases = suites_long() ? 2000 : 60;
    int64_t ranges = 0;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 31000};
        struct small x = {.lower = {.check_memory = true}};
        if (seed % 2)
            pipelines_case(a, &d, &x);
        else
            random_teams_case(a, &d, &x.job, &x.cluster);
        for (int32_t i = 0; i < x.cluster.n_types; i++)
            x.cluster.types[i].memory_bytes = INT64_C(1) << 30;
        if (seed % 2 == 0) x.job.global_batch *= 1 + random_teams_below(&d, 3);
        small_complete(a, &x);
        const struct space *both[] = {&x.space[0], &x.space[1]};
        struct scorer *w = scorer_new(&x.lower);
        for (int k = 0; k < 2; k++) check_ranges(a, both[k], &ranges);
        for (int i = 0; i < 8; i++) {
            struct plan p;
            const struct space *s = both[random_teams_below(&d, 2)];
            if (!i)
                divide_state(a, &d, s, &p);
            else if (seed % 2 && i % 2)
                one_pipeline(a, &d, s, &p);
            else
                random_teams_plan(a, &d, s, &p), recompute_some(&d, &p);
            check_plan(a, &x.cluster, x.cost, both, w, s, &p, seed, i ? &t : &zero);
        }
        scorer_free(w);
    }
    arena_free(a);
    if (getenv("MUSHER_PRINT"))
        printf("%lld plans, memory binds for %lld (%lld), nearest %.3g, fullest %.3g and %.3g, "
               "%.3g in "
               "flight; ZeRO: %lld, %lld, %.3g\n",
               (long long)t.plans, (long long)t.bound, (long long)t.alone, t.least, t.fullest,
               t.fullest_state, t.in_flight, (long long)zero.plans, (long long)zero.bound,
               zero.least);
    ck_assert_int_gt(ranges, (int64_t)cases);
    ck_assert_msg(t.plans > 8 * (int64_t)cases && t.bound > (int64_t)cases / 2 && t.alone > 0 &&
                      zero.plans > 0 && t.fullest > 0.8 && t.fullest_state > 0.99 &&
                      t.in_flight > 1.5,
                  "%lld plans, memory binds for %lld", (long long)t.plans, (long long)t.bound);
}
END_TEST

/* Sharded stages: every plan that a search keeps, in the least memory in which it fits. */
START_TEST(no_bound_is_above_a_sharded_plan_that_just_fits)
{
    struct arena *a = arena_new();
    struct tally t = {.least = INFINITY};
    uint64_t cases = suites_long() ? 100 : 6;
    int32_t sharded = 0;
    for (uint64_t seed = 900; seed < 900 + cases; seed++, arena_reset(a)) {
        struct small *x = small_islands(a, seed);
        const struct space *both[] = {&x->space[0], &x->space[1]};
        struct search_result r;
        struct error err = {0};
        struct search_options o = {.top = 16, .evaluations = 300};
        ck_assert_msg(search_plans(a, &x->job, &x->cluster, &x->profile, &o, &r, &err) == OK, "%s",
                      err.text);
        struct scorer *w = scorer_new(&x->lower);
        for (int32_t i = 0; i < r.n_plans; i++) {
            struct plan p = r.plans[i].plan;
            sharded += spmd_stage_in_plan(&p);
            if (p.microbatch <= 2)
                check_plan(a, &x->cluster, x->cost, both, w, both[p.microbatch - 1], &p, seed, &t);
        }
        scorer_free(w);
    }
    arena_free(a);
    if (getenv("MUSHER_PRINT"))
        printf("%lld plans and classes, %d sharded, memory binds for %lld, fullest %.3g\n",
               (long long)t.plans, sharded, (long long)t.bound, t.fullest);
    ck_assert_msg(t.plans > (int64_t)cases && sharded > 0, "%lld plans, %d sharded",
                  (long long)t.plans, sharded);
}
END_TEST

/* Devices with room for about their part of the state and a few microbatches, and a search of everything that fits. */
START_TEST(no_bound_is_above_what_a_search_finds_in_little_memory)
{
    struct arena *a = arena_new();
    uint64_t cases = suites_long() ? 300 : 24;
    int32_t found = 0, bound = 0;
    double least = INFINITY;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 47000};
        struct small x = {.lower = {.check_memory = true}};
        struct error err = {0};
        struct search_result r;
        random_teams_case(a, &d, &x.job, &x.cluster);
        x.job.global_batch *= 2;
        for (int32_t k = 0; k < x.cluster.n_links; k++)
            x.cluster.links[k].bandwidth_Bps = 1e11, x.cluster.links[k].latency_s = 1e-7;
        small_complete(a, &x);
        struct bound_kept *k = ARENA_ARRAY(a, struct bound_kept, (size_t)x.space[0].n_layers);
        ck_assert(bound_kept_of(a, &x.space[0], k));
        double state = 0, kept = 0;
        for (int32_t l = 0; l < x.space[0].n_layers; l++)
            state += k[l].state_bytes, kept += k[l].kept_bytes;
        double bytes =
            state / x.cluster.n_devices * (1.2 + 0.3 * (double)random_teams_below(&d, 5)) +
            kept * 0.2 * (double)(1 + random_teams_below(&d, 15));
        for (int32_t t = 0; t < x.cluster.n_types; t++)
            x.cluster.types[t].memory_bytes = (int64_t)bytes;
        struct search_options o = {.top = 8, .evaluations = 2000, .no_sharding = true};
        enum status st = search_plans(a, &x.job, &x.cluster, &x.profile, &o, &r, &err);
        ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s", err.text);
        if (st != OK) continue;
        found++;
        for (int32_t i = 0; i < r.n_plans; i++)
            ck_assert_msg(r.lower_bound_ns <= r.plans[i].iteration_ns,
                          "seed %d: %lld (%s) above %lld", (int)seed, (long long)r.lower_bound_ns,
                          r.binding, (long long)r.plans[i].iteration_ns);
        for (int32_t i = 0; i < r.n_baselines; i++)
            ck_assert_int_le(r.lower_bound_ns, r.baselines[i].iteration_ns);
        if (!strstr(r.binding, "memory")) continue;
        bound++;
        least = fmin(least, r.gap);
    }
    arena_free(a);
    if (getenv("MUSHER_PRINT"))
        printf("%d found, memory binds for %d, nearest %.3g\n", found, bound, least);
    ck_assert_msg(found > (int)cases / 4 && bound > 0, "%d found, memory binds for %d", found,
                  bound);
}
END_TEST

Suite *bound_memory_suite(void)
{
    Suite *s = suite_create("bound_memory");
    TCase *t = tcase_create("memory");
    tcase_add_test(t, what_memory_lacks_is_recomputed);
    tcase_add_test(t, a_class_holds_what_it_works_on);
    tcase_add_test(t, a_solution_takes_the_dearest_activations_last);
    tcase_add_test(t, no_bound_is_above_a_plan_that_just_fits);
    tcase_add_test(t, no_bound_is_above_a_sharded_plan_that_just_fits);
    tcase_add_test(t, no_bound_is_above_what_a_search_finds_in_little_memory);
    tcase_set_timeout(t, suites_long() ? 3000 : 300);
    suite_add_tcase(s, t);
    return s;
}
