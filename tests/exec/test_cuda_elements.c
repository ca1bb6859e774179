/* The device's elementwise kinds, sums, norms, tokens, dropout, moves, images and updates beside the host's in fp64, on the stand-in:
 * every number, tails, parts, empty shares, and the same bytes in whatever order blocks and threads go on. */
#include "exec/cuda/ops.h"
#include "exec/plugin.h"
#include "tests/standin/emulator.h"
#include "tests/support/calls.h"
#include "tests/support/compare_kernels.h"
#include "tests/support/kernel_rows_elements.h"
#include "tests/support/suites.h"

#include <stdlib.h>

const struct plugin *musher_plugin(void); /* the plugin's sources are linked into the suites */

static struct backend device;

static void open_device(void)
{
    struct error err = {0};
    calls_begin();
    musher_plugin()->backend(&device);
    ck_assert_msg(device.open(&device, 0, &err) == OK, "%s", err.text);
}

static void close_device(void)
{
    device.close(&device);
    calls_end();
}

static const enum dtype all_dtypes[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16};
enum { N_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

/* The others are test_cuda_products.c's. */
static bool is_mine(enum op_kind kind)
{
    bool loss = kind == OP_cross_entropy || kind == OP_cross_entropy_grad ||
                kind == OP_cross_entropy_shard || kind == OP_cross_entropy_join;
    bool product = op_is_product(kind) || kind == OP_attention_grad || kind == OP_matmul_gelu_grad;
    return kind == OP_conv2d || (!product && !op_is_routed(kind) && !loss);
}

static void compare(const struct kernel_row *row, enum dtype t, bool accumulate, uint64_t seed)
{
    struct kernel_comparison c;
    struct error err = {0};
    kernel_comparison_begin(&c, &device, memory, &context, seed);
    /* what products by a library make of an address is the library's */
    c.any_address = row->kind != OP_conv2d;
    ck_assert_msg(kernel_comparison_row(&c, row, t, accumulate, &err) == OK, "%s: %s",
                  dtype_name(t), err.text);
    ck_assert_int_gt(c.n_calls, 0);
}

static bool adds(const struct kernel_row *row)
{
    bool any = false;
    for (int r = 0; r < RULES_MAX && row->rules[r].in; r++) any = any || row->rules[r].flags & ACC;
    return any;
}

/* fp32 and bf16 of even rows, fp64 and fp16 of odd ones, all where time is no matter: a kind has several rows. A narrow copy is
 * of halves alone. */
static void compare_in_all(const struct kernel_row *row, int number)
{
    for (int t = 0; t < N_DTYPES; t++) {
        bool turn = suites_long() || t % 2 == number % 2 || row->attrs.narrows;
        if (!turn || (row->attrs.narrows && !dtype_is_half(all_dtypes[t]))) continue;
        for (int accumulate = 0; accumulate <= adds(row); accumulate++)
            compare(row, all_dtypes[t], accumulate, (uint64_t)(1 + number % 7 + accumulate));
    }
}

START_TEST(rows_of_the_table_are_as_the_host_computes_them)
{
    if (is_mine(kernel_rows[_i].kind)) compare_in_all(&kernel_rows[_i], _i);
}
END_TEST

START_TEST(rows_of_nothing_are_as_the_host_computes_them)
{
    if (is_mine(empty_kernel_rows[_i].kind)) compare_in_all(&empty_kernel_rows[_i], _i);
}
END_TEST

START_TEST(parts_of_nothing_are_as_the_host_computes_them)
{
    const struct empty_call *e = &empty_calls[_i];
    struct kernel_row row = {e->kind, e->attrs, e->inputs, {{0}}};
    if (is_mine(e->kind)) compare_in_all(&row, _i);
}
END_TEST

START_TEST(tails_long_rows_parts_and_updates_are_as_the_host_computes_them)
{
    compare_in_all(&element_rows[_i], _i);
}
END_TEST

START_TEST(drawn_shapes_are_as_the_host_computes_them)
{
    for (uint64_t i = 0, n = suites_long() ? 60 : 1; i < n; i++) {
        struct kernel_row row;
        uint64_t number = i * N_ELEMENT_MAKERS + (uint64_t)_i;
        kernel_rows_elements_random(memory, number, &row);
        for (uint64_t t = 0; t < N_DTYPES; t++)
            compare(&row, all_dtypes[t], (number + t) & 1, number);
    }
}
END_TEST

/* Digest of all bytes that a row's operators give when blocks and threads go on in this order. */
static uint64_t digest_in_order(const struct kernel_row *row, enum dtype t, uint64_t order)
{
    struct kernel_comparison c;
    struct error err = {0};
    standin_order(order);
    kernel_comparison_begin(&c, &device, memory, &context, 5);
    c.any_address = false;
    ck_assert_msg(kernel_comparison_row(&c, row, t, true, &err) == OK, "%s", err.text);
    standin_order(0);
    return c.digest;
}

START_TEST(the_order_of_blocks_and_threads_changes_no_byte)
{
    const struct kernel_row *row = &element_rows[_i];
    if (!suites_long() && _i % 3) return;
    enum dtype t = _i % 2 || row->attrs.narrows ? DTYPE_bf16 : DTYPE_fp32;
    ck_assert_uint_eq(digest_in_order(row, t, 0), digest_in_order(row, t, 77 + (uint64_t)_i));
}
END_TEST

/* --- what is refused --- */

START_TEST(a_kind_without_a_function_says_why)
{
    for (int k = 0; k < OP_KIND_COUNT; k++)
        ck_assert_msg(!cuda_ops[k] == !!cuda_ops_why_not[k], "%s", op_kind_name((enum op_kind)k));
    struct error err = {0};
    struct made *m = calls_make(OP_message, &(struct op_attrs){0}, "4", DTYPE_fp32);
    ck_assert_int_eq(device.run(&device, STREAM_COMPUTE, &m->c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, cuda_ops_why_not[OP_message]) != NULL, "%s", err.text);
}
END_TEST

static void *on_device(const void *from, int64_t bytes)
{
    struct error err = {0};
    void *p;
    ck_assert_int_eq(device.allocate(&device, bytes, &p, &err), OK);
    ck_assert_int_eq(device.upload(&device, p, from, bytes, &err), OK);
    return p;
}

/* Ids 0 … 6 are some; of embedding a row that is none is zeros, of its gradient it is left out. */
START_TEST(an_id_outside_the_vocabulary_is_named_at_the_next_wait_and_touches_nothing)
{
    static const int32_t ids[4] = {0, 2, 7, -3};
    const float rows[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    enum op_kind kind = _i ? OP_embedding_grad : OP_embedding;
    struct op_attrs attrs = {.vocabulary = 7};
    struct error err = {0};
    struct made *m = calls_make(kind, &attrs, _i ? "4 x 4,2" : "4 x 7,2", DTYPE_fp32);
    struct op_call c = m->c;
    float got[14] = {0};
    int64_t n = shape_elements(&m->shapes.output[0]);
    c.input[0] = on_device(ids, sizeof ids);
    c.input[1] = on_device(_i ? rows : m->c.input[1], calls_input_size(m, 1));
    c.output[0] = on_device(m->c.output[0], n * 4);
    ck_assert_int_eq(device.run(&device, STREAM_COMPUTE, &c, &err), OK);
    ck_assert_int_eq(device.finish(&device, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "id 7 at 2 is outside the vocabulary of 7") != NULL, "%s",
                  err.text);
    /* the backend says it again whenever it is waited for */
    ck_assert_int_eq(cudaMemcpy(got, c.output[0], (size_t)n * 4, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    if (_i) {
        const float want[14] = {1, 2, 0, 0, 3, 4};
        ck_assert_mem_eq(got, want, sizeof want);
    } else {
        const float *table = m->c.input[1], want[8] = {table[0], table[1], table[4], table[5]};
        ck_assert_mem_eq(got, want, sizeof want);
    }
    for (int i = 0; i < 2; i++) device.release(&device, (void *)(uintptr_t)c.input[i]);
    device.release(&device, c.output[0]);
}
END_TEST

START_TEST(fp32_beside_halves_where_no_kernel_takes_it_is_refused_by_name)
{
    static const struct {
        enum op_kind kind;
        const char *inputs;
        uint32_t wide_input, wide_output;
        const char *said;
    } cases[] = {
        {OP_add, "4 x 4", 1, 0, "inputs 1 and outputs 0 are fp32"},
        {OP_gelu, "4", 0, 1, "inputs 0 and outputs 1 are fp32"},
        {OP_layer_norm, "2,4 x 4 x 4", 1, 3, "inputs 1 and outputs 3 are fp32"},
        {OP_adamw, "4 x 4 x 4 x 4", 13, 13, "output 1 is bf16; updates work on fp32 and fp64"},
    };
    struct error err = {0};
    struct made *m =
        calls_make(cases[_i].kind, &(struct op_attrs){.eps = 1}, cases[_i].inputs, DTYPE_fp32);
    struct op_call c = m->c;
    c.dtype = DTYPE_bf16;
    c.wide_input = cases[_i].wide_input, c.wide_output = cases[_i].wide_output;
    ck_assert_int_eq(device.run(&device, STREAM_COMPUTE, &c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, cases[_i].said) && strstr(err.text, op_kind_name(c.kind)), "%s",
                  err.text);
}
END_TEST

Suite *cuda_elements_suite(void)
{
    Suite *suite = suite_create("cuda_elements");
    TCase *c = tcase_create("cuda_elements");
    tcase_add_checked_fixture(c, open_device, close_device);
    tcase_add_loop_test(c, rows_of_the_table_are_as_the_host_computes_them, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(c, rows_of_nothing_are_as_the_host_computes_them, 0, N_EMPTY_KERNEL_ROWS);
    tcase_add_loop_test(c, parts_of_nothing_are_as_the_host_computes_them, 0, N_EMPTY_CALLS);
    tcase_add_loop_test(c, tails_long_rows_parts_and_updates_are_as_the_host_computes_them, 0,
                        N_ELEMENT_ROWS);
    tcase_add_loop_test(c, drawn_shapes_are_as_the_host_computes_them, 0, N_ELEMENT_MAKERS);
    tcase_add_loop_test(c, the_order_of_blocks_and_threads_changes_no_byte, 0, N_ELEMENT_ROWS);
    tcase_add_test(c, a_kind_without_a_function_says_why);
    tcase_add_loop_test(
        c, an_id_outside_the_vocabulary_is_named_at_the_next_wait_and_touches_nothing, 0, 2);
    tcase_add_loop_test(c, fp32_beside_halves_where_no_kernel_takes_it_is_refused_by_name, 0, 4);
    suite_add_tcase(suite, c);
    return suite;
}
