/* The local search over one table of moves: every plan it builds is valid, its budgets are kept, and what needs a change of stages and
 * replicas is found. */
#include "planner/local_search/local_search.h"
#include "planner/local_search/stage_moves.h"

#include "tests/support/spmd_stage_cases.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct search_context context_of(struct small *x, const struct search_options *o)
{
    struct search_context t = {.arena = arena,
                               .o = o,
                               .lower = &x->lower,
                               .scorer = scorer_new(&x->lower),
                               .budget = 1, .evaluations_left = 100000};
    incumbents_init(&t.incumbents, arena, 8, o, &x->cluster);
    return t;
}

/* --- every variant --- */

struct checking {
    const struct small *x;
    int64_t plans, shared, sharded, sizes[2], ns;
};

/* Layers and devices are covered once, shares are the batch, sequences the microbatch. Every third plan is faster than all before. */
static enum status check(void *of, struct plan *plans, const struct space *const *spaces, int32_t n,
                         int64_t *ns, struct error *err)
{
    struct checking *c = of;
    for (int32_t i = 0; i < n; i++) {
        const struct plan *p = &plans[i];
        bool used[16] = {false};
        int64_t batch = 0;
        ck_assert_msg(plan_check(p, c->x->space[0].n_layers, err) == OK, "%s", err->text);
        for (int32_t r = 0; r < p->n_replicas; r++) {
            int32_t next = 0;
            batch += p->replicas[r].microbatches * p->microbatch;
            for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
                const struct plan_stage *y = &p->replicas[r].stages[s];
                int64_t sequences = 0;
                ck_assert_int_eq(y->first_layer, next);
                next = y->last_layer + 1;
                for (int32_t k = 0; k < plan_stage_devices(y); k++) {
                    ck_assert(!used[plan_stage_device(y, k)]);
                    used[plan_stage_device(y, k)] = true;
                    if (y->sequences) sequences += y->sequences[k];
                }
                ck_assert(!y->n_shards || y->sharding || sequences == p->microbatch);
                c->shared += y->n_shards > 1, c->sharded += y->sharding != NULL;
            }
            ck_assert_int_eq(next, c->x->space[0].n_layers);
        }
        ck_assert_int_eq(batch, c->x->job.global_batch);
        ck_assert_int_eq(spaces[i]->microbatch, p->microbatch);
        c->sizes[p->microbatch - 1]++;
        ns[i] = ++c->plans % 3 ? INT64_MAX : (c->ns -= c->ns / 10000);
    }
    return OK;
}

/* A random plan; of every second one the first two stages shard their operators together. */
static void start_plan(struct small *x, uint64_t seed, struct plan *out)
{
    static const double even[] = {1, 1};
    struct draw d = {seed, 8000};
    random_teams_plan(arena, &d, &x->space[1], out);
    struct plan_stage *y = out->replicas->stages;
    if (seed % 2 || out->replicas->n_stages < 2 ||
        !stage_moves_merge(arena, &x->space[1], out, 0, 0))
        return;
    y->sequences = NULL, y->sharding = sharding_of_index(arena, INDEX_batch, even, 2);
}

START_TEST(every_move_makes_a_valid_plan)
{
    struct checking all = {.plans = 0};
    for (uint64_t seed = 1; seed <= (suites_long() ? 200 : 20); seed++, arena_reset(arena)) {
        struct search_options o = {.top = 1};
        struct small *x = small_new(arena, seed);
        struct search_context t = context_of(x, &o);
        struct checking c = {.x = x, .ns = INT64_C(1000000000000)};
        struct error err = {0};
        struct plan p;
        int64_t ns = c.ns;
        start_plan(x, seed, &p);
        struct local_search_task task = {.t = &t,
                                         .s = &x->space[1],
                                         .sizes = x->space,
                                         .n_sizes = 2,
                                         .evaluations = 400,
                                         .stages = true,
                                         .named = true,
                                         .score = {check, &c}};
        ck_assert_msg(local_search_plan(&task, &p, &ns, &err) == OK, "%s", err.text);
        ck_assert_int_le(c.plans, 400);
        all.plans += c.plans, all.shared += c.shared, all.sharded += c.sharded;
        for (int k = 0; k < 2; k++) all.sizes[k] += c.sizes[k];
        scorer_free(t.scorer);
    }
    ck_assert_msg(all.plans > 1000 && all.shared > 100 && all.sharded > 100 && all.sizes[0] > 100 &&
                      all.sizes[1] > 100,
                  "%d plans, %d stages on several devices, %d sharded, %d and %d of a size",
                  (int)all.plans, (int)all.shared, (int)all.sharded, (int)all.sizes[0],
                  (int)all.sizes[1]);
}
END_TEST

/* --- budgets --- */

/* From the whole model on one device: with more work nothing slower is found, and no more than a plan above the limit is simulated. */
START_TEST(more_work_finds_no_slower_plan_and_none_is_begun_beyond_it)
{
    int32_t better = 0;
    for (uint64_t seed = 301; seed < 313; seed += 2, arena_reset(arena)) {
        struct small *x = small_new(arena, seed);
        struct search_options o = {.top = 4};
        int64_t work[2], best[2], ns = 0;
        for (int turn = 0; turn < 2; turn++) {
            struct error err = {0};
            struct search_context t = context_of(x, &o);
            struct incumbents from;
            struct plan p;
            int32_t one = 1;
            incumbents_init(&from, arena, 8, &o, &x->cluster);
            plan_skeleton(arena, &x->space[0], "start", 1, &one, &p);
            p.replicas[0].microbatches = x->space[0].microbatches;
            p.replicas[0].stages[0].last_layer = x->space[0].n_layers - 1;
            ck_assert_int_eq(search_context_score(&t, &x->space[0], &p, &ns, &err), OK);
            incumbents_add(&from, &p, ns);
            int64_t start = scorer_work(t.scorer), limit = turn ? 300000000 : 1000000;
            t.work_end = start + limit;
            ck_assert_int_eq(local_search_incumbents(&t, &from, x->space, 2, &err), OK);
            work[turn] = scorer_work(t.scorer) - start;
            best[turn] = t.incumbents.n ? t.incumbents.plans[0].iteration_ns : INT64_MAX;
            ck_assert_int_lt(work[turn], limit + 50000000); /* the plans of a batch are simulated */
            ck_assert_int_eq(t.work_end, start + limit);
            scorer_free(t.scorer);
        }
        ck_assert_int_le(work[0], work[1]);
        ck_assert_int_le(best[1], best[0]);
        better += best[1] < ns;
    }
    ck_assert_int_gt(better, 2);
}
END_TEST

Suite *local_search_suite(void)
{
    Suite *s = suite_create("local_search");
    TCase *t = tcase_create("local_search");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, every_move_makes_a_valid_plan);
    tcase_add_test(t, more_work_finds_no_slower_plan_and_none_is_begun_beyond_it);
    suite_add_tcase(s, t);
    return s;
}
