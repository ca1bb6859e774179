/* Suite of core/model/lr_schedule. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/model/lr_schedule.h"
#include "core/model/optimizer.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status parse(struct arena *a, const char *text, struct optimizer *out, struct error *err)
{
    struct node *root;
    ck_assert_msg(document_parse(a, "job.yaml", text, strlen(text), &root, err) == OK, "%s", err->text);
    return optimizer_read(root, out, err);
}

/* Rates of the steps, by the formulas of the header. */
static void rates(const char *schedule, const double *want, int n, int first)
{
    struct arena *a = arena_new();
    struct optimizer o;
    struct error err = {0};
    const char *text = arena_printf(a, "optimizer: {kind: sgd, lr: 8, schedule: {%s}}\n", schedule);
    ck_assert_msg(parse(a, text, &o, &err) == OK, "%s", err.text);
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs(lr_schedule_rate(&o.schedule, o.lr, first + i) - want[i]) < 1e-12, "%s: step %d: %.15g", schedule, first + i,
                      lr_schedule_rate(&o.schedule, o.lr, first + i));
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    struct optimizer again;
    optimizer_write(f, &o, 0);
    fclose(f);
    ck_assert_msg(parse(a, out, &again, &err) == OK, "%s", err.text);
    ck_assert_msg(!memcmp(&o.schedule, &again.schedule, sizeof o.schedule), "%s", out);
    free(out);
    arena_free(a);
}
#define RATES(schedule, first, ...) rates(schedule, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), first)

START_TEST(rates_are_the_formulas)
{
    RATES("kind: constant", 1, 8, 8, 8);
    RATES("kind: constant, warmup: 4", 1, 2, 4, 6, 8, 8, 8);
    RATES("kind: linear, warmup: 2, steps: 6, min_lr: 4", 1, 4, 8, 7, 6, 5, 4, 4, 4);
    RATES("kind: linear, steps: 4", 1, 6, 4, 2, 0, 0);
    RATES("kind: cosine, warmup: 1, steps: 5", 1, 8, 4 + 4 * sqrt(0.5), 4, 4 - 4 * sqrt(0.5), 0, 0);
    RATES("kind: wsd, warmup: 2, steps: 9, decay_steps: 4, min_lr: 4", 1, 4, 8, 8, 8, 8, 7, 6, 5, 4, 4);
    RATES("kind: wsd, steps: 4, decay_steps: 4, decay: sqrt", 1, 4, 8 - 8 * sqrt(0.5), 8 - 4 * sqrt(3), 0);
    RATES("kind: wsd, steps: 4, decay_steps: 2, decay: cosine", 1, 8, 8, 4, 0);
    RATES("kind: inverse_sqrt, warmup: 4", 1, 2, 4, 6, 8, 16 / sqrt(5));
    RATES("kind: inverse_sqrt, warmup: 4, min_lr: 3", 36, 3);
    RATES("kind: inverse_sqrt, warmup: 4, min_lr: 3", 16, 4);
}
END_TEST

START_TEST(a_rule_scales_the_floor_too)
{
    struct arena *a = arena_new();
    struct optimizer o;
    struct error err = {0};
    ck_assert_msg(parse(a, "optimizer: {lr: 1e-3, lr_rule: {kind: linear, batch: 8}, schedule: {kind: cosine, steps: 10, min_lr: 1e-4}}\n", &o, &err) == OK, "%s",
                  err.text);
    struct optimizer x = optimizer_of_batch(&o, 32);
    ck_assert_double_eq_tol(lr_schedule_rate(&x.schedule, x.lr, 5), (4e-3 + 4e-4) / 2, 1e-15);
    ck_assert_double_eq_tol(lr_schedule_rate(&x.schedule, x.lr, 10), 4e-4, 1e-15);
    ck_assert_str_eq(optimizer_describe_lr(a, &o, 32), "0.004: 0.001 for 8 sequences a step, linear rule, here 32; cosine from 0.004 to 0.0004 in 10 steps, no warm-up");
    arena_free(a);
}
END_TEST

START_TEST(what_is_wrong_is_refused)
{
    static const struct {
        const char *schedule, *why;
    } cases[] = {
        {"{kind: cosinus, steps: 3}", "cosine"},
        {"{kind: cosine}", "steps"},
        {"{kind: cosine, steps: 5, warmup: 5}", "must be more than the 5 warm-up steps, found 5"},
        {"{kind: wsd, steps: 5, warmup: 2, decay_steps: 4}", "3"},
        {"{kind: wsd, steps: 5}", "decay_steps"},
        {"{kind: linear, steps: 5, decay: sqrt}", "decay"},
        {"{kind: constant, min_lr: 1}", "min_lr"},
        {"{kind: inverse_sqrt}", "needs a warm-up"},
        {"{kind: linear, steps: 5, min_lr: 0.1}", "0.001"},
        {"cosine", "map"},
    };
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct optimizer o;
        struct error err = {0};
        ck_assert_int_eq(parse(a, arena_printf(a, "optimizer: {schedule: %s}\n", cases[i].schedule), &o, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].why) != NULL, "'%s' in: %s", cases[i].why, err.text);
    }
    arena_free(a);
}
END_TEST

SUITE_OF(lr_schedule, rates_are_the_formulas, a_rule_scales_the_floor_too, what_is_wrong_is_refused)
