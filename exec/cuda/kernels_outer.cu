/* exec/cuda/kernels_outer.cu - local SGD: the change of the parameters, and what its mean does to them.
 *
 * Bandwidth-bound and executed once in many steps, so a thread has one element at a time; a warp accesses contiguous bytes.
 */
#include "exec/cuda/kernels_outer.h"

#include "exec/cuda/pack.cuh"
#include "exec/cuda/launch.h"

template <class W>
static __global__ void __launch_bounds__(BLOCK)
    delta_kernel(const W *a, const W *p, W *g, W scale, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
        g[i] = scale * (a[i] - p[i]);
}

template <class W> struct outer_of {
    W *p, *a, *v, *g;
    W lr, momentum, alpha;
};

/* C: number of the copy, or of p for none. */
template <class W, class C>
static __global__ void __launch_bounds__(BLOCK) outer_kernel(outer_of<W> u, C *copy, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride) {
        W d = u.g[i];
        if (u.v) {
            W v = u.v[i] = u.momentum * u.v[i] + d;
            d = u.lr * (d + u.momentum * v);
        }
        W p = u.a[i] = u.a[i] - d;
        if (u.alpha > 0) p = u.alpha * u.p[i] + (1 - u.alpha) * p;
        u.p[i] = p;
        u.g[i] = 0;
        if constexpr (sizeof(C) == 2) copy[i] = dtype_traits<C>::put((float)p);
    }
}

static dim3 grid_of(int64_t n) { return dim3((unsigned)least(over(n, BLOCK), INT32_MAX)); }

extern "C" cudaError_t cuda_outer_delta(enum cuda_dtype dtype, const void *a, const void *p, void *g,
                                        double scale, int64_t n, cudaStream_t stream)
{
    if (n <= 0) return cudaSuccess;
    if (dtype == CUDA_fp64)
        return LAUNCH(delta_kernel<double>, grid_of(n), BLOCK, 0, stream, (const double *)a,
                      (const double *)p, (double *)g, scale, n);
    if (dtype != CUDA_fp32) return cudaErrorInvalidValue;
    return LAUNCH(delta_kernel<float>, grid_of(n), BLOCK, 0, stream, (const float *)a,
                  (const float *)p, (float *)g, (float)scale, n);
}

template <class W, class C>
static cudaError_t launch(const struct cuda_outer *u, int64_t n, cudaStream_t stream)
{
    outer_of<W> s = {(W *)u->p, (W *)u->a, (W *)u->v, (W *)u->g, (W)u->lr, (W)u->momentum, (W)u->alpha};
    return LAUNCH((outer_kernel<W, C>), grid_of(n), BLOCK, 0, stream, s, (C *)u->copy, n);
}

extern "C" cudaError_t cuda_outer(const struct cuda_outer *u, int64_t n, cudaStream_t stream)
{
    if (n <= 0) return cudaSuccess;
    if (u->dtype == CUDA_fp64)
        return u->copy ? cudaErrorInvalidValue : launch<double, double>(u, n, stream);
    if (u->dtype != CUDA_fp32) return cudaErrorInvalidValue;
    if (!u->copy) return launch<float, float>(u, n, stream);
    return u->copy_dtype == CUDA_bf16 ? launch<float, __nv_bfloat16>(u, n, stream)
                                      : launch<float, __half>(u, n, stream);
}
