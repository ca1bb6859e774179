/* The device's products, attention, losses and experts beside the host's in fp64, on the stand-in: every number, sizes with tails,
 * parts, empty shares, and the same bytes in whatever order blocks and threads go on. */
#include "exec/plugin.h"
#include "tests/compare_kernels.h"
#include "tests/kernel_calls.h"
#include "tests/kernel_rows_products.h"
#include "tests/standin/emulator.h"
#include "tests/suites.h"

#include <stdlib.h>

const struct plugin *musher_plugin(void); /* the plugin's sources are linked into the suites */

static struct backend device;

static void open_device(void)
{
    struct error err = {0};
    begin();
    musher_plugin()->backend(&device);
    ck_assert_msg(device.open(&device, 0, &err) == OK, "%s", err.text);
}

static void close_device(void)
{
    device.close(&device);
    end();
}

static const enum dtype all_dtypes[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16};
enum { N_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

static bool is_mine(enum op_kind kind)
{
    return op_is_product(kind) ? kind != OP_conv2d : op_is_routed(kind) || kind == OP_cross_entropy;
}

/* Tensor cores want addresses of 16 bytes, and libraries choose by address, so other bytes may come of another one. */
static bool any_address(enum op_kind kind)
{
    return !op_is_product(kind);
}

static void compare(const struct kernel_row *row, enum dtype t, bool accumulate, uint64_t seed)
{
    struct comparison c;
    struct error err = {0};
    comparison_begin(&c, &device, memory, &context, seed);
    c.any_address = any_address(row->kind);
    ck_assert_msg(compare_row(&c, row, t, accumulate, &err) == OK, "%s: %s", dtype_name(t), err.text);
    ck_assert_int_gt(c.n_calls, 0);
}

START_TEST(rows_of_the_table_are_as_the_host_computes_them)
{
    const struct kernel_row *row = &kernel_rows[_i];
    if (!is_mine(row->kind)) return;
    for (int t = 0; t < N_DTYPES; t++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            compare(row, all_dtypes[t], accumulate, 1);
}
END_TEST

START_TEST(rows_of_nothing_are_as_the_host_computes_them)
{
    const struct kernel_row *row = &empty_kernel_rows[_i];
    if (!is_mine(row->kind)) return;
    for (int t = 0; t < N_DTYPES; t++) compare(row, all_dtypes[t], true, 1);
}
END_TEST

START_TEST(parts_of_nothing_are_as_the_host_computes_them)
{
    const struct empty_call *e = &empty_calls[_i];
    struct kernel_row row = {e->kind, e->attrs, e->inputs, {{0}}};
    if (!is_mine(row.kind) && row.kind != OP_attention_grad && row.kind != OP_cross_entropy_grad)
        return;
    for (int t = 0; t < N_DTYPES; t++) compare(&row, all_dtypes[t], true, 1);
}
END_TEST

START_TEST(attention_at_the_sizes_of_tensor_cores)
{
    for (int t = 0; t < N_DTYPES; t++) compare(&attention_rows[_i], all_dtypes[t], false, 2);
}
END_TEST

START_TEST(losses_over_long_rows_parts_and_some_targets)
{
    for (int t = 0; t < N_DTYPES; t++) compare(&loss_rows[_i], all_dtypes[t], false, 3);
}
END_TEST

START_TEST(experts_of_whole_tiles_parts_and_balance)
{
    for (int t = 0; t < N_DTYPES; t++)
        compare(&expert_rows_table[_i], all_dtypes[t], t & 1, 4);
}
END_TEST

static int long_or(int few, int many) { return getenv("MUSHER_LONG") ? many : few; }

START_TEST(drawn_shapes_are_as_the_host_computes_them)
{
    int n = long_or(3, 200);
    for (int i = 0; i < n; i++) {
        uint64_t number = (uint64_t)(i * N_DTYPES + _i) * N_DTYPES;
        struct kernel_row row;
        /* every kind in every number: kinds follow from the number drawn, numbers from its rest */
        for (uint64_t kind = 0; kind < 4; kind++) {
            random_product_row(memory, number + kind, &row);
            compare(&row, all_dtypes[_i], kind & 1, number);
        }
    }
}
END_TEST

/* Digest of all bytes that a row's operators give when blocks and threads go on in this order. */
static uint64_t digest_in_order(const struct kernel_row *row, enum dtype t, uint64_t order)
{
    struct comparison c;
    struct error err = {0};
    standin_order(order);
    comparison_begin(&c, &device, memory, &context, 5);
    c.any_address = false;
    ck_assert_msg(compare_row(&c, row, t, true, &err) == OK, "%s", err.text);
    standin_order(0);
    return c.digest;
}

START_TEST(the_order_of_blocks_and_threads_changes_no_byte)
{
    static const struct kernel_row *const tables[] = {attention_rows, loss_rows, expert_rows_table};
    static const int n[] = {N_ATTENTION_ROWS, N_LOSS_ROWS, N_EXPERT_ROWS};
    for (int i = 0; i < n[_i]; i++)
        for (int t = 0; t < 2; t++) {
            const struct kernel_row *row = &tables[_i][i];
            enum dtype dtype = t ? DTYPE_bf16 : DTYPE_fp32;
            ck_assert_uint_eq(digest_in_order(row, dtype, 0), digest_in_order(row, dtype, 77 + (uint64_t)i));
        }
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
    tcase_add_loop_test(t, rows_of_the_table_are_as_the_host_computes_them, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(t, rows_of_nothing_are_as_the_host_computes_them, 0, N_EMPTY_KERNEL_ROWS);
    tcase_add_loop_test(t, parts_of_nothing_are_as_the_host_computes_them, 0, N_EMPTY_CALLS);
    tcase_add_loop_test(t, attention_at_the_sizes_of_tensor_cores, 0, N_ATTENTION_ROWS);
    tcase_add_loop_test(t, losses_over_long_rows_parts_and_some_targets, 0, N_LOSS_ROWS);
    tcase_add_loop_test(t, experts_of_whole_tiles_parts_and_balance, 0, N_EXPERT_ROWS);
    tcase_add_loop_test(t, drawn_shapes_are_as_the_host_computes_them, 0, N_DTYPES);
    tcase_add_loop_test(t, the_order_of_blocks_and_threads_changes_no_byte, 0, 3);
    tcase_add_loop_test(t, fp32_beside_halves_where_no_kernel_takes_it_is_refused_by_name, 0, 6);
    tcase_add_loop_test(t, a_target_outside_the_vocabulary_is_named_at_the_next_wait, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
