/* Stages and their graphs are kept from one lowering to the next (core/lower/memo.h): programs are the same with a memo and without. */
#include "core/base/rng.h"
#include "core/lower/memo.h"
#include "core/lower/shard_views.h"
#include "tests/support/replicas.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct program *lower_with(const struct plan *plan, const struct graph *g,
                                  struct lower_memo *memo)
{
    struct program *p = ARENA_ARRAY(arena, struct program, 1);
    struct error err = {0};
    struct lower_options o = {.memo = memo};
    ck_assert_msg(lower_plan_graph(arena, plan, g, &o, p, &err) == OK, "%s", err.text);
    return p;
}

static void same_as_alone(const struct plan *plan, struct lower_memo *memo)
{
    struct graph *g;
    struct error err = {0};
    struct lower_options o = {0};
    size_t n, m;
    ck_assert_msg(lower_training_graph(arena, &plan->job, plan->microbatch, &o, &g, &err) == OK,
                  "%s", err.text);
    char *alone = plans_text(lower_with(plan, g, NULL), &n),
         *kept = plans_text(lower_with(plan, g, memo), &m);
    ck_assert(n == m && !memcmp(alone, kept, n));
    free(alone), free(kept);
}

static void set_batch(struct plan *p, int32_t each)
{
    p->job.global_batch = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        p->replicas[r].microbatches = each;
        p->job.global_batch += each * p->microbatch;
    }
}

/* A program that is only timed has the stages of any batch. */
START_TEST(stages_that_are_timed_serve_all_batches)
{
    struct plan plan = replicas_llama(arena, 2, REPLICAS_HEADS, 0);
    struct lower_memo *memo = lower_memo_new();
    struct graph *g;
    struct error err = {0};
    struct lower_options o = {.memo = memo, .timed_only = true};
    const struct slot *slots[4];
    ck_assert_int_eq(lower_training_graph(arena, &plan.job, plan.microbatch, &o, &g, &err), OK);
    for (int32_t k = 0; k < 3; k++) {
        struct program p;
        set_batch(&plan, 4 + k);
        ck_assert_msg(lower_plan_graph(arena, &plan, g, &o, &p, &err) == OK, "%s", err.text);
        for (int32_t s = 0; s < 4; s++)
            if (k) ck_assert_ptr_eq(p.stages[s].slots, slots[s]);
        for (int32_t s = 0; s < 4; s++) slots[s] = p.stages[s].slots;
        ck_assert_int_eq(shard_views_kept(memo), 4);
    }
    lower_memo_free(memo);
}
END_TEST

/* Other batches, which weight the loss; layers, shardings, numbers of replicas; in any order, with a memo that keeps all, and with one
 * that keeps nothing. */
START_TEST(programs_are_the_same_with_a_memo)
{
    static const char *const texts[] = {REPLICAS_BATCH, REPLICAS_HEADS, REPLICAS_VOCABULARY};
    struct lower_memo *memo = lower_memo_new();
    if (_i % 2) memo->most = 0;
    struct plan plan = replicas_llama(arena, 3, REPLICAS_BATCH, _i / 2 % 2);
    if (_i >= 4) { /* routers have a loss on every stage */
        plan.job.model = plans_model_file(arena, "tiny-qwen3-moe");
        plan.job.model.aux_loss = 0.01;
    }
    int32_t last = plans_layers(arena, &plan) - 1;
    for (uint64_t k = 0; k < 24; k++) {
        struct plan p = plan;
        p.n_replicas = 1 + (int32_t)rng_below(k, 0, 0, 3);
        const struct sharding *s = replicas_sharding(arena, texts[rng_below(k, 0, 1, 3)], 2);
        int32_t cut = last / 2 - 1 + (int32_t)rng_below(k, 0, 2, 3);
        for (int32_t r = 0; r < p.n_replicas; r++) {
            p.replicas[r].stages[0].sharding = p.replicas[r].stages[1].sharding = s;
            p.replicas[r].stages[0].last_layer = cut;
            p.replicas[r].stages[1].first_layer = cut + 1;
            p.replicas[r].stages[1].last_layer = last;
        }
        set_batch(&p, 2 + (int32_t)rng_below(k, 0, 3, 3));
        same_as_alone(&p, memo);
    }
    lower_memo_free(memo);
}
END_TEST

/* Stages of one device: layers, recomputation, messages ahead, orders and batches vary, the graph does not. */
START_TEST(stages_are_the_same_when_kept)
{
    struct lower_memo *memo = lower_memo_new();
    struct plan plan = plans_new(arena, "gpt2", 6, 6);
    int32_t layers = plans_layers(arena, &plan);
    struct lower_options o = {0};
    struct error err = {0};
    struct graph *g;
    ck_assert_int_eq(lower_training_graph(arena, &plan.job, plan.microbatch, &o, &g, &err), OK);
    for (uint64_t k = 0; k < 48; k++) {
        struct plan p = plan;
        p.replicas = ARENA_ARRAY(arena, struct plan_replica, 6), p.n_replicas = 0;
        int32_t n = 1 + (int32_t)rng_below(k, 0, 0, 3), zero = n > 1 ? (int32_t)rng_below(k, 0, 1, 3) : 0;
        for (int32_t r = 0; r < n; r++) {
            int32_t last[2] = {layers / 2 + (int32_t)rng_below(k, 0, 2, 2), layers - 1};
            struct plan_replica *x = plans_replica(arena, &p, 4, 2, last);
            for (int32_t s = 0; s < 2; s++) {
                x->stages[s].zero = zero;
                x->stages[s].recompute = rng_below(k, 1, (uint64_t)s, 2) ? RECOMPUTE_STAGE : RECOMPUTE_NONE;
                x->stages[s].receive_ahead = 1 + (int32_t)rng_below(k, 2, (uint64_t)s, 3);
                x->stages[s].bucket_bytes = rng_below(k, 0, 3, 2) ? 1 << 20 : 0;
            }
        }
        set_batch(&p, 4 + (int32_t)rng_below(k, 0, 4, 3));
        size_t n_alone, n_kept;
        char *alone = plans_text(lower_with(&p, g, NULL), &n_alone),
             *kept = plans_text(lower_with(&p, g, memo), &n_kept);
        ck_assert(n_alone == n_kept && !memcmp(alone, kept, n_alone));
        free(alone), free(kept);
    }
    lower_memo_free(memo);
}
END_TEST

/* Names of a sharded stage's operators are the memo's. */
START_TEST(a_memo_keeps_what_is_asked_again)
{
    struct plan plan = replicas_llama(arena, 1, REPLICAS_HEADS, 0);
    struct lower_memo *memo = lower_memo_new();
    struct graph *g;
    struct error err = {0};
    struct lower_options o = {0};
    ck_assert_int_eq(
        lower_training_graph(arena, &plan.job, plan.microbatch, &o, &g, &err), OK);
    const char *name = lower_with(&plan, g, memo)->stages[0].ops[0].name;
    ck_assert_int_eq(shard_views_kept(memo), 4);
    plan.replicas[0].stages[0].sharding = replicas_sharding(arena, REPLICAS_HEADS, 2);
    const struct slot *slots = lower_with(&plan, g, memo)->stages[0].slots;
    for (int again = 0; again < 2; again++) {
        set_batch(&plan, 7);
        ck_assert_ptr_eq(lower_with(&plan, g, memo)->stages[0].slots, slots);
        ck_assert_ptr_eq(lower_with(&plan, g, memo)->stages[0].ops[0].name, name);
        /* the batch weights the loss, which the last stage's two devices have */
        ck_assert_int_eq(shard_views_kept(memo), 6);
    }
    lower_memo_free(memo);
}
END_TEST

Suite *lower_memo_suite(void)
{
    Suite *s = suite_create("lower_memo");
    TCase *c = tcase_create("lower_memo");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, programs_are_the_same_with_a_memo, 0, 8);
    tcase_add_test(c, stages_are_the_same_when_kept);
    tcase_add_test(c, stages_that_are_timed_serve_all_batches);
    tcase_add_test(c, a_memo_keeps_what_is_asked_again);
    suite_add_tcase(s, c);
    return s;
}
