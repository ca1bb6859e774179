/* exec/cuda/kernels_sums.h - launchers of sums over rows, over planes and over everything, in a fixed order.
 *
 * The _scratch functions return the scratch size in bytes. Sums have the compute type (fp64 for fp64, else fp32)
 * until they are written. out_wide: outputs have that type although dtype is half precision.
 */
#ifndef EXEC_CUDA_KERNELS_SUMS_H
#define EXEC_CUDA_KERNELS_SUMS_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The summand: dy alone, or dy and a normalised x. Outputs: CUDA_SUM_plain one, others two: Σ dy·x̂, Σ dy. */
enum cuda_sum_kind {
    CUDA_SUM_plain,  /* Σ dy */
    CUDA_SUM_scaled, /* x̂ = x · stats[r]: Σ dy·x̂ alone */
    CUDA_SUM_centred /* x̂ = (x - stats[2r]) · stats[2r+1] */
};

struct cuda_sum {
    enum cuda_sum_kind kind;
    enum cuda_dtype dtype;
    const void *x, *dy, *stats;
    bool stats_wide, out_wide, add; /* add: accumulates into the outputs */
    void *out[2];                   /* plain, scaled: only the first; centred: Σ dy·x̂, Σ dy */
};

/* Over rows of (rows, n): out (n); r is the row. */
size_t cuda_column_sums_scratch(enum cuda_dtype dtype, int64_t rows, int64_t n);
cudaError_t cuda_column_sums(const struct cuda_sum *s, int64_t rows, int64_t n, void *scratch,
                             cudaStream_t stream);

/* Over outer and inner of (outer, middle, inner): out (middle); r = (o · middle + m) / per, a group of `per`
 * channels. */
size_t cuda_channel_sums_scratch(enum cuda_dtype dtype, int64_t outer, int64_t middle);
cudaError_t cuda_channel_sums(const struct cuda_sum *s, int64_t outer, int64_t middle,
                              int64_t inner, int64_t per, void *scratch, cudaStream_t stream);

/* *out = or += Σ x², fp64 on the device: the square of a gradient's norm. Not finite if an element is not, or is
 * beyond 1e19 (fp64: 1e154), so it also detects overflowed gradients. */
size_t cuda_squares_scratch(int64_t n);
cudaError_t cuda_squares(enum cuda_dtype dtype, const void *x, int64_t n, bool add, double *out,
                         void *scratch, cudaStream_t stream);

/* *out = or += 1 if the squares are not finite, else 0; out is fp32 (fp64: fp64). */
cudaError_t cuda_overflow(const double *squares, bool add, void *out, bool out_fp64, cudaStream_t stream);

/* *out = or += the squares; out as above. */
cudaError_t cuda_square_sum(const double *squares, bool add, void *out, bool out_fp64, cudaStream_t stream);

/* Gradient clipping: out (2) = norm, factor; norm = √squares, times *unscale if it is not NULL; factor = min(1, max_norm / (norm + 1e-6)).
 * squares (1) and out are fp32 or fp64. */
cudaError_t cuda_clip(const void *squares, const float *unscale, double max_norm, void *out, bool fp64, cudaStream_t stream);

/* The update rule of core/graph/loss_scale.h, on numbers (LOSS_SCALE_NUMBERS) in place. */
struct cuda_scale_step {
    const float *overflow;
    float *numbers;
    int64_t grows_after, step;
    double lr, beta1, beta2;
};
cudaError_t cuda_rescale(const struct cuda_scale_step *r, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
