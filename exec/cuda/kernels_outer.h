/* exec/cuda/kernels_outer.h - launchers of local SGD's operators over one contiguous run of parameters. */
#ifndef EXEC_CUDA_KERNELS_OUTER_H
#define EXEC_CUDA_KERNELS_OUTER_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* g = scale·(a - p), (n) of dtype, fp32 or fp64. */
cudaError_t cuda_outer_delta(enum cuda_dtype dtype, const void *a, const void *p, void *g, double scale,
                             int64_t n, cudaStream_t stream);

/* In place, (n) of dtype: v = momentum·v + g, a -= lr·(g + momentum·v), p = alpha·p + (1 - alpha)·a, g = 0; v NULL: a -= g. */
struct cuda_outer {
    enum cuda_dtype dtype;
    void *p, *a, *v, *g;
    void *copy; /* NULL, or (n) of copy_dtype, bf16 or fp16: p rounded */
    enum cuda_dtype copy_dtype;
    double lr, momentum, alpha;
};
cudaError_t cuda_outer(const struct cuda_outer *u, int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
