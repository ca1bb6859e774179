#include "core/faults/script.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* Two nodes of two emulated devices, and a link. */
static struct program_device devices[] = {{.name = "a.0", .slowdown = 2}, {.name = "a.1", .slowdown = 2}, {.name = "b.0", .slowdown = 2}, {.name = "b.1"}};
static struct program_link links[] = {{.name = "bus", .bandwidth_Bps = 1e9}};
static const struct program program = {.emulated = true, .n_devices = 4, .devices = devices, .n_links = 1, .links = links};

static enum status parse(const char *lines, struct fault_script *out)
{
    char path[] = "/tmp/fault-script-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *f = fdopen(fd, "w");
    fprintf(f, "version: 1\nfaults:\n%s", lines);
    fclose(f);
    enum status status = fault_script_read(arena, path, &program, out, &err);
    unlink(path);
    return status;
}

START_TEST(a_script_is_read)
{
    struct fault_script s;
    ck_assert_msg(parse("  - {kind: kill, device: a.1, at_step: 12}\n"
                        "  - {kind: host_lost, node: b, at: 3 s, back: 500 ms}\n"
                        "  - {kind: link_slow, link: bus, at_step: 2, factor: 2.5, steps: 4}\n"
                        "  - {kind: disk_full, at_step: 7}\n",
                        &s) == OK, "%s", err.text);
    ck_assert_int_eq(s.n, 4);
    ck_assert_int_eq(s.faults[0].kind, FAULT_kill);
    ck_assert_int_eq(s.faults[0].at_step, 12);
    ck_assert(fault_hits(&s.faults[0], "a.1") && !fault_hits(&s.faults[0], "a.0"));
    ck_assert_int_eq(s.faults[1].at_ns, INT64_C(3000000000));
    ck_assert_int_eq(s.faults[1].back_ns, 500000000);
    ck_assert(fault_hits(&s.faults[1], "b.0") && fault_hits(&s.faults[1], "b.1") && !fault_hits(&s.faults[1], "a.0"));
    ck_assert_double_eq(s.faults[2].factor, 2.5);
    ck_assert(!fault_ends_ranks(&s.faults[2]) && fault_ends_ranks(&s.faults[1]));
    ck_assert_int_eq(s.faults[3].steps, 0);
}
END_TEST

/* The mean of an exponential distribution, and the same draws again; a place's draws do not depend on the others. */
START_TEST(random_faults_are_drawn_by_place)
{
    struct fault_script all, again, one;
    ck_assert(parse("  - {kind: kill, mtbf: 10 s, seed: 3, count: 200}\n", &all) == OK);
    ck_assert(parse("  - {kind: kill, mtbf: 10 s, seed: 3, count: 200}\n", &again) == OK);
    ck_assert(parse("  - {kind: kill, device: a.1, mtbf: 10 s, seed: 3, count: 40}\n", &one) == OK);
    ck_assert_int_eq(all.n, 200);
    int32_t k = 0;
    for (int32_t i = 0; i < all.n; i++) {
        ck_assert_int_eq(all.faults[i].at_ns, again.faults[i].at_ns);
        ck_assert(all.faults[i].drawn && (!i || all.faults[i].at_ns >= all.faults[i - 1].at_ns));
        if (k < one.n && !strcmp(all.faults[i].place, "a.1")) ck_assert_int_eq(all.faults[i].at_ns, one.faults[k++].at_ns);
    }
    ck_assert_int_gt(k, 20);
    double mean_s = (double)all.faults[199].at_ns / 1e9 / 200 * 4; /* of one of four places */
    ck_assert(mean_s > 8 && mean_s < 12); /* 200 draws: a standard error of 7 % */
    ck_assert(parse("  - {kind: host_lost, mtbf: 10 s, count: 3}\n", &all) == OK);
    ck_assert(!strcmp(all.faults[0].place, "a") || !strcmp(all.faults[0].place, "b"));
}
END_TEST

START_TEST(errors_name_the_line_and_what_would_be_right)
{
    static const struct {
        const char *line, *text;
    } rows[] = {{"  - {kind: kil, device: a.1, at_step: 2}\n", ":3:12: faults[0].kind: must be one of"},
                {"  - {kind: kill, device: a.1}\n", "one of at_step, at and mtbf"},
                {"  - {kind: kill, device: a.1, at: 3 s, at_step: 4}\n", "one of at_step, at and mtbf"},
                {"  - {kind: kill, at_step: 4}\n", "needs 'device'"},
                {"  - {kind: kill, device: c.1, at_step: 4}\n", "no device 'c.1'"},
                {"  - {kind: kill, node: a, device: a.1, at_step: 4}\n", "has no 'node'"},
                {"  - {kind: kill, device: a.1, at_step: 4, seed: 4}\n", "'seed' needs mtbf"},
                {"  - {kind: slow, device: a.1, at_step: 4, steps: 4}\n", "factor"},
                {"  - {kind: slow, device: b.1, at_step: 4, steps: 4, factor: 2}\n", "b.1 is a real device"},
                {"  - {kind: exit, device: a.1, at_step: 4, code: 7}\n", "musher's own errors"},
                {"  - {kind: disk_full, mtbf: 4 s}\n", "mtbf is of"},
                {"  - {kind: host_lost, node: a, at_step: 9, back_at_step: 4}\n", "later step"},
                {"  - {kind: kill, mtbf: 1 s, count: 200}\n  - {kind: kill, mtbf: 1 s, count: 200}\n", "more than 256"},
                {"  []\n", "no faults"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fault_script s;
        ck_assert_int_eq(parse(rows[i].line, &s), ERR_INPUT);
        ck_assert_msg(strstr(err.text, rows[i].text) != NULL, "'%s' is not in: %s", rows[i].text, err.text);
    }
}
END_TEST

Suite *fault_script_suite(void)
{
    Suite *s = suite_create("fault_script");
    TCase *c = tcase_create("script");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, a_script_is_read);
    tcase_add_test(c, random_faults_are_drawn_by_place);
    tcase_add_test(c, errors_name_the_line_and_what_would_be_right);
    suite_add_tcase(s, c);
    return s;
}
