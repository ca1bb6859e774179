/* tests/support/cuda_rows.h - a device of the stand-in, opened for each test, and rows of operators compared on it with the host.
 *
 * Of every row a suite runs as many numbers as time allows (cuda_rows_dtypes), all of them under MUSHER_LONG.
 */
#ifndef TESTS_SUPPORT_CUDA_ROWS_H
#define TESTS_SUPPORT_CUDA_ROWS_H

#include "exec/plugin.h"
#include "tests/standin/emulator.h"
#include "tests/support/compare_kernels.h"
#include "tests/support/calls.h"
#include "tests/support/suites.h"

#include <stdlib.h>

const struct plugin *musher_plugin(void); /* the plugin's sources are linked into the suites */

static struct backend device;

static inline void cuda_rows_open(void)
{
    struct error err = {0};
    calls_begin();
    musher_plugin()->backend(&device);
    ck_assert_msg(device.open(&device, 0, &err) == OK, "%s", err.text);
}

static inline void cuda_rows_close(void)
{
    device.close(&device);
    calls_end();
}

static inline int cuda_rows_long_or(int few, int many) { return getenv("MUSHER_LONG") ? many : few; }

static const enum dtype all_dtypes[] = {DTYPE_fp32, DTYPE_bf16, DTYPE_fp64, DTYPE_fp16};
enum { N_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

/* Of row i from *first on: one of fp32 and fp64 and one of the halves, the others by turns. */
static inline int cuda_rows_dtypes(int i, int *first)
{
    *first = cuda_rows_long_or(i % 2 * 2, 0);
    return cuda_rows_long_or(2, N_DTYPES);
}

/* Tensor cores want addresses of 16 bytes, and libraries choose by address, so other bytes may come of another one. */
static inline bool cuda_rows_any_address(enum op_kind kind) { return !op_is_product(kind) && kind != OP_matmul_gelu_grad; }

static inline void cuda_rows_compare(const struct kernel_row *row, enum dtype t, bool accumulate,
                           uint64_t seed)
{
    struct kernel_comparison c;
    struct error err = {0};
    kernel_comparison_begin(&c, &device, memory, &context, seed);
    c.any_address = cuda_rows_any_address(row->kind);
    ck_assert_msg(kernel_comparison_row(&c, row, t, accumulate, &err) == OK, "%s: %s", dtype_name(t),
                  err.text);
    ck_assert_int_gt(c.n_calls, 0);
}

/* Every other number adds to its outputs. */
static inline void cuda_rows_compare_dtypes(const struct kernel_row *row, int i, uint64_t seed)
{
    int first, n = cuda_rows_dtypes(i, &first);
    for (int k = 0; k < n; k++) cuda_rows_compare(row, all_dtypes[first + k], (i + k) % 2, seed);
}

/* Digest of all bytes that a row's operators give when blocks and threads go on in this order. */
static inline uint64_t cuda_rows_digest_in_order(const struct kernel_row *row, enum dtype t, uint64_t order)
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

static inline void cuda_rows_check_orders(const struct kernel_row *row, enum dtype t)
{
    ck_assert_uint_eq(cuda_rows_digest_in_order(row, t, 0), cuda_rows_digest_in_order(row, t, 77));
}

#endif
