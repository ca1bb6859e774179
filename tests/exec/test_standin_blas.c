/* tests/exec/test_standin_blas.c - products of the stand-in's BLAS against sums by hand; what cuBLAS refuses is refused. */
#include "tests/standin/cublasLt.h"
#include "tests/standin/narrow.h"
#include "tests/standin/standin.h"

#include "core/base/rng.h"

#include "tests/support/suites.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 24, ROOM = 3 * SIDE * SIDE, CASES = 120 };

static void good(cudaError_t e) { ck_assert_msg(e == cudaSuccess, "%s", cudaGetErrorString(e)); }

static void fine(cublasStatus_t s)
{
    ck_assert_msg(s == CUBLAS_STATUS_SUCCESS, "%s", cublasGetStatusString(s));
}

static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF, CUDA_R_16F};

static size_t bytes_of(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

static double get(cudaDataType_t t, const void *p, int64_t i)
{
    switch (t) {
    case CUDA_R_64F:
        return ((const double *)p)[i];
    case CUDA_R_32F:
        return (double)((const float *)p)[i];
    case CUDA_R_16BF:
        return (double)narrow_from_bf16(((const uint16_t *)p)[i]);
    default:
        return (double)narrow_from_fp16(((const uint16_t *)p)[i]);
    }
}

static void set(cudaDataType_t t, void *p, int64_t i, double v)
{
    switch (t) {
    case CUDA_R_64F:
        ((double *)p)[i] = v;
        break;
    case CUDA_R_32F:
        ((float *)p)[i] = (float)v;
        break;
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = narrow_to_bf16((float)v);
        break;
    default:
        ((uint16_t *)p)[i] = narrow_to_fp16((float)v);
        break;
    }
}

/* Half the distance between neighbours at 1; fp32 sums of 24 terms stay within 30 of it. */
static double limit(cudaDataType_t t)
{
    switch (t) {
    case CUDA_R_64F:
        return 1e-13;
    case CUDA_R_32F:
        return 2e-6;
    case CUDA_R_16BF:
        return 0x1p-8 + 1e-5;
    default:
        return 0x1p-11 + 1e-5;
    }
}

/* Device memory of n numbers that the type holds; `host` gets the same. */
static void *numbers(cudaDataType_t t, int64_t n, uint64_t stream, void *host)
{
    void *p;
    for (int64_t i = 0; i < n; i++) set(t, host, i, rng_normal(9, stream, (uint64_t)i));
    good(cudaMalloc(&p, (size_t)n * bytes_of(t)));
    good(cudaMemcpy(p, host, (size_t)n * bytes_of(t), cudaMemcpyHostToDevice));
    return p;
}

struct shape {
    cudaDataType_t t, t_c;
    int m, n, k, lda, ldb, ldc, batch;
    bool turn_a, turn_b;
    double alpha, beta;
};

static struct shape random_shape(uint64_t c)
{
    struct shape s = {.t = types[c % 4]};
    s.t_c = c % 4 >= 2 && rng_below(4, c, 0, 2) ? CUDA_R_32F : s.t;
    s.m = 1 + (int)rng_below(4, c, 1, SIDE), s.n = 1 + (int)rng_below(4, c, 2, SIDE);
    s.k = (int)rng_below(4, c, 3, SIDE);
    s.turn_a = rng_below(4, c, 4, 2), s.turn_b = rng_below(4, c, 5, 2);
    s.lda = (s.turn_a ? s.k : s.m) + 1 + (int)rng_below(4, c, 6, 3);
    s.ldb = (s.turn_b ? s.n : s.k) + 1 + (int)rng_below(4, c, 7, 3);
    s.ldc = s.m + (int)rng_below(4, c, 8, 3);
    s.batch = 1 + (int)rng_below(4, c, 9, 2);
    s.alpha = 1 + (double)rng_below(4, c, 10, 2), s.beta = (double)rng_below(4, c, 11, 3) / 2;
    return s;
}

static double expected(const struct shape *s, const void *a, const void *b, const void *c, int g,
                       int i, int j)
{
    enum { STRIDE = SIDE * (SIDE + 4) };
    double sum = 0;
    for (int q = 0; q < s->k; q++)
        sum += get(s->t, a, g * STRIDE + (s->turn_a ? i * s->lda + q : q * s->lda + i)) *
               get(s->t, b, g * STRIDE + (s->turn_b ? q * s->ldb + j : j * s->ldb + q));
    return s->alpha * sum +
           (s->beta != 0 ? s->beta * get(s->t_c, c, g * STRIDE + j * s->ldc + i) : 0);
}

/* Runs one product; whatever lies between c's columns must stay. */
static void check_product(cublasHandle_t h, uint64_t number)
{
    enum { STRIDE = SIDE * (SIDE + 4), N = 2 * STRIDE };
    static double a[N], b[N], c[N], out[N];
    struct shape s = random_shape(number);
    void *da = numbers(s.t, N, 3 * number, a), *db = numbers(s.t, N, 3 * number + 1, b),
         *dc = numbers(s.t_c, N, 3 * number + 2, c);
    float f[2] = {(float)s.alpha, (float)s.beta};
    double d[2] = {s.alpha, s.beta};
    bool fp64 = s.t == CUDA_R_64F;
    fine(cublasGemmStridedBatchedEx(
        h, s.turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, s.turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, s.m, s.n,
        s.k, fp64 ? (void *)&d[0] : (void *)&f[0], da, s.t, s.lda, STRIDE, db, s.t, s.ldb, STRIDE,
        fp64 ? (void *)&d[1] : (void *)&f[1], dc, s.t_c, s.ldc, STRIDE, s.batch,
        fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    good(cudaMemcpy(out, dc, N * bytes_of(s.t_c), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < N; i++) {
        int g = (int)(i / STRIDE), j = (int)(i % STRIDE / s.ldc), row = (int)(i % STRIDE % s.ldc);
        bool inside = g < s.batch && j < s.n && row < s.m;
        double e = inside ? expected(&s, a, b, c, g, row, j) : get(s.t_c, c, i);
        double far = fabs(get(s.t_c, out, i) - e);
        ck_assert_msg(inside ? far <= limit(s.t_c) * fmax(fabs(e), 10) : far == 0,
                      "product %d, element %d: %g instead of %g", (int)number, (int)i,
                      get(s.t_c, out, i), e);
    }
    good(cudaFree(da));
    good(cudaFree(db));
    good(cudaFree(dc));
}

START_TEST(products_are_sums_in_all_types_strides_and_turns)
{
    cublasHandle_t h;
    fine(cublasCreate(&h));
    for (uint64_t c = 0; c < CASES; c++) check_product(h, c);
    fine(cublasDestroy(h));
    ck_assert_int_eq(standin_left(NULL, 0), 0);
}
END_TEST

START_TEST(without_beta_the_old_result_is_not_read)
{
    cublasHandle_t h;
    float host[4], one = 1, none = 0;
    void *a = numbers(CUDA_R_32F, 4, 1, host), *c;
    good(cudaMalloc(&c, sizeof host)); /* NaNs */
    fine(cublasCreate(&h));
    fine(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_32F, 2, a, CUDA_R_32F,
                      2, &none, c, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    good(cudaMemcpy(host, c, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++) ck_assert(isfinite(host[i]));
    fine(cublasDestroy(h));
}
END_TEST

START_TEST(what_cublas_refuses_is_refused)
{
    cublasHandle_t h;
    float host[8], one = 1;
    double wide = 1;
    void *a = numbers(CUDA_R_32F, 8, 1, host);
    fine(cublasCreate(&h));
    const struct {
        int m, lda;
        cudaDataType_t t, t_c;
        cublasComputeType_t compute;
        cublasStatus_t s;
    } cases[] = {
        {2, 1, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_STATUS_INVALID_VALUE},
        {-1, 2, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_STATUS_INVALID_VALUE},
        {2, 2, CUDA_R_32F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUBLAS_STATUS_NOT_SUPPORTED},
        {2, 2, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_64F, CUBLAS_STATUS_NOT_SUPPORTED},
        {2, 2, CUDA_R_16BF, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUBLAS_STATUS_NOT_SUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const void *scalar =
            cases[i].compute == CUBLAS_COMPUTE_64F ? (const void *)&wide : (const void *)&one;
        ck_assert_int_eq(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, cases[i].m, 2, 2, scalar, a,
                                      cases[i].t, cases[i].lda, a, cases[i].t, 2, scalar, a,
                                      cases[i].t_c, 2, cases[i].compute, CUBLAS_GEMM_DEFAULT),
                         cases[i].s);
    }
    good(cudaDeviceSynchronize());
    /* One element past the allocation: a GPU would end with an illegal address. */
    ck_assert_int_eq(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, (float *)a + 5,
                                  CUDA_R_32F, 2, a, CUDA_R_32F, 2, &one, a, CUDA_R_32F, 2,
                                  CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_EXECUTION_FAILED);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cublasDestroy(h), CUBLAS_STATUS_EXECUTION_FAILED); /* lost, and given back */
}
END_TEST

/* --- cuBLASLt --- */

struct lt { /* a product (m,n,k) without turns, ready to be asked */
    cublasLtHandle_t h;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t wish;
};

static void lt_set(struct lt *x, cublasLtMatmulDescAttributes_t which, const void *p, size_t bytes)
{
    fine(cublasLtMatmulDescSetAttribute(x->product, which, p, bytes));
}

static struct lt lt_make(cudaDataType_t t, int m, int n, int k, cublasLtEpilogue_t epilogue,
                         const void *bias, const void *aux, int64_t aux_ld)
{
    struct lt x;
    bool fp64 = t == CUDA_R_64F;
    fine(cublasLtCreate(&x.h));
    fine(cublasLtMatmulDescCreate(&x.product, fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                  fp64 ? CUDA_R_64F : CUDA_R_32F));
    lt_set(&x, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    lt_set(&x, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    lt_set(&x, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    lt_set(&x, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld);
    fine(cublasLtMatrixLayoutCreate(&x.a, t, (uint64_t)m, (uint64_t)k, m));
    fine(cublasLtMatrixLayoutCreate(&x.b, t, (uint64_t)k, (uint64_t)n, k));
    fine(cublasLtMatrixLayoutCreate(&x.c, t, (uint64_t)m, (uint64_t)n, m));
    fine(cublasLtMatmulPreferenceCreate(&x.wish));
    return x;
}

static cublasStatus_t lt_find(struct lt *x, cublasLtMatmulHeuristicResult_t *out)
{
    int n = 0;
    cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(x->h, x->product, x->a, x->b, x->c, x->c,
                                                      x->wish, 1, out, &n);
    ck_assert_int_eq(n, s == CUBLAS_STATUS_SUCCESS);
    return s;
}

static void lt_free(struct lt *x)
{
    fine(cublasLtMatmulPreferenceDestroy(x->wish));
    fine(cublasLtMatrixLayoutDestroy(x->c));
    fine(cublasLtMatrixLayoutDestroy(x->b));
    fine(cublasLtMatrixLayoutDestroy(x->a));
    fine(cublasLtMatmulDescDestroy(x->product));
    fine(cublasLtDestroy(x->h));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

START_TEST(bias_and_gelu_are_taken_of_the_sum_and_what_they_were_taken_of_is_kept)
{
    enum { M = 8, N = 5, K = 7 };
    static const cublasLtEpilogue_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
    static const cudaDataType_t t = CUDA_R_32F;
    float a[M * K], b[K * N], bias[M], out[M * N], aux[M * N], one = 1, none = 0;
    void *da = numbers(t, M * K, 1, a), *db = numbers(t, K * N, 2, b), *dbias, *daux, *dc;
    dbias = numbers(t, M, 3, bias);
    good(cudaMalloc(&daux, sizeof aux));
    good(cudaMalloc(&dc, sizeof out));
    for (size_t e = 0; e < sizeof epilogues / sizeof *epilogues; e++) {
        struct lt x = lt_make(t, M, N, K, epilogues[e], dbias, daux, M);
        cublasLtMatmulHeuristicResult_t found;
        fine(lt_find(&x, &found));
        fine(cublasLtMatmul(x.h, x.product, &one, da, x.a, db, x.b, &none, dc, x.c, dc, x.c,
                            &found.algo, NULL, 0, NULL));
        good(cudaMemcpy(out, dc, sizeof out, cudaMemcpyDeviceToHost));
        good(cudaMemcpy(aux, daux, sizeof aux, cudaMemcpyDeviceToHost));
        for (int i = 0; i < M * N; i++) {
            double sum = (int)epilogues[e] & 4 ? (double)bias[i % M] : 0;
            for (int q = 0; q < K; q++) sum += (double)a[q * M + i % M] * (double)b[i / M * K + q];
            ck_assert_double_eq_tol((double)out[i], (int)epilogues[e] & 32 ? gelu(sum) : sum, 1e-5);
            if ((int)epilogues[e] & 128) ck_assert_double_eq_tol((double)aux[i], sum, 1e-5);
        }
        /* Of another product: not this one's algorithm. */
        found.algo.data[0]++;
        ck_assert_int_eq(cublasLtMatmul(x.h, x.product, &one, da, x.a, db, x.b, &none, dc, x.c, dc,
                                        x.c, &found.algo, NULL, 0, NULL),
                         CUBLAS_STATUS_INVALID_VALUE);
        lt_free(&x);
    }
    for (int i = 0; i < 5; i++) good(cudaFree((void *[]){da, db, dbias, daux, dc}[i]));
    ck_assert_int_eq(standin_left(NULL, 0), 0);
}
END_TEST

/* The heuristic takes 256 bytes for granted, and told less it gives what serves less. */
START_TEST(an_algorithm_serves_operands_that_lie_as_its_heuristic_was_told)
{
    enum { M = 8, N = 4, K = 4, AWAY = 64 };
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const float one = 1, none = 0;
    const uint32_t told = AWAY;
    char *p;
    good(cudaMalloc((void **)&p, 4096));
    good(cudaMemset(p, 0, 4096));
    for (int moved = 0; moved < 3; moved++) { /* a, b, or c and d */
        struct lt x = lt_make(CUDA_R_32F, M, N, K, CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL, M);
        void *a = p + (moved == 0 ? AWAY : 0), *b = p + 1024 + (moved == 1 ? AWAY : 0),
             *c = p + 2048 + (moved == 2 ? AWAY : 0);
        for (int i = 0; i < 2; i++) {
            cublasLtMatmulHeuristicResult_t found;
            for (int k = 0; i && k < 4; k++)
                fine(cublasLtMatmulPreferenceSetAttribute(x.wish, which[k], &told, sizeof told));
            fine(lt_find(&x, &found));
            ck_assert_int_eq(cublasLtMatmul(x.h, x.product, &one, a, x.a, b, x.b, &none, c, x.c, c,
                                            x.c, &found.algo, NULL, 0, NULL),
                             i ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
        }
        lt_free(&x);
    }
    good(cudaFree(p));
}
END_TEST

START_TEST(fused_products_that_cublaslt_does_not_have_are_not_found)
{
    cublasLtMatmulHeuristicResult_t found;
    struct lt fp64 = lt_make(CUDA_R_64F, 8, 2, 2, CUBLASLT_EPILOGUE_BIAS, NULL, NULL, 8);
    ck_assert_int_eq(lt_find(&fp64, &found), CUBLAS_STATUS_NOT_SUPPORTED);
    struct lt odd = lt_make(CUDA_R_32F, 6, 2, 2, CUBLASLT_EPILOGUE_GELU_AUX, NULL, NULL, 6);
    ck_assert_int_eq(lt_find(&odd, &found), CUBLAS_STATUS_INVALID_VALUE);
    lt_free(&fp64);
    lt_free(&odd);
    ck_assert_int_eq(standin_left(NULL, 0), 0);
}
END_TEST

START_TEST(bf16_needs_a_gpu_that_has_it)
{
    setenv("STANDIN_CAPABILITY", "75", 1);
    cublasHandle_t h;
    uint16_t host[4];
    float one = 1;
    void *a = numbers(CUDA_R_16BF, 4, 1, host);
    fine(cublasCreate(&h));
    ck_assert_int_eq(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_16BF, 2, a,
                                  CUDA_R_16BF, 2, &one, a, CUDA_R_16BF, 2, CUBLAS_COMPUTE_32F,
                                  CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_ARCH_MISMATCH);
    fine(cublasDestroy(h));
}
END_TEST

START_TEST(a_handle_that_is_given_a_stream_loses_its_workspace)
{
    enum { WORKSPACE = 1024 };
    cublasHandle_t h;
    cudaStream_t s;
    float host[4], one = 1;
    void *a = numbers(CUDA_R_32F, 4, 1, host), *workspace;
    good(cudaMalloc(&workspace, WORKSPACE));
    good(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    fine(cublasCreate(&h));
    fine(cublasSetWorkspace(h, workspace, WORKSPACE));
    for (int again = 0; again < 2; again++) {
        fine(cublasSetStream(h, s));
        ck_assert_int_eq(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_32F, 2, a,
                                      CUDA_R_32F, 2, &one, a, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT),
                         CUBLAS_STATUS_ALLOC_FAILED);
        fine(cublasSetWorkspace(h, workspace, WORKSPACE));
        fine(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_32F, 2, a, CUDA_R_32F, 2,
                          &one, a, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    good(cudaStreamSynchronize(s));
    fine(cublasDestroy(h));
}
END_TEST

SUITE_OF(standin_blas, a_handle_that_is_given_a_stream_loses_its_workspace,
         products_are_sums_in_all_types_strides_and_turns,
         without_beta_the_old_result_is_not_read, what_cublas_refuses_is_refused,
         bias_and_gelu_are_taken_of_the_sum_and_what_they_were_taken_of_is_kept,
         an_algorithm_serves_operands_that_lie_as_its_heuristic_was_told,
         fused_products_that_cublaslt_does_not_have_are_not_found, bf16_needs_a_gpu_that_has_it)
