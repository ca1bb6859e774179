/* Who launches a sum when: plans whose replicas keep parameters in other parts, on devices of a sharded stage and hold several
 * stages, with orders that somebody once took. A device that is no member of a sum launches the next one sooner than one that is, and
 * between the two there are collectives: lowering plays the token game, so an order that blocks is refused. */
#include "tests/support/sharded_plans.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct plan_replica replica(struct sharded *s, const struct graph *g, int32_t device, int32_t each,
                                   int32_t microbatches)
{
    int32_t n = (int32_t)sharded_draw(s, 2, 4), first = 0;
    if (n > g->n_layers) n = g->n_layers;
    struct plan_replica r = {.microbatches = microbatches,
                             .n_stages = n,
                             .stages = ARENA_ARRAY(s->a, struct plan_stage, (size_t)n)};
    for (int32_t k = 0; k < n; k++) {
        int32_t most = g->n_layers - n + k;
        int32_t last = k == n - 1 ? g->n_layers - 1 : (int32_t)sharded_draw(s, first, most);
        r.stages[k] = (struct plan_stage){.first_layer = first, .last_layer = last};
        sharded_stage(s, g, &r.stages[k], device, each, 0);
        first = last + 1;
    }
    struct plans_random draws = {s->seed, (uint64_t)device};
    plans_random_orders(s->a, &draws, &r);
    return r;
}

static enum status lower(struct arena *a, uint64_t seed, struct program *out, struct error *err)
{
    struct sharded s = {.a = a, .seed = seed};
    struct lower_options o = {.n_fused = 0};
    struct graph *g;
    int32_t each = (int32_t)sharded_draw(&s, 2, 3), m = (int32_t)sharded_draw(&s, 1, 3);
    struct plan_replica *r = ARENA_ARRAY(a, struct plan_replica, 2);
    enum status status = sharded_job(&s, 2 * each, 2 * m, sharded_draw(&s, 2, 4), false);
    ck_assert_msg(status == OK, "seed %lu: %s", (unsigned long)seed, s.err.text);
    ck_assert_int_eq(lower_graph(a, &s.plan.job, s.plan.microbatch, &g, err), OK);
    for (int32_t k = 0; k < 2; k++) r[k] = replica(&s, g, k * each, each, m);
    s.plan.replicas = r, s.plan.n_replicas = 2;
    sharded_variants_that_fit(&s);
    return lower_plan(a, &s.plan, &o, out, err);
}

START_TEST(reduces_of_chunks_that_keep_other_shards_are_launched_in_one_order)
{
    int n = suites_long() ? 400 : 10; /* times ten */
    int lowered = 0;
    for (int k = 0; k < n; k++) {
        uint64_t seed = (uint64_t)(_i * n + k);
        struct program p;
        struct error err = {0};
        enum status status = lower(arena, seed, &p, &err);
        bool tied = status != OK && strstr(err.text, "is used in two stages of the same devices");
        ck_assert_msg(status == OK || tied, "seed %lu: %s", (unsigned long)seed, err.text);
        lowered += status == OK;
        arena_reset(arena);
    }
    ck_assert_int_gt(lowered, n / 4);
}
END_TEST

Suite *lower_launches_suite(void)
{
    Suite *s = suite_create("lower_launches");
    TCase *t = tcase_create("lower_launches");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, reduces_of_chunks_that_keep_other_shards_are_launched_in_one_order, 0, 10);
    suite_add_tcase(s, t);
    return s;
}
