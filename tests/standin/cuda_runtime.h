/* tests/standin/cuda_runtime.h - CUDA C++ for kernels, executed by emulator.c.
 *
 * Included by .cu files through exec/cuda/launch.h. Float atomics are missing on purpose, because sums must have a
 * fixed order.
 */
#ifndef TESTS_STANDIN_CUDA_RUNTIME_H
#define TESTS_STANDIN_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include "emulator.h"
#include "standin_launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* One per OS thread, which runs one block at a time; `used`, so that the symbol exists and can be poisoned. */
#define __shared__ static __thread __attribute__((used))

#define threadIdx (standin_now.thread)
#define blockIdx (standin_now.block)
#define blockDim (standin_now.block_dim)
#define gridDim (standin_now.grid_dim)
constexpr int warpSize = STANDIN_WARP;

/* --- vectors --- */

#define STANDIN_VECTOR(name, element, bytes2, bytes4)                                              \
    struct alignas(bytes2) name##2 { element x, y; };                                              \
    struct alignas(bytes4) name##4 { element x, y, z, w; };                                        \
    inline name##2 make_##name##2(element x, element y) { return {x, y}; }                         \
    inline name##4 make_##name##4(element x, element y, element z, element w)                      \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
STANDIN_VECTOR(float, float, 8, 16)
STANDIN_VECTOR(int, int, 8, 16)
STANDIN_VECTOR(uint, unsigned, 8, 16)
STANDIN_VECTOR(short, short, 4, 8)
STANDIN_VECTOR(ushort, unsigned short, 4, 8)
STANDIN_VECTOR(char, signed char, 2, 4)
STANDIN_VECTOR(uchar, unsigned char, 2, 4)
#undef STANDIN_VECTOR
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
struct float3 {
    float x, y, z;
};
struct int3 {
    int x, y, z;
};
inline double2 make_double2(double x, double y) { return {x, y}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }

/* --- barriers and warps --- */

inline void __syncthreads(int line = __builtin_LINE()) { standin_barrier(line); }
inline int __syncthreads_count(int p, int line = __builtin_LINE())
{
    return standin_barrier_count(p, line);
}
inline int __syncthreads_or(int p, int line = __builtin_LINE())
{
    return standin_barrier_count(p, line) != 0;
}
inline int __syncthreads_and(int p, int line = __builtin_LINE())
{
    return standin_barrier_count(!p, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    standin_warp("__syncwarp", mask, nullptr, nullptr, line);
}
/* The thread sanitizer does not model fences, and gcc rejects them there: an exchange of the thread's own word is a
 * fence for the processor, and orders no two threads for the sanitizer, so it hides no race. */
inline void standin_fence()
{
#ifdef __SANITIZE_THREAD__
    static thread_local int own;
    __atomic_exchange_n(&own, 0, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
inline void __threadfence() { standin_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { standin_fence(); }
inline void __trap() { standin_trap(); }

template <class T> struct standin_shuffled {
    T value;
    int source; /* lane of the warp; negative or past the segment: the lane's own value */
    T result;

    static void exchange(void **deposits, unsigned mask)
    {
        for (int i = 0; i < STANDIN_WARP; i++) {
            if (!deposits[i]) continue;
            auto *d = static_cast<standin_shuffled *>(deposits[i]);
            if (!(mask >> d->source & 1))
                standin_bug("a shuffle of lane %d reads lane %d, which is not in mask %08x", i,
                            d->source, mask);
            d->result = static_cast<standin_shuffled *>(deposits[d->source])->value;
        }
    }

    static T from(const char *operation, unsigned mask, T value, int source, int line)
    {
        standin_shuffled d = {value, source, value};
        standin_warp(operation, mask, exchange, &d, line);
        return d.result;
    }
};

inline int standin_lane()
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
                 STANDIN_WARP);
}

template <class T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = STANDIN_WARP,
                     int line = __builtin_LINE())
{
    int first = standin_lane() / width * width;
    return standin_shuffled<T>::from("__shfl_sync", mask, v, first + (source & (width - 1)), line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = STANDIN_WARP,
                         int line = __builtin_LINE())
{
    int lane = standin_lane(), to = lane ^ bits;
    /* CUDA lets a lane read segments before its own, never one after it. */
    if (to >= lane / width * width + width) to = lane;
    return standin_shuffled<T>::from("__shfl_xor_sync", mask, v, to, line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = STANDIN_WARP,
                          int line = __builtin_LINE())
{
    int lane = standin_lane(), to = lane + (int)by;
    if (to >= lane / width * width + width) to = lane;
    return standin_shuffled<T>::from("__shfl_down_sync", mask, v, to, line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = STANDIN_WARP,
                        int line = __builtin_LINE())
{
    int lane = standin_lane(), to = lane - (int)by;
    if (to < lane / width * width) to = lane;
    return standin_shuffled<T>::from("__shfl_up_sync", mask, v, to, line);
}

struct standin_vote {
    int predicate;
    unsigned result;

    static void exchange(void **deposits, unsigned)
    {
        unsigned votes = 0;
        for (int i = 0; i < STANDIN_WARP; i++)
            if (deposits[i] && static_cast<standin_vote *>(deposits[i])->predicate)
                votes |= 1u << i;
        for (int i = 0; i < STANDIN_WARP; i++)
            if (deposits[i]) static_cast<standin_vote *>(deposits[i])->result = votes;
    }
};

inline unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    standin_vote d = {p, 0};
    standin_warp("__ballot_sync", mask, standin_vote::exchange, &d, line);
    return d.result;
}
inline int __any_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, p, line) != 0;
}
inline int __all_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, p, line) == mask;
}

/* --- memory --- */

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldlu(const T *p) { return *p; }
template <class T, class V> inline void __stcs(T *p, V v) { *p = v; }
template <class T, class V> inline void __stcg(T *p, V v) { *p = v; }
template <class T, class V> inline void __stwb(T *p, V v) { *p = v; }
template <class T, class V> inline void __stwt(T *p, V v) { *p = v; }

#define STANDIN_ATOMIC(name, builtin)                                                              \
    template <class T> inline T name(T *p, std::enable_if_t<std::is_integral_v<T>, T> v)           \
    {                                                                                              \
        return builtin(p, v, __ATOMIC_RELAXED);                                                    \
    }
STANDIN_ATOMIC(atomicAdd, __atomic_fetch_add)
STANDIN_ATOMIC(atomicSub, __atomic_fetch_sub)
STANDIN_ATOMIC(atomicOr, __atomic_fetch_or)
STANDIN_ATOMIC(atomicAnd, __atomic_fetch_and)
STANDIN_ATOMIC(atomicXor, __atomic_fetch_xor)
STANDIN_ATOMIC(atomicExch, __atomic_exchange_n)
#undef STANDIN_ATOMIC
template <class T>
inline T atomicCAS(T *p, std::enable_if_t<std::is_integral_v<T>, T> expected, T v)
{
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T> inline T atomicMin(T *p, std::enable_if_t<std::is_integral_v<T>, T> v)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old &&
           !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T> inline T atomicMax(T *p, std::enable_if_t<std::is_integral_v<T>, T> v)
{
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v &&
           !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

/* --- numbers --- */

#define STANDIN_MIN_MAX(T)                                                                         \
    inline T min(T a, T b) { return b < a ? b : a; }                                               \
    inline T max(T a, T b) { return a < b ? b : a; }
STANDIN_MIN_MAX(int)
STANDIN_MIN_MAX(unsigned)
STANDIN_MIN_MAX(long)
STANDIN_MIN_MAX(unsigned long)
STANDIN_MIN_MAX(long long)
STANDIN_MIN_MAX(unsigned long long)
#undef STANDIN_MIN_MAX
/* If one operand is NaN the result is the other, like fmin and fmax. */
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline double rsqrt(double v) { return 1.0 / sqrt(v); }
inline float rsqrt(float v) { return rsqrtf(v); }
inline float __expf(float v) { return expf(v); }
inline float __exp2f(float v) { return exp2f(v); }
inline float __logf(float v) { return logf(v); }
inline float __log2f(float v) { return log2f(v); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __sinf(float v) { return sinf(v); }
inline float __cosf(float v) { return cosf(v); }
inline float __tanhf(float v) { return tanhf(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float v) { return 1.0f / v; }
inline float __frsqrt_rn(float v) { return 1.0f / sqrtf(v); }
inline float __fsqrt_rn(float v) { return sqrtf(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1.0f) : 0.0f; }

template <class To, class From> inline To standin_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To out;
    memcpy(&out, &v, sizeof out);
    return out;
}
inline int __float_as_int(float v) { return standin_bits<int>(v); }
inline unsigned __float_as_uint(float v) { return standin_bits<unsigned>(v); }
inline float __int_as_float(int v) { return standin_bits<float>(v); }
inline float __uint_as_float(unsigned v) { return standin_bits<float>(v); }
inline long long __double_as_longlong(double v) { return standin_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return standin_bits<double>(v); }
inline int __float2int_rn(float v) { return (int)rintf(v); }
inline int __float2int_rz(float v) { return (int)v; }
inline float __int2float_rn(int v) { return (float)v; }
inline float __uint2float_rn(unsigned v) { return (float)v; }
inline float __double2float_rn(double v) { return (float)v; }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}

/* --- launching --- */

template <class... P> struct standin_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    /* From malloc, because the C++ library is not linked. */
    static void *operator new(size_t bytes) { return malloc(bytes); }
    static void operator delete(void *p) { free(p); }
    static void body(void *p)
    {
        auto *c = static_cast<standin_call *>(p);
        std::apply(c->kernel, c->arguments);
    }
    static void drop(void *p) { delete static_cast<standin_call *>(p); }
    static standin_call *make(void (*kernel)(P...), P... a)
    {
        return new standin_call{kernel, std::tuple<P...>(a...)};
    }
};

template <class... P, class... A>
inline cudaError_t standin_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                                  size_t shared_bytes, cudaStream_t stream, A... a)
{
    standin_kernel k = {name,
                        reinterpret_cast<const void *>(kernel),
                        standin_call<P...>::body,
                        standin_call<P...>::make(kernel, a...),
                        {grid.x, grid.y, grid.z},
                        {block.x, block.y, block.z},
                        shared_bytes};
    return standin_launch_kernel(&k, standin_call<P...>::drop, stream);
}

template <class... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute,
                                        int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

#endif

#endif
