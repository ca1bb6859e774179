/* exec/cuda/kernels_images.h - launchers for images (b, channels, h, w): im2col for convolutions, and pooling.
 *
 * Output lines first … first + oh - 1 are on this device; x has all its lines. An image, and a row of its columns,
 * have fewer than 2^31 elements each.
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

struct cuda_window { /* window of a convolution or a pooling */
    enum cuda_dtype dtype;
    int64_t b, c, h, w; /* x */
    int64_t oh, ow, first;
    int32_t kernel[2], stride[2], padding[2]; /* height, width */
};

/* columns (b, c·kh·kw, oh·ow) of x (im2col), 0 for taps outside. */
cudaError_t cuda_columns(const struct cuda_window *v, const void *x, void *columns,
                         cudaStream_t stream);
/* x = the sum over the columns of each element (col2im), taps in ascending order; columns have the compute type. */
cudaError_t cuda_columns_back(const struct cuda_window *v, const void *columns, void *x,
                              cudaStream_t stream);

/* y, index (b, c, oh, ow); index is stored as a floating-point number, index_wide: fp32 with half-precision y. */
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
