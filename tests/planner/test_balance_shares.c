/* Shares balanced by the replicas' end times, and default tensor-parallel degrees. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "planner/fleet/balance_shares.h"
#include "planner/spmd_stage/tp_options.h"
#include "profiles/team.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <string.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *two_speeds =
    "version: 1\n"
    "name: speeds\n"
    "device_types: [{name: h, device: H100-SXM5}, {name: v, device: V100-SXM2-32}]\n"
    "nodes:\n"
    "  - {name: h, count: 2, devices: {type: h, count: 1}}\n"
    "  - {name: v, count: 2, devices: {type: v, count: 1}}\n"
    "switches: [{name: s}]\n"
    "links:\n"
    "  - {name: lh, count: 2, between: [h, s], bandwidth: 100 GB/s, latency: 1 us}\n"
    "  - {name: lv, count: 2, between: [v, s], bandwidth: 100 GB/s, latency: 1 us}\n";

static const char *job_text =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 1024, n_layer: 8, n_head: 16, n_positions: 512, "
    "vocab_size: 8192}\n"
    "sequence_length: 512\nglobal_batch: 128\nmicrobatch: 2\nprecision: fp16\n";

/* A replica of two H100 and one of two V100, half of the layers each. */
static void make_plan(const struct space *s, int32_t fast, int32_t slow, struct plan *p)
{
    int32_t middle = s->n_layers / 2;
    *p = (struct plan){.name = "two",
                       .microbatch = s->microbatch,
                       .steps = 1,
                       .n_replicas = 2,
                       .replicas = ARENA_ARRAY(arena, struct plan_replica, 2),
                       .job = *s->job,
                       .cluster = *s->cluster};
    for (int32_t r = 0; r < 2; r++) {
        p->replicas[r] = (struct plan_replica){.microbatches = r ? slow : fast,
                                               .n_stages = 2,
                                               .stages = ARENA_ARRAY(arena, struct plan_stage, 2)};
        p->replicas[r].stages[0] =
            (struct plan_stage){.last_layer = middle - 1, .device = 2 * r, .receive_ahead = 2};
        p->replicas[r].stages[1] = (struct plan_stage){.first_layer = middle,
                                                       .last_layer = s->n_layers - 1,
                                                       .device = 2 * r + 1,
                                                       .receive_ahead = 2};
    }
}

START_TEST(even_shares_of_unequal_replicas_are_made_level)
{
    struct error err = {0};
    struct cluster c = texts_cluster(arena, two_speeds);
    struct job j = texts_job(arena, job_text);
    struct profile profile;
    struct lower_options lower = {.check_memory = true};
    struct search_options o = {.top = 1};
    struct space s;
    struct plan p;
    int64_t worked[2], ns, before;
    ck_assert_int_eq(profile_prior(arena, &c, &profile, &err), OK);
    ck_assert_int_eq(team_fused(arena, &c, &lower, &err), OK);
    struct cost *k = cost_new(arena, &profile, &c);
    ck_assert_msg(space_make(arena, &j, &c, k, 2, &lower, &s, &err) == OK, "%s", err.text);
    struct search_context t = {.arena = arena,
                               .o = &o,
                               .lower = &lower,
                               .scorer = scorer_new(&lower),
                               .evaluations_left = 100};
    make_plan(&s, 32, 32, &p);
    ck_assert_msg(search_context_score(&t, &s, &p, &ns, &err) == OK, "%s", err.text);
    ck_assert(scorer_worked(t.scorer, &p, worked));
    ck_assert_int_lt(worked[0], worked[1]);
    ck_assert_int_le(worked[1], ns);
    before = ns;
    ck_assert_msg(balance_shares_plan(&t, &s, &p, worked, &ns, 3, &err) == OK, "%s", err.text);
    ck_assert_int_lt(ns, before);
    ck_assert_int_eq(p.replicas[0].microbatches + p.replicas[1].microbatches, 64);
    ck_assert_int_gt(p.replicas[0].microbatches, p.replicas[1].microbatches);
    /* No share nearby is better by more than a microbatch's change. */
    for (int32_t more = -1; more <= 1; more += 2) {
        struct plan q;
        int64_t other;
        make_plan(&s, p.replicas[0].microbatches + 3 * more, p.replicas[1].microbatches - 3 * more,
                  &q);
        ck_assert_msg(search_context_score(&t, &s, &q, &other, &err) == OK, "%s", err.text);
        ck_assert_int_lt(ns, other);
    }
    scorer_free(t.scorer);
}
END_TEST

Suite *balance_shares_suite(void)
{
    Suite *s = suite_create("balance_shares");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, even_shares_of_unequal_replicas_are_made_level);
    suite_add_tcase(s, t);
    return s;
}
