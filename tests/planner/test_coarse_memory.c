/* Estimates of the coarse search where memory is short: what recomputation keeps, whose state ZeRO divides, warm-ups in place of weight
 * gradients apart. */
#include "core/base/arena.h"
#include "planner/schedule/plan.h"
#include "tests/support/coarse_rack.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <string.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *tight =
    "version: 1\nname: tight\n"
    "device_types: [{name: h, device: H100-SXM5, memory: %d GiB}, {name: a, device: A100-SXM4-40, memory: 24 GiB}]\n"
    "nodes: [{name: big, devices: {type: h, count: 4}}, {name: s, count: 4, devices: {type: a, count: 1}}]\n"
    "switches: [{name: core}]\n"
    "links:\n"
    "  - {name: nv, between: [big], bandwidth: 450 GB/s, latency: 1 us}\n"
    "  - {name: ubig, between: [big, core], bandwidth: 12.5 GB/s, latency: 5 us}\n"
    "  - {name: us, count: 4, between: [s, core], bandwidth: 3.1 GB/s, latency: 8 us}\n";

/* 64 microbatches of one sequence, on H100 with so much memory. */
static struct space priced(struct coarse_rack *m, int GiB)
{
    struct error err = {0};
    coarse_rack_make(arena, m, texts_cluster(arena, arena_printf(arena, tight, GiB)), coarse_rack_job);
    m->job.global_batch = 64;
    ck_assert_msg(coarse_classes(&m->coarse, &err) == OK, "%s", err.text);
    ck_assert_msg(coarse_space(&m->coarse, 0, &err) == OK, "%s", err.text);
    struct space s = m->coarse.spaces[0];
    s.cluster = &m->cluster;
    return s;
}

/* The plan of a template for 64 microbatches, with its schedule. */
static struct plan plan_of(struct coarse_rack *m, const struct coarse_template *x)
{
    struct plan p;
    struct coarse_candidate c = {.n_teams = 1, .team = {x}, .share = {64}};
    ck_assert(coarse_place(&m->coarse, &c, arena, &p));
    coarse_set_schedule(x, p.replicas);
    return p;
}

/* One pipeline over a node and four single GPUs, which no template fits without recomputation: every one is near its simulation, with eager
 * 1F1B and with ZeRO 1 too, although only the stages of several GPUs have state to divide. */
START_TEST(estimates_are_near_where_memory_is_short)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t eager = 0, divided = 0;
    struct space s = priced(&m, _i);
    struct coarse_template t[3 * COARSE_TEMPLATE_LISTS];
    int32_t n = coarse_templates(&m.coarse, 3, 1, 3, false, (struct coarse_need){0}, t);
    ck_assert_int_ge(n, 6);
    for (int32_t i = 0; i < n; i++) {
        const struct coarse_template *x = &t[i];
        struct plan p = plan_of(&m, x);
        int64_t ns, estimate = x->fill_ns + 63 * x->pace_ns + coarse_tail_ns(&m.coarse, &x, 1, 1);
        ck_assert_msg(coarse_trial(&m.coarse, &s, &p, &ns, &err) == OK, "%s", err.text);
        double ratio = (double)ns / (double)estimate;
        ck_assert_msg(ratio > 0.9 && ratio < 1.08, "estimate %.4g, simulated %.4g: %s", (double)estimate,
                      (double)ns, plan_describe(arena, &p));
        eager += x->schedule == COARSE_EAGER, divided += x->zero;
    }
    ck_assert_int_ge(eager, 2);
    ck_assert_int_ge(divided, 3);
    coarse_rack_end(&m);
}
END_TEST

/* A pipeline that lacks memory for weight gradients apart is ordered with its backward undivided, and faster than 1F1B. */
START_TEST(orders_of_full_stages_leave_the_backward_undivided)
{
    struct coarse_rack m;
    struct error err = {0};
    struct coarse_template t[3 * COARSE_TEMPLATE_LISTS];
    int32_t undivided = 0;
    struct space s = priced(&m, 26);
    ck_assert_int_gt(coarse_templates(&m.coarse, 3, 1, 3, false, (struct coarse_need){0}, t), 0);
    t[0].schedule = COARSE_1F1B;
    struct plan p = plan_of(&m, &t[0]);
    int64_t ns, before, left = 10;
    ck_assert_int_eq(scorer_fit(m.context.scorer, &s, &p, &before, &err), OK);
    ns = before;
    ck_assert_int_eq(schedule_plan(arena, m.context.scorer, &s, &p, &ns, &left, NULL, &err), OK);
    ck_assert_int_lt(100 * ns, 97 * before);
    for (int32_t i = 0; i < p.replicas[0].n_stages; i++) {
        ck_assert_ptr_nonnull(p.replicas[0].stages[i].order);
        undivided += strchr(p.replicas[0].stages[i].order, 'B') != NULL;
    }
    ck_assert_int_ge(undivided, 1);
    coarse_rack_end(&m);
}
END_TEST

Suite *coarse_memory_suite(void)
{
    Suite *suite = suite_create("coarse_memory");
    TCase *c = tcase_create("coarse_memory");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, estimates_are_near_where_memory_is_short, 26, 29);
    tcase_add_test(c, orders_of_full_stages_leave_the_backward_undivided);
    suite_add_tcase(suite, c);
    return suite;
}
