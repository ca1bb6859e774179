/* Row-major products of the CUDA plugin (on the stand-in) against plain sums: all transposes, strides, batches, numbers that
 * are wider in the result, a bias fused to them and one that is not. Operands are small integers, so that every sum is exact
 * in every number and the results are equal to the bit; GELU alone is compared within a rounding. */
#include "core/base/rng.h"
#include "core/graph/half.h"
#include "exec/cuda/blas.h"
#include "exec/plugin.h"

#include "tests/standin/standin.h"
#include "tests/support/suites.h"

#include <math.h>

static struct backend device;
static struct error err;

static void need(enum status st) { ck_assert_msg(st == OK, "%s", err.text); }

plugin_entry musher_plugin;

static void begin(void)
{
    setenv("MUSHER_NCCL", "/nowhere/libnccl.so.2", 1);
    musher_plugin()->backend(&device);
    need(device.open(&device, 0, &err));
}

static void end(void) { device.close(&device); }

/* ---- matrices of any number -------------------------------------------------------------------- */

static void put(enum dtype t, void *p, int64_t i, double v)
{
    if (t == DTYPE_fp64)
        ((double *)p)[i] = v;
    else if (t == DTYPE_fp32)
        ((float *)p)[i] = (float)v;
    else
        ((uint16_t *)p)[i] = half_of(t, (float)v);
}

static double get(enum dtype t, const void *p, int64_t i)
{
    if (t == DTYPE_fp64) return ((const double *)p)[i];
    return t == DTYPE_fp32 ? (double)((const float *)p)[i]
                           : (double)half_value(t, ((const uint16_t *)p)[i]);
}

struct matrix {
    enum dtype type;
    int64_t n;
    void *here, *there;
};

/* n integers from -2 to 2. */
static struct matrix matrix(enum dtype t, int64_t n, uint64_t stream)
{
    struct matrix m = {t, n, malloc((size_t)n * 8 + 8), NULL};
    for (int64_t i = 0; i < n; i++)
        put(t, m.here, i, (double)rng_below(7, stream, (uint64_t)i, 5) - 2);
    need(device.allocate(&device, n * dtype_bytes(t), &m.there, &err));
    need(device.upload(&device, m.there, m.here, n * dtype_bytes(t), &err));
    return m;
}

static void forget(struct matrix *m)
{
    device.release(&device, m->there);
    free(m->here);
}

static double gelu(double x) /* by tanh */
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* c of the product p, element (r,j) of matrix i, from what lay there before. */
static double element(const struct cuda_product *p, const struct matrix *m, int64_t i, int64_t r,
                      int64_t j)
{
    double sum = p->beta * get(p->type_c, m[2].here, i * p->stride_c + r * p->ldc + j);
    for (int64_t k = 0; k < p->k; k++) {
        int64_t a = p->trans_a ? k * p->lda + r : r * p->lda + k,
                b = p->trans_b ? j * p->ldb + k : k * p->ldb + j;
        sum += get(p->type, m[0].here, i * p->stride_a + a) *
               get(p->type, m[1].here, i * p->stride_b + b);
    }
    if (p->epilogue != EPILOGUE_NONE) sum += get(p->type_c, m[3].here, j);
    return p->epilogue == EPILOGUE_BIAS_GELU ? gelu(sum) : sum;
}

static void compare(const struct cuda_product *p, const struct matrix *m, const char *what)
{
    int64_t n = m[2].n;
    void *out = malloc((size_t)n * 8 + 8);
    need(device.download(&device, out, m[2].there, n * dtype_bytes(p->type_c), &err));
    double limit = p->epilogue != EPILOGUE_BIAS_GELU ? 0
                   : p->type_c == DTYPE_fp64         ? 1e-14
                   : p->type_c == DTYPE_fp32         ? 1e-5
                   : p->type_c == DTYPE_fp16         ? 2e-3
                                                     : 1e-2;
    for (int64_t i = 0; i < p->batch; i++)
        for (int64_t r = 0; r < p->m; r++)
            for (int64_t j = 0; j < p->n; j++) {
                double is = get(p->type_c, out, i * p->stride_c + r * p->ldc + j),
                       wanted = element(p, m, i, r, j);
                ck_assert_msg(fabs(is - wanted) <= limit * fmax(1, fabs(wanted)),
                              "%s of %d rows of %s to %s: (%d,%d,%d) is %g, not %g", what,
                              (int)p->m, dtype_name(p->type), dtype_name(p->type_c), (int)i, (int)r,
                              (int)j, is, wanted);
            }
    free(out);
}

static int64_t draw(uint64_t i, uint64_t what, int64_t n)
{
    return (int64_t)rng_below(8, what, i, (uint64_t)n);
}

static const enum dtype types[][2] = {{DTYPE_fp32, DTYPE_fp32}, {DTYPE_fp64, DTYPE_fp64},
                                      {DTYPE_bf16, DTYPE_bf16}, {DTYPE_fp16, DTYPE_fp16},
                                      {DTYPE_bf16, DTYPE_fp32}, {DTYPE_fp16, DTYPE_fp32}};
enum { TYPES = sizeof types / sizeof *types };

/* Sizes, transposes, strides of case i. */
static struct cuda_product drawn(uint64_t i)
{
    struct cuda_product p = {.trans_a = draw(i, 1, 2),
                             .trans_b = draw(i, 2, 2),
                             .m = 1 + draw(i, 3, 9),
                             .n = 1 + draw(i, 4, 9),
                             .k = draw(i, 5, 9),
                             .batch = 1,
                             .type = types[i % TYPES][0],
                             .type_c = types[i % TYPES][1]};
    p.lda = (p.trans_a ? p.m : p.k) + draw(i, 6, 3) + (p.k == 0);
    p.ldb = (p.trans_b ? p.k : p.n) + draw(i, 7, 3) + (p.k == 0);
    p.ldc = p.n;
    return p;
}

static void check(struct cuda_product *p, const char *what)
{
    int64_t a = (p->trans_a ? p->k : p->m) * p->lda, b = (p->trans_b ? p->n : p->k) * p->ldb;
    struct matrix m[] = {matrix(p->type, p->batch * (p->stride_a + 1) + a, 1),
                         matrix(p->type, p->batch * (p->stride_b + 1) + b, 2),
                         matrix(p->type_c, p->batch * p->stride_c + p->m * p->ldc, 3),
                         matrix(p->type_c, p->n, 4)};
    p->a = m[0].there, p->b = m[1].there, p->c = m[2].there;
    if (p->epilogue != EPILOGUE_NONE) p->bias = m[3].there;
    need(cuda_product(cuda_context_of(&device, STREAM_COMPUTE), p, &err));
    compare(p, m, what);
    for (int i = 0; i < 4; i++) forget(&m[i]);
}

START_TEST(products_are_plain_sums)
{
    for (uint64_t i = 0; i < 60; i++) {
        struct cuda_product p = drawn(i);
        p.ldc += draw(i, 8, 3);
        p.beta = (double)draw(i, 9, 2);
        check(&p, "a product");
    }
}
END_TEST

START_TEST(a_batch_is_as_many_products)
{
    for (uint64_t i = 0; i < 40; i++) {
        struct cuda_product p = drawn(i);
        p.batch = 2 + draw(i, 10, 3);
        p.stride_a = draw(i, 11, 2) * (p.lda * 9 + 3);
        p.stride_b = draw(i, 12, 2) * (p.ldb * 9 + 1);
        p.stride_c = p.m * p.ldc + draw(i, 13, 4);
        p.beta = (double)draw(i, 9, 2);
        check(&p, "a batch");
    }
}
END_TEST

/* A plan of cuBLASLt is kept: the second call of a shape has other operands. */
START_TEST(a_bias_and_gelu_are_fused)
{
    for (uint64_t i = 0; i < 48; i++) {
        struct cuda_product p = drawn(i);
        p.epilogue = i / TYPES % 2 ? EPILOGUE_BIAS_GELU : EPILOGUE_BIAS;
        check(&p, "a fused product");
        check(&p, "the same again");
    }
}
END_TEST

/* Of slots, which stand at multiples of 64 bytes: what a plan is made of is asked for once. */
START_TEST(a_product_has_one_plan_wherever_its_operands_stand)
{
    enum { SIDE = 16, STEP = 64, BYTES = SIDE * SIDE * 2 + STEP };
    struct cuda_product p = {.m = SIDE, .n = SIDE, .k = SIDE, .lda = SIDE, .ldb = SIDE, .ldc = SIDE, .batch = 1};
    int64_t calls[3];
    void *at[4];
    p.type = p.type_c = DTYPE_bf16, p.epilogue = EPILOGUE_BIAS;
    for (int i = 0; i < 4; i++) need(device.allocate(&device, BYTES, &at[i], &err));
    for (int i = 0; i < 3; i++) {
        size_t step = i == 2 ? STEP : 0;
        int64_t before = standin_calls();
        p.a = (char *)at[0] + step, p.b = (char *)at[1] + step, p.c = (char *)at[2] + step;
        p.bias = (char *)at[3] + step;
        need(cuda_product(cuda_context_of(&device, STREAM_COMPUTE), &p, &err));
        calls[i] = standin_calls() - before;
    }
    ck_assert_int_lt(calls[1], calls[0]);
    ck_assert_int_eq(calls[2], calls[1]);
    for (int i = 0; i < 4; i++) device.release(&device, at[i]);
}
END_TEST

/* 515 is 516 in bf16, but 256 + 258 where the first 257 terms are rounded apart. */
START_TEST(half_precision_is_added_up_in_fp32_behind_a_bias_too)
{
    enum { K = 515, N = 16 };
    struct cuda_product p = {.m = N, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N, .batch = 1};
    uint16_t ones[K * N], zeros[N] = {0}, sums[N * N];
    void *at[4];
    for (int i = 0; i < K * N; i++) ones[i] = half_of(DTYPE_bf16, 1);
    p.type = p.type_c = DTYPE_bf16, p.epilogue = EPILOGUE_BIAS;
    for (int i = 0; i < 4; i++) need(device.allocate(&device, sizeof ones, &at[i], &err));
    for (int i = 0; i < 2; i++) need(device.upload(&device, at[i], ones, sizeof ones, &err));
    need(device.upload(&device, at[3], zeros, sizeof zeros, &err));
    p.a = at[0], p.b = at[1], p.c = at[2], p.bias = at[3];
    need(cuda_product(cuda_context_of(&device, STREAM_COMPUTE), &p, &err));
    need(device.download(&device, sums, at[2], sizeof sums, &err));
    for (int i = 0; i < N * N; i++) ck_assert_double_eq(get(DTYPE_bf16, sums, i), 516);
    for (int i = 0; i < 4; i++) device.release(&device, at[i]);
}
END_TEST

START_TEST(what_cublaslt_does_not_find_or_is_not_sure_of_is_done_apart)
{
    setenv("STANDIN_LT", _i ? "unsure" : "none", 1);
    for (uint64_t i = 0; i < 24; i++) {
        struct cuda_product p = drawn(i);
        p.epilogue = EPILOGUE_BIAS;
        check(&p, "a product and its bias");
    }
    unsetenv("STANDIN_LT");
}
END_TEST

START_TEST(what_cublas_has_no_product_for_is_refused)
{
    struct cuda_product p = drawn(0);
    p.type = DTYPE_fp32;
    p.type_c = DTYPE_bf16;
    ck_assert_int_eq(cuda_product(cuda_context_of(&device, 0), &p, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "no product of fp32 gives bf16");
    p.type_c = DTYPE_fp32;
    p.m = (int64_t)1 << 31;
    ck_assert_int_eq(cuda_product(cuda_context_of(&device, 0), &p, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "a matrix of 2147483648 is too large for cuBLAS");
}
END_TEST

Suite *cuda_products_suite(void)
{
    Suite *s = suite_create("cuda_products");
    TCase *c = tcase_create("cuda_products");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, products_are_plain_sums);
    tcase_add_test(c, a_batch_is_as_many_products);
    tcase_add_test(c, a_bias_and_gelu_are_fused);
    tcase_add_test(c, a_product_has_one_plan_wherever_its_operands_stand);
    tcase_add_test(c, half_precision_is_added_up_in_fp32_behind_a_bias_too);
    tcase_add_loop_test(c, what_cublaslt_does_not_find_or_is_not_sure_of_is_done_apart, 0, 2);
    tcase_add_test(c, what_cublas_has_no_product_for_is_refused);
    suite_add_tcase(s, c);
    return s;
}
