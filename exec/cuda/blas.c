/* exec/cuda/blas.c - row-major products by column-major libraries.
 *
 * A row-major matrix (r,c) is the column-major matrix (c,r) of its transpose, so c = op(a)·op(b) is computed as cᵀ =
 * op(b)ᵀ·op(a)ᵀ: the operands swap and keep their flags, m and n swap, and no data moves. The bias of c's columns is
 * then one of cᵀ's rows, which is the form that cuBLASLt supports.
 *
 * Plain products use cublasGemmEx, whose choice of kernel depends on sizes and types alone. Fused ones use cuBLASLt:
 * descriptors and the heuristic's algorithm are created once per shape and kept (plans); nothing is timed, so the
 * choice is repeatable. Reductions in the output's type and TF32 are disabled. Epilogues that cuBLASLt cannot fuse
 * (fp64) run as a kernel after the product; so does GELU of fp32, because the accuracy of the library's tanh is not
 * documented.
 */
#include "exec/cuda/blas.h"

#include "core/base/arena.h"
#include "core/program/device_memory.h"
#include "exec/cuda/device.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/operands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    WORKSPACE = DEVICE_WORKSPACE,
    BESIDE_BYTES = 16, /* alignment of a matrix, a bias or sums of an epilogue */
    AUX_MULTIPLE = 8,  /* elements between rows of that matrix (cublasLt.h, EPILOGUE_AUX_LD) */
    ALIGNMENT = 64,   /* bytes; alignment of slots (core/program/valid.h) */
};

struct blas_key { /* compared bytewise, so zeroed first */
    int64_t m, n, k, lda, ldb, ldc;
    int32_t trans_a, trans_b, type, type_c, epilogue, aux;
    int32_t align_a, align_b, align_c; /* bytes; the heuristic would otherwise assume 256 … */
    int32_t align_beside, align_aux;   /* … and checks these if present */
};

struct blas_plan {
    struct blas_key key;
    struct blas_plan *next;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool none; /* cuBLASLt has no kernel */
};

struct blas_plans {
    struct arena *arena;
    struct blas_plan *first;
};

/* "execution failed" of cuBLAS often means a lost device, so CUDA's own error is added. */
static enum status blas_failed(struct cuda_context *x, cublasStatus_t s, const char *call,
                               struct error *err)
{
    char cause[120] = "";
    if (s == CUBLAS_STATUS_SUCCESS) return OK;
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess) snprintf(cause, sizeof cause, "; %s (%d)", cudaGetErrorString(e), (int)e);
    return error_set(err, ERR_RESOURCE, "%s on stream %" PRId32 ": %s (%d)%s", call, x->index,
                     cublasGetStatusString(s), (int)s, cause);
}

int32_t cuda_product_version(void)
{
    int major = 0, minor = 0, patch = 0;
    if (cublasGetProperty(MAJOR_VERSION, &major) != CUBLAS_STATUS_SUCCESS ||
        cublasGetProperty(MINOR_VERSION, &minor) != CUBLAS_STATUS_SUCCESS ||
        cublasGetProperty(PATCH_LEVEL, &patch) != CUBLAS_STATUS_SUCCESS)
        return 0;
    return major * 10000 + minor * 100 + patch;
}

/* ---- handles ----------------------------------------------------------------------------------
 */

static enum status set_up(struct cuda_context *x, struct error *err)
{
    TRY(blas_failed(x, cublasSetStream(x->blas, x->stream), "cublasSetStream", err));
    TRY(blas_failed(x, cublasSetWorkspace(x->blas, x->workspace, WORKSPACE), "cublasSetWorkspace",
                    err));
    if (x->device->green)
        TRY(blas_failed(x, cublasSetSmCountTarget(x->blas, x->multiprocessors),
                        "cublasSetSmCountTarget", err));
    const unsigned mode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return blas_failed(x, cublasSetMathMode(x->blas, (cublasMath_t)mode), "cublasSetMathMode", err);
}

/* Creates the stream's handle at its first product. */
static enum status ready(struct cuda_context *x, struct error *err)
{
    cublasHandle_t made = NULL;
    if (x->blas) return OK;
    if (!x->workspace && x->prepared)
        return error_set(err, ERR_RESOURCE, "a matrix product, but the program planned no workspace for one");
    if (!x->workspace)
        TRY(cuda_failed(cudaMallocAsync(&x->workspace, WORKSPACE, x->stream), "cudaMallocAsync",
                        err));
    TRY(blas_failed(x, cublasCreate(&made), "cublasCreate", err));
    x->blas = made;
    enum status st = set_up(x, err);
    if (st == OK) return OK;
    (void)cublasDestroy(x->blas);
    x->blas = NULL;
    return st;
}

static enum status ready_lt(struct cuda_context *x, struct error *err)
{
    cublasLtHandle_t made = NULL;
    if (x->blas_lt) return OK;
    TRY(blas_failed(x, cublasLtCreate(&made), "cublasLtCreate", err));
    x->blas_lt = made;
    struct arena *a = arena_new();
    x->plans = arena_alloc(a, 1, sizeof *x->plans);
    x->plans->arena = a;
    return OK;
}

enum status cuda_product_prepare(struct cuda_context *x, struct error *err)
{
    TRY(cuda_failed(cudaMalloc(&x->workspace, WORKSPACE), "cudaMalloc", err));
    TRY(ready(x, err));
    return ready_lt(x, err);
}

static void plan_close(struct blas_plan *p)
{
    if (p->product) (void)cublasLtMatmulDescDestroy(p->product);
    if (p->a) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)cublasLtMatrixLayoutDestroy(p->c);
    p->product = NULL;
    p->a = p->b = p->c = NULL;
}

void cuda_product_close(struct cuda_context *x)
{
    for (struct blas_plan *p = x->plans ? x->plans->first : NULL; p; p = p->next) plan_close(p);
    if (x->plans) arena_free(x->plans->arena);
    if (x->blas_lt) (void)cublasLtDestroy(x->blas_lt);
    if (x->blas) (void)cublasDestroy(x->blas);
    if (x->workspace)
        (void)(x->prepared ? cudaFree(x->workspace) : cudaFreeAsync(x->workspace, x->stream));
    x->plans = NULL;
    x->blas_lt = NULL;
    x->blas = NULL;
    x->workspace = NULL;
}

/* ---- types and scalars ------------------------------------------------------------------------
 */

static cudaDataType_t cuda_type(enum dtype t)
{
    switch (t) {
    case DTYPE_fp64:
        return CUDA_R_64F;
    case DTYPE_bf16:
        return CUDA_R_16BF;
    case DTYPE_fp16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

static cublasComputeType_t compute_type(enum dtype t)
{
    return t == DTYPE_fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
}

struct scalars { /* in the compute type */
    double of_fp64[2];
    float of_fp32[2];
};

static struct scalars scalars_of(double beta)
{
    return (struct scalars){{1, beta}, {1, (float)beta}};
}

static const void *scalar(const struct scalars *s, enum dtype t, int which)
{
    return t == DTYPE_fp64 ? (const void *)&s->of_fp64[which] : (const void *)&s->of_fp32[which];
}

static enum status check(const struct cuda_product *p, struct error *err)
{
    const int64_t sizes[] = {p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->batch};
    bool half = dtype_is_half(p->type);
    if (p->type == DTYPE_int32 || (p->type_c != p->type && !(half && p->type_c == DTYPE_fp32)))
        return error_set(err, ERR_INPUT, "no product of %s gives %s", dtype_name(p->type),
                         dtype_name(p->type_c));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 0 || sizes[i] > INT32_MAX)
            return error_set(err, ERR_INPUT, "a matrix of %" PRId64 " is too large for cuBLAS",
                             sizes[i]);
    return OK;
}

/* ---- plain ------------------------------------------------------------------------------------
 */

static enum status plain(struct cuda_context *x, const struct cuda_product *p, struct error *err)
{
    const struct scalars s = scalars_of(p->beta);
    const void *alpha = scalar(&s, p->type, 0), *beta = scalar(&s, p->type, 1);
    cublasOperation_t of_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      of_b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t t = cuda_type(p->type), t_c = cuda_type(p->type_c);
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    TRY(ready(x, err));
    if (p->batch == 1)
        return blas_failed(x,
                           cublasGemmEx(x->blas, of_b, of_a, n, m, k, alpha, p->b, t, (int)p->ldb,
                                        p->a, t, (int)p->lda, beta, p->c, t_c, (int)p->ldc,
                                        compute_type(p->type), CUBLAS_GEMM_DEFAULT),
                           "cublasGemmEx", err);
    return blas_failed(x,
                       cublasGemmStridedBatchedEx(
                           x->blas, of_b, of_a, n, m, k, alpha, p->b, t, (int)p->ldb, p->stride_b,
                           p->a, t, (int)p->lda, p->stride_a, beta, p->c, t_c, (int)p->ldc,
                           p->stride_c, (int)p->batch, compute_type(p->type), CUBLAS_GEMM_DEFAULT),
                       "cublasGemmStridedBatchedEx", err);
}

/* k = 0: the result is beta · c, with beta 0 or 1. */
static enum status without_terms(struct cuda_context *x, const struct cuda_product *p,
                                 struct error *err)
{
    size_t size = (size_t)dtype_bytes(p->type_c), row = (size_t)p->n * size;
    for (int64_t i = 0; p->beta == 0 && i < p->batch; i++)
        TRY(cuda_failed(cudaMemset2DAsync((char *)p->c + (size_t)(i * p->stride_c) * size,
                                          (size_t)p->ldc * size, 0, row, (size_t)p->m, x->stream),
                        "cudaMemset2DAsync", err));
    return OK;
}

/* ---- fused ------------------------------------------------------------------------------------
 */

/* The largest power of two that divides the address, at most the alignment of slots. So a product has one plan, and
 * the same bits, in every buffer of a ring, and no later call creates a plan, which may load a kernel. No kernel
 * needs more alignment. */
static int32_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p, most = ALIGNMENT;
    return (int32_t)((at | most) & -(at | most));
}

static struct blas_key key_of(const struct cuda_product *p)
{
    struct blas_key k;
    memset(&k, 0, sizeof k);
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.lda = p->lda, k.ldb = p->ldb, k.ldc = p->ldc;
    k.trans_a = p->trans_a, k.trans_b = p->trans_b;
    k.type = (int32_t)p->type, k.type_c = (int32_t)p->type_c;
    k.epilogue = (int32_t)p->epilogue, k.aux = p->aux != NULL;
    k.align_a = alignment_of(p->a), k.align_b = alignment_of(p->b);
    k.align_c = alignment_of(p->c);
    k.align_beside = alignment_of(p->bias), k.align_aux = alignment_of(p->aux);
    return k;
}

static cublasLtEpilogue_t epilogue_of(const struct cuda_product *p)
{
    if (p->epilogue == EPILOGUE_BIAS) return CUBLASLT_EPILOGUE_BIAS;
    return p->aux ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
}

static enum status set(struct cuda_context *x, struct blas_plan *plan,
                       cublasLtMatmulDescAttributes_t which, const void *value, size_t bytes,
                       struct error *err)
{
    return blas_failed(x, cublasLtMatmulDescSetAttribute(plan->product, which, value, bytes),
                       "cublasLtMatmulDescSetAttribute", err);
}

static enum status describe(struct cuda_context *x, const struct cuda_product *p,
                            struct blas_plan *plan, struct error *err)
{
    cublasOperation_t of_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      of_b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(p);
    cudaDataType_t t = cuda_type(p->type), t_c = cuda_type(p->type_c);
    cudaDataType_t scale = p->type == DTYPE_fp64 ? CUDA_R_64F : CUDA_R_32F;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    TRY(blas_failed(x, cublasLtMatmulDescCreate(&plan->product, compute_type(p->type), scale),
                    "cublasLtMatmulDescCreate", err));
    TRY(set(x, plan, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b, err));
    TRY(set(x, plan, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a, err));
    TRY(set(x, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, err));
    if (x->device->green)
        TRY(set(x, plan, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &x->multiprocessors,
                sizeof x->multiprocessors, err));
    if (p->aux)
        TRY(set(x, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldc, sizeof p->ldc, err));
    TRY(blas_failed(
        x, cublasLtMatrixLayoutCreate(&plan->a, t, p->trans_b ? k : n, p->trans_b ? n : k, p->ldb),
        "cublasLtMatrixLayoutCreate", err));
    TRY(blas_failed(
        x, cublasLtMatrixLayoutCreate(&plan->b, t, p->trans_a ? m : k, p->trans_a ? k : m, p->lda),
        "cublasLtMatrixLayoutCreate", err));
    return blas_failed(x, cublasLtMatrixLayoutCreate(&plan->c, t_c, n, m, p->ldc),
                       "cublasLtMatrixLayoutCreate", err);
}

static enum status prefer_one(struct cuda_context *x, cublasLtMatmulPreference_t wish,
                              cublasLtMatmulPreferenceAttributes_t which, const void *value,
                              size_t bytes, struct error *err)
{
    return blas_failed(x, cublasLtMatmulPreferenceSetAttribute(wish, which, value, bytes),
                       "cublasLtMatmulPreferenceSetAttribute", err);
}

/* The operands are swapped, so a's alignment is that of its b. */
static enum status prefer(struct cuda_context *x, cublasLtMatmulPreference_t wish,
                          const struct blas_key *k, struct error *err)
{
    const size_t workspace = WORKSPACE;
    /* In-place reduction uses the output's type too. */
    const uint32_t sums =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
        (dtype_is_half((enum dtype)k->type_c) ? 0u : (uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE);
    const uint32_t a = (uint32_t)k->align_b, b = (uint32_t)k->align_a, c = (uint32_t)k->align_c;
    TRY(prefer_one(x, wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace,
                   err));
    TRY(prefer_one(x, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a, err));
    TRY(prefer_one(x, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b, err));
    TRY(prefer_one(x, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c, err));
    TRY(prefer_one(x, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c, err));
    return prefer_one(x, wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums, err);
}

static enum status choose(struct cuda_context *x, struct blas_plan *plan, struct error *err)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    TRY(blas_failed(x, cublasLtMatmulPreferenceCreate(&wish), "cublasLtMatmulPreferenceCreate",
                    err));
    enum status st = prefer(x, wish, &plan->key, err);
    if (st == OK) {
        cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(
            x->blas_lt, plan->product, plan->a, plan->b, plan->c, plan->c, wish, 1, &found, &n);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED)
            n = 0;
        else
            st = blas_failed(x, s, "cublasLtMatmulAlgoGetHeuristic", err);
    }
    (void)cublasLtMatmulPreferenceDestroy(wish);
    if (st != OK) return st;
    plan->none = n == 0 || found.state != CUBLAS_STATUS_SUCCESS;
    if (!plan->none) plan->algo = found.algo;
    return OK;
}

/* The pointers of a call are part of the descriptor and change with every call. */
static enum status point(struct cuda_context *x, const struct cuda_product *p,
                         struct blas_plan *plan, struct error *err)
{
    TRY(set(x, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias, err));
    if (!p->aux) return OK;
    return set(x, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux, err);
}

static enum status plan_of(struct cuda_context *x, const struct cuda_product *p,
                           struct blas_plan **out, struct error *err)
{
    struct blas_key key = key_of(p);
    for (struct blas_plan *i = x->plans->first; i; i = i->next)
        if (!memcmp(&i->key, &key, sizeof key)) return *out = i, point(x, p, i, err);
    struct blas_plan *made = arena_alloc(x->plans->arena, 1, sizeof *made);
    made->key = key;
    *out = made;
    enum status st = describe(x, p, made, err);
    if (st == OK) st = point(x, p, made, err);
    if (st == OK) st = choose(x, made, err);
    if (st != OK) return plan_close(made), st;
    made->next = x->plans->first;
    x->plans->first = made;
    return OK;
}

/* The product, then an epilogue that cuBLASLt cannot fuse: every one in fp64, and some shapes. */
static enum status separate_epilogue(struct cuda_context *x, const struct cuda_product *p, struct error *err)
{
    struct cuda_product bare = *p;
    bool gelu = p->epilogue == EPILOGUE_BIAS_GELU;
    if (p->ldc != p->n) BUG("rows of %" PRId64 " elements with stride %" PRId64, p->n, p->ldc);
    bare.epilogue = EPILOGUE_NONE;
    TRY(cuda_product(x, &bare, err));
    enum cuda_dtype t = cuda_dtype_of(p->type_c);
    if (gelu && p->aux) {
        TRY(cuda_failed(
            cuda_rows(CUDA_ROW_bias, t, p->c, p->bias, false, NULL, p->aux, p->m, p->n, x->stream),
            "bias", err));
    }
    return cuda_failed(cuda_rows(gelu ? CUDA_ROW_bias_gelu_tanh : CUDA_ROW_bias, t, p->c, p->bias,
                                 false, NULL, p->c, p->m, p->n, x->stream),
                       "bias", err);
}

/* cuBLASLt's requirements on an epilogue's operands; it may fault otherwise. */
static bool can_stand_beside(const struct cuda_product *p)
{
    return !(((uintptr_t)p->bias | (uintptr_t)p->aux) % BESIDE_BYTES) &&
           !(p->aux && p->ldc % AUX_MULTIPLE);
}

static enum status fused(struct cuda_context *x, const struct cuda_product *p, struct error *err)
{
    const struct scalars s = scalars_of(0);
    struct blas_plan *plan = NULL;
    if (p->batch != 1 || p->beta != 0)
        BUG("a fused product of batch %" PRId64 ", beta %g", p->batch, p->beta);
    bool gelu = p->epilogue != EPILOGUE_BIAS;
    if (p->type == DTYPE_fp64 || (gelu && !dtype_is_half(p->type)) || p->k == 0 ||
        !can_stand_beside(p))
        return separate_epilogue(x, p, err);
    TRY(ready(x, err));
    TRY(ready_lt(x, err));
    TRY(plan_of(x, p, &plan, err));
    if (plan->none) return separate_epilogue(x, p, err);
    cublasStatus_t done =
        cublasLtMatmul(x->blas_lt, plan->product, scalar(&s, p->type, 0), p->b, plan->a, p->a,
                       plan->b, scalar(&s, p->type, 1), p->c, plan->c, p->c, plan->c, &plan->algo,
                       x->workspace, WORKSPACE, x->stream);
    if (done != CUBLAS_STATUS_NOT_SUPPORTED) return blas_failed(x, done, "cublasLtMatmul", err);
    plan->none = true; /* the heuristic was wrong; nothing has been launched */
    return separate_epilogue(x, p, err);
}

enum status cuda_product(struct cuda_context *x, const struct cuda_product *p, struct error *err)
{
    TRY(check(p, err));
    if (p->m == 0 || p->n == 0 || p->batch == 0) return OK;
    if (p->epilogue != EPILOGUE_NONE) return fused(x, p, err);
    return p->k ? plain(x, p, err) : without_terms(x, p, err);
}
