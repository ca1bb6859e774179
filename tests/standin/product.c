/* tests/standin/product.c - one matrix product in plain loops.
 *
 * Operands are widened once to columns of fp32 or fp64; each element of the result is summed in ascending order of
 * the inner index, so the same call gives the same bytes. beta = 0 does not read c, as in cuBLAS.
 */
#include "tests/standin/product.h"

#include "tests/standin/activity.h"
#include "tests/standin/internal.h"
#include "tests/standin/narrow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

cublasStatus_t product_status(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
        return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNotSupported:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorNoDevice:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

double product_scalar(const void *p, bool fp64)
{
    return fp64 ? *(const double *)p : (double)*(const float *)p;
}

static size_t type_bytes(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

static double element(cudaDataType_t t, const void *p, int64_t i)
{
    switch (t) {
    case CUDA_R_64F:
        return ((const double *)p)[i];
    case CUDA_R_32F:
        return (double)((const float *)p)[i];
    case CUDA_R_16BF:
        return (double)narrow_from_bf16(((const uint16_t *)p)[i]);
    case CUDA_R_16F:
        return (double)narrow_from_fp16(((const uint16_t *)p)[i]);
    }
    abort();
}

static void put(cudaDataType_t t, void *p, int64_t i, double v)
{
    switch (t) {
    case CUDA_R_64F:
        ((double *)p)[i] = v;
        return;
    case CUDA_R_32F:
        ((float *)p)[i] = (float)v;
        return;
    case CUDA_R_16BF:
        ((uint16_t *)p)[i] = narrow_to_bf16((float)v);
        return;
    case CUDA_R_16F:
        ((uint16_t *)p)[i] = narrow_to_fp16((float)v);
        return;
    }
    abort();
}

static double rounded(cudaDataType_t t, double v)
{
    double room;
    put(t, &room, 0, v);
    return element(t, &room, 0);
}

static double gelu(double x, bool fp64)
{
    double inner = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    return fp64 ? 0.5 * x * (1 + tanh(inner))
                : (double)(0.5f * (float)x * (1 + tanhf((float)inner)));
}

/* What one element of d becomes of its sum. */
static void finish(const struct product *p, int64_t g, int64_t i, int64_t j, double sum)
{
    int64_t at = g * p->d.stride + j * p->d.ld + i;
    double v = p->alpha * sum;
    if (p->beta != 0) v += p->beta * element(p->c.type, p->c.at, g * p->c.stride + j * p->c.ld + i);
    if (p->bias) v += element(p->d.type, p->bias, i);
    if (!p->fp64) v = (double)(float)v;
    if (p->aux) put(p->d.type, p->aux, j * p->aux_ld + i, v);
    if (p->gelu) v = gelu(v, p->fp64);
    union {
        const void *in;
        void *out;
    } d = {p->d.at};
    put(p->d.type, d.out, at, v);
}

/* op(x) of the g-th of the batch as (rows, columns), columns contiguous. */
#define WIDEN(REAL)                                                                                \
    static REAL *widen_##REAL(const struct product_matrix *x, bool turn, int64_t g, int64_t rows,  \
                              int64_t columns)                                                     \
    {                                                                                              \
        REAL *out = malloc((size_t)(rows * columns + 1) * sizeof *out);                            \
        if (!out) abort();                                                                         \
        for (int64_t j = 0; j < columns; j++)                                                      \
            for (int64_t i = 0; i < rows; i++)                                                     \
                out[j * rows + i] = (REAL)element(                                                 \
                    x->type, x->at, g * x->stride + (turn ? i * x->ld + j : j * x->ld + i));       \
        return out;                                                                                \
    }                                                                                              \
                                                                                                   \
    static void multiply_##REAL(const struct product *p, int64_t g)                                \
    {                                                                                              \
        REAL *a = widen_##REAL(&p->a, p->turn_a, g, p->m, p->k);                                   \
        REAL *b = widen_##REAL(&p->b, p->turn_b, g, p->k, p->n);                                   \
        REAL *sum = malloc((size_t)p->m * sizeof *sum);                                            \
        if (!sum) abort();                                                                         \
        for (int64_t j = 0; j < p->n; j++) {                                                       \
            for (int64_t i = 0; i < p->m; i++) sum[i] = 0;                                         \
            for (int64_t q = 0; q < p->k; q++) {                                                   \
                if (p->rounds_between && q == p->k / 2)                                            \
                    for (int64_t i = 0; i < p->m; i++) sum[i] = (REAL)rounded(p->d.type, (double)sum[i]); \
                const REAL *column = a + q * p->m, factor = b[j * p->k + q];                       \
                for (int64_t i = 0; i < p->m; i++) sum[i] += column[i] * factor;                   \
            }                                                                                      \
            for (int64_t i = 0; i < p->m; i++) finish(p, g, i, j, (double)sum[i]);                 \
        }                                                                                          \
        free(sum);                                                                                 \
        free(b);                                                                                   \
        free(a);                                                                                   \
    }
WIDEN(float)
WIDEN(double)

struct product_work {
    struct work w;
    struct product p;
};

static void run_product(struct work *w)
{
    const struct product *p = &((struct product_work *)w)->p;
    for (int64_t g = 0; g < p->batch; g++)
        if (p->fp64)
            multiply_double(p, g);
        else
            multiply_float(p, g);
}

/* --- checks --- */

static bool lies_there(const char *call, const char *name, const void *at, cudaDataType_t type,
                       int64_t elements, int device)
{
    enum place place;
    int where;
    if (!elements) return true;
    cudaError_t e = memory_find(at, (size_t)elements * type_bytes(type), &place, &where);
    if (e == cudaSuccess && ((place == PLACE_DEVICE && where == device) || place == PLACE_PINNED))
        return true;
    fprintf(stderr, "stand-in: %s: %s (%lld elements from %p) %s\n", call, name,
            (long long)elements, at,
            e != cudaSuccess          ? "leaves its allocation"
            : place == PLACE_PAGEABLE ? "is not the device's memory"
                                      : "is another device's memory");
    return false;
}

static int64_t extent(const struct product_matrix *x, int64_t rows, int64_t columns, int64_t batch)
{
    return rows && columns ? (batch - 1) * x->stride + (columns - 1) * x->ld + rows : 0;
}

static bool operands_lie_there(const struct product *p, const char *call, int device)
{
    int64_t rows_a = p->turn_a ? p->k : p->m, rows_b = p->turn_b ? p->n : p->k;
    int64_t columns_a = p->turn_a ? p->m : p->k, columns_b = p->turn_b ? p->k : p->n;
    return lies_there(call, "a", p->a.at, p->a.type, extent(&p->a, rows_a, columns_a, p->batch),
                      device) &&
           lies_there(call, "b", p->b.at, p->b.type, extent(&p->b, rows_b, columns_b, p->batch),
                      device) &&
           lies_there(call, "c", p->c.at, p->c.type,
                      p->beta == 0 ? 0 : extent(&p->c, p->m, p->n, p->batch), device) &&
           lies_there(call, "d", p->d.at, p->d.type, extent(&p->d, p->m, p->n, p->batch), device) &&
           lies_there(call, "bias", p->bias, p->d.type, p->bias ? p->m : 0, device) &&
           lies_there(call, "aux", p->aux, p->d.type, p->aux ? (p->n - 1) * p->aux_ld + p->m : 0,
                      device);
}

/* What cuBLAS has a kernel for. */
static bool types_fit(const struct product *p)
{
    cudaDataType_t t = p->a.type;
    if (p->b.type != t || p->c.type != p->d.type) return false;
    if (p->fp64 != (t == CUDA_R_64F)) return false;
    bool narrow = t == CUDA_R_16BF || t == CUDA_R_16F;
    return p->d.type == t || (narrow && p->d.type == CUDA_R_32F);
}

cublasStatus_t product_push(const struct product *p, const char *call, cudaStream_t stream)
{
    cudaStream_t s;
    cudaError_t e = stream_find(stream, true, &s);
    if (e != cudaSuccess) return CUBLAS_STATUS_INVALID_VALUE;
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0 || p->a.ld < (p->turn_a ? p->k : p->m) ||
        p->b.ld < (p->turn_b ? p->n : p->k) || p->d.ld < p->m || p->c.ld < p->m || p->a.ld < 1 ||
        p->b.ld < 1 || p->d.ld < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->a.type == CUDA_R_16BF && standin_capability(stream_device(s)) < 80)
        return CUBLAS_STATUS_ARCH_MISMATCH;
    if (!p->m || !p->n || !p->batch) return CUBLAS_STATUS_SUCCESS;
    if (!operands_lie_there(p, call, stream_device(s))) {
        standin_lose(stream_device(s), cudaErrorIllegalAddress);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    struct product_work *w = work_new(sizeof *w, run_product);
    w->p = *p;
    w->w.noted = activity_requested(ACTIVITY_REQUESTED_KERNEL, "standin_product", 0, 0, stream_device(s));
    stream_push(s, &w->w);
    return CUBLAS_STATUS_SUCCESS;
}
