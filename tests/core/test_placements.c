/* What lies between two placements of a tensor: conversions, and what each moves. */
#include "core/sharding/shard.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <string.h>

static struct error err;

static struct on_axis sharded_by(int32_t dim, int64_t n)
{
    return (struct on_axis){
        .how = PLACED_SHARDED, .dim = dim, .grain = {.n_units = n, .n_sections = 1, .unit = {1}}};
}
static const struct on_axis replicated = {.how = PLACED_REPLICATED},
                            partial = {.how = PLACED_PARTIAL};

START_TEST(the_steps_between_placements_are_the_few_that_are_needed)
{
    static const double ratios[] = {1, 1, 1, 1};
    struct sharding s = {
        .n_devices = 4, .n_axes = 2, .mesh = {2, 2}, .n_ratios = 1, .ratios = ratios};
    struct on_axis b = sharded_by(0, 8), p = sharded_by(1, 6);
    const struct {
        struct on_axis from[2], to[2];
        int32_t n;
        enum op_kind kinds[3];
        int32_t axes[3];
    } rows[] = {
        {{replicated, replicated}, {replicated, replicated}, 0, {0}, {0}},
        {{replicated, replicated}, {b, replicated}, 1, {OP_local_slice}, {0}},
        {{b, replicated}, {replicated, replicated}, 1, {OP_group_all_gather}, {0}},
        {{partial, replicated}, {replicated, replicated}, 1, {OP_group_all_reduce}, {0}},
        {{partial, replicated}, {b, replicated}, 1, {OP_group_reduce_scatter}, {0}},
        {{b, replicated}, {p, replicated}, 1, {OP_group_all_to_all}, {0}},
        /* smaller first */
        {{b, replicated}, {replicated, p}, 2, {OP_local_slice, OP_group_all_gather}, {1, 0}},
        {{b, partial}, {replicated, p}, 2, {OP_group_reduce_scatter, OP_group_all_gather}, {1, 0}},
        /* both axes shard one dimension: the inner one goes first and comes last */
        {{b, b}, {replicated, replicated}, 2, {OP_group_all_gather, OP_group_all_gather}, {1, 0}},
        {{replicated, replicated}, {b, b}, 2, {OP_local_slice, OP_local_slice}, {0, 1}},
        {{b, b},
         {replicated, b},
         3,
         {OP_group_all_gather, OP_group_all_gather, OP_local_slice},
         {1, 0, 1}},
        {{b, b}, {p, b}, 3, {OP_group_all_gather, OP_group_all_to_all, OP_local_slice}, {1, 0, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct placement from = {{rows[i].from[0], rows[i].from[1]}},
                         to = {{rows[i].to[0], rows[i].to[1]}};
        struct conversion steps[CONVERSIONS_MAX];
        int32_t n;
        ck_assert(shard_conversions(&s, &from, &to, &n, steps, &err) == OK);
        ck_assert_msg(n == rows[i].n, "row %zu: %d steps", i, n);
        for (int32_t k = 0; k < n; k++) {
            ck_assert_msg(steps[k].kind == rows[i].kinds[k] && steps[k].axis == rows[i].axes[k],
                          "row %zu step %d: %s over %d", i, k, op_kind_name(steps[k].kind),
                          steps[k].axis);
        }
    }
    struct placement w = {{replicated, replicated}}, owed = {{partial, replicated}};
    struct conversion steps[CONVERSIONS_MAX];
    int32_t n;
    ck_assert_int_eq(shard_conversions(&s, &w, &owed, &n, steps, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "no conversion from replicated to partial"));
}
END_TEST

START_TEST(other_ratios_that_give_the_same_shards_are_no_conversion)
{
    static const double ratios[] = {1, 1, 100, 101, 3, 1};
    struct sharding s = {
        .n_devices = 2, .n_axes = 1, .mesh = {2, 1}, .n_ratios = 3, .ratios = ratios};
    struct placement a = {{sharded_by(0, 8)}}, b = a, c = a;
    b.axis[0].ratio = 1, c.axis[0].ratio = 2;
    ck_assert(placement_equal(&s, &a, &b));
    ck_assert(!placement_equal(&s, &a, &c));
    c.axis[0].ratio = 0,
    c.axis[0].grain = (struct grain){.n_units = 2, .n_sections = 1, .unit = {4}};
    ck_assert(placement_equal(&s, &a, &c));
    struct shape shape = {2, {8, 3}};
    struct conversion steps[CONVERSIONS_MAX];
    int32_t n;
    int64_t before, after;
    c.axis[0] = b.axis[0], c.axis[0].ratio = 2;
    ck_assert(shard_conversions(&s, &a, &c, &n, steps, &err) == OK);
    ck_assert(n == 1 && steps[0].kind == OP_group_all_to_all);
    conversion_elements(&s, &steps[0], &shape, 0, &before, &after);
    ck_assert(before == 12 && after == 18);
    ck_assert_int_eq(conversion_dual(OP_group_all_gather, true), OP_group_reduce_scatter);
    ck_assert_int_eq(conversion_dual(OP_group_all_gather, false), OP_local_slice);
    ck_assert_int_eq(conversion_dual(OP_group_all_reduce, false), OP_KIND_COUNT);
    ck_assert_int_eq(conversion_dual(OP_group_all_reduce, true), OP_group_all_reduce);
    ck_assert_int_eq(conversion_dual(OP_local_slice, false), OP_group_all_gather);
}
END_TEST

SUITE_OF(placements, the_steps_between_placements_are_the_few_that_are_needed,
         other_ratios_that_give_the_same_shards_are_no_conversion)
