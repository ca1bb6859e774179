/* exec/cuda/kernels_trust.cu - LAMB and LARS: moments and sums of squares in one pass, the parameter in a second one.
 *
 * Bandwidth-bound: LAMB reads p, m, v twice, so that the change of p, which has no room, is computed twice. Squares are added in fp64 in an
 * order that the length decides.
 */
#include "exec/cuda/kernels_trust.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { TRUST_BLOCKS = 1024, TRUST_BLOCK = BLOCK * 8 };

static int64_t trust_blocks(int64_t n) { return most(1, least(TRUST_BLOCKS, over(n, TRUST_BLOCK))); }

template <class W> struct trust_of {
    W *p, *m, *v, *g;
    const float *factor, *corrected;
    const W *clip;
    W beta1, rest1, beta2, rest2, rate, root, eps, lr, decay;
    double trust;
};

template <class W> static __device__ __forceinline__ void correct(trust_of<W> &u)
{
    if (u.corrected) u.rate = (W)u.corrected[0], u.root = (W)u.corrected[1];
}

static __device__ __forceinline__ bool skips(const float *factor) { return factor && !(fabsf(*factor) <= 3.4e38f); }

template <class W> static __device__ __forceinline__ W change(const trust_of<W> &u, int64_t i)
{
    return u.rate * u.m[i] / (sqrt(u.v[i]) / u.root + u.eps) + u.decay * u.p[i];
}

/* part: (blocks, 2) sums of p² and of the change's or the gradient's squares */
template <class W, bool LAMB>
static __global__ void __launch_bounds__(BLOCK) norms_kernel(trust_of<W> u, int64_t n, double *part)
{
    __shared__ double room[WARP];
    double of_p = 0, of_d = 0;
    W factor = (u.factor ? (W)*u.factor : (W)1) * (u.clip ? *u.clip : (W)1);
    bool skip = skips(u.factor);
    correct(u);
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride) {
        W g = skip ? (W)0 : u.g[i] * factor, d = g, p = u.p[i];
        u.g[i] = LAMB ? (W)0 : g;
        if (LAMB && !skip) {
            u.m[i] = u.beta1 * u.m[i] + u.rest1 * g;
            u.v[i] = u.beta2 * u.v[i] + u.rest2 * (g * g);
            d = change(u, i);
        }
        of_p += (double)(p * p), of_d += (double)(d * d);
    }
    of_p = sum_block(of_p, room);
    of_d = sum_block(of_d, room);
    if (threadIdx.x == 0) part[2 * blockIdx.x] = of_p, part[2 * blockIdx.x + 1] = of_d;
}

/* ratio: LAMB lr·|p| / |d|, LARS trust·|p| / (|g| + decay·|p|) */
static __global__ void __launch_bounds__(BLOCK)
    ratio_kernel(const double *part, int64_t blocks, bool lamb, double lr, double decay, double trust, double *ratio)
{
    __shared__ double room[WARP];
    double of_p = 0, of_d = 0;
    for (int64_t i = threadIdx.x; i < blocks; i += BLOCK) of_p += part[2 * i], of_d += part[2 * i + 1];
    of_p = sum_block(of_p, room);
    of_d = sum_block(of_d, room);
    if (threadIdx.x) return;
    double p = sqrt(of_p), d = sqrt(of_d);
    *ratio = of_p == 0 || of_d == 0 ? 1 : lamb ? lr * p / d : trust * p / (d + decay * p);
}

/* C: number of the copy, or of p for none. */
template <class W, class C, bool LAMB>
static __global__ void __launch_bounds__(BLOCK) trust_kernel(trust_of<W> u, C *copy, int64_t n, const double *ratio)
{
    W r = (W)*ratio;
    bool skip = skips(u.factor);
    correct(u);
    int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride) {
        W p = u.p[i];
        if (!skip && LAMB) p -= r * change(u, i);
        if (!skip && !LAMB) {
            u.m[i] = u.beta1 * u.m[i] + u.lr * r * (u.g[i] + u.decay * p);
            p -= u.m[i];
        }
        u.p[i] = p, u.g[i] = 0;
        if constexpr (sizeof(C) == 2) copy[i] = dtype_traits<C>::put((float)p);
    }
}

template <class W, class C, bool LAMB>
static cudaError_t launch_kind(const struct cuda_trust *x, int64_t n, double *part, cudaStream_t stream)
{
    const struct cuda_optimizer *u = &x->of;
    trust_of<W> s = {(W *)u->p,     (W *)u->m,           (W *)u->v,   (W *)u->g,           u->factor,   u->corrected, (const W *)u->clip, (W)u->beta1,
                     (W)(1 - u->beta1), (W)u->beta2, (W)(1 - u->beta2), (W)u->rate, (W)u->root,   (W)u->eps,
                     (W)x->lr,      (W)x->decay,         x->trust};
    int64_t blocks = trust_blocks(n);
    dim3 grid((unsigned)least(over(n, BLOCK), INT32_MAX));
    double *ratio = part + 2 * blocks;
    cudaError_t e = LAUNCH((norms_kernel<W, LAMB>), dim3((unsigned)blocks), BLOCK, 0, stream, s, n, part);
    if (!e) e = LAUNCH(ratio_kernel, 1, BLOCK, 0, stream, (const double *)part, blocks, LAMB, x->lr, x->decay, x->trust, ratio);
    if (e) return e;
    return LAUNCH((trust_kernel<W, C, LAMB>), grid, BLOCK, 0, stream, s, (C *)u->copy, n, (const double *)ratio);
}

template <class W, class C>
static cudaError_t launch(const struct cuda_trust *x, int64_t n, void *scratch, cudaStream_t stream)
{
    double *part = (double *)scratch;
    return x->of.v ? launch_kind<W, C, true>(x, n, part, stream) : launch_kind<W, C, false>(x, n, part, stream);
}

extern "C" size_t cuda_trust_scratch(int64_t n) { return (size_t)(2 * trust_blocks(n) + 1) * sizeof(double); }

extern "C" cudaError_t cuda_trust_update(const struct cuda_trust *x, int64_t n, void *scratch, cudaStream_t stream)
{
    const struct cuda_optimizer *u = &x->of;
    if (n <= 0) return cudaSuccess;
    if (u->dtype == CUDA_fp64)
        return u->copy ? cudaErrorInvalidValue : launch<double, double>(x, n, scratch, stream);
    if (u->dtype != CUDA_fp32) return cudaErrorInvalidValue;
    if (!u->copy) return launch<float, float>(x, n, scratch, stream);
    return u->copy_dtype == CUDA_bf16 ? launch<float, __nv_bfloat16>(x, n, scratch, stream)
                                      : launch<float, __half>(x, n, scratch, stream);
}
