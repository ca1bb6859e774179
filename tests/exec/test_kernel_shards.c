/* Kernels on shards: shards of dimensions, of the vocabulary, of positions that do not begin at 0, and empty shards;
 * each against the kernel on the unsharded operand. */
#include "tests/support/calls.h"

#include <stdio.h>

#include "core/graph/exchange.h"

#define SETS(m, o, i, ...)                                                                         \
    for (int64_t k_ = 0; k_ < (int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)); k_++)   \
    calls_set((m)->c.dtype, (void *)(uintptr_t)(o), (i) + k_, ((double[]){__VA_ARGS__})[k_])

/* (2,5): columns 1 and 3, 4 of the second member, whose shard has two runs. */
static const struct run runs[] = {{0, 1}, {2, 1}, {1, 1}, {3, 2}};
static const struct division columns = {.n = 2, .n_runs = 2, .whole = 5, .run = runs};

START_TEST(a_shard_is_taken_run_by_run_and_added_back_to_its_place)
{
    struct exchange e = {.n = 2, .self = 1, .dim = 1, .shards = &columns};
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct made *m = calls_make(OP_local_slice, &(struct op_attrs){.exchange = &e}, "2,5", t);
        SETS(m, m->c.input[0], 0, 0, 1, 2, 3, 4, 10, 11, 12, 13, 14);
        calls_run_checked(m);
        const double want[] = {1, 3, 4, 11, 13, 14};
        for (int i = 0; i < 6; i++) ck_assert_double_eq(calls_get(t, m->c.output[0], i), want[i]);
        for (int add = 0; add < 2; add++) {
            struct op_attrs attrs = {.exchange = &e, .accumulate = add};
            struct made *b = calls_make(OP_add_to_slice, &attrs, "2,3", t);
            SETS(b, b->c.input[0], 0, 1, 3, 4, 11, 13, 14);
            for (int i = 0; add && i < 10; i++) calls_set(t, b->c.output[0], i, 100);
            calls_run_checked(b);
            const double back[] = {0, 1, 0, 3, 4, 0, 11, 0, 13, 14};
            for (int i = 0; i < 10; i++)
                ck_assert_double_eq(calls_get(t, b->c.output[0], i), back[i] + 100 * add);
        }
    }
}
END_TEST

/* Ids of the whole vocabulary of 7 meet rows 2, 3, 4 of the table. */
START_TEST(a_shard_of_a_table_answers_for_its_own_ids_alone)
{
    struct op_attrs attrs = {.start = 2, .whole = 7, .vocabulary = 3};
    struct made *m = calls_make(OP_embedding, &attrs, "4 x 3,2", DTYPE_fp64);
    const int32_t ids[] = {1, 2, 4, 5};
    memcpy((void *)(uintptr_t)m->c.input[0], ids, sizeof ids);
    SETS(m, m->c.input[1], 0, 1, 2, 3, 4, 5, 6);
    calls_run_checked(m);
    const double want[] = {0, 0, 1, 2, 5, 6, 0, 0};
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq(calls_get(DTYPE_fp64, m->c.output[0], i), want[i]);
    struct made *g = calls_make(OP_embedding_grad, &attrs, "4 x 4,2", DTYPE_fp64);
    memcpy((void *)(uintptr_t)g->c.input[0], ids, sizeof ids);
    SETS(g, g->c.input[1], 0, 9, 9, 1, 2, 3, 4, 9, 9);
    calls_run_checked(g);
    const double rows[] = {1, 2, 0, 0, 3, 4};
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq(calls_get(DTYPE_fp64, g->c.output[0], i), rows[i]);
}
END_TEST

/* Columns 0-2 | none | 3-8 of 9: shards of (lse, target's logit), joined, are the loss of all; so are the gradients. */
START_TEST(the_loss_of_shards_of_the_vocabulary_is_the_loss_of_all)
{
    enum { ROWS = 5, ALL = 9, N = 3 };
    static const int64_t first[N + 1] = {0, 3, 3, ALL};
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct op_attrs attrs = {.scale = 0.25};
        struct made *all = calls_make(OP_cross_entropy, &attrs, "5,9 x 5", t);
        struct made *dall = calls_make(OP_cross_entropy_grad, &attrs, "5,9 x 5 x 5", t);
        struct made *join = calls_make(OP_cross_entropy_join, &attrs, "5,6 x 5,9 x 5", t);
        calls_run_checked(all);
        dall->c.input[0] = all->c.input[0], dall->c.input[1] = all->c.input[1];
        dall->c.input[2] = all->c.output[1];
        calls_run_checked(dall);
        for (int p = 0; p < N; p++) {
            int64_t n = first[p + 1] - first[p];
            char shapes[40];
            struct op_attrs mine = {.start = first[p], .whole = ALL, .scale = 0.25};
            snprintf(shapes, sizeof shapes, "5,%d x 5", (int)n);
            struct made *part = calls_make(OP_cross_entropy_shard, &mine, shapes, t);
            snprintf(shapes, sizeof shapes, "5,%d x 5 x 5", (int)n);
            struct made *grad = calls_make(OP_cross_entropy_grad, &mine, shapes, t);
            part->c.input[1] = grad->c.input[1] = all->c.input[1];
            grad->c.input[0] = part->c.input[0], grad->c.input[2] = all->c.output[1];
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t j = 0; j < n; j++)
                    calls_set(t, (void *)(uintptr_t)part->c.input[0], r * n + j,
                              calls_get(t, all->c.input[0], r * ALL + first[p] + j));
            calls_run(part);
            calls_run(grad);
            for (int64_t r = 0; r < ROWS; r++) {
                for (int64_t j = 0; j < 2; j++)
                    calls_set(t, (void *)(uintptr_t)join->c.input[0], r * 2 * N + 2 * p + j,
                              calls_get(t, part->c.output[0], 2 * r + j));
                for (int64_t j = 0; j < n; j++)
                    ck_assert_double_eq_tol(calls_get(t, grad->c.output[0], r * n + j),
                                            calls_get(t, dall->c.output[0], r * ALL + first[p] + j),
                                            1e-7);
            }
        }
        join->c.input[1] = all->c.input[0], join->c.input[2] = all->c.input[1];
        calls_run(join);
        calls_check_near(join, all, k ? 1e-14 : 1e-6);
    }
}
END_TEST

/* Rows [2, 5) of 7 positions, with whole keys and values, are those rows of the whole. */
START_TEST(queries_from_a_later_position_on_are_the_whole_s_rows)
{
    enum { T = 7, FIRST = 2, N = 3, D = 4 };
    for (int window = 0; window < 4; window += 3) {
        struct op_attrs attrs = ATTENTION(2, 1, 2, window), later = attrs;
        later.start = FIRST;
        struct made *all = calls_make(OP_attention, &attrs, "1,7,4 x 1,7,2 x 1,7,2", DTYPE_fp64);
        struct made *some = calls_make(OP_attention, &later, "1,3,4 x 1,7,2 x 1,7,2", DTYPE_fp64);
        some->c.input[0] = (const double *)all->c.input[0] + FIRST * D;
        some->c.input[1] = all->c.input[1], some->c.input[2] = all->c.input[2];
        calls_run_checked(all);
        calls_run_checked(some);
        const double *want = (const double *)all->c.output[0] + FIRST * D;
        ck_assert_double_le(calls_distance(DTYPE_fp64, some->c.output[0], DTYPE_fp64, want, N * D),
                            1e-14);
    }
    struct op_attrs turn = {.heads = 2, .head_dim = 2, .theta = 100}, later = turn;
    later.start = FIRST;
    struct made *all = calls_make(OP_rotary, &turn, "1,7,4", DTYPE_fp64),
                *some = calls_make(OP_rotary, &later, "1,3,4", DTYPE_fp64);
    some->c.input[0] = (const double *)all->c.input[0] + FIRST * D;
    calls_run_checked(some);
    calls_run_checked(all);
    ck_assert_mem_eq(some->c.output[0], (const double *)all->c.output[0] + FIRST * D,
                     N * D * sizeof(double));
}
END_TEST

/* Outputs that exist are written: zeros, where nothing is summed. */
START_TEST(a_shard_of_nothing_is_fine)
{
    for (int k = 0; k < 2; k++) {
        const struct empty_call *e = &empty_calls[_i];
        calls_run_checked(calls_make(e->kind, &e->attrs, e->inputs, k ? DTYPE_fp64 : DTYPE_fp32));
    }
}
END_TEST

Suite *kernel_shards_suite(void)
{
    Suite *suite = suite_create("kernel_parts");
    TCase *c = tcase_create("kernel_parts");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    const TTest *tests[] = {a_shard_is_taken_run_by_run_and_added_back_to_its_place,
                            a_shard_of_a_table_answers_for_its_own_ids_alone,
                            the_loss_of_shards_of_the_vocabulary_is_the_loss_of_all,
                            queries_from_a_later_position_on_are_the_whole_s_rows};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    tcase_add_loop_test(c, a_shard_of_nothing_is_fine, 0, N_EMPTY_CALLS);
    suite_add_tcase(suite, c);
    return suite;
}
