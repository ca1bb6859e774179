/* Deterministic plans without one of their devices: never slower by prediction than the old plan without its replica, or with its layers on a neighbour. */
#include "core/base/arena.h"
#include "core/plan/plan.h"
#include "planner/search.h"
#include "profiles/device_speed.h"
#include "tools/common.h"
#include "tools/team/edit.h"
#include "tools/team/replan.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <inttypes.h>
#include <string.h>

static struct arena *a;
static struct error err;
#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

/* Two pipelines of three stages, on three nodes of two devices. */
static const char *plan_text =
    "version: 1\nname: old\nmicrobatch: 1\ndeterministic: true\n"
    "replicas:\n"
    "  - {microbatches: 8, %sstages: [{layers: [0, 4], device: a.0}, {layers: [5, 9], device: b.0}, {layers: [10, 15], device: c.0}]}\n"
    "  - {microbatches: 8, %sstages: [{layers: [0, 4], device: a.1}, {layers: [5, 9], device: b.1}, {layers: [10, 15], device: c.1}]}\n"
    "job:\n  version: 1\n  model: {model_type: gpt2, n_embd: 64, n_layer: 6, n_head: 4, n_positions: 64, vocab_size: 256}\n"
    "  sequence_length: 64\n  global_batch: 16\n  precision: fp32\n  optimizer: {kind: adamw}\n  seed: 7\n"
    "cluster:\n  version: 1\n  name: here\n"
    "  device_types: [{name: cpu, device: host, slowdown: 20, memory: %s}]\n"
    "  nodes: [{name: a, host: localhost, devices: {type: cpu, count: 2}}, {name: b, host: localhost, devices: {type: cpu, count: 2}}, {name: c, host: localhost, devices: {type: cpu, count: 2}}]\n"
    "  links: [{name: ina, between: [a], bandwidth: 1 GB/s, latency: 10 us}, {name: inb, between: [b], bandwidth: 1 GB/s, latency: 10 us}, {name: inc, between: [c], bandwidth: 1 GB/s, latency: 10 us},\n"
    "    {name: ab, between: [a, b], bandwidth: %s, latency: 50 us}, {name: bc, between: [b, c], bandwidth: %s, latency: 50 us}, {name: ac, between: [a, c], bandwidth: %s, latency: 50 us}]\n";

static const struct question {
    const char *name, *schedule, *memory, *link;
} questions[] = {
    {"1F1B", "", "1 GiB", "100 MB/s"},
    {"1F1B, separate W", "schedule: 1f1b, split: true, ", "1 GiB", "100 MB/s"},
    {"ZB-H1", "schedule: zb-h1, ", "1 GiB", "100 MB/s"},
    {"ZB-H2", "schedule: zb-h2, ", "1 GiB", "20 MB/s"},
    {"ZB-H1, slow links", "schedule: zb-h1, ", "1 GiB", "5 MB/s"},
    {"ZB-H1, little memory", "schedule: zb-h1, ", "10 MiB", "100 MB/s"},
};
enum { N_QUESTIONS = sizeof questions / sizeof *questions };

static int64_t simulated(const struct plan *p, const struct profile *profile)
{
    struct sim_result r;
    struct program program;
    struct error none;
    if (common_simulate(a, p, profile, &(struct sim_options){0}, &r, &program, &none) != OK) return INT64_MAX;
    return r.iteration_ns;
}

static struct plan_replica without_stage(const struct plan_replica *r, int32_t gone, int32_t takes)
{
    struct plan_replica out = *r;
    out.stages = ARENA_ARRAY(a, struct plan_stage, (size_t)r->n_stages);
    out.n_stages = 0;
    for (int32_t i = 0; i < r->n_stages; i++) {
        if (i == gone) continue;
        struct plan_stage x = r->stages[i];
        if (i == takes && takes < gone) x.last_layer = r->stages[gone].last_layer;
        if (i == takes && takes > gone) x.first_layer = r->stages[gone].first_layer;
        out.stages[out.n_stages++] = x;
    }
    return out;
}

/* The best of the old plans without the device: its replica dropped, or its layers on a neighbour; the other replica as it was. */
static int64_t old_without(const struct plan *old, int32_t replica, int32_t stage, const struct cluster *less, const struct profile *profile)
{
    int64_t best = INT64_MAX;
    for (int way = 0; way < 3; way++) {
        struct plan p = *old, carried;
        const char *missing;
        int32_t takes = way == 1 ? stage - 1 : stage + 1;
        p.replicas = ARENA_ARRAY(a, struct plan_replica, 2);
        if (way == 0) {
            p.n_replicas = 1, p.replicas[0] = old->replicas[1 - replica];
            p.replicas[0].microbatches = 16;
        } else {
            if (takes < 0 || takes >= old->replicas[replica].n_stages) continue;
            p.replicas[0] = old->replicas[0], p.replicas[1] = old->replicas[1];
            p.replicas[replica] = without_stage(&old->replicas[replica], stage, takes);
        }
        replan_carry(a, &p, less, &carried, &missing);
        ck_assert_ptr_null(missing);
        int64_t ns = simulated(&carried, profile);
        if (ns < best) best = ns;
    }
    return best;
}

START_TEST(never_slower_than_the_old_plan_without_the_device)
{
    const struct question *q = &questions[_i];
    struct plan old;
    struct profile profile;
    char text[8192];
    snprintf(text, sizeof text, plan_text, q->schedule, q->schedule, q->memory, q->link, q->link, q->link);
    MUST(plan_parse(a, texts_parse(a, text), ".", &old, &err));
    MUST(common_profile(a, &old.cluster, NULL, 0, &profile, &err));
    ck_assert_msg(simulated(&old, &profile) < INT64_MAX, "%s", q->name);
    for (int32_t r = 0; r < 2; r++)
        for (int32_t i = 0; i < 3; i++) {
            struct cluster less;
            struct search_result found;
            const char *name = old.cluster.devices[old.replicas[r].stages[i].device].name;
            MUST(team_edit(a, &old.cluster, &(struct team_change){TEAM_WITHOUT, name, NULL}, &less, &err));
            struct job job = old.job;
            job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = 1;
            const struct search_options o = {.top = 1, .evaluations = 1250, .from = &old, .deterministic = true};
            MUST(search_plans(a, &job, &less, &profile, &o, &found, &err));
            const struct plan *p = &found.plans[0].plan;
            ck_assert(p->deterministic);
            int64_t ns = simulated(p, &profile), before = old_without(&old, r, i, &less, &profile);
                ck_assert_int_eq(ns, found.plans[0].iteration_ns);
            ck_assert_msg(ns <= before, "%s without %s: %" PRId64 " ns, the old plan without it %" PRId64, q->name, name, ns, before);
        }
}
END_TEST

Suite *replan_deterministic_suite(void)
{
    Suite *s = suite_create("replan_deterministic");
    TCase *t = tcase_create("replan_deterministic");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, never_slower_than_the_old_plan_without_the_device, 0, N_QUESTIONS);
    suite_add_tcase(s, t);
    return s;
}
