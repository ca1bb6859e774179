/* tests/standin/blas_lt.c - cuBLASLt: descriptors, a heuristic that knows one algorithm, products with bias and GELU.
 *
 * What the real library is known to refuse is refused: fused epilogues in fp64, an auxiliary matrix whose columns are not
 * a multiple of 8 apart, a bias that is not at a multiple of 16 bytes (some of its kernels fault there), an algorithm that was found
 * for another product, operands that are less aligned than the heuristic was told (256 bytes where it was told nothing; an algorithm that loads 16 bytes at once would fault, or worse, there). Where sums
 * may be put together in the output's type, they are.
 */
#include "tests/standin/cublasLt.h"

#include "tests/standin/internal.h"
#include "tests/standin/product.h"

#include <stdlib.h>
#include <string.h>

enum {
    LT_VERSION = 120000,
    AUX_MULTIPLE = 8,
    POINTER_ALIGNMENT = 16,
    ALIGNMENT = 256,
    OPERANDS = 4
};

struct cublasLtContext {
    int device;
};

struct standin_lt_product {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t of_a, of_b, epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    int32_t multiprocessors;
};

struct standin_lt_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, stride;
    int32_t batch;
};

struct standin_lt_wish {
    uint64_t workspace_bytes;
    uint32_t reduction;
    uint32_t alignment[OPERANDS]; /* of a, b, c, d */
};

#define LT_ENTER()                                                                                 \
    do {                                                                                           \
        cudaError_t enter_ = standin_enter(__func__);                                              \
        if (enter_ != cudaSuccess) return product_status(enter_);                                  \
    } while (0)

size_t cublasLtGetVersion(void) { return LT_VERSION; }

static void *kept_new(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) abort();
    standin_keep(KEPT_BLAS, 1);
    return p;
}

static cublasStatus_t kept_free(void *p, const char *call)
{
    cudaError_t e = standin_enter(call);
    if (!p) return CUBLAS_STATUS_INVALID_VALUE;
    standin_keep(KEPT_BLAS, -1);
    free(p);
    return product_status(e);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    LT_ENTER();
    *out = kept_new(sizeof **out);
    (*out)->device = standin_device();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return kept_free(h, __func__); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    LT_ENTER();
    *out = kept_new(sizeof **out);
    **out = (struct standin_lt_product){
        .compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return kept_free(d, __func__); }

static cublasStatus_t set(void *to, size_t expected, const void *value, size_t bytes)
{
    if (!value || bytes != expected) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    LT_ENTER();
    switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return set(&d->compute, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return set(&d->scale, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->of_a, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->of_b, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&d->aux, sizeof d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&d->aux_ld, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return set(&d->multiprocessors, 4, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    LT_ENTER();
    *out = kept_new(sizeof **out);
    **out = (struct standin_lt_layout){type, rows, columns, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return kept_free(l, __func__);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes)
{
    LT_ENTER();
    switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&l->batch, 4, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&l->stride, 8, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    LT_ENTER();
    *out = kept_new(sizeof **out);
    (*out)->reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (int i = 0; i < OPERANDS; i++) (*out)->alignment[i] = ALIGNMENT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return kept_free(p, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    LT_ENTER();
    switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace_bytes, 8, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reduction, 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4, value,
                   bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* --- products --- */

static struct product_matrix matrix_of(const void *at, cublasLtMatrixLayout_t l)
{
    return (struct product_matrix){at, l->type, l->ld, l->stride};
}

/* The product that descriptors tell of; false where their sizes contradict each other. */
static bool read_product(cublasLtMatmulDesc_t x, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, struct product *out)
{
    bool turn_a = x->of_a != CUBLAS_OP_N, turn_b = x->of_b != CUBLAS_OP_N;
    uint64_t m = turn_a ? a->columns : a->rows, k = turn_a ? a->rows : a->columns;
    uint64_t n = turn_b ? b->rows : b->columns, k_b = turn_b ? b->columns : b->rows;
    *out = (struct product){.m = (int64_t)m,
                            .n = (int64_t)n,
                            .k = (int64_t)k,
                            .batch = d->batch,
                            .turn_a = turn_a,
                            .turn_b = turn_b,
                            .a = matrix_of(NULL, a),
                            .b = matrix_of(NULL, b),
                            .c = matrix_of(NULL, c),
                            .d = matrix_of(NULL, d),
                            .fp64 = x->compute == CUBLAS_COMPUTE_64F ||
                                    x->compute == CUBLAS_COMPUTE_64F_PEDANTIC};
    return k == k_b && d->rows == m && d->columns == n && c->rows == m && c->columns == n &&
           a->batch == d->batch && b->batch == d->batch && c->batch == d->batch;
}

static bool has_bias(int32_t epilogue) { return epilogue & 4; }
static bool has_gelu(int32_t epilogue) { return epilogue & 32; }
static bool has_aux(int32_t epilogue) { return epilogue & 128; }

static cublasStatus_t check_epilogue(cublasLtMatmulDesc_t x, const struct product *p)
{
    switch (x->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (p->fp64) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_aux(x->epilogue) && (x->aux_ld % AUX_MULTIPLE || x->aux_ld < p->m))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool lies = !((uintptr_t)x->bias % POINTER_ALIGNMENT);
    return lies ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* The sizes, flags and types that an algorithm was found for. */
static cublasLtMatmulAlgo_t algo_of(cublasLtMatmulDesc_t x, const struct product *p)
{
    return (cublasLtMatmulAlgo_t){
        {(uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k, (uint64_t)p->a.ld, (uint64_t)p->b.ld,
         (uint64_t)p->d.ld,
         (uint64_t)p->turn_a | (uint64_t)p->turn_b << 1 | (uint64_t)x->epilogue << 2,
         (uint64_t)p->a.type | (uint64_t)p->d.type << 8 | (uint64_t)p->batch << 16}};
}

/* What the heuristic was told of addresses is an algorithm's as well: four powers of two in the last word's upper bits. */
enum { ALIGNMENT_WORD = 7, ALIGNMENT_SHIFT = 48, ALIGNMENT_BITS = 4 };

static uint64_t log2_of(uint64_t power)
{
    uint64_t n = 0;
    while (power > 1) power /= 2, n++;
    return n;
}

static void note_alignments(cublasLtMatmulAlgo_t *algo, const struct standin_lt_wish *wish)
{
    for (int i = 0; i < OPERANDS; i++)
        algo->data[ALIGNMENT_WORD] |= log2_of(wish->alignment[i])
                                      << (ALIGNMENT_SHIFT + i * ALIGNMENT_BITS);
}

/* Whether sums may be cut and put together in the output's type, which this one then does; noted above the flags of the product. */
enum { REDUCTION_WORD = 6, REDUCTION_SHIFT = 32 };

static void note_reduction(cublasLtMatmulAlgo_t *algo, const struct standin_lt_wish *wish)
{
    bool may = wish->reduction &
               (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    algo->data[REDUCTION_WORD] |= (uint64_t)may << REDUCTION_SHIFT;
}

static bool take_reduction(cublasLtMatmulAlgo_t *algo)
{
    bool may = algo->data[REDUCTION_WORD] >> REDUCTION_SHIFT;
    algo->data[REDUCTION_WORD] &= (UINT64_C(1) << REDUCTION_SHIFT) - 1;
    return may;
}

/* Takes the note out of the algorithm; does each operand lie as was told? */
static bool aligned(cublasLtMatmulAlgo_t *algo, const void *const at[OPERANDS])
{
    bool all = true;
    for (int i = 0; i < OPERANDS; i++) {
        uint64_t told = algo->data[ALIGNMENT_WORD] >> (ALIGNMENT_SHIFT + i * ALIGNMENT_BITS) &
                        ((1u << ALIGNMENT_BITS) - 1);
        if ((uintptr_t)at[i] & ((UINT64_C(1) << told) - 1)) all = false;
    }
    algo->data[ALIGNMENT_WORD] &= (UINT64_C(1) << ALIGNMENT_SHIFT) - 1;
    return all;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int room,
                                              cublasLtMatmulHeuristicResult_t *out, int *out_n)
{
    LT_ENTER();
    struct product p;
    if (!h || !wish || room < 1 || !read_product(product, a, b, c, d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    *out_n = 0;
    cublasStatus_t s = check_epilogue(product, &p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    const char *finds = getenv("STANDIN_LT");
    memset(out, 0, sizeof *out);
    if (finds && !strcmp(finds, "none")) return CUBLAS_STATUS_SUCCESS;
    *out_n = 1;
    if (finds && !strcmp(finds, "unsure")) {
        out->state = CUBLAS_STATUS_NOT_SUPPORTED;
        return CUBLAS_STATUS_SUCCESS;
    }
    out->algo = algo_of(product, &p);
    note_alignments(&out->algo, wish);
    note_reduction(&out->algo, wish);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    LT_ENTER();
    struct product p;
    enum place place;
    int device;
    if (!h || !alpha || !beta || !read_product(product, layout_a, layout_b, layout_c, layout_d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t s = check_epilogue(product, &p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    cublasLtMatmulAlgo_t expected = algo_of(product, &p), given = algo ? *algo : expected;
    const void *const operands[OPERANDS] = {a, b, c, d};
    p.rounds_between = take_reduction(&given);
    if (!aligned(&given, operands) || memcmp(&given, &expected, sizeof expected) ||
        (workspace_bytes &&
         (memory_find(workspace, workspace_bytes, &place, &device) != cudaSuccess ||
          place != PLACE_DEVICE)))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.a.at = a;
    p.b.at = b;
    p.c.at = c;
    p.d.at = d;
    p.alpha = product_scalar(alpha, p.fp64);
    p.beta = product_scalar(beta, p.fp64);
    p.bias = has_bias(product->epilogue) ? product->bias : NULL;
    p.gelu = has_gelu(product->epilogue);
    p.aux = has_aux(product->epilogue) ? product->aux : NULL;
    p.aux_ld = product->aux_ld;
    if ((has_bias(product->epilogue) && !p.bias) ||
        (has_aux(product->epilogue) && (!p.aux || (uintptr_t)p.aux % POINTER_ALIGNMENT)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return product_push(&p, "cublasLtMatmul", stream);
}
