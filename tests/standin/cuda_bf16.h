/* tests/standin/cuda_bf16.h - the subset of bfloat16 that kernels use. */
#ifndef TESTS_STANDIN_CUDA_BF16_H
#define TESTS_STANDIN_CUDA_BF16_H

#include "narrow.h"

struct alignas(2) __nv_bfloat16 {
    unsigned short x;
};
using __nv_bfloat16_raw = __nv_bfloat16;
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 v) { return narrow_from_bf16(v.x); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {narrow_to_bf16(v)}; }
inline __nv_bfloat16 __float2bfloat16(float v) { return {narrow_to_bf16(v)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return {v}; }

#endif
