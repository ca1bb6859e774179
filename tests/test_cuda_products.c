/* The device's products, losses and experts beside the host's in fp64, on the stand-in: every number, sizes with tails, parts, empty
 * shares, and the same bytes in whatever order blocks and threads go on. */
#include "tests/cuda_rows.h"
#include "tests/kernel_rows_products.h"

static bool is_mine(enum op_kind kind)
{
    return kind == OP_matmul || op_is_routed(kind) || kind == OP_cross_entropy;
}

START_TEST(rows_of_the_table_are_as_the_host_computes_them)
{
    for (int i = 0; i < N_KERNEL_ROWS; i++)
        if (is_mine(kernel_rows[i].kind)) compare_dtypes(&kernel_rows[i], i, 1);
}
END_TEST

START_TEST(rows_of_nothing_are_as_the_host_computes_them)
{
    for (int i = 0; i < N_EMPTY_KERNEL_ROWS; i++)
        if (is_mine(empty_kernel_rows[i].kind)) compare_dtypes(&empty_kernel_rows[i], i, 1);
}
END_TEST

START_TEST(parts_of_nothing_are_as_the_host_computes_them)
{
    for (int i = 0; i < N_EMPTY_CALLS; i++) {
        const struct empty_call *e = &empty_calls[i];
        struct kernel_row row = {e->kind, e->attrs, e->inputs, {{0}}};
        if (is_mine(row.kind) || row.kind == OP_cross_entropy_grad) compare_dtypes(&row, i, 1);
    }
}
END_TEST

START_TEST(losses_over_long_rows_parts_and_some_targets)
{
    for (int t = 0; t < N_DTYPES; t++) compare(&loss_rows[_i], all_dtypes[t], false, 3);
}
END_TEST

START_TEST(experts_of_whole_tiles_parts_and_balance)
{
    compare_dtypes(&expert_rows_table[_i], _i, 4);
}
END_TEST

START_TEST(drawn_shapes_are_as_the_host_computes_them)
{
    int n = long_or(4, 400);
    for (int i = 0; i < n; i++) {
        struct kernel_row row;
        random_product_row(memory, (enum random_row)_i, (uint64_t)i, &row);
        compare(&row, all_dtypes[i % N_DTYPES], i / N_DTYPES % 2, (uint64_t)i);
    }
}
END_TEST

START_TEST(the_order_of_blocks_and_threads_changes_no_byte)
{
    for (int i = 0; i < N_LOSS_ROWS; i++) check_orders(&loss_rows[i], i % 2 ? DTYPE_fp32 : DTYPE_bf16);
    for (int i = 0; i < N_EXPERT_ROWS; i++)
        if (i != LARGE_EXPERT_ROW || long_or(0, 1))
            check_orders(&expert_rows_table[i], i % 2 ? DTYPE_fp32 : DTYPE_bf16);
}
END_TEST

/* --- what is refused --- */

static struct op_call half_call(const struct made *m)
{
    struct op_call c = m->c;
    c.dtype = DTYPE_bf16;
    return c;
}

START_TEST(fp32_beside_halves_where_no_kernel_takes_it_is_refused_by_name)
{
    static const struct {
        enum op_kind kind;
        struct op_attrs attrs;
        const char *inputs;
        uint32_t wide_input, wide_output;
        const char *said;
    } cases[] = {
        {OP_attention, ATTENTION(1, 1, 4, 0), "1,3,12", 1, 0, "only lse may be fp32"},
        {OP_attention, ATTENTION(1, 1, 4, 0), "1,3,12", 0, 1, "only lse may be fp32"},
        {OP_matmul, {0}, "2,3 x 3,4", 2, 0, "a left operand of bf16 and a right one of fp32"},
        {OP_dispatch, {.capacity = 2}, "1,3,4 x 1,3,2", 1, 0, "only gates"},
        {OP_expert_matmul, {0}, "1,2,2,4 x 2,4,3 x 1,3,2", 2, 0, "only gates"},
        {OP_cross_entropy, {0}, "1,2,3 x 1,2", 1, 1, "of fp32 logits"},
    };
    struct error err = {0};
    struct made *m = make(cases[_i].kind, &cases[_i].attrs, cases[_i].inputs, DTYPE_fp32);
    struct op_call c = half_call(m);
    c.wide_input = cases[_i].wide_input, c.wide_output = cases[_i].wide_output;
    ck_assert_int_eq(device.run(&device, STREAM_COMPUTE, &c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, cases[_i].said) && strstr(err.text, op_kind_name(c.kind)), "%s",
                  err.text);
}
END_TEST

START_TEST(a_target_outside_the_vocabulary_is_named_at_the_next_wait)
{
    static const int32_t targets[6] = {0, 3, -1, 2, 5, 1};
    struct error err = {0};
    struct op_attrs attrs = {.counted = _i ? 2 : 0};
    struct made *m = make(OP_cross_entropy, &attrs, "2,3,5 x 2,3", DTYPE_fp32);
    struct op_call c = m->c;
    void *logits, *ids, *loss, *lse;
    ck_assert_int_eq(device.allocate(&device, 30 * 4, &logits, &err), OK);
    ck_assert_int_eq(device.allocate(&device, 6 * 4, &ids, &err), OK);
    ck_assert_int_eq(device.allocate(&device, 4, &loss, &err), OK);
    ck_assert_int_eq(device.allocate(&device, 6 * 4, &lse, &err), OK);
    ck_assert_int_eq(device.upload(&device, ids, targets, sizeof targets, &err), OK);
    c.input[0] = logits, c.input[1] = ids, c.output[0] = loss, c.output[1] = lse;
    ck_assert_int_eq(device.run(&device, STREAM_COMPUTE, &c, &err), OK);
    ck_assert_int_eq(device.finish(&device, &err), ERR_INPUT);
    /* -1 is a target that does not count where only some do; 5 is none of five */
    const char *said = _i ? "cross_entropy: id 5 at 4 is outside the vocabulary of 5"
                          : "cross_entropy: id -1 at 2 is outside the vocabulary of 5";
    ck_assert_msg(strstr(err.text, said) != NULL, "%s", err.text);
    device.release(&device, logits), device.release(&device, ids);
    device.release(&device, loss), device.release(&device, lse);
}
END_TEST

Suite *cuda_products_suite(void)
{
    Suite *s = suite_create("cuda_products");
    TCase *t = tcase_create("stand-in");
    tcase_set_timeout(t, 0);
    tcase_add_checked_fixture(t, open_device, close_device);
    tcase_add_test(t, rows_of_the_table_are_as_the_host_computes_them);
    tcase_add_test(t, rows_of_nothing_are_as_the_host_computes_them);
    tcase_add_test(t, parts_of_nothing_are_as_the_host_computes_them);
    tcase_add_loop_test(t, losses_over_long_rows_parts_and_some_targets, 0, N_LOSS_ROWS);
    tcase_add_loop_test(t, experts_of_whole_tiles_parts_and_balance, 0, N_EXPERT_ROWS);
    tcase_add_loop_test(t, drawn_shapes_are_as_the_host_computes_them, RANDOM_MATMUL, RANDOM_ROWS);
    tcase_add_test(t, the_order_of_blocks_and_threads_changes_no_byte);
    tcase_add_loop_test(t, fp32_beside_halves_where_no_kernel_takes_it_is_refused_by_name, 0, 6);
    tcase_add_loop_test(t, a_target_outside_the_vocabulary_is_named_at_the_next_wait, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
