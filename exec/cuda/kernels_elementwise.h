/* exec/cuda/kernels_elementwise.h - launchers of elementwise kernels.
 *
 * Operands are n elements of one dtype, dense, at any address; two operands are the same memory or disjoint. Each
 * launcher returns the launch error and launches nothing for n = 0.
 */
#ifndef EXEC_CUDA_KERNELS_ELEMENTWISE_H
#define EXEC_CUDA_KERNELS_ELEMENTWISE_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*       kind            inputs, outputs */
#define CUDA_FLAT_KINDS(X)                                                                         \
    X(add, 2, 1)                                                                                   \
    X(multiply, 2, 1) X(gelu_tanh, 1, 1) X(gelu_tanh_grad, 2, 1) X(gelu_erf, 1, 1)                 \
        X(gelu_erf_grad, 2, 1) X(silu, 1, 1) X(silu_grad, 2, 1) X(relu, 1, 1) X(relu_grad, 2, 1)   \
            X(swiglu, 2, 1) X(swiglu_grad, 3, 2) X(scale, 1, 1) X(softcap, 1, 1)               \
                X(softcap_grad, 2, 1)
enum cuda_flat_kind {
#define X(name, inputs, outputs) CUDA_FLAT_##name,
    CUDA_FLAT_KINDS(X)
#undef X
};
/* constant: of scale, softcap and its gradient */
cudaError_t cuda_flat(enum cuda_flat_kind kind, enum cuda_dtype dtype, const void *a,
                      const void *b, const void *c, double constant, void *y, void *z, int64_t n,
                      cudaStream_t stream);

/* y = kind(x + b, dy): x, dy, y (rows, n), b (n). b_wide: b is fp32 although dtype is half precision. */
#define CUDA_ROW_KINDS(X)                                                                          \
    X(bias) X(bias_gelu_tanh) X(bias_gelu_tanh_grad) X(bias_gelu_erf) X(bias_gelu_erf_grad)
enum cuda_row_kind {
#define X(name) CUDA_ROW_##name,
    CUDA_ROW_KINDS(X)
#undef X
};
cudaError_t cuda_rows(enum cuda_row_kind kind, enum cuda_dtype dtype, const void *x,
                      const void *b, bool b_wide, const void *dy, void *y, int64_t rows, int64_t n,
                      cudaStream_t stream);

/* y = x + b: x, y (outer, middle, inner), b (middle) */
cudaError_t cuda_channel_bias(enum cuda_dtype dtype, const void *x, const void *b, bool b_wide,
                              void *y, int64_t outer, int64_t middle, int64_t inner,
                              cudaStream_t stream);

/* y = or += x, converted to another dtype: round to nearest, ties to even. */
cudaError_t cuda_cast(enum cuda_dtype from, const void *x, enum cuda_dtype to, void *y, bool add,
                      int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
