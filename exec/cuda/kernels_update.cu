/* exec/cuda/kernels_update.cu - optimizers over one contiguous run of parameters.
 *
 * Bandwidth-bound: an fp32 parameter moves 32 bytes for some 45 instructions, a third of a multiprocessor's time. A
 * thread loads 8 elements of the four operands, 2 packs each, before it computes the first. Its packs are a block
 * apart, so that a warp accesses 512 contiguous bytes; the copy is then written by half packs, 256 contiguous bytes:
 * with two adjacent packs per thread each access would touch every sector and use half of it. The flat kinds run the
 * same code over a longer range.
 */
#include "exec/cuda/kernels_update.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { AT_ONCE = 8 };

template <class W> struct update_of {
    W *p, *m, *v, *g;
    const float *factor, *corrected;
    const W *clip;
    W beta1, rest1, beta2, rest2, keep, rate, root, eps, decay, own, of_m;
};

/* Elements i … i+N-1 of n of the narrow copy, which lie packed as their wide ones do: at a multiple of half a pack. */
template <class C, class W, int N>
static __device__ __forceinline__ void write_copy(C *copy, int64_t i, int64_t n, bool packed,
                                                  const W (&p)[N])
{
    static_assert(N * sizeof(C) == sizeof(uint2), "half a pack");
    C narrow[N];
#pragma unroll
    for (int j = 0; j < N; j++) narrow[j] = dtype_traits<C>::put((float)p[j]);
    if (packed && i + N <= n) {
        uint2 raw;
        memcpy(&raw, narrow, sizeof raw);
        *reinterpret_cast<uint2 *>(copy + i) = raw;
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        if (i + j < n) copy[i + j] = narrow[j];
}

/* As exec/host/kernels_host_update.inc has them. */
template <class W, cuda_rule RULE, int N>
static __device__ __forceinline__ void step(const update_of<W> &u, W factor, bool skip, W (&p)[N],
                                            W (&m)[N], W (&v)[N], W (&g)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        W d = g[j] * factor;
        g[j] = 0;
        if (skip) continue;
        if constexpr (RULE == CUDA_ADAM) {
            m[j] = u.beta1 * m[j] + u.rest1 * d;
            v[j] = u.beta2 * v[j] + u.rest2 * (d * d);
            p[j] = u.keep * p[j] - u.rate * m[j] / (sqrt(v[j]) / u.root + u.eps);
        } else if constexpr (RULE == CUDA_MOMENTUM) {
            d += u.decay * p[j];
            m[j] = u.beta1 * m[j] + d;
            p[j] -= u.rate * (u.own * d + u.of_m * m[j]);
        } else if constexpr (RULE == CUDA_LION) {
            W c = u.beta1 * m[j] + u.rest1 * d;
            p[j] = u.keep * p[j] - u.rate * (W)((c > 0) - (c < 0));
            m[j] = u.beta2 * m[j] + u.rest2 * d;
        } else {
            p[j] = u.keep * p[j] - u.rate * d;
        }
    }
}

/* C: number of the copy, or of p for none. */
template <class W, class C, cuda_rule RULE>
static __global__ void __launch_bounds__(BLOCK)
    update_kernel(update_of<W> u, C *copy, int64_t n, bool packed)
{
    enum { N = pack<W>::N, PACKS = AT_ONCE / N };
    float factor = u.factor ? *u.factor : 1.0f;
    bool skip = !(fabsf(factor) <= 3.4e38f);
    W all = u.clip ? (W)factor * *u.clip : (W)factor;
    constexpr bool ADAM = RULE == CUDA_ADAM, MOMENTS = RULE != CUDA_SGD;
    if (u.corrected && ADAM) u.rate = (W)u.corrected[0], u.root = (W)u.corrected[1];
    int64_t stride = (int64_t)gridDim.x * BLOCK * AT_ONCE;
    for (int64_t tile = (int64_t)blockIdx.x * BLOCK * AT_ONCE; tile < n; tile += stride) {
        W p[PACKS][N], m[PACKS][N], v[PACKS][N], g[PACKS][N];
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64_t i = tile + (int64_t)(k * BLOCK + threadIdx.x) * N;
            read<W, N>(u.p, i, n, packed, p[k]);
            read<W, N>(u.g, i, n, packed, g[k]);
            if (MOMENTS) read<W, N>(u.m, i, n, packed, m[k]);
            if (ADAM) read<W, N>(u.v, i, n, packed, v[k]);
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64_t i = tile + (int64_t)(k * BLOCK + threadIdx.x) * N;
            step<W, RULE, N>(u, all, skip, p[k], m[k], v[k], g[k]);
            write<W, N>(u.g, i, n, packed, g[k]);
            if (!skip) {
                write<W, N>(u.p, i, n, packed, p[k]);
                if (MOMENTS) write<W, N>(u.m, i, n, packed, m[k]);
                if (ADAM) write<W, N>(u.v, i, n, packed, v[k]);
            }
            if constexpr (sizeof(C) == 2) write_copy<C, W, N>(copy, i, n, packed, p[k]);
        }
    }
}

template <class W, class C>
static cudaError_t launch(const struct cuda_optimizer *u, int64_t n, cudaStream_t stream)
{
    update_of<W> s = {(W *)u->p,   (W *)u->m,         (W *)u->v,   (W *)u->g,         u->factor,
                      u->corrected, (const W *)u->clip,
                      (W)u->beta1, (W)(1 - u->beta1), (W)u->beta2, (W)(1 - u->beta2), (W)u->keep,
                      (W)u->rate,  (W)u->root,        (W)u->eps,   (W)u->decay,       (W)u->own, (W)u->of_m};
    bool packed = lies_packed(u->p, u->m, u->v, u->g, u->copy);
    dim3 grid((unsigned)least(over(n, BLOCK * AT_ONCE), INT32_MAX));
    switch (u->rule) {
    case CUDA_ADAM: return LAUNCH((update_kernel<W, C, CUDA_ADAM>), grid, BLOCK, 0, stream, s, (C *)u->copy, n, packed);
    case CUDA_SGD: return LAUNCH((update_kernel<W, C, CUDA_SGD>), grid, BLOCK, 0, stream, s, (C *)u->copy, n, packed);
    case CUDA_MOMENTUM: return LAUNCH((update_kernel<W, C, CUDA_MOMENTUM>), grid, BLOCK, 0, stream, s, (C *)u->copy, n, packed);
    case CUDA_LION: return LAUNCH((update_kernel<W, C, CUDA_LION>), grid, BLOCK, 0, stream, s, (C *)u->copy, n, packed);
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t cuda_update(const struct cuda_optimizer *u, int64_t n, cudaStream_t stream)
{
    if (n <= 0) return cudaSuccess;
    if (u->dtype == CUDA_fp64)
        return u->copy ? cudaErrorInvalidValue : launch<double, double>(u, n, stream);
    if (u->dtype != CUDA_fp32) return cudaErrorInvalidValue;
    if (!u->copy) return launch<float, float>(u, n, stream);
    return u->copy_dtype == CUDA_bf16 ? launch<float, __nv_bfloat16>(u, n, stream)
                                       : launch<float, __half>(u, n, stream);
}
