/* tests/standin/blas.c - cuBLAS of the stand-in: handles and products.
 *
 * As in the real library a handle loses its workspace when it is given a stream. The real handle then has a workspace
 * of the library, which no plan contains; here a product on a stream without a workspace is an error.
 */
#include "tests/standin/cublas_v2.h"

#include "tests/standin/internal.h"
#include "tests/standin/product.h"

#include <stdlib.h>

enum { VERSION_MAJOR = 12, VERSION_MINOR = 0, VERSION_PATCH = 0, WORKSPACE_ALIGNMENT = 256 };

struct cublasContext {
    int device;
    cudaStream_t stream;
    bool has_workspace;
};

#define BLAS_ENTER()                                                                               \
    do {                                                                                           \
        cudaError_t enter_ = standin_enter(__func__);                                              \
        if (enter_ != cudaSuccess) return product_status(enter_);                                  \
    } while (0)

const char *cublasGetStatusName(cublasStatus_t s)
{
    switch (s) {
#define X(name, number)                                                                            \
    case name:                                                                                     \
        return #name;
        STANDIN_BLAS_STATUSES(X)
#undef X
    }
    return "unknown status";
}

const char *cublasGetStatusString(cublasStatus_t s) { return cublasGetStatusName(s); }

cublasStatus_t cublasGetProperty(libraryPropertyType which, int *out)
{
    switch (which) {
    case MAJOR_VERSION:
        *out = VERSION_MAJOR;
        return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
        *out = VERSION_MINOR;
        return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
        *out = VERSION_PATCH;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGetVersion(cublasHandle_t h, int *out)
{
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    BLAS_ENTER();
    struct cublasContext *h = calloc(1, sizeof *h);
    if (!h) abort();
    h->device = standin_device();
    standin_keep(KEPT_BLAS, 1);
    *out = h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t h)
{
    cudaError_t e = standin_enter(__func__);
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    standin_keep(KEPT_BLAS, -1);
    free(h);
    return product_status(e);
}

cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t stream)
{
    BLAS_ENTER();
    cudaStream_t s;
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (stream_find(stream, false, &s) != cudaSuccess || stream_device(s) != h->device)
        return CUBLAS_STATUS_INVALID_VALUE;
    h->stream = stream;
    h->has_workspace = false;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *workspace, size_t bytes)
{
    BLAS_ENTER();
    enum place place;
    int device;
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT ||
        memory_find(workspace, bytes, &place, &device) != cudaSuccess || place != PLACE_DEVICE)
        return CUBLAS_STATUS_INVALID_VALUE;
    h->has_workspace = true;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t h, int n)
{
    BLAS_ENTER();
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    return n < 0 || n > standin_multiprocessors() ? CUBLAS_STATUS_INVALID_VALUE
                                                  : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
    BLAS_ENTER();
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    unsigned kind = (unsigned)mode & ~(unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return kind > CUBLAS_TF32_TENSOR_OP_MATH ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t of_a,
                                          cublasOperation_t of_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    (void)algo;
    BLAS_ENTER();
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    if (h->stream && !h->has_workspace) return CUBLAS_STATUS_ALLOC_FAILED;
    bool fp64 = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    struct product p = {.m = m,
                        .n = n,
                        .k = k,
                        .batch = batch,
                        .turn_a = of_a != CUBLAS_OP_N,
                        .turn_b = of_b != CUBLAS_OP_N,
                        .a = {a, type_a, lda, stride_a},
                        .b = {b, type_b, ldb, stride_b},
                        .c = {c, type_c, ldc, stride_c},
                        .d = {c, type_c, ldc, stride_c},
                        .fp64 = fp64,
                        .alpha = product_scalar(alpha, fp64),
                        .beta = product_scalar(beta, fp64)};
    return product_push(&p, "cublasGemmStridedBatchedEx", h->stream);
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t of_a, cublasOperation_t of_b, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType type_a,
                            int lda, const void *b, cudaDataType type_b, int ldb, const void *beta,
                            void *c, cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(h, of_a, of_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
                                      ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algo);
}
