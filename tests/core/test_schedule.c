/* Named schedules against their closed forms (equal stages, no transfers), and their warm-up counts. */
#include "core/plan/schedule.h"

#include "core/base/arena.h"
#include "tests/support/schedules.h"
#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *text_of(const struct schedule *s)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    schedule_write(f, s, '|');
    fclose(f);
    const char *copy = arena_strdup(arena, text);
    free(text);
    return copy;
}

static void checked(const struct schedule *s)
{
    struct error err = {0};
    ck_assert_msg(schedule_check(arena, s, NULL, &err) == OK,
                  "%s of %d devices, %d microbatches: %s", s->name, s->n_devices, s->n_microbatches,
                  err.text);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* F, I, W in any unit; the last ones do not meet W <= F, B. */
static const int64_t unequal[][3] = {{10, 10, 10}, {10, 12, 7}, {5, 6, 4}, {10, 20, 10}, {4, 3, 3}};
enum { UNEQUAL = sizeof unequal / sizeof *unequal };

/* Every (p, m) of a test, or a part of them where counts are short. */
#define FOR_SIZES(p, m)                                                                            \
    for (int32_t p = 1; p <= (suites_long() ? 16 : 9); p++)                                        \
        for (int32_t m = 1; m <= (suites_long() ? 48 : 20); m++, arena_reset(arena))

START_TEST(gpipe_and_1f1b_have_a_bubble_of_all_but_one_stage)
{
    FOR_SIZES(p, m) for (int u = 0; u < UNEQUAL; u++)
    {
        const int64_t *t = unequal[u], all = t[0] + t[1] + t[2];
        struct schedule g = schedule_of(arena, SCHEDULE_GPIPE, p, 0, m, false);
        struct schedule o = schedule_of(arena, SCHEDULE_1F1B, p, 0, m, false);
        struct schedule e = schedule_of(arena, SCHEDULE_EAGER, p, 0, m, false);
        struct sweep tg = sweep_uniform(arena, &g, t[0], t[1], t[2]),
                     to = sweep_uniform(arena, &o, t[0], t[1], t[2]),
                     te = sweep_uniform(arena, &e, t[0], t[1], t[2]);
        ck_assert_int_eq(tg.makespan, (m + p - 1) * all);
        ck_assert_int_eq(to.makespan, (m + p - 1) * all);
        ck_assert_int_eq(te.makespan, (m + p - 1) * all);
        ck_assert_int_eq(tg.bubble, (p - 1) * all);
        ck_assert_int_eq(to.bubble, (p - 1) * all);
        ck_assert_int_eq(te.bubble, (p - 1) * all);
        for (int32_t d = 0; d < p; d++) {
            ck_assert_int_eq(tg.peak[d], m);
            ck_assert_int_eq(to.peak[d], least(p - d, m));
            ck_assert_int_eq(te.peak[d], least(2 * (p - d) - 1, m));
        }
    }
}
END_TEST

START_TEST(splitting_the_backward_lets_gradients_leave_before_weights)
{
    /* Equal stages: the wait for the last microbatch's gradient no longer has p-1 weight gradients in it. */
    FOR_SIZES(p, m)
    {
        struct schedule o = schedule_of(arena, SCHEDULE_1F1B, p, 0, m, true);
        struct sweep t = sweep_uniform(arena, &o, 10, 10, 10);
        ck_assert_int_eq(t.makespan, m * 30 + (p - 1) * 20);
        ck_assert_int_eq(schedule_ops(&o), 3 * p * m);
        checked(&o);
    }
}
END_TEST

START_TEST(interleaving_divides_the_bubble_by_the_number_of_chunks)
{
    for (int32_t p = 1; p <= (suites_long() ? 12 : 6); p++)
        for (int32_t v = 2; v <= 4; v++)
            for (int32_t groups = 1; groups <= 6; groups++, arena_reset(arena)) {
                int32_t m = groups * p;
                struct schedule s = schedule_of(arena, SCHEDULE_INTERLEAVED, p, v, m, false);
                struct sweep t = sweep_uniform(arena, &s, 3, 4, 2); /* of a chunk */
                ck_assert_int_eq(t.makespan, m * v * 9 + (p - 1) * 9);
                ck_assert_int_eq(t.bubble, (p - 1) * 9);
                for (int32_t d = 0; d < p; d++)
                    ck_assert_int_eq(t.peak[d],
                                     least(2 * (p - 1 - d) + (v - 1) * p + 1, (int64_t)m * v));
                checked(&s);
            }
}
END_TEST

START_TEST(zero_bubble_by_hand_leaves_what_its_authors_say)
{
    FOR_SIZES(p, m) for (int h = 1; h <= 2; h++)
    {
        struct schedule s =
            schedule_of(arena, h == 1 ? SCHEDULE_ZB_H1 : SCHEDULE_ZB_H2, p, 0, m, true);
        int32_t peak = h == 1 ? p : 2 * p - 1;
        for (int u = 0; u < UNEQUAL; u++) {
            const int64_t *t = unequal[u];
            struct sweep x = sweep_uniform(arena, &s, t[0], t[1], t[2]);
            for (int32_t d = 0; d < p; d++) ck_assert_int_eq(x.peak[d], least(peak, m));
            if (m >= peak) ck_assert_int_eq(x.bubble, (p - 1) * (t[0] + t[1] - h * t[2]));
            if (m >= peak && h == 1)
                ck_assert_int_eq(x.makespan,
                                 m * (t[0] + t[1] + t[2]) + (p - 1) * (t[0] + t[1] - t[2]));
        }
        checked(&s);
    }
}
END_TEST

START_TEST(zb_v_idles_nowhere_where_all_operations_take_the_same)
{
    FOR_SIZES(p, m)
    {
        struct schedule s = schedule_of(arena, SCHEDULE_ZB_V, p, 0, m, true);
        struct sweep t = sweep_uniform(arena, &s, 1, 1, 1);
        if (m >= 2 * p - 1) {
            ck_assert_int_eq(t.bubble, 0);
            ck_assert_int_eq(t.makespan, 6 * m + p - 1); /* the last device starts p-1 later */
            for (int32_t d = 0; d < p; d++) ck_assert_int_eq(t.peak[d], 2 * p);
        }
        ck_assert_int_le(t.peak_max, 2 * p);
        checked(&s);
    }
}
END_TEST

START_TEST(v_half_and_v_min_keep_to_their_memory)
{
    FOR_SIZES(p, m)
    {
        struct schedule half = schedule_of(arena, SCHEDULE_V_HALF, p, 0, m, true),
                        min = schedule_of(arena, SCHEDULE_V_MIN, p, 0, m, true);
        struct sweep h = sweep_uniform(arena, &half, 1, 1, 1),
                     n = sweep_uniform(arena, &min, 1, 1, 1);
        checked(&half), checked(&min);
        ck_assert_int_le(h.peak_max, 2 * ((p + 2) / 2));
        ck_assert_int_le(n.peak_max, 2 * ((p + 4) / 3));
        if (m < 2 * p) continue;
        ck_assert_int_eq(h.peak_max, 2 * ((p + 2) / 2));
        ck_assert_int_eq(n.peak_max, 2 * ((p + 4) / 3));
        /* Bubble rates p / 2m and 2p / 3m of six units a microbatch. */
        ck_assert_int_le(h.makespan - 6 * m, 3 * p);
        ck_assert_int_le(n.makespan - 6 * m, 4 * p);
    }
}
END_TEST

START_TEST(large_v_shaped_schedules_keep_their_promises)
{
    static const int32_t sizes[] = {24, 31, 32, 64};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++, arena_reset(arena)) {
        int32_t p = sizes[k], m = 2 * p;
        struct schedule half = schedule_of(arena, SCHEDULE_V_HALF, p, 0, m, true),
                        min = schedule_of(arena, SCHEDULE_V_MIN, p, 0, m, true),
                        zb = schedule_of(arena, SCHEDULE_ZB_V, p, 0, m, true);
        struct sweep h = sweep_uniform(arena, &half, 1, 1, 1),
                     n = sweep_uniform(arena, &min, 1, 1, 1),
                     z = sweep_uniform(arena, &zb, 1, 1, 1);
        ck_assert_int_eq(h.peak_max, 2 * ((p + 2) / 2));
        ck_assert_int_eq(n.peak_max, 2 * ((p + 4) / 3));
        ck_assert_int_eq(z.peak_max, 2 * p);
        ck_assert_int_le(h.makespan - 6 * m, 3 * p);
        ck_assert_int_le(n.makespan - 6 * m, 4 * p);
        ck_assert_int_eq(z.bubble, 0);
    }
}
END_TEST

/* --- warm-up counts --- */

static void warmups(enum schedule_kind kind, int32_t p, const double *time, const double *transfer,
                    const int32_t *expected)
{
    int32_t w[8];
    struct schedule_spec s = {
        .kind = kind, .n_devices = p, .n_microbatches = 64, .time = time, .transfer = transfer};
    schedule_warmup(&s, w);
    for (int32_t d = 0; d < p; d++) ck_assert_int_eq(w[d], expected[d]);
}
#define WARMUPS(kind, p, time, transfer, ...)                                                      \
    warmups(SCHEDULE_##kind, p, time, transfer, (const int32_t[]){__VA_ARGS__})

START_TEST(warm_up_counts_follow_the_links)
{
    const double one[] = {1, 1, 1, 1}, uneven[] = {3, 4, 2, 4};
    const double none[] = {0, 0, 0}, cheap[] = {0, 0.05, 0}, tenth[] = {0, 0.1, 0},
                 third[] = {0, 0.3, 0}, half[] = {0, 0.5, 0}, more[] = {0, 0.6, 0},
                 full[] = {0, 1, 0}, twice[] = {0, 2, 0}, mixed[] = {1, 3, 0.1};
    WARMUPS(1F1B, 4, one, third, 4, 3, 2, 1);
    WARMUPS(EAGER, 4, one, third, 7, 5, 3, 1);
    WARMUPS(H1F1B, 4, NULL, NULL, 4, 3, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, NULL, NULL, 4, 3, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, one, none, 4, 3, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, one, cheap, 4, 3, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, one, tenth, 5, 4, 2, 1); /* "below a tenth" is 1 */
    WARMUPS(H1F1B_PUBLISHED, 4, one, third, 5, 4, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, one, half, 6, 5, 2, 1);
    WARMUPS(H1F1B_PUBLISHED, 4, one, twice, 6, 5, 2, 1);
    WARMUPS(H1F1B, 4, one, none, 4, 3, 2, 1);
    WARMUPS(H1F1B, 4, one, cheap, 5, 4, 2, 1);
    WARMUPS(H1F1B, 4, one, half, 5, 4, 2, 1); /* (1 + 2·0.5)/1 is 2 exactly */
    WARMUPS(H1F1B, 4, one, more, 6, 5, 2, 1);
    WARMUPS(H1F1B, 4, one, full, 6, 5, 2, 1);
    WARMUPS(H1F1B, 4, one, twice, 6, 5, 2, 1);    /* period 2: (1 + 4)/2 */
    WARMUPS(H1F1B, 4, uneven, mixed, 7, 5, 3, 1); /* period 4: 6/4, 8/4, 4.2/4 */
}
END_TEST

START_TEST(explicit_warm_up_counts_make_the_order)
{
    const int32_t w[] = {3, 1};
    struct schedule_spec spec = {
        .kind = SCHEDULE_1F1B, .n_devices = 2, .n_microbatches = 6, .warmup = w};
    struct schedule s;
    struct error err = {0};
    ck_assert_int_eq(schedule_make(arena, &spec, &s, &err), OK);
    ck_assert_str_eq(text_of(&s), "F0,F1,F2,B0,F3,B1,F4,B2,F5,B3,B4,B5|"
                                  "F0,B0,F1,B1,F2,B2,F3,B3,F4,B4,F5,B5");
    const int32_t many[] = {100, 100};
    spec.warmup = many;
    ck_assert_int_eq(schedule_make(arena, &spec, &s, &err), OK);
    struct schedule g = schedule_of(arena, SCHEDULE_GPIPE, 2, 0, 6, false);
    ck_assert_str_eq(text_of(&s), text_of(&g));
}
END_TEST

START_TEST(orders_are_what_the_papers_draw)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 3, 0, 4, false);
    ck_assert_str_eq(text_of(&s), "F0,F1,F2,B0,F3,B1,B2,B3|F0,F1,B0,F2,B1,F3,B2,B3|"
                                  "F0,B0,F1,B1,F2,B2,F3,B3");
    s = schedule_of(arena, SCHEDULE_ZB_H1, 2, 0, 3, true);
    ck_assert_str_eq(text_of(&s), "F0,F1,I0,W0,F2,I1,W1,I2,W2|F0,I0,F1,I1,W0,F2,I2,W1,W2");
    s = schedule_of(arena, SCHEDULE_INTERLEAVED, 2, 2, 2, false);
    ck_assert_str_eq(text_of(&s),
                     "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1|0F0,0F1,1F0,1B0,1F1,1B1,0B0,0B1");
    s = schedule_of(arena, SCHEDULE_ZB_V, 1, 0, 2, true);
    ck_assert_str_eq(text_of(&s), "0F0,1F0,1I0,1W0,0F1,0I0,0W0,1F1,1I1,1W1,0I1,0W1");
    ck_assert_int_eq(schedule_of(arena, SCHEDULE_V_MIN, 3, 0, 2, true).stage[1], 5);
    ck_assert_int_eq(schedule_of(arena, SCHEDULE_INTERLEAVED, 3, 2, 3, true).stage[1], 3);
}
END_TEST

Suite *schedule_suite(void)
{
    Suite *s = suite_create("core/plan/schedule");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, gpipe_and_1f1b_have_a_bubble_of_all_but_one_stage);
    tcase_add_test(t, splitting_the_backward_lets_gradients_leave_before_weights);
    tcase_add_test(t, interleaving_divides_the_bubble_by_the_number_of_chunks);
    tcase_add_test(t, zero_bubble_by_hand_leaves_what_its_authors_say);
    tcase_add_test(t, zb_v_idles_nowhere_where_all_operations_take_the_same);
    tcase_add_test(t, v_half_and_v_min_keep_to_their_memory);
    tcase_add_test(t, large_v_shaped_schedules_keep_their_promises);
    tcase_add_test(t, warm_up_counts_follow_the_links);
    tcase_add_test(t, explicit_warm_up_counts_make_the_order);
    tcase_add_test(t, orders_are_what_the_papers_draw);
    suite_add_tcase(s, t);
    return s;
}
