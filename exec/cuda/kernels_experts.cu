/* exec/cuda/kernels_experts.cu - gating, and dispatch and combine of expert rows.
 *
 * Routes: a block has 32 experts of a sequence, one per lane, and each of its 32 warps has a run of positions: the
 * warps count, the counts before a warp are summed, and it numbers its own positions. A warp reads 32 adjacent gates
 * of a position at a time; there is one barrier, and the order of positions is kept by construction. Cost: two passes
 * over gates, which are d times smaller than rows. Rows are copied and summed by packs of 16 bytes, one per thread; a
 * pack looks up its row once in int32 tables that stay in cache. Bandwidth-bound: rows are read and written once.
 */
#include "exec/cuda/kernels_experts.h"

#include "exec/cuda/launch.h"

#include "exec/cuda/functions.cuh"
#include "exec/cuda/pack.cuh"

#include <math.h>

static constexpr unsigned ALL_LANES = 0xffffffffu;

/* --- gates: a warp has a row --- */

/* Of two candidates the larger, of equal ones that of lower number. */
template <class W>
static __device__ __forceinline__ void better_of_lanes(W &v, int64_t &at)
{
#pragma unroll
    for (int by = WARP / 2; by; by /= 2) {
        W other = __shfl_xor_sync(ALL_LANES, v, by);
        int64_t other_at = __shfl_xor_sync(ALL_LANES, at, by);
        if (other > v || (other == v && other_at < at)) v = other, at = other_at;
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    gating(either logits, void *gates, bool wide_gates, int64_t rows, int64_t n, int32_t chosen,
           bool renormalise)
{
    using W = wide_of<T>;
    int lane = threadIdx.x % WARP;
    int64_t row = blockIdx.x * (int64_t)(BLOCK / WARP) + threadIdx.x / WARP;
    if (row >= rows) return; /* whole warps */
    /* the last chosen so far: all that stand before it in the order are chosen */
    W last = INFINITY, largest = 0, sum = 0;
    int64_t last_at = -1;
    for (int32_t k = 0; k < chosen; k++) {
        W best = -INFINITY;
        int64_t at = INT64_MAX;
        for (int64_t i = lane; i < n; i += WARP) {
            W v = read_either<T>(logits, row * n + i);
            bool behind = v < last || (v == last && i > last_at);
            if (behind && (v > best || at == INT64_MAX)) best = v, at = i;
        }
        better_of_lanes(best, at);
        last = best, last_at = at;
        if (k == 0) largest = best;
    }
    for (int64_t i = lane; i < n; i += WARP) {
        W v = read_either<T>(logits, row * n + i);
        bool kept = v > last || (v == last && i <= last_at);
        if (kept || !renormalise) sum += functions<T>::exp(v - largest);
    }
    sum = sum_lanes(sum, WARP);
    for (int64_t i = lane; i < n; i += WARP) {
        W v = read_either<T>(logits, row * n + i);
        bool kept = v > last || (v == last && i <= last_at);
        put_either<T>(gates, wide_gates, row * n + i,
                      kept ? functions<T>::exp(v - largest) / sum : W(0), false);
    }
}

/* How many positions of a sequence chose each expert. */
template <class T>
static __global__ void __launch_bounds__(1024)
    count_chosen(either gates, int64_t positions, int64_t experts, int32_t *shares)
{
    __shared__ int32_t count[WARP][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t e = blockIdx.x * (int64_t)WARP + lane, at = blockIdx.y * positions * experts + e;
    int32_t n = 0;
    for (int64_t t = warp; t < positions && e < experts; t += WARP)
        n += read_either<T>(gates, at + t * experts) != 0;
    count[warp][lane] = n;
    __syncthreads();
    if (warp || e >= experts) return;
    for (int w = 1; w < WARP; w++) n += count[w][lane];
    shares[blockIdx.y * experts + e] = n;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK) gating_grad(gating_grad_call c)
{
    using W = wide_of<T>;
    int lane = threadIdx.x % WARP;
    int64_t row = blockIdx.x * (int64_t)(BLOCK / WARP) + threadIdx.x / WARP, n = c.experts;
    if (row >= c.b * c.positions) return;
    either logits = {c.logits, c.wide_logits}, gates = {c.gates, c.wide_gates},
           dgates = {c.dgates, c.wide_dgates};
    const int32_t *share = c.scale != 0 ? c.shares + row / c.positions * n : nullptr;
    int64_t at = row * n;
    W largest = -INFINITY, sum = 0, mean = 0, balance = 0;
    for (int64_t i = lane; i < n; i += WARP) {
        W v = read_either<T>(logits, at + i);
        largest = v > largest ? v : largest;
    }
    int64_t unused = 0;
    better_of_lanes(largest, unused);
    for (int64_t i = lane; i < n; i += WARP) {
        W p = functions<T>::exp(read_either<T>(logits, at + i) - largest),
          g = read_either<T>(gates, at + i);
        sum += p;
        if (g != 0) mean += g * read_either<T>(dgates, at + i);
        if (share) balance += p * (W)share[i];
    }
    sum = sum_lanes(sum, WARP), mean = sum_lanes(mean, WARP), balance = sum_lanes(balance, WARP);
    W scale = (W)(c.by ? c.scale * (double)*c.by : c.scale);
    W each = share ? scale * (W)n / ((W)c.positions * (W)c.positions * sum) : W(0);
    for (int64_t i = lane; i < n; i += WARP) {
        W p = functions<T>::exp(read_either<T>(logits, at + i) - largest),
          g = read_either<T>(gates, at + i);
        W dg = g != 0 ? read_either<T>(dgates, at + i) : W(0);
        W v = (c.renormalise ? g : p / sum) * (dg - mean);
        if (share) v += each * p * ((W)share[i] - balance / sum);
        put_either<T>(c.out, c.wide_out, at + i, v, false);
    }
}

/* --- routes --- */

template <class T> static __global__ void __launch_bounds__(1024) route(expert_routes r)
{
    __shared__ int32_t count[WARP][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, e = blockIdx.x * WARP + lane;
    int64_t sequence = blockIdx.y;
    bool there = e < r.experts;
    either gates = {r.gates, r.wide_gates};
    int each = (r.positions + WARP - 1) / WARP, begin = min(warp * each, r.positions),
        end = min(begin + each, r.positions);
    int64_t at = sequence * r.positions * r.experts + e;
    int32_t n = 0, before = 0, all = 0;
#pragma unroll 4
    for (int t = begin; t < end; t++)
        if (there) n += read_either<T>(gates, at + (int64_t)t * r.experts) != 0;
    count[warp][lane] = n;
    __syncthreads();
    for (int w = 0; w < WARP; w++) {
        if (w < warp) before += count[w][lane];
        all += count[w][lane];
    }
    int64_t slots = (sequence * r.experts + e) * r.capacity;
    if (there && warp == 0)
        r.filled[sequence * r.experts + e] = max(0, min(all - r.first, r.capacity));
    if (!there || !r.slot) return;
#pragma unroll 4
    for (int t = begin; t < end; t++) {
        int slot = -1;
        if (read_either<T>(gates, at + (int64_t)t * r.experts) != 0) {
            slot = before++ - r.first;
            if (slot < 0 || slot >= r.capacity) slot = -1;
        }
        r.slot[at + (int64_t)t * r.experts] = slot;
        if (slot >= 0) r.token[slots + slot] = t;
    }
}

/* --- rows: threads (x packs beside one another, y rows) --- */

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    dispatch(expert_routes r, const T *x, T *out, int64_t d, bool weighted, bool packed)
{
    using W = wide_of<T>;
    constexpr int N = pack<T>::N;
    int64_t all = r.b * r.experts * r.capacity;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y; row < all;
         row += gridDim.x * (int64_t)blockDim.y) {
        int64_t expert = row / r.capacity, sequence = expert / r.experts;
        bool filled = row - expert * r.capacity < r.filled[expert];
        int t = filled ? r.token[row] : -1;
        bool here = t >= r.row && t < r.row + r.rows;
        either gates = {r.gates, r.wide_gates};
        W gate = here && weighted
                     ? read_either<T>(gates, (sequence * r.positions + t) * r.experts +
                                                 expert % r.experts)
                     : W(1);
        const T *from = here ? x + (sequence * r.rows + t - r.row) * d : x;
        for (int64_t i = threadIdx.x * (int64_t)N; i < d; i += blockDim.x * (int64_t)N) {
            W v[N] = {};
            if (here) read<T, N>(from, i, d, packed, v);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] *= gate;
            write<T, N>(out + row * d, i, d, packed, v);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    combine(expert_routes r, const T *in, T *y, int64_t d, bool weighted, bool packed)
{
    using W = wide_of<T>;
    constexpr int N = pack<T>::N;
    either gates = {r.gates, r.wide_gates};
    int64_t all = r.b * r.rows;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y; row < all;
         row += gridDim.x * (int64_t)blockDim.y) {
        int64_t sequence = row / r.rows,
                at = (sequence * r.positions + r.row + row % r.rows) * r.experts;
        for (int64_t i = threadIdx.x * (int64_t)N; i < d; i += blockDim.x * (int64_t)N) {
            W sum[N] = {};
            for (int e = 0; e < r.experts; e++) {
                int slot = r.slot[at + e];
                if (slot < 0) continue;
                W v[N], gate = weighted ? read_either<T>(gates, at + e) : W(1);
                read<T, N>(in + ((sequence * r.experts + e) * r.capacity + slot) * d, i, d, packed, v);
#pragma unroll
                for (int j = 0; j < N; j++) sum[j] += gate * v[j];
            }
            write<T, N>(y + row * d, i, d, packed, sum);
        }
    }
}

/* A warp has a position and goes over its experts. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    gates_grad(expert_routes r, const T *in, const T *dy, void *out, bool wide_out, int64_t d,
               bool packed)
{
    using W = wide_of<T>;
    constexpr int N = pack<T>::N;
    int lane = threadIdx.x % WARP;
    int64_t row = blockIdx.x * (int64_t)(BLOCK / WARP) + threadIdx.x / WARP;
    if (row >= r.b * r.positions) return;
    int64_t sequence = row / r.positions, t = row % r.positions - r.row;
    bool here = t >= 0 && t < r.rows;
    const T *gradient = here ? dy + (sequence * r.rows + t) * d : dy;
    for (int e = 0; e < r.experts; e++) {
        int slot = r.slot[row * r.experts + e];
        W sum = 0;
        if (here && slot >= 0) {
            const T *from = in + ((sequence * r.experts + e) * r.capacity + slot) * d;
            for (int64_t i = lane * N; i < d; i += WARP * N) {
                W a[N], b[N];
                elements<T, N> in_a, in_b;
                in_a.load(from, i, d, packed);
                in_b.load(gradient, i, d, packed);
                in_a.get(a);
                in_b.get(b);
#pragma unroll
                for (int j = 0; j < N; j++) sum += a[j] * b[j];
            }
        }
        sum = sum_lanes(sum, WARP);
        if (lane == 0) put_either<T>(out, wide_out, row * r.experts + e, sum, false);
    }
}

/* --- launchers --- */

extern "C" cudaError_t cuda_expert_gating(enum cuda_dtype dtype, const void *logits, bool wide_logits,
                                     void *gates, bool wide_gates, int64_t rows, int64_t n,
                                     int32_t chosen, bool renormalise, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!rows || !n) return e;
    either from = {logits, wide_logits};
    CUDA_WITH_DTYPE(dtype, T,
                     e = LAUNCH((gating<T>), dim3(over(rows, BLOCK / WARP)), dim3(BLOCK), 0, stream,
                                from, gates, wide_gates, rows, n, chosen, renormalise));
    return e;
}

extern "C" cudaError_t cuda_expert_gating_grad(const struct gating_grad_call *c, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    int64_t rows = c->b * c->positions;
    if (!rows || !c->experts) return e;
    either gates = {c->gates, c->wide_gates};
    if (c->scale != 0)
        CUDA_WITH_DTYPE(c->dtype, T,
                         e = LAUNCH((count_chosen<T>), dim3(over(c->experts, WARP), c->b),
                                    dim3(WARP * WARP), 0, stream, gates, c->positions, c->experts,
                                    c->shares));
    if (e != cudaSuccess) return e;
    CUDA_WITH_DTYPE(c->dtype, T,
                     e = LAUNCH((gating_grad<T>), dim3(over(rows, BLOCK / WARP)), dim3(BLOCK), 0,
                                stream, *c));
    return e;
}

extern "C" cudaError_t cuda_expert_route(const struct expert_routes *r, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!r->b || !r->experts) return e;
    CUDA_WITH_DTYPE(r->dtype, T,
                     e = LAUNCH((route<T>), dim3(over(r->experts, WARP), r->b), dim3(WARP * WARP), 0,
                                stream, *r));
    return e;
}

enum { ROW_BLOCKS_MAX = 1 << 20 };

/* Blocks for `rows` rows of d elements, and whether they can be read by packs. */
template <class T>
static dim3 grid_of_rows(int64_t rows, int64_t d, dim3 *block)
{
    *block = block_for_row(over(d, pack<T>::N));
    return dim3(least(over(rows, block->y), ROW_BLOCKS_MAX));
}
template <class T> static bool rows_packed(const void *a, const void *b, int64_t d)
{
    return lies_packed(a, b) && d % pack<T>::N == 0;
}

extern "C" cudaError_t cuda_expert_dispatch(const struct expert_routes *r, const void *x, void *out,
                                       int64_t d, bool weighted, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    int64_t rows = r->b * r->experts * r->capacity;
    dim3 block;
    if (!rows || !d) return e;
    CUDA_WITH_DTYPE(r->dtype, T, dim3 grid = grid_of_rows<T>(rows, d, &block);
                     e = LAUNCH((dispatch<T>), grid, block, 0, stream, *r,
                                static_cast<const T *>(x), static_cast<T *>(out), d, weighted,
                                rows_packed<T>(x, out, d)));
    return e;
}

extern "C" cudaError_t cuda_expert_combine(const struct expert_routes *r, const void *in, void *y,
                                      int64_t d, bool weighted, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    int64_t rows = r->b * r->rows;
    dim3 block;
    if (!rows || !d) return e;
    CUDA_WITH_DTYPE(r->dtype, T, dim3 grid = grid_of_rows<T>(rows, d, &block);
                     e = LAUNCH((combine<T>), grid, block, 0, stream, *r,
                                static_cast<const T *>(in), static_cast<T *>(y), d, weighted,
                                rows_packed<T>(in, y, d)));
    return e;
}

extern "C" cudaError_t cuda_expert_gates_grad(const struct expert_routes *r, const void *in,
                                         const void *dy, void *out, bool wide_out, int64_t d,
                                         cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    int64_t rows = r->b * r->positions;
    if (!rows || !r->experts) return e;
    CUDA_WITH_DTYPE(r->dtype, T,
                     e = LAUNCH((gates_grad<T>), dim3(over(rows, BLOCK / WARP)), dim3(BLOCK), 0,
                                stream, *r, static_cast<const T *>(in),
                                static_cast<const T *>(dy), out, wide_out, d,
                                rows_packed<T>(in, dy, d)));
    return e;
}
