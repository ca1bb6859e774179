/* exec/cuda/kernels_cross_entropy.cu - softmax cross-entropy over long rows.
 *
 * Bandwidth-bound: the forward pass reads the logits once with a running maximum and sum; the gradient reads and
 * writes them once. A row has 256 threads, or one warp if it is short. A thread that only reads half precision has
 * four packs of 16 bytes in flight, else two, so that the 4 to 6 blocks per SM (by registers) exceed the 25 KB that
 * an H200 needs in flight. A logit that is only read may cost at most 13 instructions: it costs one conversion, one
 * maximum, one multiply-add, one 2^x and one addition (functions.cuh). Vocabularies are often odd (50,257), so a row
 * begins anywhere in a pack. Elements before the first whole pack, counted from the first row on, and after the last
 * one, are read singly. So the assignment of elements to threads depends on shapes; rows whose stride is a whole
 * number of packs have none before. If the logits are not 16-byte aligned, the same thread reads them one by one.
 */
#include "exec/cuda/kernels_cross_entropy.h"

#include "exec/cuda/launch.h"

#include "exec/cuda/functions.cuh"
#include "exec/cuda/pack.cuh"

#include <math.h>

enum { SHORT_ROW = 1024 };
/* Packs that a thread loads before it uses the first. */
template <class T> struct in_flight {
    enum { N = sizeof(T) == 8 ? 1 : 2, READ_ONLY = sizeof(T) == 2 ? 4 : N };
};

/* Running Σ exp relative to the maximum. */
template <class W> struct running {
    W largest, sum;
};

template <class T, int N>
static __device__ __forceinline__ void add(running<wide_of<T>> &r, const wide_of<T> (&v)[N])
{
    wide_of<T> m = r.largest;
#pragma unroll
    for (int j = 0; j < N; j++) m = max(v[j], m); /* NaN does not become the maximum */
    if (m > r.largest) {
        r.sum *= functions<T>::exp(r.largest - m);
        r.largest = m;
    }
    /* only -∞ so far, or only NaN, which must show in the sum */
    wide_of<T> out = functions<T>::beside(m == -INFINITY ? 0 : m);
#pragma unroll
    for (int j = 0; j < N; j++) r.sum += functions<T>::exp_beside(v[j], out);
}

template <class T>
static __device__ __forceinline__ void join(running<wide_of<T>> &r, running<wide_of<T>> other)
{
    wide_of<T> m = other.largest > r.largest ? other.largest : r.largest;
    if (r.largest != m) r.sum *= functions<T>::exp(r.largest - m);
    if (other.largest != m) other.sum *= functions<T>::exp(other.largest - m);
    r.largest = m, r.sum += other.sum;
}

/* Over `width` threads of one row: a warp, or the whole block, whose warps exchange results through `room`. */
template <class T>
static __device__ __forceinline__ void join_threads(running<wide_of<T>> &r, int width,
                                                    running<wide_of<T>> *room)
{
#pragma unroll
    for (int by = WARP / 2; by; by /= 2) {
        running<wide_of<T>> other;
        other.largest = __shfl_xor_sync(0xffffffffu, r.largest, by);
        other.sum = __shfl_xor_sync(0xffffffffu, r.sum, by);
        join<T>(r, other);
    }
    if (width == WARP) return;
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = r;
    __syncthreads();
    r = room[0];
    for (int i = 1; i < width / WARP; i++) join<T>(r, room[i]);
}

struct span { /* a row's packs: elements [first, first + n_packs N) of it */
    int first, n_packs;
};

/* at: where the row begins, in elements */
template <int N> static __device__ __forceinline__ span span_of(int64_t at, int n)
{
    int over_pack = (int)(at % N), first = over_pack ? N - over_pack : 0;
    if (first > n) first = n;
    return span{first, (n - first) / N};
}

/* Adds this thread's packs of a row. WHOLE: they are packed. */
template <class T, bool WHOLE>
static __device__ __forceinline__ void add_packs(running<wide_of<T>> &r, const T *packs, int n_packs,
                                                 int thread, int width)
{
    constexpr int N = pack<T>::N, AT_ONCE = in_flight<T>::READ_ONLY;
    int i = thread;
    for (; i + (AT_ONCE - 1) * width < n_packs; i += AT_ONCE * width) {
        elements<T, N> in[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            in[j].template load<WHOLE>(packs, (i + j * width) * N, n_packs * N, false);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            wide_of<T> v[N];
            in[j].get(v);
            add<T, N>(r, v);
        }
    }
    for (; i < n_packs; i += width) {
        wide_of<T> v[N];
        read<T, N, WHOLE>(packs, i * N, n_packs * N, false, v);
        add<T, N>(r, v);
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    row_sums(cross_entropy_call c, int width, bool shards, bool packed)
{
    using W = wide_of<T>;
    constexpr int N = pack<T>::N;
    __shared__ running<W> room[WARP];
    int64_t row = blockIdx.x * (int64_t)(BLOCK / width) + threadIdx.x / width;
    int thread = threadIdx.x % width;
    running<W> r = {-INFINITY, 0};
    const T *logits = static_cast<const T *>(c.logits) + row * c.row;
    if (row < c.rows) {
        int n = (int)c.n;
        span s = span_of<N>(row * c.row, n);
        if (thread < s.first) {
            W v[1] = {dtype_traits<T>::get(logits[thread])};
            add<T, 1>(r, v);
        }
        if (packed)
            add_packs<T, true>(r, logits + s.first, s.n_packs, thread, width);
        else
            add_packs<T, false>(r, logits + s.first, s.n_packs, thread, width);
        int i = s.first + s.n_packs * N + thread;
        if (i < n) {
            W v[1] = {dtype_traits<T>::get(logits[i])};
            add<T, 1>(r, v);
        }
    }
    join_threads<T>(r, width, room);
    if (thread || row >= c.rows) return;
    W lse = c.n ? r.largest + log(r.sum) : -INFINITY;
    int64_t target = c.targets[row] - c.start;
    bool here = c.targets[row] >= 0 && target >= 0 && target < c.n;
    W logit = here ? dtype_traits<T>::get(logits[target]) : W(0);
    put_either<T>(c.lse, c.wide_lse, shards ? 2 * row : row, lse, false);
    if (shards)
        put_either<T>(c.lse, c.wide_lse, 2 * row + 1, logit, false);
    else
        c.row_loss[row] = here ? (double)lse - (double)logit : 0;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK) joined(cross_entropy_call c, either shards, int64_t n)
{
    using W = wide_of<T>;
    int64_t row = blockIdx.x * (int64_t)BLOCK + threadIdx.x;
    if (row >= c.rows) return;
    W largest = read_either<T>(shards, 2 * n * row), sum = 0, target = 0;
    for (int64_t i = 1; i < n; i++) {
        W v = read_either<T>(shards, 2 * (n * row + i));
        largest = v > largest ? v : largest;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp(read_either<T>(shards, 2 * (n * row + i)) - largest);
        target += read_either<T>(shards, 2 * (n * row + i) + 1);
    }
    W lse = largest + log(sum);
    put_either<T>(c.lse, c.wide_lse, row, lse, false);
    c.row_loss[row] = c.targets[row] >= 0 ? (double)lse - (double)target : 0;
}

enum { MEAN_BLOCK = 1024 };

template <class T>
static __global__ void __launch_bounds__(MEAN_BLOCK)
    mean(const double *row_loss, int64_t rows, double counted, void *loss, bool wide)
{
    __shared__ double room[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows; i += MEAN_BLOCK) sum += row_loss[i];
    sum = sum_block(sum, room);
    if (threadIdx.x == 0)
        put_either<T>(loss, wide, 0, (wide_of<T>)(counted > 0 ? sum / counted : 0), false);
}

/* scale · exp(v - lse), less scale where `at`, counted from v[0], is one of them; lse as functions have it beside many v */
template <class T, int N>
static __device__ __forceinline__ void soften(wide_of<T> (&v)[N], wide_of<T> lse, wide_of<T> part,
                                              wide_of<T> scale, int at)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        v[j] = part * functions<T>::exp_beside(v[j], lse);
        if (j == at) v[j] -= scale;
    }
}

/* Values common to a row's elements. */
template <class W> struct softmax_row {
    W lse, part, scale;
    int target; /* -1: not in this shard */
};

/* This thread's packs of a row. WHOLE: they are packed. */
template <class T, class OUT, int N, bool WHOLE>
static __device__ __forceinline__ void soften_packs(const softmax_row<wide_of<T>> &r, const T *from,
                                                    OUT *to, span s, int thread, int width)
{
    constexpr int AT_ONCE = in_flight<T>::N;
    int i = thread, n = s.n_packs * N;
    for (; i + (AT_ONCE - 1) * width < s.n_packs; i += AT_ONCE * width) {
        elements<T, N> in[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            in[j].template load<WHOLE>(from + s.first, (i + j * width) * N, n, false);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int at = (i + j * width) * N;
            wide_of<T> v[N];
            in[j].get(v);
            soften<T, N>(v, r.lse, r.part, r.scale, r.target - s.first - at);
            write<OUT, N, WHOLE>(to + s.first, at, n, false, v);
        }
    }
    for (; i < s.n_packs; i += width) {
        wide_of<T> v[N];
        read<T, N, WHOLE>(from + s.first, i * N, n, false, v);
        soften<T, N>(v, r.lse, r.part, r.scale, r.target - s.first - i * N);
        write<OUT, N, WHOLE>(to + s.first, i * N, n, false, v);
    }
}

template <class T, class OUT>
static __global__ void __launch_bounds__(BLOCK, sizeof(T) == 8 ? 2 : 4)
    gradients(cross_entropy_call c, int width, double scale_64, const float *by, OUT *dlogits,
              bool packed)
{
    using W = wide_of<T>;
    constexpr int N = 16 / (sizeof(T) < sizeof(OUT) ? sizeof(T) : sizeof(OUT));
    int64_t row = blockIdx.x * (int64_t)(BLOCK / width) + threadIdx.x / width;
    int thread = threadIdx.x % width;
    if (row >= c.rows) return;
    const T *from = static_cast<const T *>(c.logits) + row * c.row;
    OUT *to = dlogits + row * c.row;
    either lse_at = {c.lse, c.wide_lse};
    W scale = (W)(by ? scale_64 * (double)*by : scale_64);
    int64_t entry = c.targets[row] - c.start;
    bool counts = c.targets[row] >= 0;
    /* ignored rows take the same time, so that the cost does not depend on data */
    softmax_row<W> r = {functions<T>::beside(read_either<T>(lse_at, row)), counts ? scale : W(0), scale,
                        counts && entry >= 0 && entry < c.n ? (int)entry : -1};
    int n = (int)c.n;
    span s = span_of<N>(row * c.row, n);
    if (thread < s.first) {
        W v[1] = {dtype_traits<T>::get(from[thread])};
        soften<T, 1>(v, r.lse, r.part, scale, r.target - thread);
        to[thread] = dtype_traits<OUT>::put(v[0]);
    }
    if (packed)
        soften_packs<T, OUT, N, true>(r, from, to, s, thread, width);
    else
        soften_packs<T, OUT, N, false>(r, from, to, s, thread, width);
    int i = s.first + s.n_packs * N + thread;
    if (i < n) {
        W v[1] = {dtype_traits<T>::get(from[i])};
        soften<T, 1>(v, r.lse, r.part, scale, r.target - i);
        to[i] = dtype_traits<OUT>::put(v[0]);
    }
    for (i = n + thread; i < (int)c.row; i += width) to[i] = dtype_traits<OUT>::put(0);
}

/* Threads per row. */
static int width_of(const cross_entropy_call *c) { return c->n <= SHORT_ROW ? WARP : BLOCK; }
static dim3 grid_of(const cross_entropy_call *c)
{
    return dim3(over(c->rows, BLOCK / width_of(c)));
}

extern "C" cudaError_t cuda_cross_entropy_rows(const struct cross_entropy_call *c, bool shards,
                                          cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!c->rows) return e;
    bool packed = lies_packed(c->logits);
    int width = width_of(c);
    CUDA_WITH_DTYPE(c->dtype, T,
                     e = LAUNCH((row_sums<T>), grid_of(c), dim3(BLOCK), 0, stream, *c, width, shards,
                                packed));
    return e;
}

extern "C" cudaError_t cuda_cross_entropy_join(const struct cross_entropy_call *c, const void *shards,
                                          bool wide_shards, int64_t n_shards, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!c->rows) return e;
    either from = {shards, wide_shards};
    dim3 grid(over(c->rows, BLOCK));
    CUDA_WITH_DTYPE(c->dtype, T,
                     e = LAUNCH((joined<T>), grid, dim3(BLOCK), 0, stream, *c, from, n_shards));
    return e;
}

extern "C" cudaError_t cuda_cross_entropy_mean(const struct cross_entropy_call *c, int64_t counted,
                                          void *loss, bool wide_loss, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    CUDA_WITH_DTYPE(c->dtype, T,
                     e = LAUNCH((mean<T>), dim3(1), dim3(MEAN_BLOCK), 0, stream, c->row_loss, c->rows,
                                (double)counted, loss, wide_loss));
    return e;
}

template <class T, class OUT>
static cudaError_t grad_as(const cross_entropy_call *c, double scale, const float *by,
                           void *dlogits, cudaStream_t stream)
{
    OUT *out = static_cast<OUT *>(dlogits);
    bool packed = lies_packed(c->logits, dlogits);
    return LAUNCH((gradients<T, OUT>), grid_of(c), dim3(BLOCK), 0, stream, *c, width_of(c), scale, by,
                  out, packed);
}

extern "C" cudaError_t cuda_cross_entropy_grad(const struct cross_entropy_call *c, double scale,
                                          const float *by, void *dlogits, enum cuda_dtype out,
                                          cudaStream_t stream)
{
    if (!c->rows || !c->n) return cudaSuccess;
#define AS(from, T, to, OUT)                                                                       \
    if (c->dtype == (from) && out == (to)) return grad_as<T, OUT>(c, scale, by, dlogits, stream)
    AS(CUDA_fp32, float, CUDA_fp32, float);
    AS(CUDA_fp64, double, CUDA_fp64, double);
    AS(CUDA_bf16, __nv_bfloat16, CUDA_bf16, __nv_bfloat16);
    AS(CUDA_fp16, __half, CUDA_fp16, __half);
    AS(CUDA_fp32, float, CUDA_bf16, __nv_bfloat16);
    AS(CUDA_fp32, float, CUDA_fp16, __half);
#undef AS
    return cudaErrorInvalidValue;
}
