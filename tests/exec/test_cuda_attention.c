/* The device's attention beside the host's in fp64, on the stand-in: by tensor cores and by plain multiply-adds, heads of many sizes,
 * parts of the queries, and the same bytes in whatever order blocks and threads go on. */
#include "tests/support/cuda_rows.h"
#include "tests/support/kernel_rows_products.h"

static bool is_mine(enum op_kind kind) { return kind == OP_attention || kind == OP_attention_grad; }

/* All by plain multiply-adds, which are the same for every number: one of them each, where time is short. */
START_TEST(rows_of_the_table_are_as_the_host_computes_them)
{
    for (int t = 0; t < N_DTYPES && is_mine(kernel_rows[_i].kind); t++)
        if (t == _i % N_DTYPES || cuda_rows_long_or(0, 1))
            cuda_rows_compare(&kernel_rows[_i], all_dtypes[t], false, 1);
}
END_TEST

START_TEST(attention_of_nothing_gives_zeros)
{
    for (int i = 0; i < N_EMPTY_KERNEL_ROWS; i++)
        if (is_mine(empty_kernel_rows[i].kind))
            cuda_rows_compare_dtypes(&empty_kernel_rows[i], i, 1);
    for (int i = 0; i < N_EMPTY_CALLS; i++) {
        struct kernel_row row = {
            empty_calls[i].kind, empty_calls[i].attrs, empty_calls[i].inputs, {{0}}};
        if (is_mine(row.kind)) cuda_rows_compare_dtypes(&row, i, 1);
    }
}
END_TEST

/* Halves by tensor cores; fp32 and fp64 on the same rows only where there is time. */
START_TEST(attention_at_the_sizes_of_tensor_cores)
{
    enum dtype half = _i % 2 ? DTYPE_fp16 : DTYPE_bf16;
    if (cuda_rows_long_or(0, 1))
        for (int t = 0; t < N_DTYPES; t++)
            cuda_rows_compare(&attention_rows[_i], all_dtypes[t], false, 2);
    else
        cuda_rows_compare(&attention_rows[_i], half, false, 2);
}
END_TEST

START_TEST(drawn_attention_is_as_the_host_computes_it)
{
    int n = cuda_rows_long_or(3, 300);
    for (int i = 0; i < n; i++) {
        struct kernel_row row;
        kernel_rows_products_random(memory, RANDOM_ATTENTION, (uint64_t)i, &row);
        cuda_rows_compare(&row, all_dtypes[i % N_DTYPES], false, (uint64_t)i);
    }
}
END_TEST

START_TEST(the_order_of_blocks_and_threads_changes_no_byte)
{
    static const struct kernel_row rows[] = {
        {OP_attention, ATTENTION(2, 1, 16, 0), "1,70,64", PACKED},
        {OP_attention, ATTENTION(2, 1, 3, 0), "1,70,12", PACKED},
        /* the last blocks of keys are seen by no query */
        {OP_attention, SOME(2, 1, 16, 0, 0, 20, 200), "1,200,64", PACKED},
    };
    cuda_rows_check_orders(&rows[_i], _i == 1 ? DTYPE_fp32 : DTYPE_bf16);
}
END_TEST

Suite *cuda_attention_suite(void)
{
    Suite *s = suite_create("cuda_attention");
    TCase *t = tcase_create("stand-in");
    tcase_set_timeout(t, 0);
    tcase_add_checked_fixture(t, cuda_rows_open, cuda_rows_close);
    tcase_add_loop_test(t, rows_of_the_table_are_as_the_host_computes_them, 0, N_KERNEL_ROWS);
    tcase_add_test(t, attention_of_nothing_gives_zeros);
    tcase_add_loop_test(t, attention_at_the_sizes_of_tensor_cores, 0, N_ATTENTION_ROWS);
    tcase_add_test(t, drawn_attention_is_as_the_host_computes_it);
    tcase_add_loop_test(t, the_order_of_blocks_and_threads_changes_no_byte, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
