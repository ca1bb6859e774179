#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/model/checkpoint_interval.h"
#include "tests/support/suites.h"

#include <math.h>

#define S INT64_C(1000000000)

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* --- jobs --- */

static const char *const one_type[] = {"t"};
static const int64_t four[] = {4};

static double share_of_four(const void *user, const int64_t *devices)
{
    (void)user;
    return (double)devices[0] / 4;
}

/* Four devices; one cause without loss of devices; C = 60 s, R = 300 s. */
static struct goodput_job job_of(struct goodput_cause *cause, double mtbf_s)
{
    *cause = (struct goodput_cause){"failure", "", mtbf_s, 1, 0};
    return (struct goodput_job){.horizon_ns = 100000 * S,
                                .n_types = 1,
                                .types = one_type,
                                .devices = four,
                                .speed = share_of_four,
                                .checkpoint_ns = 60 * S,
                                .restart_ns = 300 * S,
                                .n_causes = 1,
                                .causes = cause};
}

static struct goodput_result study(const struct goodput_job *j, int64_t interval_ns,
                                   int32_t samples)
{
    struct goodput_result r;
    ck_assert_msg(goodput_study(arena, j, interval_ns, 1, samples, 2, &r, &err) == OK, "%s",
                  err.text);
    return r;
}

static struct goodput_tally walk(const struct goodput_job *j, int64_t interval_ns, uint64_t seed)
{
    struct goodput_tally t;
    ck_assert_msg(goodput_walk(arena, j, interval_ns, seed, 0, &t, &err) == OK, "%s", err.text);
    return t;
}

static double seconds(const struct goodput_tally *t, enum goodput_part p)
{
    return t->part_ns[p] / (double)S;
}

/* --- closed forms --- */

/* E[T] ÷ T0 where nothing fails during a restart: (M + R)(e^((t+C)/M) − 1) ÷ t. */
static double goodput_slowdown(double t, double C, double R, double M)
{
    return isfinite(M) ? (M + R) * expm1((t + C) / M) / t : (t + C) / t;
}

/* C = 60 s, R = 300 s, M = 11,135 s, worked by hand: Young 1,156 s, Daly 1,116 s. */
START_TEST(the_formulas_give_the_worked_example)
{
    const double C = 60, R = 300, M = 11135, t = checkpoint_interval_young(C, M);
    ck_assert_double_eq_tol(t, 1156, 0.5);
    ck_assert_double_eq_tol(checkpoint_interval_daly(C, M), 1116, 0.5);
    ck_assert_double_eq_tol(goodput_slowdown(t, C, R, M), 1.1414, 5e-5);
    ck_assert_double_eq_tol(goodput_slowdown(t * 4 / 3, C, R, M), 1.14745, 5e-6);
    ck_assert_double_eq_tol(goodput_slowdown(t / 2, C, R, M), 1.16665, 5e-6);
    double best = goodput_optimum(C, M), least = goodput_slowdown(best, C, R, M);
    ck_assert_double_eq_tol(best, checkpoint_interval_daly(C, M), 0.1);
    ck_assert_double_lt(least, goodput_slowdown(best * 1.01, C, R, M));
    ck_assert_double_lt(least, goodput_slowdown(best / 1.01, C, R, M));
    ck_assert_double_eq(checkpoint_interval_daly(30, 10), 10); /* C >= 2M */
    ck_assert_double_eq_tol(goodput_slowdown(100, 10, 5, INFINITY), 1.1, 1e-12);
    ck_assert(isinf(goodput_optimum(10, INFINITY)));
}
END_TEST

/* Runs of 1,000 segments each; standard error of the mean below 0.08 %. */
static void check_against_closed_form(bool calm, double R,
                                      double (*closed)(double, double, double, double))
{
    const double C = 60, M = 11135, shares[] = {0.25, 0.5, 0.75, 1, 4.0 / 3, 2, 4};
    const int32_t samples = suites_long() ? 5000 : 1000;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct goodput_cause cause;
        struct goodput_job j = job_of(&cause, M);
        int64_t t = llround(shares[i] * checkpoint_interval_young(C, M) * (double)S);
        j.calm = calm, j.restart_ns = llround(R) * S, j.work_ns = 1000 * t;
        j.horizon_ns = 100 * j.work_ns;
        struct goodput_result r = study(&j, t, samples);
        double slowdown = r.mean.elapsed_ns / (double)j.work_ns;
        double expected = closed((double)t / (double)S, C, R, M);
        ck_assert_msg(fabs(slowdown / expected - 1) < 0.002, "t = %g s: %g, not %g",
                      (double)t / (double)S, slowdown, expected);
    }
}

START_TEST(walks_take_what_the_closed_form_says_at_seven_intervals)
{
    check_against_closed_form(true, 300, goodput_slowdown);
}
END_TEST

START_TEST(and_where_restarts_fail_too)
{
    check_against_closed_form(false, 3000, goodput_slowdown_restless);
}
END_TEST

START_TEST(the_best_interval_is_the_optimum)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 11135);
    struct goodput_result r;
    j.horizon_ns = 30 * 86400 * S;
    ck_assert_int_eq(goodput_best(arena, &j, 100 * S, 10000 * S, 1, 100, 2, &r, &err), OK);
    double t = (double)r.interval_ns / (double)S;
    ck_assert_double_lt(goodput_slowdown_restless(t, 60, 300, 11135),
                        1.001 *
                            goodput_slowdown_restless(goodput_optimum(60, 11135), 60, 300, 11135));
    ck_assert_double_eq_tol(r.goodput.mean, 1 / goodput_slowdown_restless(t, 60, 300, 11135),
                            0.004);
}
END_TEST

/* --- walks by hand --- */

START_TEST(without_failures_only_checkpoints_cost)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, INFINITY);
    j.horizon_ns = 10 * (940 + 60) * S;
    struct goodput_tally t = walk(&j, 940 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 9400);
    ck_assert_double_eq(seconds(&t, GOODPUT_checkpoint), 600);
    j.n_causes = 0;
    t = walk(&j, 10000 * S, 1); /* the interval is as long as the run */
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 10000);
    ck_assert_double_eq(t.checkpoints, 0);
}
END_TEST

static const int64_t two[] = {2}, none[] = {0};
static const struct goodput_change there_and_back[] = {{300 * S, two}, {700 * S, four}};

static struct goodput_job by_hand(struct goodput_cause *cause)
{
    struct goodput_job j = job_of(cause, INFINITY);
    j.horizon_ns = 1000 * S, j.checkpoint_ns = 10 * S, j.restart_ns = 30 * S;
    j.detect_ns = 5 * S, j.replan_ns = 20 * S;
    j.n_changes = 2, j.changes = there_and_back;
    return j;
}

/* 100 s of work, 10 s of writing, twice; 80 s lost at 300 s; 5 + 20 + 30 s until two devices run from 355 s at half speed: 3 × 100
 * s with writes and 15 s until 700 s; then all four: 300 s are left, 240 > 150, so 10 + 20 + 30 s, 100, 10, 100, 10, 20 s. */
START_TEST(devices_go_and_come_back)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    struct goodput_tally t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 577.5);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 80);
    ck_assert_double_eq(seconds(&t, GOODPUT_fewer), 157.5);
    ck_assert_double_eq(seconds(&t, GOODPUT_checkpoint), 80);
    ck_assert_double_eq(seconds(&t, GOODPUT_detection), 5);
    ck_assert_double_eq(seconds(&t, GOODPUT_replan), 40);
    ck_assert_double_eq(seconds(&t, GOODPUT_restart), 60);
    ck_assert_double_eq(seconds(&t, GOODPUT_waiting), 0);
    ck_assert_double_eq(t.preemptions, 1);
    ck_assert_double_eq(t.reconfigurations, 1);
    ck_assert_double_eq(t.replans, 2);
    ck_assert_double_eq(t.cause_ns[1] / (double)S, 80 + 5 + 50 + 60);
}
END_TEST

START_TEST(what_comes_too_late_to_pay_is_left_alone)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    const struct goodput_change late[] = {{300 * S, two}, {881 * S, four}};
    j.changes = late; /* 119 s left: 1 · (119 − 60) < 0.5 · 119 */
    ck_assert_double_eq(walk(&j, 100 * S, 1).reconfigurations, 0);
    const struct goodput_change early[] = {{300 * S, two}, {879 * S, four}};
    j.changes = early; /* 121 s: 61 > 60.5 */
    ck_assert_double_eq(walk(&j, 100 * S, 1).reconfigurations, 1);
    j.changes = there_and_back;
    j.outlook_ns = 99 * S; /* as if it were to change again so soon */
    ck_assert_double_eq(walk(&j, 100 * S, 1).reconfigurations, 0);
}
END_TEST

/* Devices return during the write of 455 … 465 s, when all work is safe: no second write, and four devices from 515 s on. */
START_TEST(devices_that_come_during_a_checkpoint_are_taken_after_it)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    const struct goodput_change during[] = {{300 * S, two}, {460 * S, four}};
    j.changes = during;
    struct goodput_tally t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(t.reconfigurations, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_fewer), 50);
    /* 200 + 50, then 515 … 615, 625 … 725, 735 … 835, 845 … 945, 955 … 1000 */
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 695);
}
END_TEST

START_TEST(a_warning_saves_the_work)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    j.notice_ns = 10 * S;
    struct goodput_tally t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 0);
    ck_assert_double_eq(seconds(&t, GOODPUT_detection), 0);
    j.notice_ns = 9 * S; /* too short for a write */
    t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 80);
}
END_TEST

START_TEST(without_devices_it_waits)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    const struct goodput_change gone[] = {{300 * S, none}, {700 * S, four}};
    j.changes = gone;
    struct goodput_tally t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_waiting), 395); /* 305 … 700 s */
    ck_assert_double_eq(seconds(&t, GOODPUT_restart), 30);  /* the same four: no other plan */
    ck_assert_double_eq(seconds(&t, GOODPUT_replan), 0);
    /* safe 200; then 730 … 830, 840 … 940, 950 … 1000 */
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 450);
    j.n_changes = 1;
    t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 200);
    ck_assert_double_eq(seconds(&t, GOODPUT_waiting), 695);
}
END_TEST

/* Written at 100 … 101 s, safe at 141 s: a withdrawal at 140 s loses all of it, at 142 s only the work since. */
START_TEST(a_copy_in_the_background_is_safe_only_when_it_is_done)
{
    struct goodput_cause cause;
    struct goodput_job j = by_hand(&cause);
    j.checkpoint_ns = S, j.background_ns = 40 * S, j.n_changes = 1;
    const struct goodput_change before[] = {{140 * S, none}}, after[] = {{142 * S, none}};
    j.changes = before;
    struct goodput_tally t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 0);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 139);
    j.changes = after;
    t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_useful), 100);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 41);
    j.background_slow = 0.25; /* 40 s at three quarters */
    t = walk(&j, 100 * S, 1);
    ck_assert_double_eq(seconds(&t, GOODPUT_lost), 31);
    ck_assert_double_eq(seconds(&t, GOODPUT_checkpoint), 11);
}
END_TEST

/* --- failures that take devices --- */

START_TEST(lost_devices_slow_the_job_until_they_are_repaired_or_spared)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 20000);
    const int64_t spare[] = {4};
    j.horizon_ns = 1000000 * S, j.repair_ns = 5000 * S, j.replan_ns = 10 * S;
    cause.devices = 1;
    struct goodput_result one = study(&j, 1000 * S, 50);
    cause.devices = 3;
    struct goodput_result node = study(&j, 1000 * S, 50);
    ck_assert_double_gt(one.mean.part_ns[GOODPUT_fewer], 0);
    ck_assert_double_gt(node.mean.part_ns[GOODPUT_fewer], 2 * one.mean.part_ns[GOODPUT_fewer]);
    ck_assert_double_gt(one.mean.replans, 0);
    j.spares = spare;
    cause.devices = 1;
    struct goodput_result spared = study(&j, 1000 * S, 50);
    ck_assert_double_lt(spared.mean.part_ns[GOODPUT_fewer], 1e-3 * one.mean.part_ns[GOODPUT_fewer]);
    ck_assert_double_gt(spared.goodput.mean, one.goodput.mean);
    j.repair_ns = 0, j.spares = NULL; /* replaced in the time of the restart */
    ck_assert_double_eq(study(&j, 1000 * S, 50).mean.part_ns[GOODPUT_fewer], 0);
}
END_TEST

/* Where stopping costs nothing, Little's law: devices down = rate · (up ÷ n) · repair, so their share is x ÷ (1 + x) with x =
 * repair ÷ (n · mean time between failures), for any law of the repair (Engset). */
START_TEST(the_share_of_devices_down_is_little_s_law)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 2000);
    const double repairs[] = {500, 5000, 20000};
    cause.devices = 1;
    j.horizon_ns = 10000000 * S, j.checkpoint_ns = j.restart_ns = 0;
    for (int i = 0; i < 3; i++) {
        j.repair_ns = llround(repairs[i]) * S;
        struct goodput_result r = study(&j, 10000000 * S, 20);
        double x = repairs[i] / (4 * 2000);
        double down =
            (r.mean.part_ns[GOODPUT_fewer] + r.mean.part_ns[GOODPUT_waiting]) / r.mean.elapsed_ns;
        ck_assert_double_eq_tol(down / (x / (1 + x)), 1, 0.02);
    }
}
END_TEST

START_TEST(failures_come_as_often_as_their_mean_says_for_any_shape)
{
    const double shapes[] = {0.5, 0.7, 1, 2};
    for (int i = 0; i < 4; i++) {
        struct goodput_cause cause;
        struct goodput_job j = job_of(&cause, 1000);
        cause.shape = shapes[i];
        j.horizon_ns = 1000000 * S, j.restart_ns = S;
        /* 1,000 failures a walk; variance of one gap up to 5 squared means: standard error 0.7 % at 100 walks */
        ck_assert_double_eq_tol(study(&j, 100 * S, 100).mean.failures[0] / 1000, 1, 0.02);
    }
}
END_TEST

START_TEST(a_job_that_fails_faster_than_it_restarts_does_nothing)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 10);
    struct goodput_result r = study(&j, 1000 * S, 20);
    ck_assert_double_eq(r.goodput.p95.value, 0);
    ck_assert_double_eq(r.goodput.mean, 0);
}
END_TEST

/* --- properties --- */

static double uneven(const void *user, const int64_t *devices)
{
    const int64_t *all = user;
    double speed = (double)devices[0] + 0.3 * (double)(devices[1] / 2 * 2);
    return speed < 3 ? 0 : speed / ((double)all[0] + 0.3 * (double)(all[1] / 2 * 2));
}

static int64_t some(uint64_t seed, uint64_t what, uint64_t most)
{
    return (int64_t)rng_below(seed, 77, what, most + 1);
}

START_TEST(the_parts_of_any_run_add_up_to_the_whole)
{
    const uint64_t runs = suites_long() ? 5000 : 500;
    static const char *const types[] = {"a", "b"};
    for (uint64_t seed = 0; seed < runs; seed++) {
        int64_t all[2] = {4 + some(seed, 0, 8), 2 + some(seed, 1, 8)},
                spares[2] = {some(seed, 2, 2), 0};
        int64_t counts[20][2];
        struct goodput_change changes[20];
        struct goodput_cause causes[2] = {
            {"x", "", 500 + (double)some(seed, 3, 20000), 0.7, some(seed, 4, 2)},
            {"y", "", 500 + (double)some(seed, 5, 20000), 1, some(seed, 6, 5)}};
        for (int i = 0; i < 20; i++) {
            counts[i][0] = some(seed, (uint64_t)(20 + i), 12);
            counts[i][1] = some(seed, (uint64_t)(50 + i), 12);
            changes[i] = (struct goodput_change){
                (i + 1) * 3000 * S + some(seed, (uint64_t)(80 + i), 2000) * S, counts[i]};
        }
        struct goodput_job j = {.horizon_ns = (1 + some(seed, 7, 100000)) * S,
                                .n_types = 2,
                                .types = types,
                                .devices = all,
                                .spares = spares,
                                .speed = uneven,
                                .user = all,
                                .checkpoint_ns = some(seed, 8, 100) * S,
                                .background_ns = some(seed, 9, 1) * some(seed, 10, 300) * S,
                                .background_slow = 0.1 * (double)some(seed, 11, 5),
                                .detect_ns = some(seed, 12, 100) * S,
                                .restart_ns = some(seed, 13, 400) * S,
                                .replan_ns = some(seed, 14, 100) * S,
                                .repair_ns = some(seed, 15, 5000) * S,
                                .outlook_ns = some(seed, 16, 1) * 5000 * S,
                                .notice_ns = some(seed, 17, 1) * 120 * S,
                                .calm = some(seed, 18, 1),
                                .n_causes = 2,
                                .causes = causes,
                                .n_changes = (size_t)some(seed, 19, 20),
                                .changes = changes};
        struct goodput_tally t = walk(&j, (1 + some(seed, 110, 3000)) * S, seed);
        double sum = 0, by_cause = 0, stops = 0;
        for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
            ck_assert_double_ge(t.part_ns[p], -1);
            sum += t.part_ns[p];
        }
        ck_assert_double_eq_tol(sum, (double)j.horizon_ns, 100);
        ck_assert_double_eq(t.elapsed_ns, (double)j.horizon_ns);
        for (int i = 0; i < 3; i++) by_cause += t.cause_ns[i];
        stops = t.part_ns[GOODPUT_lost] + t.part_ns[GOODPUT_detection] + t.part_ns[GOODPUT_replan] +
                t.part_ns[GOODPUT_restart] + t.part_ns[GOODPUT_waiting];
        ck_assert_double_ge(by_cause, stops - 100);
        ck_assert_double_le(by_cause, stops + t.part_ns[GOODPUT_checkpoint] + 100);
    }
}
END_TEST

START_TEST(threads_change_no_bit_of_a_study)
{
    struct goodput_cause cause;
    struct goodput_job j = job_of(&cause, 3000);
    struct goodput_result a, b;
    /* One sample is a study: what the walk of that sample took. */
    ck_assert_int_eq(goodput_study(arena, &j, 500 * S, 1, 1, 1, &a, &err), OK);
    ck_assert_double_eq(a.mean.elapsed_ns, walk(&j, 500 * S, 1).elapsed_ns);
    ck_assert_int_eq(goodput_study(arena, &j, 500 * S, 1, 0, 1, &a, &err), ERR_USAGE);
    ck_assert_int_eq(goodput_study(arena, &j, 500 * S, 1, 1, 0, &a, &err), ERR_USAGE);
    ck_assert_int_eq(goodput_study(arena, &j, 500 * S, 1, 40, 1, &a, &err), OK);
    ck_assert_int_eq(goodput_study(arena, &j, 500 * S, 1, 40, 3, &b, &err), OK);
    ck_assert_double_eq(a.goodput.mean, b.goodput.mean);
    ck_assert_double_eq(a.goodput.p5.value, b.goodput.p5.value);
    ck_assert_mem_eq(a.mean.part_ns, b.mean.part_ns, sizeof a.mean.part_ns);
    ck_assert_double_eq(a.mean.failures[0], b.mean.failures[0]);
}
END_TEST

START_TEST(what_cannot_be_walked_is_refused)
{
    struct goodput_cause cause;
    struct goodput_tally t;
    struct goodput_job j = job_of(&cause, 1e-9), good = job_of(&cause, 1000);
    cause.mtbf_s = 1e-9;
    ck_assert_int_eq(goodput_walk(arena, &j, S, 1, 0, &t, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "failures"));
    cause.mtbf_s = 0;
    ck_assert_int_eq(goodput_walk(arena, &good, S, 1, 0, &t, &err), ERR_INPUT);
    cause.mtbf_s = 1000;
    good.checkpoint_ns = 0;
    ck_assert_int_eq(goodput_walk(arena, &good, 1000, 1, 0, &t, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "checkpoints"));
    ck_assert_int_eq(goodput_walk(arena, &good, 0, 1, 0, &t, &err), ERR_INPUT);
    good.devices = none;
    ck_assert_int_eq(goodput_walk(arena, &good, S, 1, 0, &t, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "at least one device"));
}
END_TEST

Suite *goodput_suite(void)
{
    Suite *s = suite_create("goodput");
    TCase *c = tcase_create("goodput");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, suites_long() ? 600 : 120);
    tcase_add_test(c, the_formulas_give_the_worked_example);
    tcase_add_test(c, walks_take_what_the_closed_form_says_at_seven_intervals);
    tcase_add_test(c, and_where_restarts_fail_too);
    tcase_add_test(c, the_best_interval_is_the_optimum);
    tcase_add_test(c, without_failures_only_checkpoints_cost);
    tcase_add_test(c, devices_go_and_come_back);
    tcase_add_test(c, what_comes_too_late_to_pay_is_left_alone);
    tcase_add_test(c, devices_that_come_during_a_checkpoint_are_taken_after_it);
    tcase_add_test(c, a_warning_saves_the_work);
    tcase_add_test(c, without_devices_it_waits);
    tcase_add_test(c, a_copy_in_the_background_is_safe_only_when_it_is_done);
    tcase_add_test(c, lost_devices_slow_the_job_until_they_are_repaired_or_spared);
    tcase_add_test(c, the_share_of_devices_down_is_little_s_law);
    tcase_add_test(c, failures_come_as_often_as_their_mean_says_for_any_shape);
    tcase_add_test(c, a_job_that_fails_faster_than_it_restarts_does_nothing);
    tcase_add_test(c, the_parts_of_any_run_add_up_to_the_whole);
    tcase_add_test(c, threads_change_no_bit_of_a_study);
    tcase_add_test(c, what_cannot_be_walked_is_refused);
    suite_add_tcase(s, c);
    return s;
}
