/* exec/cuda/kernels_update.h - launchers of AdamW, SGD and Lion over one contiguous run of parameters. */
#ifndef EXEC_CUDA_KERNELS_UPDATE_H
#define EXEC_CUDA_KERNELS_UPDATE_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* p, m, v, g (n) of dtype, fp32 or fp64, in place; g is 0 afterwards.
 *   ADAM      p = keep·p - rate·m / (√v / root + eps), m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g²
 *   SGD       p = keep·p - rate·g; m and v are NULL
 *   MOMENTUM  d = g + decay·p, m = beta1·m + d, p -= rate·(own·d + of_m·m); v is NULL
 *   LION      p = keep·p - rate·sign(beta1·m + (1 - beta1)·g), m = beta2·m + (1 - beta2)·g; v is NULL */
enum cuda_rule { CUDA_ADAM, CUDA_SGD, CUDA_MOMENTUM, CUDA_LION };
struct cuda_optimizer {
    enum cuda_rule rule;
    enum cuda_dtype dtype;
    void *p, *m, *v, *g;
    void *copy; /* NULL, or (n) of copy_dtype, bf16 or fp16: p rounded, for matrix products */
    enum cuda_dtype copy_dtype;
    /* On the device; NULL: 1. Factor of the gradients, 1 / loss scale. If it is not finite the update is
     * skipped: gradients become 0 and the copy is rewritten from p. */
    const float *factor;
    const void *clip; /* on the device, of dtype; NULL: 1. A second factor of the gradients */
    /* On the device; NULL: rate and root as below. After the factor: these two, for updates that were not skipped. */
    const float *corrected;
    double beta1, beta2, keep, rate, root, eps, decay, own, of_m;
};
cudaError_t cuda_update(const struct cuda_optimizer *u, int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
