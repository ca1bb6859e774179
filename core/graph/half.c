#include "core/graph/half.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* b without its lowest n bits, to nearest, ties to even. 0 < n < 32; b + half a unit does not overflow. */
static uint32_t rounded(uint32_t b, int n)
{
    uint32_t odd = b >> n & 1;
    return (b + (UINT32_C(1) << (n - 1)) - 1 + odd) >> n;
}

static uint16_t bf16_of(float x)
{
    uint32_t b = bits_of(x);
    if ((b & 0x7fffffff) > 0x7f800000) return (uint16_t)(b >> 16 | 0x40); /* NaN */
    return (uint16_t)rounded(b, 16);
}

/* Exponents: float's is biased by 127, binary16's by 15; below 2^-14 a value is a multiple of 2^-24. */
static uint16_t fp16_of(float x)
{
    uint32_t b = bits_of(x), sign = b >> 16 & 0x8000, size = b & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);  /* NaN */
    if (size >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 2^16 and more */
    if (size >=
        0x38800000) /* 2^-14: a carry out of the fraction raises the exponent, at last to infinity */
        return (uint16_t)(sign | rounded(size - (UINT32_C(112) << 23), 13));
    if (size < 0x33000000) return (uint16_t)sign; /* less than half of 2^-24 */
    int shift = 126 - (int)(size >> 23);          /* 14 to 24 */
    return (uint16_t)(sign | rounded((size & 0x7fffff) | 0x800000, shift));
}

static float fp16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float size = (float)fraction * 0x1p-24f;
    return sign ? -size : size;
}

uint16_t half_of(enum dtype t, float x) { return t == DTYPE_bf16 ? bf16_of(x) : fp16_of(x); }

float half_value(enum dtype t, uint16_t bits)
{
    return t == DTYPE_bf16 ? float_of((uint32_t)bits << 16) : fp16_value(bits);
}

void half_narrow(enum dtype t, const float *from, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = half_of(t, from[i]);
}

void half_widen(enum dtype t, const uint16_t *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = half_value(t, from[i]);
}

void half_add(enum dtype t, uint16_t *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = half_of(t, half_value(t, to[i]) + half_value(t, from[i]));
}
