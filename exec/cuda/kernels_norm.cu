/* exec/cuda/kernels_norm.cu - norms in one pass over device memory: a run is read once and stays in registers.
 *
 * Runs of up to 1,024 elements have part of a warp, just wide enough (a head of 64 in bf16: 8 lanes, four runs per
 * warp); runs of up to 8,192 have a block of 256 threads; longer ones are read again, from the caches. A thread keeps
 * 32 elements of each operand (4 packs of bf16), loaded before the first is used and kept as stored: 16 registers of
 * bf16, and widening them again for each pass costs less than the lower occupancy otherwise. The mean comes first,
 * then the squares about it, so that a large mean loses no digits.
 */
#include "exec/cuda/kernels_norm.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { KEPT = 32 }; /* elements of an operand in a thread */

/* A run, as one of its threads sees it: the packs at (k · width + lane), k = 0, 1 …; WHOLE: all lie packed. */
template <class T, int OPERANDS, bool KEEP, bool WHOLE> struct run_of {
    enum { N = pack<T>::N, PACKS = KEPT / N };
    using W = wide_of<T>;
    const T *p[OPERANDS];
    int64_t n;
    int lane, width;
    bool packed;
    elements<T, N> kept[OPERANDS][KEEP ? PACKS : 1];

    __device__ __forceinline__ void load(int k, int at)
    {
        int64_t i = ((int64_t)k * width + lane) * N;
#pragma unroll
        for (int o = 0; o < OPERANDS; o++) {
            kept[o][at].clear();
            if (!WHOLE || i < n) kept[o][at].template load<WHOLE>(p[o], i, n, packed);
        }
    }
    __device__ __forceinline__ void open()
    {
        if constexpr (KEEP) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) load(k, k);
        }
    }
    template <class F> __device__ __forceinline__ void give(int k, int at, int64_t i, F f)
    {
        W first[N], last[N];
#pragma unroll
        for (int o = 0; o < OPERANDS; o++) kept[o][at].forget();
        kept[0][at].get(first);
        kept[OPERANDS - 1][at].get(last);
        f(k, i, (int)min(n - i, (int64_t)N), first, last);
    }
    /* f(k, i, count, pack of the first operand, pack of the last) for each pack that has elements, the k-th of the thread */
    template <class F> __device__ __forceinline__ void each(F f)
    {
        if constexpr (KEEP) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                int64_t i = ((int64_t)k * width + lane) * N;
                if (i < n) give(k, k, i, f);
            }
        } else {
            for (int k = 0;; k++) {
                int64_t i = ((int64_t)k * width + lane) * N;
                if (i >= n) break;
                load(k, 0);
                give(k, 0, i, f);
            }
        }
    }
};

/* Behind this weights are read again, from the nearest cache, and not kept in registers from one pass to the next. */
static __device__ __forceinline__ void weights_again()
{
#ifndef STANDIN
    asm volatile("" ::: "memory");
#endif
}

struct norm_operands {
    const void *x, *dy;
    either gamma, beta;
    const void *more; /* the gradient gets it on top; or NULL */
    void *y, *stats;
    bool stats_wide, centres;
    double eps, offset;
};

/* Weights of elements i … of a run, with rms_norm's offset. */
template <class T, int N, bool WHOLE>
static __device__ __forceinline__ void read_gamma(const norm_operands &o, int64_t i, int64_t n, bool packed,
                                                  wide_of<T> (&gamma)[N])
{
    read_either<T, N, WHOLE>(o.gamma, i, n, packed, gamma);
#pragma unroll
    for (int j = 0; j < N; j++) gamma[j] += (wide_of<T>)o.offset;
}

template <class T, bool BLOCKWIDE, bool KEEP, bool WHOLE>
static __device__ __forceinline__ void norm_runs(const norm_operands &o, int64_t runs, int64_t n,
                                                 int width, bool packed, wide_of<T> *room)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    int64_t run = (int64_t)blockIdx.x * (BLOCK / width) + threadIdx.x / width;
    bool mine = run < runs; /* lanes behind the last run go along: the warp adds together */
    run_of<T, 1, KEEP, WHOLE> x;
    x.p[0] = static_cast<const T *>(o.x) + (mine ? run * n : 0);
    x.n = mine ? n : 0, x.lane = (int)threadIdx.x % width, x.width = width, x.packed = packed;
    x.open();
    W mean = 0, squares = 0;
    if (o.centres) {
        x.each([&](int, int64_t, int, W(&v)[N], W(&)[N]) {
#pragma unroll
            for (int j = 0; j < N; j++) mean += v[j];
        });
        mean = sum_row<BLOCKWIDE>(mean, width, room) / (W)n;
    }
    x.each([&](int, int64_t, int count, W(&v)[N], W(&)[N]) {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j < count) squares += (v[j] - mean) * (v[j] - mean);
    });
    W scale = 1 / sqrt(sum_row<BLOCKWIDE>(squares, width, room) / (W)n + (W)o.eps);
    T *y = static_cast<T *>(o.y) + run * n;
    x.each([&](int, int64_t i, int, W(&v)[N], W(&)[N]) {
        W gamma[N], beta[N], out[N];
        read_gamma<T, N, WHOLE>(o, i, n, packed, gamma);
        if (o.centres) read_either<T, N, WHOLE>(o.beta, i, n, packed, beta);
#pragma unroll
        for (int j = 0; j < N; j++)
            out[j] = (v[j] - mean) * scale * gamma[j] + (o.centres ? beta[j] : W(0));
        write<T, N, WHOLE>(y, i, n, packed, out);
    });
    if (x.lane || !mine) return;
    if (o.centres) put_either<T>(o.stats, o.stats_wide, 2 * run, mean, false);
    put_either<T>(o.stats, o.stats_wide, o.centres ? 2 * run + 1 : run, scale, false);
}

template <class T, bool BLOCKWIDE, bool KEEP>
static __global__ void __launch_bounds__(BLOCK, sizeof(T) == 2 ? 4 : 1)
    norm_kernel(norm_operands o, int64_t runs, int64_t n, int width, bool packed)
{
    __shared__ wide_of<T> room[WARP];
    if (packed)
        norm_runs<T, BLOCKWIDE, KEEP, true>(o, runs, n, width, true, room);
    else
        norm_runs<T, BLOCKWIDE, KEEP, false>(o, runs, n, width, false, room);
}

/* What is added at the end, asked for at the beginning and kept as it lies. Only of halves; others read it where they need it, as
 * whoever keeps nothing does. */
template <class T, bool KEEP, bool WHOLE> struct added {
    enum { N = pack<T>::N, PACKS = KEPT / N, AHEAD = KEEP && WHOLE && sizeof(T) == 2 };
    const T *p; /* NULL: nothing is */
    int64_t n;
    elements<T, N> held[AHEAD ? PACKS : 1];
    __device__ __forceinline__ void open(int lane, int width)
    {
        if constexpr (AHEAD) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                int64_t i = ((int64_t)k * width + lane) * N;
                held[k].clear();
                if (p && i < n) held[k].template load<true>(p, i, n, true);
            }
        }
    }
    __device__ __forceinline__ void add(int k, int64_t i, wide_of<T> (&to)[N])
    {
        wide_of<T> v[N];
        if (!p) return;
        if constexpr (AHEAD)
            held[k].get(v);
        else
            read<T, N, WHOLE>(p, i, n, false, v);
#pragma unroll
        for (int j = 0; j < N; j++) to[j] += v[j];
    }
};

/* g = dy·gamma, dx = scale (g - mean g - x̂ mean(g x̂)); without the mean of g where the norm does not centre. */
template <class T, bool BLOCKWIDE, bool KEEP, bool WHOLE>
static __device__ __forceinline__ void norm_grad_runs(const norm_operands &o, int64_t runs, int64_t n,
                                                      int width, bool packed, wide_of<T> *room)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    int64_t run = (int64_t)blockIdx.x * (BLOCK / width) + threadIdx.x / width;
    bool mine = run < runs;
    run_of<T, 2, KEEP, WHOLE> x;
    x.p[0] = static_cast<const T *>(o.x) + (mine ? run * n : 0);
    x.p[1] = static_cast<const T *>(o.dy) + (mine ? run * n : 0);
    x.n = mine ? n : 0, x.lane = (int)threadIdx.x % width, x.width = width, x.packed = packed;
    x.open();
    added<T, KEEP, WHOLE> more;
    more.p = o.more && mine ? static_cast<const T *>(o.more) + run * n : nullptr;
    more.n = x.n;
    more.open(x.lane, width);
    either stats = {o.stats, o.stats_wide};
    W mean = o.centres && mine ? read_either<T>(stats, 2 * run) : W(0);
    W scale = mine ? read_either<T>(stats, o.centres ? 2 * run + 1 : run) : W(0);
    W sum_g = 0, sum_gx = 0;
    x.each([&](int, int64_t i, int, W(&v)[N], W(&dy)[N]) { /* behind the end dy is 0 */
        W gamma[N];
        read_gamma<T, N, WHOLE>(o, i, n, packed, gamma);
#pragma unroll
        for (int j = 0; j < N; j++) {
            W g = dy[j] * gamma[j];
            if (o.centres) sum_g += g;
            sum_gx += g * ((v[j] - mean) * scale);
        }
    });
    if (o.centres) sum_g = sum_row<BLOCKWIDE>(sum_g, width, room);
    W mean_g = sum_g / (W)n, mean_gx = sum_row<BLOCKWIDE>(sum_gx, width, room) / (W)n;
    T *dx = static_cast<T *>(o.y) + run * n;
    if (KEEP) weights_again();
    x.each([&](int k, int64_t i, int, W(&v)[N], W(&dy)[N]) {
        W gamma[N], out[N];
        read_gamma<T, N, WHOLE>(o, i, n, packed, gamma);
#pragma unroll
        for (int j = 0; j < N; j++)
            out[j] = scale * (dy[j] * gamma[j] - mean_g - (v[j] - mean) * scale * mean_gx);
        more.add(k, i, out);
        write<T, N, WHOLE>(dx, i, n, packed, out);
    });
}

template <class T, bool BLOCKWIDE, bool KEEP>
static __global__ void __launch_bounds__(BLOCK, sizeof(T) == 2 ? 2 : 1)
    norm_grad_kernel(norm_operands o, int64_t runs, int64_t n, int width, bool packed)
{
    __shared__ wide_of<T> room[WARP];
    if (packed)
        norm_grad_runs<T, BLOCKWIDE, KEEP, true>(o, runs, n, width, true, room);
    else
        norm_grad_runs<T, BLOCKWIDE, KEEP, false>(o, runs, n, width, false, room);
}

/* fp64 keeps nothing: it is there to be compared with, and 64 registers an operand would be half of them idle. */
#define NORM_LAUNCH(kernel)                                                                        \
    (width <= WARP                                                                                 \
         ? LAUNCH((kernel<T, false, KEEPS>), grid, BLOCK, 0, stream, o, runs, n, width, packed)    \
     : n <= KEPT * BLOCK                                                                           \
         ? LAUNCH((kernel<T, true, KEEPS>), grid, BLOCK, 0, stream, o, runs, n, width, packed)     \
         : LAUNCH((kernel<T, true, false>), grid, BLOCK, 0, stream, o, runs, n, width, packed))

static norm_operands operands_of(const struct cuda_norm_call *s)
{
    norm_operands o = {s->x,
                       s->dy,
                       {s->gamma, s->gamma_wide},
                       {s->beta, s->beta_wide},
                       s->more,
                       s->y,
                       s->stats,
                       s->stats_wide,
                       s->centres,
                       s->eps,
                       s->offset};
    return o;
}

template <class T>
static cudaError_t launch(const struct cuda_norm_call *s, bool grad, int64_t runs, int64_t n,
                          cudaStream_t stream)
{
    constexpr bool KEEPS = sizeof(T) < 8;
    norm_operands o = operands_of(s);
    int width = 1;
    while (width * pack<T>::N < n && width < WARP) width *= 2;
    if (n > WARP * KEPT) width = BLOCK;
    bool packed = lies_packed(s->x, s->dy, s->gamma, s->beta, s->y) && lies_packed(s->more) && n % pack<T>::N == 0;
    dim3 grid((unsigned)over(runs, BLOCK / width));
    return grad ? NORM_LAUNCH(norm_grad_kernel) : NORM_LAUNCH(norm_kernel);
}

extern "C" cudaError_t cuda_norm(const struct cuda_norm_call *s, int64_t runs, int64_t n,
                                 cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (runs <= 0 || n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(s->dtype, T, e = launch<T>(s, false, runs, n, stream));
    return e;
}

extern "C" cudaError_t cuda_norm_grad(const struct cuda_norm_call *s, int64_t runs, int64_t n,
                                      cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (runs <= 0 || n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(s->dtype, T, e = launch<T>(s, true, runs, n, stream));
    return e;
}

/* --- groups of channels: a block a run, read as often as there are passes; what is in a cache is not read again --- */

enum { GROUP_BLOCK = 512 };

struct group_shape {
    int64_t n, places, channels, per;
    divider by_places;
};

/* f(i, count, v) of the packs of a run that are this thread's */
template <class T, class F>
static __device__ __forceinline__ void each_pack(const T *p, int64_t n, bool packed, F f)
{
    enum { N = pack<T>::N };
#pragma unroll 2
    for (int64_t i = (int64_t)threadIdx.x * N; i < n; i += GROUP_BLOCK * N) {
        wide_of<T> v[N];
        read<T, N>(p, i, n, packed, v);
        f(i, (int)min(n - i, (int64_t)N), v);
    }
}

template <class T>
static __global__ void __launch_bounds__(GROUP_BLOCK)
    group_norm_kernel(norm_operands o, group_shape g, bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    __shared__ W room[WARP];
    int64_t run = blockIdx.x, first = run * g.per % g.channels;
    const T *x = static_cast<const T *>(o.x) + run * g.n;
    T *y = static_cast<T *>(o.y) + run * g.n;
    W mean = 0, squares = 0, n = (W)max(g.n, (int64_t)1);
    each_pack<T>(x, g.n, packed, [&](int64_t, int, W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; j++) mean += v[j];
    });
    mean = sum_block(mean, room) / n;
    each_pack<T>(x, g.n, packed, [&](int64_t, int count, W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j < count) squares += (v[j] - mean) * (v[j] - mean);
    });
    W scale = 1 / sqrt(sum_block(squares, room) / n + (W)o.eps);
    each_pack<T>(x, g.n, packed, [&](int64_t i, int count, W(&v)[N]) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j >= count) break;
            int64_t c = first + (uint32_t)(i + j) / g.by_places;
            v[j] = (v[j] - mean) * scale * read_either<T>(o.gamma, c) + read_either<T>(o.beta, c);
        }
        write<T, N>(y, i, g.n, packed, v);
    });
    if (threadIdx.x) return;
    put_either<T>(o.stats, o.stats_wide, 2 * run, mean, false);
    put_either<T>(o.stats, o.stats_wide, 2 * run + 1, scale, false);
}

/* As norm_grad_kernel. */
template <class T>
static __global__ void __launch_bounds__(GROUP_BLOCK)
    group_norm_grad_kernel(norm_operands o, group_shape g, bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    __shared__ W room[WARP];
    int64_t run = blockIdx.x, first = run * g.per % g.channels;
    const T *x = static_cast<const T *>(o.x) + run * g.n;
    const T *dy = static_cast<const T *>(o.dy) + run * g.n;
    T *dx = static_cast<T *>(o.y) + run * g.n;
    either stats = {o.stats, o.stats_wide};
    W mean = read_either<T>(stats, 2 * run), scale = read_either<T>(stats, 2 * run + 1);
    W sum_g = 0, sum_gx = 0;
    each_pack<T>(x, g.n, packed, [&](int64_t i, int count, W(&v)[N]) {
        W d[N];
        read<T, N>(dy, i, g.n, packed, d);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j >= count) break;
            W gdy = d[j] * read_either<T>(o.gamma, first + (uint32_t)(i + j) / g.by_places);
            sum_g += gdy, sum_gx += gdy * ((v[j] - mean) * scale);
        }
    });
    W mean_g = sum_block(sum_g, room) / (W)g.n, mean_gx = sum_block(sum_gx, room) / (W)g.n;
    each_pack<T>(x, g.n, packed, [&](int64_t i, int count, W(&v)[N]) {
        W d[N];
        read<T, N>(dy, i, g.n, packed, d);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j >= count) break;
            W gdy = d[j] * read_either<T>(o.gamma, first + (uint32_t)(i + j) / g.by_places);
            v[j] = scale * (gdy - mean_g - (v[j] - mean) * scale * mean_gx);
        }
        write<T, N>(dx, i, g.n, packed, v);
    });
}

template <class T>
static cudaError_t launch_groups(const struct cuda_norm_call *s, bool grad, int64_t runs,
                                 const group_shape &g, cudaStream_t stream)
{
    norm_operands o = operands_of(s);
    bool packed = lies_packed(s->x, s->dy, s->y) && g.n % pack<T>::N == 0;
    dim3 grid((unsigned)runs);
    return grad ? LAUNCH((group_norm_grad_kernel<T>), grid, GROUP_BLOCK, 0, stream, o, g, packed)
                : LAUNCH((group_norm_kernel<T>), grid, GROUP_BLOCK, 0, stream, o, g, packed);
}

static cudaError_t group_norm(const struct cuda_norm_call *s, bool grad, int64_t runs, int64_t per,
                              int64_t places, int64_t channels, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (runs <= 0 || (grad && per * places <= 0)) return cudaSuccess;
    group_shape g = {per * places, places, most(1, channels), per, divider_of(most(1, places))};
    CUDA_WITH_DTYPE(s->dtype, T, e = launch_groups<T>(s, grad, runs, g, stream));
    return e;
}

extern "C" cudaError_t cuda_group_norm(const struct cuda_norm_call *s, int64_t runs, int64_t per,
                                       int64_t places, int64_t channels, cudaStream_t stream)
{
    return group_norm(s, false, runs, per, places, channels, stream);
}

extern "C" cudaError_t cuda_group_norm_grad(const struct cuda_norm_call *s, int64_t runs, int64_t per,
                                            int64_t places, int64_t channels, cudaStream_t stream)
{
    return group_norm(s, true, runs, per, places, channels, stream);
}
