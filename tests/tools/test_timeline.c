/* Rows and boxes of a timeline, by hand: one by one, as classes, and a part of many classes. */
#include "core/base/arena.h"
#include "tools/timeline.h"

#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { STEP_NS = 1000000 };

/* n devices of two types in turn; device d executes F and B of one microbatch whose operators have key 7 + d % shapes. */
static struct trace *made(int32_t n, int32_t shapes)
{
    struct trace *t = ARENA_ARRAY(arena, struct trace, 1);
    *t = (struct trace){.arena = arena, .source = TRACE_SIM, .plan = "p", .clock = "simulated"};
    t->n_devices = n, t->steps = 2;
    t->devices = ARENA_ARRAY(arena, struct trace_device, (size_t)n);
    for (int32_t d = 0; d < n; d++) {
        t->devices[d] =
            (struct trace_device){.name = arena_printf(arena, "n%d.0", (int)d), .type = "t"};
        for (int32_t step = 0; step < 2; step++)
            for (int32_t k = 0; k < 4; k++) /* two operators of F, two of B */
                trace_add(t, (struct span){.kind = SPAN_COMPUTE,
                                           .stream = STREAM_compute,
                                           .device = d,
                                           .peer = -1,
                                           .stage = d,
                                           .phase = k < 2 ? PHASE_F : PHASE_B,
                                           .step = step,
                                           .op = k,
                                           .begin_ns = step * STEP_NS + k * 100000 + d,
                                           .end_ns = step * STEP_NS + (k + 1) * 100000 + d,
                                           .key = (uint64_t)(7 + d % shapes),
                                           .name = "matmul"});
    }
    for (int32_t step = 0; step < 2; step++)
        trace_add(t, (struct span){.kind = SPAN_STEP,
                                   .stream = STREAM_step,
                                   .stage = -1,
                                   .peer = -1,
                                   .phase = 'S',
                                   .step = step,
                                   .op = -1,
                                   .microbatch = -1,
                                   .begin_ns = step * STEP_NS,
                                   .end_ns = (step + 1) * STEP_NS,
                                   .name = "step"});
    return t;
}

START_TEST(few_devices_have_a_row_each)
{
    struct step_timeline l;
    timeline_make(arena, made(3, 1), &l);
    ck_assert_int_eq(l.step, 1);
    ck_assert_int_eq(l.begin_ns, STEP_NS);
    ck_assert_int_eq(l.end_ns, 2 * STEP_NS);
    ck_assert_int_eq(l.n_rows, 3);
    ck_assert_str_eq(l.rows[2].label, "n2.0");
    /* a box a call: its operators are one */
    ck_assert_uint_eq(l.n_boxes, 6);
    ck_assert_int_eq(l.boxes[1].row, 0);
    ck_assert_int_eq(l.boxes[1].begin_ns, 200000);
    ck_assert_int_eq(l.boxes[1].end_ns, 400000);
    ck_assert_int_eq(timeline_colours[l.boxes[1].colour].letter, 'B');
    ck_assert(l.boxes[1].compute);
}
END_TEST

START_TEST(many_devices_are_classes_of_equal_calls)
{
    struct step_timeline l;
    timeline_make(arena, made(20, 2), &l);
    ck_assert_int_eq(l.n_classes, 2);
    ck_assert_int_eq(l.n_rows, 2);
    ck_assert_int_eq(l.n_devices, 20);
    ck_assert_int_eq(l.rows[0].device, 0);
    ck_assert_int_eq(l.rows[1].device, 1);
    ck_assert_int_eq(l.rows[0].n, 10);
    ck_assert_str_eq(l.rows[0].label, "n[0,2,4,…].0 ×10");
    ck_assert_uint_eq(l.n_boxes, 4);
    /* another type, or another number of calls, is another class */
    struct trace *t = made(20, 1);
    t->devices[4].type = "u";
    t->n_spans -= 2; /* the ends of the steps */
    struct span ends[2] = {t->spans[t->n_spans], t->spans[t->n_spans + 1]};
    t->n_spans -= 2; /* B of the last device */
    trace_add(t, ends[0]);
    trace_add(t, ends[1]);
    timeline_make(arena, t, &l);
    ck_assert_int_eq(l.n_classes, 3);
    ck_assert_int_eq(l.rows[0].n, 18);
}
END_TEST

START_TEST(a_device_of_a_folded_trace_counts_for_all)
{
    struct step_timeline l;
    struct trace *t = made(2, 2);
    t->devices[1].stands_for = 5, t->devices[1].alike = "n1-5.0";
    timeline_make(arena, t, &l);
    ck_assert_int_eq(l.n_devices, 6);
    ck_assert_str_eq(l.rows[1].label, "n1-5.0 ×5");
}
END_TEST

START_TEST(of_more_classes_than_rows_a_part_is_shown)
{
    struct step_timeline l;
    timeline_make(arena, made(96, 96), &l);
    ck_assert_int_eq(l.n_classes, 96);
    ck_assert_int_eq(l.n_rows, TIMELINE_ROWS_MAX);
    for (int32_t r = 0; r < l.n_rows; r++) ck_assert_int_eq(l.rows[r].device, 3 * r);
    ck_assert_uint_eq(l.n_boxes, 2 * TIMELINE_ROWS_MAX);
    for (size_t i = 0; i < l.n_boxes; i++) ck_assert_int_lt(l.boxes[i].row, TIMELINE_ROWS_MAX);
}
END_TEST

Suite *timeline_suite(void)
{
    Suite *s = suite_create("timeline");
    TCase *t = tcase_create("timeline");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, few_devices_have_a_row_each);
    tcase_add_test(t, many_devices_are_classes_of_equal_calls);
    tcase_add_test(t, a_device_of_a_folded_trace_counts_for_all);
    tcase_add_test(t, of_more_classes_than_rows_a_part_is_shown);
    suite_add_tcase(s, t);
    return s;
}
