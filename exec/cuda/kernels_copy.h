/* exec/cuda/kernels_copy.h - launchers of strided copies and of transposes. */
#ifndef EXEC_CUDA_KERNELS_COPY_H
#define EXEC_CUDA_KERNELS_COPY_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* to[o · to_step + i] = or += from[o · from_step + i] for o < outer, i < run; steps in elements; from_step 0 repeats
 * one run. from_wide, to_wide: that side is fp32, the other one half precision. Runs of `to` do not overlap. */
struct cuda_runs {
    enum cuda_dtype dtype;
    bool from_wide, to_wide, add;
    const void *from;
    void *to;
    int64_t outer, run, from_step, to_step;
};
cudaError_t cuda_copy_runs(const struct cuda_runs *c, cudaStream_t stream);

/* y (b, columns, rows) = x (b, rows, columns) */
cudaError_t cuda_transpose(enum cuda_dtype dtype, const void *x, void *y, int64_t b, int64_t rows,
                           int64_t columns, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
