/* exec/cuda/kernels_update.h - launchers of AdamW and SGD over one contiguous run of parameters. */
#ifndef EXEC_CUDA_KERNELS_UPDATE_H
#define EXEC_CUDA_KERNELS_UPDATE_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* p, m, v, g (n) of dtype, fp32 or fp64, in place; g is 0 afterwards. SGD: m and v are NULL; only `rate` and `keep`
 * are used. */
struct cuda_optimizer {
    enum cuda_dtype dtype;
    void *p, *m, *v, *g;
    void *copy; /* NULL, or (n) of copy_dtype, bf16 or fp16: p rounded, for matrix products */
    enum cuda_dtype copy_dtype;
    /* On the device; NULL: 1. Factor of the gradients (a clip, 1 / loss scale). If it is not finite the update is
     * skipped: gradients become 0 and the copy is rewritten from p. */
    const float *factor;
    /* On the device; NULL: rate and root as below. After the factor: these two, for updates that were not skipped. */
    const float *corrected;
    /* p = keep·p - rate·m / (√v / root + eps), m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g²; SGD: p = keep·p - rate·g */
    double beta1, beta2, keep, rate, root, eps;
};
cudaError_t cuda_update(const struct cuda_optimizer *u, int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
