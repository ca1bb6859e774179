#include "core/base/arena.h"
#include "exec/checkpoint/written.h"
#include "tests/support/suites.h"
#include "traces/saves.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MS = 1000000, STEPS = 10 };

/* Steps of 100 ms. The first checkpoint stops step 3 (from 0) for 20 ms, and its write makes steps 3 and 4 30 ms longer each; in step 6 the
 * second waits 10 ms for it, and stops the step for 20 ms; its write ends in that step, which is 50 ms longer. */
static void timeline(struct arena *a, struct saves *s, int64_t *end)
{
    const int64_t length[STEPS] = {300, 100, 100, 150, 130, 100, 180, 100, 100, 100};
    for (int i = 0; i < STEPS; i++) end[i] = (i ? end[i - 1] : 0) + length[i] * MS;
    saves_add(s, a, (struct saves_one){500 * MS, 520 * MS, 890 * MS, 0});
    saves_add(s, a, (struct saves_one){890 * MS, 910 * MS, 1050 * MS, 10 * MS});
}

START_TEST(the_cost_of_checkpoints_is_pauses_waits_and_slower_steps)
{
    struct arena *a = arena_new();
    struct saves s = {0};
    int64_t end[STEPS];
    timeline(a, &s, end);
    struct saves_cost x = saves_measure(&s, end, STEPS, false);
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(x.snapshot_ns, 20 * MS);
    ck_assert_int_eq(x.write_ns, 255 * MS);
    ck_assert_int_eq(x.wait_ns, 5 * MS);
    ck_assert_int_eq(x.slowdown_ns, (30 + 30 + 50) / 2 * MS);
    ck_assert_double_eq_tol(x.share, (40.0 + 10 + 110) / 1360, 1e-12);
    s.all[1].written_ns = 0; /* not complete */
    x = saves_measure(&s, end, STEPS, false);
    ck_assert_int_eq(x.n, 1);
    ck_assert_int_eq(x.slowdown_ns, 110 * MS);
    s.n = 0;
    ck_assert_int_eq(saves_measure(&s, end, STEPS, false).n, 0);
    arena_free(a);
}
END_TEST

START_TEST(a_stopped_clock_leaves_pauses_out_of_steps)
{
    struct arena *a = arena_new();
    struct saves s = {0};
    const int64_t end[] = {100 * MS, 200 * MS, 300 * MS, 400 * MS};
    saves_add(&s, a, (struct saves_one){200 * MS, 600 * MS, 600 * MS, 0});
    struct saves_cost x = saves_measure(&s, end, 4, true);
    ck_assert_int_eq(x.snapshot_ns, 400 * MS);
    ck_assert_int_eq(x.slowdown_ns, 0);
    ck_assert_double_eq_tol(x.share, 0.5, 1e-12);
    arena_free(a);
}
END_TEST

/* Young 1974: √(2 · 0.075 s · M); Daly's terms beyond it are below 1 % here. */
START_TEST(the_interval_follows_from_cost_and_failures)
{
    struct arena *a = arena_new();
    struct saves s = {0}, none = {0};
    int64_t end[STEPS];
    timeline(a, &s, end);
    ck_assert_int_eq(saves_every(&none, end, STEPS, false, 3600, 5), 5);
    double wanted = sqrt(2 * 0.075 * 3600) / 0.1;
    int64_t every = saves_every(&s, end, STEPS, false, 3600, 5);
    ck_assert_double_lt(fabs((double)every - wanted), 0.01 * wanted);
    ck_assert_int_eq(saves_every(&s, end, STEPS, false, 0.02, 5), 3); /* the write of 255 ms overlaps three steps */
    ck_assert_int_eq(saves_every(&s, end, STEPS, false, INFINITY, 5), SAVES_EVERY_MAX);
    arena_free(a);
}
END_TEST

static void add_span(struct trace *t, enum span_kind kind, enum stream stream, int32_t device, int32_t step, int64_t begin_ns, int64_t end_ns)
{
    trace_add(t, (struct span){.kind = kind, .stream = stream, .device = device, .peer = -1, .stage = -1, .phase = PHASE_SEND, .step = step,
                               .microbatch = -1, .op = -1, .begin_ns = begin_ns, .end_ns = end_ns, .name = "checkpoint"});
}

START_TEST(a_trace_has_the_same_cost)
{
    struct arena *a = arena_new();
    struct saves s = {0};
    struct trace_device devices[] = {{.name = "a.0"}, {.name = "a.1"}};
    struct trace t = {.arena = a, .steps = STEPS, .n_devices = 2, .devices = devices};
    int64_t end[STEPS];
    timeline(a, &s, end);
    for (int i = 0; i < STEPS; i++) add_span(&t, SPAN_STEP, STREAM_step, i % 2, i, i ? end[i - 1] : 0, end[i]);
    for (int32_t d = 0; d < 2; d++) {
        for (size_t k = 0; k < s.n; k++) add_span(&t, SPAN_SNAPSHOT, STREAM_snapshot, d, 3, s.all[k].begin_ns, s.all[k].end_ns);
        for (size_t k = 0; k < s.n; k++) add_span(&t, SPAN_SAVE, STREAM_save, d, 3, s.all[k].end_ns, s.all[k].written_ns);
    }
    trace_sort(&t);
    struct saves_cost x = saves_of_trace(&t), y = saves_measure(&s, end, STEPS, false);
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(x.snapshot_ns, y.snapshot_ns);
    ck_assert_int_eq(x.write_ns, y.write_ns);
    ck_assert_int_eq(x.wait_ns, y.wait_ns);
    ck_assert_int_eq(x.slowdown_ns, y.slowdown_ns);
    arena_free(a);
}
END_TEST

START_TEST(a_rank_notes_what_it_has_written)
{
    struct arena *a = arena_new();
    char dir[] = "/tmp/saves.XXXXXX";
    struct checkpoint_tensor rows[2] = {{.name = "x", .bytes = 4}, {.name = "y", .bytes = 8}}, *read;
    struct error err;
    bool finite = false;
    int32_t n = 0;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert(!checkpoint_has_written(a, dir, 1));
    ck_assert(checkpoint_note_written(a, dir, 1, true, rows, 2, &err) == OK);
    ck_assert(checkpoint_note_written(a, dir, 2, false, NULL, 0, &err) == OK);
    ck_assert(checkpoint_has_written(a, dir, 1) && !checkpoint_has_written(a, dir, 3));
    ck_assert(checkpoint_take_written(a, dir, 1, &finite, &read, &n, &err) == OK);
    ck_assert(finite && n == 2 && read[1].bytes == 8);
    ck_assert_str_eq(read[0].name, "x");
    ck_assert(!checkpoint_has_written(a, dir, 1));
    ck_assert(checkpoint_take_written(a, dir, 2, &finite, &read, &n, &err) == OK);
    ck_assert(!finite && n == 0);
    ck_assert(checkpoint_take_written(a, dir, 2, &finite, &read, &n, &err) == ERR_INPUT);
    const char *cut = arena_printf(a, "%s/rank-0005.rows", dir);
    ck_assert(checkpoint_note_written(a, dir, 5, true, rows, 2, &err) == OK && !truncate(cut, 20));
    ck_assert(checkpoint_take_written(a, dir, 5, &finite, &read, &n, &err) == ERR_INPUT);
    unlink(cut);
    ck_assert(checkpoint_note_written(a, arena_printf(a, "%s/none", dir), 1, true, rows, 2, &err) == ERR_RESOURCE);
    ck_assert(!rmdir(dir));
    arena_free(a);
}
END_TEST

Suite *saves_suite(void)
{
    Suite *s = suite_create("saves");
    TCase *t = tcase_create("saves");
    tcase_add_test(t, the_cost_of_checkpoints_is_pauses_waits_and_slower_steps);
    tcase_add_test(t, a_stopped_clock_leaves_pauses_out_of_steps);
    tcase_add_test(t, the_interval_follows_from_cost_and_failures);
    tcase_add_test(t, a_trace_has_the_same_cost);
    tcase_add_test(t, a_rank_notes_what_it_has_written);
    suite_add_tcase(s, t);
    return s;
}
