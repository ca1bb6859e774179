/* Plans without a flush from synchronous ones (tools/strategy/unflushed_plans.h): what stays, and what has none. */
#include "tools/strategy/unflushed_plans.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct plan pipelines(void)
{
    struct plan p = plans_new(arena, "gpt2", 3, 5);
    int32_t end = plans_layers(arena, &p) - 1, three[3] = {1, 4, end}, two[2] = {3, end};
    struct plan_replica *r = plans_replica(arena, &p, 4, 3, three);
    r->stages[0].zero = 1, r->stages[1].order = "F0 B0 F1 B1 F2 B2 F3 B3", r->stages[2].recompute = RECOMPUTE_STAGE;
    plans_replica(arena, &p, 2, 2, two)->schedule = "1f1b";
    return p;
}

START_TEST(pipelines_keep_stages_and_shares)
{
    struct plan sync = pipelines(), out[UNFLUSHED_PLANS];
    const char *why;
    static const int32_t warmup[UNFLUSHED_PLANS][2][3] = {{{0}}, {{4, 3, 1}, {2, 1}}};
    ck_assert_int_eq(unflushed_plans(arena, &sync, out, &why), UNFLUSHED_PLANS);
    ck_assert_ptr_null(why);
    for (int k = 0; k < UNFLUSHED_PLANS; k++) {
        (void)plans_lower(arena, &out[k], true);
        ck_assert(out[k].weight_versions == 2 && out[k].n_replicas == 2);
        for (int32_t r = 0; r < 2; r++)
            for (int32_t s = 0; s < out[k].replicas[r].n_stages; s++) {
                const struct plan_stage *x = &out[k].replicas[r].stages[s], *of = &sync.replicas[r].stages[s];
                ck_assert(x->first_layer == of->first_layer && x->device == of->device && x->recompute == of->recompute && !x->zero);
                ck_assert_int_eq(x->warmup, warmup[k][r][s]);
            }
    }
    ck_assert(sync.replicas[0].stages[0].zero == 1 && sync.replicas[0].stages[1].order);
}
END_TEST

static void none(const struct plan *p, const char *text)
{
    struct plan out[UNFLUSHED_PLANS];
    const char *why;
    ck_assert_int_eq(unflushed_plans(arena, p, out, &why), 0);
    ck_assert_msg(strstr(why, text) != NULL, "'%s' in: %s", text, why);
}

START_TEST(others_have_none_with_the_reason)
{
    struct plan p = pipelines(), alone = plans_new(arena, "gpt2", 3, 2);
    int32_t end = plans_layers(arena, &alone) - 1;
    plans_replica(arena, &alone, 2, 1, &end);
    none(&alone, "no replica is a pipeline");
    p.replicas[1].stages[1].device = p.replicas[1].stages[0].device;
    none(&p, "a device has several stages");
    p = pipelines();
    p.replicas[0].stages[2].n_shards = 2;
    none(&p, "a stage is on several devices");
}
END_TEST

Suite *unflushed_plans_suite(void)
{
    Suite *s = suite_create("unflushed_plans");
    TCase *t = tcase_create("unflushed_plans");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, pipelines_keep_stages_and_shares);
    tcase_add_test(t, others_have_none_with_the_reason);
    suite_add_tcase(s, t);
    return s;
}
