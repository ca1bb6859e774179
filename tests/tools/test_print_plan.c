/* The outcome of a search as text: where no bound is known, and baselines of one reason. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/plans.h"
#include "tools/print/plan.h"
#include "tools/print/replicas.h"
#include "tools/wrap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct shown { /* what is printed: a report, or the replicas of a plan */
    const struct plan_report *report;
    const struct plan *plan;
    struct print_replicas how;
};

static const char *printed_by(const struct shown *x)
{
    char path[] = "/tmp/musher-plan-XXXXXX", *text = NULL;
    struct error err = {0};
    int how = 0, fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    pid_t child = fork();
    if (!child) {
        dup2(fd, STDOUT_FILENO);
        if (x->report)
            print_plan(arena, x->report);
        else
            print_replicas(arena, x->plan, x->how);
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

static const char *printed(const struct plan_report *x)
{
    return printed_by(&(struct shown){.report = x});
}

START_TEST(no_bound_and_reasons_are_said_once)
{
    struct search_plan best = {.plan = plans_new(arena, "gpt2", 1, 2), .iteration_ns = 1000000};
    int32_t last = plans_layers(arena, &best.plan) - 1;
    plans_replica(arena, &best.plan, 3, 1, &last);
    struct search_baseline baselines[] = {
        misfit("ddp", "too large"),
        {.name = "gpipe", .iteration_ns = 2000000, .plan = best.plan},
        {.name = "zero-2", .iteration_ns = 3000000, .plan = best.plan, .sampled = true},
        {.name = "megatron", .iteration_ns = 4000000, .plan = best.plan, .sampled = true, .estimated = true, .quick = true},
        misfit("zero-1", "too large"),
        misfit("hap", "not tried")};
    struct search_result r = {.n_plans = 1,
                              .plans = &best,
                              .n_baselines = 6,
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
    ck_assert_msg(strstr(text, "3.00 times as long, 16k tokens/s (sample)\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "4.00 times as long, 12k tokens/s (estimated) *\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  (sample): ") != NULL && strstr(text, "  (estimated): ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  rates unknown: never tried\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "  unused: a.1: no faster plan with it was found\n") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "\n  0 simulations, ") != NULL && !strstr(text, "candidate plan"), "%s", text);
    r.lower_bound_ns = 500000, r.binding = "work", r.bound_class = "these plans", r.gap = 1;
    text = printed(&x);
    r.candidates = 1;
    ck_assert_msg(strstr(printed(&x), "\n  1 candidate plan, 0 simulations, ") != NULL, "%s", text);
    ck_assert_msg(strstr(text,
                         "  lower bound 500 us (work): this plan is at most 100.0 % slower than the "
                         "optimum over these plans\n") != NULL,
                  "%s", text);
    ck_assert_msg(!strstr(text, "equal pipelines"), "%s", text);
    r.equal_bound_ns = 800000, r.equal_binding = "memory";
    text = printed(&x);
    ck_assert_msg(
        strstr(text, "  lower bound 800 us (memory) for equal pipelines: this plan is at most 25.0 % slower than") != NULL,
        "%s", text);
    r.equal_bound_ns = 1000000; /* a plan of another class may be as fast */
    text = printed(&x);
    ck_assert_msg(strstr(text, "(memory) for equal pipelines: this plan is at least as fast as") != NULL,
                  "%s", text);
    x.objective = OBJECTIVE_COST;
    r.lower_cost = 2, r.cost_gap = 0.5;
    text = printed(&x);
    ck_assert_msg(strstr(text, "(price of all work): this plan is at most 50.0 % dearer than the cheapest\n") != NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "  unused: a.1: no cheaper plan with it was found\n") != NULL, "%s", text);
    ck_assert_msg(!strstr(text, "equal pipelines"), "%s", text); /* a bound of time */
}
END_TEST

/* 20 replicas on one device each; `each` of every class, which differ in microbatches. */
static struct plan replicas(int32_t each)
{
    struct plan p = plans_new(arena, "gpt2", 1, 20);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < 20; r++) plans_replica(arena, &p, 3 + r / each, 1, &last);
    return p;
}

/* Budgets are spent in rounds: what was not asked for is said. */
START_TEST(a_budget_between_two_rounds_is_the_smaller_one)
{
    static const struct {
        int64_t asked, spent;
        const char *line;
    } cases[] = {{0, 20000, NULL}, {1250, 1250, NULL}, {20000, 20000, NULL},
                 {50000, 20000, NULL}, /* ended before its budget was spent */
                 {5000, 1250, "  budget 1250 evaluations, not 5000: beyond 8 devices the next larger one is 20000\n"},
                 {300, 1250, "  budget 1250 evaluations, not 300: "},
                 {30000, 20000, "  budget 20000 evaluations, not 30000: beyond 8 devices the next larger one is 40000\n"}};
    struct search_plan best = {.plan = replicas(20), .iteration_ns = 1000000};
    struct metrics m = {.failed = "never tried"};
    struct profile profile = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct search_result r = {.n_plans = 1, .plans = &best, .stopped = "work", .binding = "", .bound_class = "", .budget = cases[i].spent, .next_budget = cases[i].spent < 20000 ? 20000 : 40000};
        struct plan_report x = {.cluster = &best.plan.cluster, .result = &r, .metrics = &m, .profile = &profile, .evaluations = cases[i].asked};
        const char *text = printed(&x);
        ck_assert_msg(cases[i].line ? strstr(text, cases[i].line) != NULL : !strstr(text, "budget 1250") && !strstr(text, "budget 20000"), "%s", text);
    }
}
END_TEST

START_TEST(equal_replicas_are_printed_once)
{
    struct plan p = replicas(20);
    const char *line = plan_describe(arena, &p);
    struct shown x = {.plan = &p, .how = {.indent = 4, .devices = true}};
    ck_assert_msg(strstr(line, "20 replicas of 3 microbatches: layers 0-") == line, "%s", line);
    ck_assert_str_eq(printed_by(&x), arena_printf(arena, "%s\n    on 20 devices a.0-19\n", line));
    p = replicas(10);
    ck_assert_str_eq(printed_by(&x),
                     arena_printf(arena, "20 replicas in 2 classes\n    %s\n      on 10 devices a.0-9\n    %s\n      on 10 devices a.10-19\n",
                                  plan_describe_classes(arena, &p, &(int32_t){0}, NULL)[0],
                                  plan_describe_classes(arena, &p, &(int32_t){0}, NULL)[1]));
    p = replicas(1);
    x.how.devices = false;
    const char *text = printed_by(&x);
    ck_assert_msg(strstr(text, "    and 4 more classes of replicas (musher show --all)\n") != NULL, "%s", text);
    x.how.all = true;
    text = printed_by(&x);
    ck_assert_msg(strstr(text, "\n    replica 19 of 22 microbatches: layers 0-") != NULL, "%s", text);
}
END_TEST

START_TEST(lines_end_at_the_width)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    fputs("ab ", out);
    wrap_text(out, "0-4 on × | 5-60 in 7 stages on muchtoolongword x", 3, 2, 14);
    fclose(out);
    ck_assert_str_eq(text, "ab 0-4 on × |\n  5-60 in 7\n  stages on\n  muchtoolongword\n  x");
    free(text); /* open_memstream */
}
END_TEST

/* The width of a terminal; of a file that of WRAP_WIDTH. */
START_TEST(the_width_is_the_terminals)
{
    int status = 0, master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY), file = open("/dev/null", O_WRONLY);
    ck_assert(slave >= 0 && file >= 0);
    ck_assert_int_eq(ioctl(slave, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = 57}), 0);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            dup2(i ? file : slave, STDOUT_FILENO);
            _exit(wrap_width() == (i ? WRAP_WIDTH : 57) ? 0 : 1);
        }
        waitpid(child, &status, 0);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    close(slave), close(master), close(file);
}
END_TEST

Suite *print_plan_suite(void)
{
    Suite *s = suite_create("tools/print/plan");
    TCase *t = tcase_create("print_plan");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_bound_and_reasons_are_said_once);
    tcase_add_test(t, a_budget_between_two_rounds_is_the_smaller_one);
    tcase_add_test(t, equal_replicas_are_printed_once);
    tcase_add_test(t, lines_end_at_the_width);
    tcase_add_test(t, the_width_is_the_terminals);
    suite_add_tcase(s, t);
    return s;
}
