/* Folded tables: many devices with different texts are divided by stage, by device type or by class of replicas. */
#include "core/base/arena.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "tests/support/suites.h"
#include "tools/print/classes.h"

#include <string.h>

static const char *number_of_rows(struct arena *a, const void *user, const int32_t *rows, int32_t n)
{
    (void)user;
    return arena_printf(a, "%d rows from %d", (int)n, (int)rows[0]);
}

/* Four equal replicas of so many stages on devices of their own; the second half of a replica's devices is of another type. */
static int32_t classes_of(struct arena *a, int32_t n_stages, struct print_class **out)
{
    int32_t n = 4 * n_stages;
    struct device_type types[] = {{.name = "x"}, {.name = "y"}};
    struct plan plan = {.n_replicas = 4, .cluster = {.n_types = 2, .types = types, .n_devices = n}};
    struct program p = {.n_devices = n, .n_stages = n};
    struct program_device *devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    struct lane *lanes = ARENA_ARRAY(a, struct lane, (size_t)n);
    struct program_stage *stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)n);
    int32_t *of = ARENA_ARRAY(a, int32_t, (size_t)n);
    plan.cluster.devices = ARENA_ARRAY(a, struct device, (size_t)n);
    plan.replicas = ARENA_ARRAY(a, struct plan_replica, 4);
    for (int32_t r = 0; r < 4; r++) {
        plan.replicas[r] = (struct plan_replica){.n_stages = n_stages, .microbatches = 1};
        plan.replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, (size_t)n_stages);
        for (int32_t i = 0; i < n_stages; i++) {
            int32_t d = r * n_stages + i, type = 2 * i >= n_stages;
            plan.replicas[r].stages[i] =
                (struct plan_stage){.first_layer = i, .last_layer = i, .device = d};
            plan.cluster.devices[d] =
                (struct device){.name = arena_printf(a, "d%d", (int)d), .type = type};
            devices[d] = (struct program_device){
                .name = plan.cluster.devices[d].name, .type = types[type].name, .type_index = type};
            stages[d] = (struct program_stage){.replica = r, .stage = i, .device = d};
            of[d] = d, lanes[d] = (struct lane){.n_stages = 1, .stages = &of[d]};
            texts[d] = arena_printf(a, "text %d", (int)d);
        }
    }
    p.devices = devices, p.lanes = lanes, p.stages = stages;
    return print_device_classes(a, &plan, &p, texts, number_of_rows, NULL, false, out);
}

START_TEST(many_devices_are_divided_as_finely_as_few_lines_allow)
{
    struct arena *a = arena_new();
    struct print_class *x;
    ck_assert_int_eq(classes_of(a, 5, &x), 5);
    ck_assert_str_eq(x[0].names, "replicas 0-3, stage 0:");
    ck_assert_str_eq(x[4].names, "replicas 0-3, stage 4:");
    ck_assert_str_eq(x[4].text, "4 rows from 4");
    ck_assert_int_eq(classes_of(a, PRINT_CLASSES_MOST, &x), PRINT_CLASSES_MOST);
    ck_assert_int_eq(classes_of(a, PRINT_CLASSES_MOST + 1, &x), 2);
    ck_assert_str_eq(x[0].names, "replicas 0-3, x:");
    ck_assert_str_eq(x[0].text, "36 rows from 0");
    ck_assert_str_eq(x[1].names, "replicas 0-3, y:");
    arena_free(a);
}
END_TEST

SUITE_OF(print_classes, many_devices_are_divided_as_finely_as_few_lines_allow)
