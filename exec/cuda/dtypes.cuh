/* exec/cuda/dtypes.cuh - storage dtypes and their compute types.
 *
 * Sums and functions are computed in fp32 for fp32, bf16 and fp16, and in fp64 for fp64. A half-precision number is
 * widened when it is read and rounded once, to nearest, ties to even, when it is written. The same source serves nvcc
 * and the stand-in: the two half-precision types and their conversions come from headers of the same names.
 */
#ifndef EXEC_CUDA_DTYPES_CUH
#define EXEC_CUDA_DTYPES_CUH

#include "exec/cuda/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <class T> struct dtype_traits;

template <> struct dtype_traits<float> {
    using wide = float;
    static __host__ __device__ __forceinline__ wide get(float v) { return v; }
    static __host__ __device__ __forceinline__ float put(wide v) { return v; }
};

template <> struct dtype_traits<double> {
    using wide = double;
    static __host__ __device__ __forceinline__ wide get(double v) { return v; }
    static __host__ __device__ __forceinline__ double put(wide v) { return v; }
};

template <> struct dtype_traits<__nv_bfloat16> {
    using wide = float;
    static __host__ __device__ __forceinline__ wide get(__nv_bfloat16 v)
    {
        return __bfloat162float(v);
    }
    static __host__ __device__ __forceinline__ __nv_bfloat16 put(wide v)
    {
        return __float2bfloat16_rn(v);
    }
};

template <> struct dtype_traits<__half> {
    using wide = float;
    static __host__ __device__ __forceinline__ wide get(__half v) { return __half2float(v); }
    static __host__ __device__ __forceinline__ __half put(wide v) { return __float2half_rn(v); }
};

/* Runs the statements with T the type of `dtype_`, one compiled copy for each:
 *     CUDA_WITH_DTYPE(n, T, failed = LAUNCH((scale<T>), grid, block, 0, stream, (T *)p)) */
#define CUDA_WITH_DTYPE(dtype_, T, ...)                                                          \
    do {                                                                                           \
        switch (dtype_) {                                                                         \
        case CUDA_fp32: {                                                                          \
            using T = float;                                                                       \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        case CUDA_fp64: {                                                                          \
            using T = double;                                                                      \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        case CUDA_bf16: {                                                                          \
            using T = __nv_bfloat16;                                                               \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        case CUDA_fp16: {                                                                          \
            using T = __half;                                                                      \
            __VA_ARGS__;                                                                           \
        } break;                                                                                   \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

#endif
