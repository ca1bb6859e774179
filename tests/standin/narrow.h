/* tests/standin/narrow.h - bf16 and fp16 bits to and from fp32; to nearest, ties to even. C and C++. */
#ifndef TESTS_STANDIN_NARROW_H
#define TESTS_STANDIN_NARROW_H

#include <stdint.h>
#include <string.h>

static inline float narrow_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline uint32_t narrow_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float narrow_from_bf16(uint16_t v) { return narrow_float((uint32_t)v << 16); }

static inline uint16_t narrow_to_bf16(float v)
{
    uint32_t b = narrow_bits(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff; /* the GPU's result for any NaN */
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

static inline float narrow_from_fp16(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = v >> 10 & 0x1fu, rest = v & 0x3ffu;
    if (exponent == 0x1f) return narrow_float(sign | 0x7f800000u | rest << 13);
    if (exponent) return narrow_float(sign | (exponent + 112) << 23 | rest << 13);
    float small = (float)rest * 0x1p-24f; /* 0 and subnormals: exact */
    return sign ? -small : small;
}

static inline uint16_t narrow_to_fp16(float v)
{
    uint32_t b = narrow_bits(v), sign = b >> 16 & 0x8000u, size = b & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (size < 0x38800000u) {                  /* below 2^-14: multiples of 2^-24 */
        float sum = narrow_float(size) + 0.5f; /* its last bit is worth 2^-24 */
        return (uint16_t)(sign | (narrow_bits(sum) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
}

#endif
