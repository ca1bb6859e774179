/* exec/cuda/kernels_norm.h - launchers of layer_norm, rms_norm and group_norm, and of their gradients in x.
 *
 * x, y, dy, dx (runs, n) of one dtype; a run is normalised as a unit. Weights and statistics may be fp32 beside half
 * precision. Gradients of weights are sums over rows or channels: kernels_sums.h.
 */
#ifndef EXEC_CUDA_KERNELS_NORM_H
#define EXEC_CUDA_KERNELS_NORM_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_norm_call {
    enum cuda_dtype dtype;
    bool centres; /* layer_norm; else rms_norm, without beta and with one statistic per run */
    bool gamma_wide, beta_wide, stats_wide;
    double eps;
    double offset; /* rms_norm: added to gamma */
    const void *x, *gamma, *beta, *dy;
    const void *more; /* gradient of layer_norm and rms_norm: (runs, n) added to it; NULL: none */
    void *y;     /* or dx */
    void *stats; /* (runs, 2) = mean, 1/std; (runs) = 1/rms. An input of the gradient */
};

/* gamma, beta (n) */
cudaError_t cuda_norm(const struct cuda_norm_call *s, int64_t runs, int64_t n, cudaStream_t stream);
cudaError_t cuda_norm_grad(const struct cuda_norm_call *s, int64_t runs, int64_t n, cudaStream_t stream);

/* A run is `per` channels of `places` elements; gamma, beta (channels), of which run r uses those from r · per mod
 * channels on. An empty run has the host's statistics: mean 0, 1/√eps. per · places < 2^31. */
cudaError_t cuda_group_norm(const struct cuda_norm_call *s, int64_t runs, int64_t per, int64_t places,
                            int64_t channels, cudaStream_t stream);
cudaError_t cuda_group_norm_grad(const struct cuda_norm_call *s, int64_t runs, int64_t per,
                                 int64_t places, int64_t channels, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
