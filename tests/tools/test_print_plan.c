/* The outcome of a search as text: where no bound is known, and baselines of one reason. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/plans.h"
#include "tools/print/plan.h"

#include <sys/wait.h>
#include <unistd.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *printed(const struct plan_report *x)
{
    char path[] = "/tmp/musher-plan-XXXXXX", *text = NULL;
    struct error err = {0};
    int how = 0, fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    pid_t child = fork();
    if (!child) {
        dup2(fd, STDOUT_FILENO);
        print_plan(arena, x);
        _exit(fflush(stdout) ? 1 : 0);
    }
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ck_assert_msg(file_read(arena, path, 1 << 20, &text, NULL, &err) == OK, "%s", err.text);
    close(fd);
    unlink(path);
    return text;
}

static struct search_baseline misfit(const char *name, const char *why)
{
    return (struct search_baseline){.name = name, .iteration_ns = INT64_MAX, .why = why};
}

START_TEST(no_bound_and_reasons_are_said_once)
{
    struct search_plan best = {.plan = plans_new(arena, "gpt2", 1, 2), .iteration_ns = 1000000};
    int32_t last = plans_layers(arena, &best.plan) - 1;
    plans_replica(arena, &best.plan, 3, 1, &last);
    struct search_baseline baselines[] = {
        misfit("ddp", "too large"),
        {.name = "gpipe", .iteration_ns = 2000000, .plan = best.plan},
        misfit("zero-1", "too large"),
        misfit("hap", "not tried")};
    struct search_result r = {.n_plans = 1,
                              .plans = &best,
                              .n_baselines = 4,
                              .baselines = baselines,
                              .stopped = "interrupted",
                              .binding = "",
                              .bound_class = "",
                              .gap = INFINITY};
    struct metrics m = {.failed = "never tried"};
    struct profile profile = {0};
    struct plan_report x = {
        .cluster = &best.plan.cluster, .result = &r, .metrics = &m, .profile = &profile};
    const char *text = printed(&x);
    ck_assert_msg(strstr(text, "  no lower bound is known\n") != NULL, "%s", text);
    ck_assert_msg(!strstr(text, "lower bound 0") && !strstr(text, "()"), "%s", text);
    ck_assert_msg(strstr(text, "  ddp, zero-1             -  too large\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  hap                     -  not tried\n") != NULL, "%s", text);
    /* 6 sequences of 8 tokens in 2 ms */
    ck_assert_msg(strstr(text, "2.00 times as long, 24k tokens/s\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  rates unknown: never tried\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  unused: a.1: no faster candidate uses it\n") != NULL, "%s", text);
    r.lower_bound_ns = 500000, r.binding = "work", r.bound_class = "these plans", r.gap = 1;
    text = printed(&x);
    ck_assert_msg(strstr(text,
                         "  lower bound 500 us (work): at most 100.0 % from optimal; holds for "
                         "these plans\n") != NULL,
                  "%s", text);
}
END_TEST

Suite *print_plan_suite(void)
{
    Suite *s = suite_create("tools/print/plan");
    TCase *t = tcase_create("print_plan");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_bound_and_reasons_are_said_once);
    suite_add_tcase(s, t);
    return s;
}
