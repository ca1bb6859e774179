/* exec/cuda/kernels_sums.h - launchers of sums over rows, over planes and over everything; always in the same order.
 *
 * Scratch is asked for by the _scratch functions, in bytes. Sums are taken, and wait in scratch, in the type that is computed in
 * (fp64 for fp64, else fp32). out_wide: outputs are of that type though dtype is narrow.
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

/* What is summed, of dy alone or of dy and a normalised x. Outputs: CUDA_SUM_plain one, others two: Σ dy·x̂, Σ dy. */
enum cuda_sum_kind {
    CUDA_SUM_plain,  /* Σ dy */
    CUDA_SUM_scaled, /* x̂ = x · stats[r]: Σ dy·x̂ alone */
    CUDA_SUM_centred /* x̂ = (x - stats[2r]) · stats[2r+1] */
};

struct cuda_sum {
    enum cuda_sum_kind kind;
    enum cuda_dtype dtype;
    const void *x, *dy, *stats;
    bool stats_wide, out_wide, add; /* add: to what the outputs hold */
    void *out[2];                   /* plain, scaled: the first; centred: Σ dy·x̂, Σ dy */
};

/* Over rows of (rows, n): out (n), r the row. */
size_t cuda_column_sums_scratch(enum cuda_dtype dtype, int64_t rows, int64_t n);
cudaError_t cuda_column_sums(const struct cuda_sum *s, int64_t rows, int64_t n, void *scratch,
                             cudaStream_t stream);

/* Over outer and inner of (outer, middle, inner): out (middle); r = (o · middle + m) / per, a group of `per` channels. */
size_t cuda_channel_sums_scratch(enum cuda_dtype dtype, int64_t outer, int64_t middle);
cudaError_t cuda_channel_sums(const struct cuda_sum *s, int64_t outer, int64_t middle,
                              int64_t inner, int64_t per, void *scratch, cudaStream_t stream);

/* *out = or += Σ x², fp64 on the device: what a gradient's norm is the root of. Not finite where an element is not, or is beyond
 * 1e19 (fp64: 1e154), so that it also tells whether all gradients are numbers. */
size_t cuda_squares_scratch(int64_t n);
cudaError_t cuda_squares(enum cuda_dtype dtype, const void *x, int64_t n, bool add, double *out,
                         void *scratch, cudaStream_t stream);

/* *out = or += 1 where the squares are not finite, else 0; out fp32 (fp64: of fp64). */
cudaError_t cuda_overflow(const double *squares, bool add, void *out, bool out_fp64, cudaStream_t stream);

/* core/graph/loss_scale.h's rule, numbers (LOSS_SCALE_NUMBERS) in place. */
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
