/* The text form of schedules, and what is refused. */
#include "core/plan/schedule.h"

#include "core/base/arena.h"
#include "tests/support/schedules.h"
#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct schedule parsed(const char *text)
{
    struct schedule s;
    struct error err = {0};
    ck_assert_msg(schedule_parse(arena, "t", text, false, &s, &err) == OK, "%s", err.text);
    return s;
}

/* --- text --- */

static bool same(const struct schedule *x, const struct schedule *y)
{
    if (x->n_devices != y->n_devices || x->n_chunks != y->n_chunks ||
        x->n_microbatches != y->n_microbatches)
        return false;
    for (int32_t i = 0; i < x->n_devices * x->n_chunks; i++)
        if (x->stage[i] != y->stage[i]) return false;
    for (int32_t d = 0; d < x->n_devices; d++) {
        if (x->lanes[d].n_ops != y->lanes[d].n_ops) return false;
        for (int64_t i = 0; i < x->lanes[d].n_ops; i++) {
            const struct schedule_op *o = &x->lanes[d].ops[i], *q = &y->lanes[d].ops[i];
            if (o->phase != q->phase || o->chunk != q->chunk || o->microbatch != q->microbatch)
                return false;
        }
    }
    return true;
}

START_TEST(what_is_written_is_read_again)
{
    for (int k = 0; k < SCHEDULE_KIND_COUNT; k++)
        for (int32_t p = 1; p <= 5; p++)
            for (int split = 0; split < 2; split++, arena_reset(arena)) {
                struct schedule s = schedule_of(arena, k, p, 0, 2 * p, split), t;
                struct error err = {0};
                for (const char *separator = "|\n"; *separator; separator++) {
                    char *text;
                    size_t n;
                    FILE *f = open_memstream(&text, &n);
                    schedule_write(f, &s, *separator);
                    fclose(f);
                    ck_assert_msg(schedule_parse(arena, "x", text, schedule_kind_has(k, SCHEDULE_V),
                                                 &t, &err) == OK,
                                  "%s", err.text);
                    ck_assert(same(&s, &t));
                    free(text);
                }
            }
}
END_TEST

START_TEST(text_may_have_blanks_commas_lines_and_comments)
{
    struct schedule x = parsed("F0 F1 B0 B1|F0 B0 F1 B1");
    const char *const alike[] = {"F0,F1,B0,B1|F0,B0,F1,B1", " F0, F1 ,B0\tB1 | F0 B0 , F1 B1 \n",
                                 "# two devices\nF0 F1 B0 B1   # the first\r\n\r\n\nF0 B0 F1 B1",
                                 "0F0,0F1,0B0,0B1|0F0,0B0,0F1,0B1"};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        struct schedule y = parsed(alike[i]);
        ck_assert(same(&x, &y));
    }
    struct schedule z = parsed("0F0,1F0,1I0,0I0,1W0,0W0|0F0,1F0,1B0,0B0");
    ck_assert_int_eq(z.n_chunks, 2);
    ck_assert_int_eq(z.stage[2], 1);
    ck_assert_int_eq(z.stage[3], 3);
}
END_TEST

START_TEST(a_name_is_found_or_all_are_listed)
{
    enum schedule_kind k;
    struct error err = {0};
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++) {
        ck_assert_int_eq(schedule_kind_parse(schedule_name(i), &k, &err), OK);
        ck_assert_int_eq((int)k, i);
    }
    ck_assert_int_eq(schedule_kind_parse("1f2b", &k, &err), ERR_INPUT);
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++)
        ck_assert_msg(strstr(err.text, schedule_name(i)) != NULL, "%s", err.text);
}
END_TEST

/* --- refused --- */

static const struct {
    const char *text, *expected;
} bad_texts[] = {
    {"", "t:1:1: no operation found"},
    {"# nothing\n\n", "no operation found"},
    {"F0 B0|", "t:1:7: device 1 has no operations"},
    {"|F0 B0", "t:1:1: device 0 has no operations"},
    {"F0 B0||F0 B0", "t:1:7: device 1 has no operations"},
    {"F0 G0", "t:1:4: 'G': expected F, B (fused backward), I (input gradient) or W"},
    {"f0 b0", "t:1:1: 'f': expected F"},
    {"F0 B0 U", "t:1:7: U: updates are implied"},
    {"F0 B", "t:1:5: expected the number of a microbatch after B"},
    {"F-1 B0", "t:1:2: expected the number of a microbatch after F"},
    {"F0B0", "t:1:3: 'B' after F0: expected a comma, a blank or '|'"},
    {"F0;B0", "t:1:3: ';' after F0"},
    {"F0,,B0", "t:1:4: a comma without an operation before it"},
    {",F0", "t:1:1: a comma without an operation before it"},
    {"F0,B0,", "t:1:7: expected an operation after the comma"},
    {"F0,B0,|F0,B0", "t:1:7: expected an operation after the comma"},
    {"0F0 B0", "t:1:5: no chunk before the letter"},
    {"F0\nB0 1F0", "t:2:4: a chunk before the letter"},
    {"1000F0", "t:1:1: chunk: more than 999"},
    {"F10000000", "t:1:2: microbatch: more than 9999999"},
    {"F99999999999999999999999", "t:1:2: microbatch: more than 9999999"},
    {"0", "t:1:2: 'the end': expected F"},
    {"F0 \x01", "'\\x01': expected F"},
    {"F0", "t: device 0: ?0 is missing: no B or I of microbatch 0"},
    {"B0", "t: device 0: ?0 is missing: no F of microbatch 0"},
    {"F0 I0", "t: device 0: ?0 is missing: no W of microbatch 0"},
    {"F0 W0", "no B or I of microbatch 0"},
    {"F0 B0 F2 B2", "device 0: ?1 is missing: no F of microbatch 1"},
    {"F0 F0 B0", "device 0: F0 occurs twice"},
    {"F0 B0 B0", "device 0: B0 occurs twice"},
    {"F0 I0 I0 W0", "device 0: I0 occurs twice"},
    {"F0 I0 W0 W0", "device 0: W0 occurs twice"},
    {"F0 B0 W0", "device 0: B0 and W0: B is I and W in one"},
    {"F0 I0 B0", "device 0: I0 and B0: B is I and W in one"},
    {"F0 W0 I0", "device 0: W0 comes before I0"},
    {"B0 F0", "device 0: B0 comes before F0"},
    {"F0 F1 B0 B1|F0 B0 B1 F1", "device 1: B1 comes before F1"},
    {"F9999999 B9999999", "2 operations for 1 stages and 10000000 microbatches"},
    {"999F0 999B0|0F0 0B0", "stages and 1 microbatches: expected F and B"},
    {"0F0 1F0 1B0 0B0|0F0 0B0", "device 1: 1?0 is missing: no F of microbatch 0 for this chunk"},
    {"F0 B0 F1 B1|F0 F1 B0 B1",
     "t: deadlock: device 0 at B0 (waits for B0 of device 1), device 1 at F1 "
     "(waits for F1 of device 0)"},
    {"F0 F1 B0 B1|F1 B1 F0 B0", NULL},
    {"F0 B0 F1 B1|F1 B1 F0 B0", "device 0 at B0 (waits for B0 of device 1), device 1 at F1"},
    {"F0 F1 B1 B0|F0 F1 B0 B1", NULL},
    {"F0 I0 W0 F1 I1 W1|F0 F1 B1 B0",
     "device 0 at I0 (waits for B0 of device 1), device 1 at F1 (waits for F1 of device 0)"},
    {"F0 F1 F2 B0 B1 B2|F0 F1 B0 B1 F2 B2|F0 F1 F2 B2 B1 B0",
     "device 0 at B0 (waits for B0 of device 1), device 1 at B0 (waits for B0 of device 2), "
     "device 2 at F2 (waits for F2 of device 1)"},
    {"0F0 1F0 1B0 0B0|0F0 1F0 0B0 1B0",
     "device 0 at 1B0 (waits for 1B0 of device 1), device 1 at 0B0 (waits for 1B0 of device 0)"},
    {"1F0 0F0 1B0 0B0", "device 0 at 1F0 (waits for 0F0 of device 0)"},
    {"0F0 1F0 0B0 1B0", "device 0 at 0B0 (waits for 1B0 of device 0)"},
};

START_TEST(what_cannot_be_is_refused_with_its_place)
{
    size_t n = sizeof bad_texts / sizeof *bad_texts;
    for (size_t i = 0; i < n; i++) {
        struct schedule s;
        struct error err = {0};
        enum status st = schedule_parse(arena, "t", bad_texts[i].text, false, &s, &err);
        const char *expected = bad_texts[i].expected;
        if (!expected) {
            ck_assert_msg(st == OK, "'%s': %s", bad_texts[i].text, err.text);
            continue;
        }
        ck_assert_msg(st == ERR_INPUT && strstr(err.text, expected), "'%s': '%s' not in: %s",
                      bad_texts[i].text, expected, err.text);
    }
}
END_TEST

START_TEST(a_long_blocked_set_is_cut_and_counted)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 200, 0, 3, false);
    struct schedule_op *last = s.lanes[199].ops;
    for (int i = 0; i < 6; i++) last[i] = (struct schedule_op){i < 3 ? 'F' : 'B', 0, i % 3};
    struct schedule_op *first = s.lanes[0].ops;
    for (int i = 0; i < 6; i++) first[i] = (struct schedule_op){i % 2 ? 'B' : 'F', 0, i / 2};
    struct error err = {0};
    ck_assert_int_eq(schedule_check(arena, &s, NULL, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "deadlock: device 0 at B0 (waits for B0 of device 1)") &&
                      strstr(err.text, " more"),
                  "%s", err.text);
}
END_TEST

START_TEST(a_hand_made_schedule_with_a_wrong_table_is_refused)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 2, 0, 2, false);
    struct error err = {0};
    s.stage[1] = 0;
    ck_assert_int_eq(schedule_check(arena, &s, NULL, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "stage 0 is on device 0 and on device 1"));
    s.stage[1] = 7;
    ck_assert_int_eq(schedule_check(arena, &s, NULL, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "device 1, chunk 0: stage 7 of 0 … 1"));
    s.stage[1] = 1;
    s.lanes[1].ops[0].microbatch = 2;
    ck_assert_int_eq(schedule_check(arena, &s, NULL, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "device 1: F2: expected chunks below 1 and microbatches below 2"));
    s.lanes[1].ops[0].phase = 'X';
    ck_assert_int_eq(schedule_check(arena, &s, NULL, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "device 1, operation 0: letter 88"));
}
END_TEST

static void refused(const struct schedule_spec *spec, const char *expected)
{
    struct schedule s;
    struct error err = {0};
    ck_assert_int_eq(schedule_make(arena, spec, &s, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, expected) != NULL, "'%s' in: %s", expected, err.text);
}
#define REFUSED(expected, kind_, p, v, m, ...)                                                     \
    refused(&(struct schedule_spec){.kind = SCHEDULE_##kind_,                                      \
                                    .n_devices = (p),                                              \
                                    .n_chunks = (v),                                               \
                                    .n_microbatches = (m),                                         \
                                    __VA_ARGS__},                                                  \
            expected)

START_TEST(a_specification_out_of_range_is_refused)
{
    const double zero[] = {1, 0}, negative[] = {-1};
    const int32_t none[] = {1, 0}, growing[] = {1, 3};
    REFUSED("1f1b: 0 devices: expected 1 … 100000", 1F1B, 0, 0, 4, );
    REFUSED("1f1b: 100001 devices", 1F1B, 100001, 0, 4, );
    REFUSED("1f1b: 0 microbatches: expected 1 … 10000000", 1F1B, 4, 0, 0, );
    REFUSED("1f1b: -3 microbatches", 1F1B, 4, 0, -3, );
    REFUSED("1f1b: 2 chunks per device: expected 1", 1F1B, 4, 2, 4, );
    REFUSED("zb-v: 1 chunks per device: expected 2", ZB_V, 4, 1, 4, );
    REFUSED("interleaved: 1 chunks per device: expected 2 … 1000", INTERLEAVED, 4, 1, 4, );
    REFUSED("interleaved: 6 microbatches are not a multiple of 4 devices", INTERLEAVED, 4, 2, 6, );
    REFUSED("are more than 100000000 operations", 1F1B, 100000, 0, 10000000, );
    REFUSED("device 1: time 0: expected more than 0", H1F1B, 2, 0, 4, .time = zero);
    REFUSED("link 0: transfer -1: expected 0 or more", H1F1B, 2, 0, 4, .transfer = negative);
    REFUSED("device 1: warm-up 0: expected 1 or more", 1F1B, 2, 0, 4, .warmup = none);
    REFUSED("zb-h1 accepts no warm-up counts", ZB_H1, 2, 0, 4, .warmup = none);
    REFUSED("deadlock: device 0 at B0 (waits for B0 of device 1), device 1 at F1",
            1F1B, 2, 0, 4, .warmup = growing);
}
END_TEST

Suite *schedule_text_suite(void)
{
    Suite *s = suite_create("core/plan/schedule, text and refusals");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_written_is_read_again);
    tcase_add_test(t, text_may_have_blanks_commas_lines_and_comments);
    tcase_add_test(t, a_name_is_found_or_all_are_listed);
    tcase_add_test(t, what_cannot_be_is_refused_with_its_place);
    tcase_add_test(t, a_long_blocked_set_is_cut_and_counted);
    tcase_add_test(t, a_hand_made_schedule_with_a_wrong_table_is_refused);
    tcase_add_test(t, a_specification_out_of_range_is_refused);
    suite_add_tcase(s, t);
    return s;
}
