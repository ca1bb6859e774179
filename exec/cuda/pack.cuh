/* exec/cuda/pack.cuh - how kernels that memory bounds go over it; included by .cu files.
 *
 * A thread's unit is a pack: 16 bytes of consecutive elements, one load, so that a warp asks for 512 bytes in one line. Which
 * elements belong to which thread follows from shapes alone. Where an operand does not lie at a multiple of 16 bytes, or a row is
 * no whole number of packs, the same thread reads the same elements one by one: slower, and the same bytes come out.
 * Sums go from thread to warp to block in fixed trees.
 * How much must be in flight: an H200 moves 4.8 TB/s with some 700 ns between asking and getting, 25 KB on each of its 132
 * multiprocessors. 2,048 threads with one pack each have 32 KB; kernels that need more registers take two packs at once. A thread
 * goes on behind a load as far as the first instruction that uses what it brings, and widening is one: so what is asked for
 * together is kept as it lies (struct elements) and widened where it is worked on. Kernels are compiled for whole packs (WHOLE) beside
 * the general case, in one function: what reads elements one by one would stand between the loads, ten instructions to each of theirs.
 */
#ifndef EXEC_CUDA_PACK_CUH
#define EXEC_CUDA_PACK_CUH

#include "exec/cuda/dtypes.cuh"

#include <stdint.h>
#include <string.h>

enum { WARP = 32, BLOCK = 256, GRID_YZ_MAX = 65535 };

template <class T> struct pack {
    enum { N = 16 / sizeof(T) };
};
template <class T> using wide_of = typename dtype_traits<T>::wide;

/* Host code: are all addresses multiples of 16 bytes? NULL is. */
static inline bool lies_packed(const void *a, const void *b = nullptr, const void *c = nullptr,
                               const void *d = nullptr, const void *e = nullptr)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) & 15) == 0;
}
static inline int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* v = p[0 … N-1], 16-byte aligned */
template <class T, int N>
static __device__ __forceinline__ void read_packed(const T *p, wide_of<T> (&v)[N])
{
    enum { EACH = 16 / sizeof(T) };
    static_assert(N % EACH == 0, "whole packs");
#pragma unroll
    for (int k = 0; k < N / EACH; k++) {
        T e[EACH];
        uint4 raw = *reinterpret_cast<const uint4 *>(p + k * EACH);
        memcpy(e, &raw, sizeof raw);
#pragma unroll
        for (int j = 0; j < EACH; j++) v[k * EACH + j] = dtype_traits<T>::get(e[j]);
    }
}

template <class T, int N>
static __device__ __forceinline__ void write_packed(T *p, const wide_of<T> (&v)[N])
{
    enum { EACH = 16 / sizeof(T) };
    static_assert(N % EACH == 0, "whole packs");
#pragma unroll
    for (int k = 0; k < N / EACH; k++) {
        T e[EACH];
        uint4 raw;
#pragma unroll
        for (int j = 0; j < EACH; j++) e[j] = dtype_traits<T>::put(v[k * EACH + j]);
        memcpy(&raw, e, sizeof raw);
        *reinterpret_cast<uint4 *>(p + k * EACH) = raw;
    }
}

/* N elements of T as stored, in whole packs: half the registers of their fp32 form for bf16 and fp16. */
template <class T, int N> struct elements {
    enum { EACH = 16 / sizeof(T), PACKS = N / EACH };
    static_assert(N % EACH == 0, "whole packs");
    uint4 raw[PACKS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int k = 0; k < PACKS; k++) raw[k] = make_uint4(0, 0, 0, 0);
    }
    /* Loads p[i … i+N-1] of n; elements from n on are 0. p may be NULL if n is 0. WHOLE: all are packed and present. */
    template <bool WHOLE = false>
    __device__ __forceinline__ void load(const T *p, int64_t i, int64_t n, bool packed)
    {
        if (WHOLE || (packed && i + N <= n)) {
#pragma unroll
            for (int k = 0; k < PACKS; k++) raw[k] = *reinterpret_cast<const uint4 *>(p + i + k * EACH);
        } else {
            clear();
            if (i < n) load_each(p, i, n);
        }
    }
    __device__ __forceinline__ void load_each(const T *p, int64_t i, int64_t n)
    {
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            T e[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++)
                e[j] = i + k * EACH + j < n ? p[i + k * EACH + j] : dtype_traits<T>::put(0);
            memcpy(&raw[k], e, sizeof e);
        }
    }
    /* Later calls of get convert again; otherwise a compiler keeps the converted values, in twice the registers. */
    __device__ __forceinline__ void forget()
    {
#ifndef STANDIN
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int k = 0; k < PACKS; k++)
                asm volatile("" : "+r"(raw[k].x), "+r"(raw[k].y), "+r"(raw[k].z), "+r"(raw[k].w));
        }
#endif
    }
    __device__ __forceinline__ void get(wide_of<T> (&v)[N]) const
    {
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            T e[EACH];
            memcpy(e, &raw[k], sizeof e);
#pragma unroll
            for (int j = 0; j < EACH; j++) v[k * EACH + j] = dtype_traits<T>::get(e[j]);
        }
    }
};

/* Loads and converts at once. */
template <class T, int N, bool WHOLE = false>
static __device__ __forceinline__ void read(const T *p, int64_t i, int64_t n, bool packed,
                                            wide_of<T> (&v)[N])
{
    elements<T, N> e;
    e.template load<WHOLE>(p, i, n, packed);
    e.get(v);
}

/* p[i … i+N-1] = v, up to n; WHOLE: all are packed and present. */
template <class T, int N, bool WHOLE = false>
static __device__ __forceinline__ void write(T *p, int64_t i, int64_t n, bool packed,
                                             const wide_of<T> (&v)[N])
{
    if (WHOLE || (packed && i + N <= n)) {
        write_packed<T, N>(p + i, v);
    } else if constexpr (!WHOLE) {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (i + j < n) p[i + j] = dtype_traits<T>::put(v[j]);
    }
}

/* An operand that may be fp32 beside half-precision ones: weights, statistics. */
struct either {
    const void *p;
    bool wide;
};

template <class T> static __device__ __forceinline__ wide_of<T> read_either(either p, int64_t i)
{
    return p.wide ? static_cast<const wide_of<T> *>(p.p)[i]
                  : dtype_traits<T>::get(static_cast<const T *>(p.p)[i]);
}

template <class T, int N, bool WHOLE = false>
static __device__ __forceinline__ void read_either(either p, int64_t i, int64_t n, bool packed,
                                                   wide_of<T> (&v)[N])
{
    if (p.wide)
        read<wide_of<T>, N, WHOLE>(static_cast<const wide_of<T> *>(p.p), i, n, packed, v);
    else
        read<T, N, WHOLE>(static_cast<const T *>(p.p), i, n, packed, v);
}

/* p[i] = or += v; p is of T or fp32. */
template <class T>
static __device__ __forceinline__ void put_either(void *p, bool wide, int64_t i, wide_of<T> v,
                                                  bool add)
{
    if (wide) {
        wide_of<T> *to = static_cast<wide_of<T> *>(p) + i;
        *to = add ? *to + v : v;
    } else {
        T *to = static_cast<T *>(p) + i;
        *to = dtype_traits<T>::put(add ? dtype_traits<T>::get(*to) + v : v);
    }
}

/* The same for elements i … i+N-1 of n. */
template <class T, int N>
static __device__ __forceinline__ void put_either(void *p, bool wide, int64_t i, int64_t n,
                                                  bool packed, const wide_of<T> (&v)[N], bool add)
{
    wide_of<T> sum[N];
    either to = {p, wide};
    if (add) read_either<T, N>(to, i, n, packed, sum);
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] = add ? sum[j] + v[j] : v[j];
    if (wide)
        write<wide_of<T>, N>(static_cast<wide_of<T> *>(p), i, n, packed, sum);
    else
        write<T, N>(static_cast<T *>(p), i, n, packed, sum);
}

/* --- sums --- */

/* Over `width` neighbouring lanes, a power of two up to a warp; all lanes of the warp must call, all get the sum. */
template <class W> static __device__ __forceinline__ W sum_lanes(W v, int width)
{
    for (int by = width / 2; by; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    return v;
}

/* Over a block of whole warps; all threads call and get the sum. `room` (WARP) is shared memory, free on return. */
template <class W> static __device__ __forceinline__ W sum_block(W v, W *room)
{
    int warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    v = sum_lanes(v, WARP);
    if (lane == 0) room[threadIdx.x / WARP] = v;
    __syncthreads();
    W all = 0;
    for (int i = 0; i < warps; i++) all += room[i];
    __syncthreads();
    return all;
}

/* Over a row's threads: `width` lanes, or the block. */
template <bool BLOCKWIDE, class W>
static __device__ __forceinline__ W sum_row(W v, int width, W *room)
{
    return BLOCKWIDE ? sum_block(v, room) : sum_lanes(v, width);
}

/* --- division by a number equal for all threads: a multiplication and a shift --- */

struct divider { /* d > 0; numerators below 2^31 (Granlund and Montgomery 1994) */
    uint32_t d, factor, shift;
};

static inline divider divider_of(int64_t d)
{
    divider v = {(uint32_t)d, 0, 0};
    while (v.shift < 32 && ((uint64_t)1 << v.shift) < v.d) v.shift++;
    v.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << v.shift) - v.d)) / v.d + 1);
    return v;
}

static __device__ __forceinline__ uint32_t operator/(uint32_t n, const divider &v)
{
    return (__umulhi(n, v.factor) + n) >> v.shift;
}

/* --- block shapes for rows of packs --- */

/* x: packs of a row, y: rows; minimises idle threads in whole warps. */
static inline dim3 block_for_row(int64_t packs)
{
    unsigned x = 1;
    while (x < packs && x < WARP) x *= 2;
    if (packs > WARP) x = (unsigned)least(BLOCK, over(packs, WARP) * WARP);
    return dim3(x, BLOCK / x);
}

#endif
