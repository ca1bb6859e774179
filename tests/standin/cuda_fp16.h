/* tests/standin/cuda_fp16.h - the subset of half precision that kernels use. */
#ifndef TESTS_STANDIN_CUDA_FP16_H
#define TESTS_STANDIN_CUDA_FP16_H

#include "narrow.h"

struct alignas(2) __half {
    unsigned short x;
};
struct alignas(4) __half2 {
    __half x, y;
};

inline float __half2float(__half v) { return narrow_from_fp16(v.x); }
inline __half __float2half_rn(float v) { return {narrow_to_fp16(v)}; }
inline __half __float2half(float v) { return {narrow_to_fp16(v)}; }
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}
inline unsigned short __half_as_ushort(__half v) { return v.x; }
inline __half __ushort_as_half(unsigned short v) { return {v}; }

#endif
