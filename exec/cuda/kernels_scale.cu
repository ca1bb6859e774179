/* exec/cuda/kernels_scale.cu - loss scale: overflow check and update rule; a sum of squares as a number; the factor of gradient clipping. One thread each, because they
 * touch few bytes. */
#define LOSS_SCALE_FUNCTION static __device__
#include "core/graph/loss_scale.h"

#include "exec/cuda/kernels_sums.h"

#include "exec/cuda/launch.h"

static __device__ void put_number(double x, bool add, void *out, bool out_fp64)
{
    if (out_fp64) {
        double *y = static_cast<double *>(out);
        *y = (add ? *y : 0.0) + x;
    } else {
        float *y = static_cast<float *>(out);
        *y = (float)((add ? (double)*y : 0.0) + x);
    }
}

static __global__ void overflow_kernel(const double *squares, bool add, void *out, bool out_fp64)
{
    bool finite = *squares <= 1.7e308; /* squares are not negative; NaN compares false */
    put_number(finite ? 0.0 : 1.0, add, out, out_fp64);
}

static __global__ void square_sum_kernel(const double *squares, bool add, void *out, bool out_fp64)
{
    put_number(*squares, add, out, out_fp64);
}

extern "C" cudaError_t cuda_overflow(const double *squares, bool add, void *out, bool out_fp64,
                                     cudaStream_t stream)
{
    return LAUNCH(overflow_kernel, 1, 1, 0, stream, squares, add, out, out_fp64);
}

extern "C" cudaError_t cuda_square_sum(const double *squares, bool add, void *out, bool out_fp64,
                                       cudaStream_t stream)
{
    return LAUNCH(square_sum_kernel, 1, 1, 0, stream, squares, add, out, out_fp64);
}

template <class W> static __global__ void clip_kernel(const W *squares, const float *unscale, double max_norm, W *out)
{
    double norm = sqrt((double)*squares) * (unscale ? (double)*unscale : 1.0), factor = max_norm / (norm + 1e-6);
    out[0] = (W)norm, out[1] = factor > 1 ? (W)1 : (W)factor;
}

extern "C" cudaError_t cuda_clip(const void *squares, const float *unscale, double max_norm, void *out, bool fp64, cudaStream_t stream)
{
    if (fp64) return LAUNCH(clip_kernel<double>, 1, 1, 0, stream, (const double *)squares, unscale, max_norm, (double *)out);
    return LAUNCH(clip_kernel<float>, 1, 1, 0, stream, (const float *)squares, unscale, max_norm, (float *)out);
}

static __global__ void rescale_kernel(cuda_scale_step r)
{
    loss_scale_step(r.numbers, *r.overflow, r.grows_after, r.lr, r.beta1, r.beta2, r.step);
}

extern "C" cudaError_t cuda_rescale(const struct cuda_scale_step *r, cudaStream_t stream)
{
    return LAUNCH(rescale_kernel, 1, 1, 0, stream, *r);
}
