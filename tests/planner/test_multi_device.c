/* Stages on several devices: the planner against brute force, and bounds never above a plan. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/baseline/baseline.h"
#include "planner/bound/cluster.h"
#include "planner/candidate/scorer.h"
#include "planner/local_search/stage_moves.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct draw {
    uint64_t seed, at;
};
static int32_t below(struct draw *d, int32_t n)
{
    return (int32_t)rng_below(d->seed, 911, d->at++, (uint64_t)n);
}

struct text {
    char at[4096];
    size_t n;
};
static void say(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->n += (size_t)vsnprintf(t->at + t->n, sizeof t->at - t->n, fmt, args);
    va_end(args);
    ck_assert(t->n < sizeof t->at);
}
static const struct node *parsed(const struct text *t)
{
    struct node *root = NULL;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "case", t->at, t->n, &root, &err) == OK, "%s\n%s", err.text,
                  t->at);
    return root;
}

/* n devices of up to three types on nodes of one or two, a link between every two nodes. */
static void make_cluster(struct draw *d, int32_t n, struct cluster *out)
{
    static const int kBps[] = {2000, 50000, 1000000, 20000000, 200000000};
    struct text t = {.n = 0};
    struct error err = {0};
    int32_t types = 1 + below(d, 3), nodes = 0, left = n, size[8];
    while (left > 0) {
        size[nodes] = left > 1 && below(d, 2) ? 2 : 1;
        left -= size[nodes++];
    }
    say(&t, "version: 1\nname: c\ndevice_types:\n");
    for (int32_t i = 0; i < types; i++) {
        const char *memory = below(d, 5) ? "4 GiB" : "24 MiB";
        say(&t, "  - {name: t%d, device: host, slowdown: %d, memory: %s}\n", (int)i,
            1 + (int)below(d, 6), memory);
    }
    say(&t, "nodes:\n");
    for (int32_t i = 0; i < nodes; i++) {
        say(&t, "  - {name: n%d, host: localhost, devices: [{type: t%d}", (int)i,
            (int)below(d, types));
        say(&t, size[i] > 1 ? ", {type: t%d, index: 1}]}\n" : "]}\n", (int)below(d, types));
    }
    say(&t, "links:\n");
    for (int32_t i = 0; i < nodes; i++) {
        if (size[i] > 1) {
            int us = 1 + (int)below(d, 40);
            say(&t, "  - {name: b%d, between: [n%d], bandwidth: %d kB/s, latency: %d us}\n", (int)i,
                (int)i, kBps[below(d, 5)], us);
        }
        for (int32_t j = 0; j < i; j++) {
            int us = 1 + (int)below(d, 60);
            say(&t, "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d kB/s, latency: %d us}\n",
                (int)j, (int)i, (int)j, (int)i, kBps[below(d, 5)], us);
        }
    }
    ck_assert_msg(cluster_parse(arena, parsed(&t), out, &err) == OK, "%s\n%s", err.text, t.at);
}

static void make_job(int32_t width, int32_t blocks, int32_t batch, const char *sizes,
                     struct job *out)
{
    struct text t = {.n = 0};
    struct error err = {0};
    say(&t,
        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: 2, n_positions: "
        "128, vocab_size: 512}\nsequence_length: 128\nglobal_batch: %d\nmicrobatch: %s\n",
        (int)width, (int)blocks, (int)batch, sizes);
    ck_assert_msg(job_parse(arena, parsed(&t), ".", out, &err) == OK, "%s", err.text);
}

/* What a search has of one case. */
struct bench {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct lower_options lower;
    struct cost *cost;
    struct space spaces[2];
    int32_t n_spaces;
    struct scorer *scorer;
};
static void open_bench(struct bench *b)
{
    struct error err = {0};
    b->lower = (struct lower_options){.check_memory = true};
    ck_assert_msg(profile_prior(arena, &b->cluster, &b->profile, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_fused(arena, &b->cluster, &b->lower, &err), OK);
    b->cost = cost_new(arena, &b->profile, &b->cluster);
    b->n_spaces = b->job.n_microbatches_sizes;
    for (int32_t i = 0; i < b->n_spaces; i++)
        ck_assert_msg(space_make(arena, &b->job, &b->cluster, b->cost, b->job.microbatch_sizes[i],
                                 &b->lower, &b->spaces[i], &err) == OK,
                      "%s", err.text);
    b->scorer = scorer_new(&b->lower);
}

/* --- by hand --- */

/* Slowdowns 1, 2 and 2: of 4 sequences the first two take 3 and 1 in 3 units of time, not 2 and 2 in 4; of 8 all take 4, 2, 2. */
START_TEST(sequences_go_where_they_end_first)
{
    struct bench b = {.n_spaces = 0};
    struct text t = {.n = 0};
    struct error err = {0};
    int64_t n[3];
    say(&t, "version: 1\nname: c\ndevice_types: [{name: f, device: host, slowdown: 1, memory: 1 "
            "GiB}, {name: s, "
            "device: host, slowdown: 2, memory: 1 GiB}]\nnodes: [{name: a, host: localhost, "
            "devices: [{type: f}, "
            "{type: s}, {type: s}]}]\nlinks: [{name: b, between: [a], bandwidth: 1 GB/s, latency: "
            "1 us}]\n");
    ck_assert_msg(cluster_parse(arena, parsed(&t), &b.cluster, &err) == OK, "%s", err.text);
    make_job(32, 2, 16, "[4, 8]", &b.job);
    open_bench(&b);
    int32_t last = b.spaces[0].n_layers - 1;
    stage_moves_balance(&b.spaces[0], 0, last, (int32_t[]){0, 1}, 2, n);
    ck_assert(n[0] == 3 && n[1] == 1);
    stage_moves_balance(&b.spaces[1], 0, last, (int32_t[]){0, 1, 2}, 3, n);
    ck_assert(n[0] == 4 && n[1] == 2 && n[2] == 2);
    struct plan_stage x = {.first_layer = 0, .last_layer = last};
    ck_assert(stage_moves_place(arena, &b.spaces[0], &x, (int32_t[]){2, 0}, 2));
    ck_assert(x.device == 0 && x.devices[1] == 2 && x.sequences[0] == 3);
    ck_assert(!stage_moves_place(arena, &b.spaces[0], &x, (int32_t[]){0, 1, 2, 0, 1}, 5));
    scorer_free(b.scorer);
}
END_TEST

/* --- no bound is above them --- */

/* Replicas of stages on random devices, random sequences, cuts, shares, recompute and buckets. No two draws stand in one call:
 * compilers evaluate arguments in different orders. */
static void random_plan(struct draw *d, struct arena *a, const struct space *s, struct plan *out)
{
    int32_t order[8], n = s->n_devices, left, n_stages[8], replicas = 0, dealt = 0;
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = below(d, i + 1), x = order[i];
        order[i] = order[j], order[j] = x;
    }
    left = n - below(d, n > 2 ? 2 : 1);
    int32_t members[8][8];
    while (left > 0 && replicas < s->microbatches) {
        int32_t most = left < s->n_layers ? left : s->n_layers, k = 1 + below(d, most);
        n_stages[replicas] = k;
        left -= k;
        for (int32_t i = 0; i < k; i++) {
            int32_t more = left > 0 ? below(d, left + 1) : 0;
            if (more > s->microbatch - 1) more = (int32_t)s->microbatch - 1;
            members[replicas][i] = 1 + more, left -= more;
        }
        replicas++;
    }
    plan_skeleton(a, s, "random", replicas, n_stages, out);
    for (int32_t r = 0, batches = s->microbatches; r < replicas; r++) {
        struct plan_replica *x = &out->replicas[r];
        int32_t behind = replicas - r - 1;
        x->microbatches = behind ? 1 + below(d, batches - behind) : batches;
        batches -= x->microbatches;
        for (int32_t i = 0, first = 0; i < n_stages[r]; i++) {
            struct plan_stage *y = &x->stages[i];
            int32_t rest = n_stages[r] - i - 1;
            y->first_layer = first;
            y->last_layer = rest ? first + below(d, s->n_layers - first - rest) : s->n_layers - 1;
            first = y->last_layer + 1;
            ck_assert(stage_moves_place(a, s, y, &order[dealt], members[r][i]));
            dealt += members[r][i];
            for (int k = 0; k < 3 && y->n_shards; k++) {
                int32_t to = below(d, y->n_shards), from = below(d, y->n_shards);
                stage_moves_pass(out, r, i, from, to);
            }
            if (!below(d, 6)) y->recompute = RECOMPUTE_STAGE;
            if (!below(d, 3)) y->bucket_bytes = 1 + below(d, 100000);
        }
    }
}

struct tally {
    int64_t plans, shared, cases, latencies, cuts;
    double min_gap;
};

static void check_bound(uint64_t seed, int32_t plans, struct tally *t)
{
    static const char *const sizes[] = {"[2]", "[4]", "[2, 4]", "[4, 8]", "[8]", "[1, 4]", "[3]"};
    struct draw d = {seed, 0};
    struct bench b = {.n_spaces = 0};
    struct bound_certificate c;
    struct error err = {0};
    int32_t k = below(&d, 7), whole = k == 6 ? 3 : 8;
    make_cluster(&d, 2 + below(&d, 4), &b.cluster);
    int32_t batch = whole * (1 + below(&d, 3)), blocks = 1 + below(&d, 2);
    make_job(below(&d, 2) ? 128 : 256, blocks, batch, sizes[k], &b.job);
    open_bench(&b);
    const struct space *spaces[2] = {&b.spaces[0], &b.spaces[1]};
    enum status st = bound_cluster(arena, &b.cluster, b.cost, spaces, b.n_spaces,
                                   BOUND_STAGES_WHOLE, 0, &c, &err);
    ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s", err.text);
    for (int32_t i = 0; i < plans && st == OK; i++) {
        const struct space *s = &b.spaces[below(&d, b.n_spaces)];
        struct plan p;
        int64_t ns;
        random_plan(&d, scorer_arena(b.scorer), s, &p);
        ck_assert_msg(scorer_run(b.scorer, s, &p, &ns, &err) == OK, "seed %d: %s", (int)seed,
                      err.text);
        if (ns == INT64_MAX) continue;
        ck_assert_msg(c.lower_bound_ns <= ns, "seed %d: bound %lld (%s) above %lld: %s", (int)seed,
                      (long long)c.lower_bound_ns, c.binding, (long long)ns,
                      plan_describe(arena, &p));
        t->plans++;
        for (int32_t r = 0, any = 0; r < p.n_replicas && !any; r++)
            for (int32_t l = 0; l < p.replicas[r].n_stages && !any; l++)
                any = p.replicas[r].stages[l].n_shards > 1, t->shared += any;
        t->min_gap = fmin(t->min_gap, bound_gap(ns, c.lower_bound_ns));
    }
    scorer_free(b.scorer);
    t->cases++;
    t->latencies += st == OK && !strncmp(c.binding, "latency", 7);
    t->cuts += st == OK && !strncmp(c.binding, "bandwidth", 9);
}

START_TEST(no_bound_is_above_a_plan_with_stages_on_several_devices)
{
    struct tally t = {.min_gap = INFINITY};
    uint64_t cases = suites_long() ? 2000 : 40;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(arena)) check_bound(seed, 10, &t);
    ck_assert_msg(t.plans > (int64_t)(5 * cases) && t.shared > (int64_t)(2 * cases) &&
                      t.min_gap < 0.5 && t.latencies + t.cuts > 0,
                  "%lld cases, %lld plans, %lld shared, %lld latencies, %lld cuts, gap %g",
                  (long long)t.cases, (long long)t.plans, (long long)t.shared,
                  (long long)t.latencies, (long long)t.cuts, t.min_gap);
}
END_TEST

/* --- against brute force --- */

/* Every pipeline of stages on sets of devices, in every order, sequences balanced, all simulated. */
struct brute {
    struct bench *b;
    const struct space *s;
    int64_t best_ns, plans;
    int32_t n_stages, last[8];
    uint32_t set[8];
};

static void brute_score(struct brute *x)
{
    struct plan p;
    struct error err = {0};
    struct arena *a = scorer_arena(x->b->scorer);
    int64_t ns;
    plan_skeleton(a, x->s, "brute", 1, &x->n_stages, &p);
    p.replicas[0].microbatches = x->s->microbatches;
    for (int32_t i = 0, first = 0; i < x->n_stages; i++) {
        struct plan_stage *y = &p.replicas[0].stages[i];
        int32_t devices[8], n = 0;
        for (int32_t d = 0; d < x->s->n_devices; d++)
            if (x->set[i] >> d & 1) devices[n++] = d;
        y->first_layer = first, y->last_layer = x->last[i], first = y->last_layer + 1;
        if (!stage_moves_place(a, x->s, y, devices, n)) return;
    }
    ck_assert_msg(scorer_fit(x->b->scorer, x->s, &p, &ns, &err) == OK, "%s", err.text);
    x->plans++;
    if (ns < x->best_ns) x->best_ns = ns;
}

static void brute_stages(struct brute *x, uint32_t unused, int32_t first)
{
    for (uint32_t set = unused; set; set = (set - 1) & unused)
        for (int32_t last = first; last < x->s->n_layers; last++) {
            x->set[x->n_stages] = set, x->last[x->n_stages++] = last;
            if (last == x->s->n_layers - 1)
                brute_score(x);
            else
                brute_stages(x, unused & ~set, last + 1);
            x->n_stages--;
        }
}

static struct search_result must_search(struct bench *b)
{
    struct search_options o = {.top = 1, .evaluations = 4000};
    struct search_result r;
    struct error err = {0};
    ck_assert_msg(search_plans(arena, &b->job, &b->cluster, &b->profile, &o, &r, &err) == OK, "%s",
                  err.text);
    return r;
}

struct regrets {
    double sum, most;
    int32_t cases, shared, better;
};

static void check_regret(uint64_t seed, struct regrets *t)
{
    static const char *const sizes[] = {"[2]", "[4]", "[2, 4]", "[1, 4]"};
    struct draw d = {seed, 1 << 20};
    struct bench b = {.n_spaces = 0};
    int32_t n = 3 + (below(&d, 4) == 0);
    make_cluster(&d, n, &b.cluster);
    make_job(256, 1, 8, sizes[below(&d, 4)], &b.job);
    b.job.layers = (struct layers_choice){LAYERS_NUMBER, n == 3 ? 4 : 3};
    open_bench(&b);
    struct brute x = {.b = &b, .best_ns = INT64_MAX};
    for (int32_t k = 0; k < b.n_spaces; k++) x.s = &b.spaces[k], brute_stages(&x, (1u << n) - 1, 0);
    scorer_free(b.scorer);
    if (x.best_ns == INT64_MAX) return;
    struct search_result r = must_search(&b);
    double regret = (double)(r.plans[0].iteration_ns - x.best_ns) / (double)x.best_ns;
    t->cases++;
    t->better += regret < 0;
    if (regret > 0) t->sum += regret;
    t->most = fmax(t->most, regret);
    ck_assert_msg(r.lower_bound_ns <= x.best_ns, "seed %d: bound above brute force", (int)seed);
    for (int32_t i = 0, any = 0; i < r.plans[0].plan.replicas[0].n_stages && !any; i++)
        any = r.plans[0].plan.replicas[0].stages[i].n_shards > 1, t->shared += any;
    if (regret > 0.005)
        printf("# seed %d: found %lld, brute force %lld of %lld plans\n", (int)seed,
               (long long)r.plans[0].iteration_ns, (long long)x.best_ns, (long long)x.plans);
}

START_TEST(stages_on_several_devices_are_found_as_good_as_by_brute_force)
{
    struct regrets t = {0, 0, 0, 0, 0};
    uint64_t cases = suites_long() ? 240 : 8;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(arena)) check_regret(seed, &t);
    if (suites_long())
        printf("# %d cases: regret mean %.4f %%, most %.3f %%; %d found better than the class, %d "
               "with stages on several devices\n",
               (int)t.cases, 100 * t.sum / t.cases, 100 * t.most, (int)t.better, (int)t.shared);
    ck_assert_msg(t.cases > (int32_t)cases / 2 && t.shared > (int32_t)cases / 20 &&
                      t.most <= 0.005 && t.sum / t.cases < 0.0005,
                  "%d cases, %d shared, regret mean %g most %g", (int)t.cases, (int)t.shared,
                  t.sum / t.cases, t.most);
}
END_TEST

Suite *multi_device_suite(void)
{
    Suite *suite = suite_create("multi_device");
    TCase *t = tcase_create("regroup");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, sequences_go_where_they_end_first);
    tcase_add_test(t, no_bound_is_above_a_plan_with_stages_on_several_devices);
    tcase_add_test(t, stages_on_several_devices_are_found_as_good_as_by_brute_force);
    suite_add_tcase(suite, t);
    return suite;
}
