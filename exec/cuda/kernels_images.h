/* exec/cuda/kernels_images.h - launchers for (b, channels, h, w): what a convolution sees as columns, and pooling.
 *
 * Lines first … first + oh - 1 of the places are here; of x all lines. Elements of one image are fewer than 2^31, and so are those of
 * its columns in one of their rows.
 */
#ifndef EXEC_CUDA_KERNELS_IMAGES_H
#define EXEC_CUDA_KERNELS_IMAGES_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_window { /* how a kernel goes over images */
    enum cuda_dtype dtype;
    int64_t b, c, h, w; /* x */
    int64_t oh, ow, first;
    int32_t kernel[2], stride[2], padding[2]; /* height, width */
};

/* columns (b, c·kh·kw, oh·ow) of x, 0 where a tap is outside. */
cudaError_t cuda_columns(const struct cuda_window *v, const void *x, void *columns,
                         cudaStream_t stream);
/* x = the sum of its elements' places in columns, which are of the type that is computed in; taps in ascending order. */
cudaError_t cuda_columns_back(const struct cuda_window *v, const void *columns, void *x,
                              cudaStream_t stream);

/* y, index (b, c, oh, ow); index is written as a number, index_wide: fp32 beside narrow ones. */
cudaError_t cuda_max_pool(const struct cuda_window *v, const void *x, void *y, void *index,
                          bool index_wide, cudaStream_t stream);
cudaError_t cuda_max_pool_grad(const struct cuda_window *v, const void *index, bool index_wide,
                               const void *dy, void *dx, cudaStream_t stream);
cudaError_t cuda_avg_pool(const struct cuda_window *v, const void *x, void *y, cudaStream_t stream);
cudaError_t cuda_avg_pool_grad(const struct cuda_window *v, const void *dy, void *dx,
                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
