/* tests/support/narrow.h - bf16 and fp16 in plain C, for those who compare what a device made of them.
 *
 * Rounding is to nearest, ties to even, straight from the double: through a float it would round twice. Overflow gives infinity,
 * small numbers keep fp16's subnormal steps; NaN stays NaN.
 */
#ifndef TESTS_SUPPORT_NARROW_H
#define TESTS_SUPPORT_NARROW_H

#include "core/graph/op.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* v to so many bits behind the leading one, the least exponent being `least`. */
static inline double narrow_round(double v, int bits, int least, double most)
{
    if (!isfinite(v) || v == 0) return v;
    int exponent;
    frexp(v, &exponent); /* v = f · 2^exponent, 1/2 <= f < 1 */
    int unit = exponent - 1 < least ? least - bits : exponent - 1 - bits;
    double rounded = ldexp(nearbyint(ldexp(v, -unit)), unit);
    return fabs(rounded) > most ? copysign(INFINITY, v) : rounded;
}

/* What is left of v where t holds it. */
static inline double narrow_value(enum dtype t, double v)
{
    if (t == DTYPE_bf16) return narrow_round(v, 7, -126, 3.3895313892515355e38);
    if (t == DTYPE_fp16) return narrow_round(v, 10, -14, 65504);
    return t == DTYPE_fp64 ? v : (double)(float)v;
}

/* v, which t holds exactly, as t's 16 bits: sign, exponent of so many bits, fraction. */
static inline uint16_t narrow_bits(double v, int bits, int exponent_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, exponent;
    uint16_t sign = (uint16_t)(signbit(v) ? 0x8000 : 0);
    uint16_t special = (uint16_t)(((1 << exponent_bits) - 1) << bits);
    if (isnan(v)) return (uint16_t)(sign | special | 1u << (bits - 1));
    if (isinf(v)) return (uint16_t)(sign | special);
    if (v == 0) return sign;
    frexp(v, &exponent);
    int place = exponent - 1 + bias;
    if (place < 1) return (uint16_t)(sign | (int)ldexp(fabs(v), bits + bias - 1));
    int fraction = (int)ldexp(fabs(v), bits - exponent + 1) - (1 << bits);
    return (uint16_t)(sign | place << bits | fraction);
}

static inline double narrow_get(enum dtype t, const void *p, int64_t i)
{
    uint16_t half;
    if (t == DTYPE_fp64) return ((const double *)p)[i];
    if (t == DTYPE_fp32) return (double)((const float *)p)[i];
    memcpy(&half, (const char *)p + 2 * i, sizeof half);
    int bits = t == DTYPE_bf16 ? 7 : 10, exponent_bits = 15 - bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int place = half >> bits & ((1 << exponent_bits) - 1), fraction = half & ((1 << bits) - 1);
    double v = place == (1 << exponent_bits) - 1
                   ? (fraction ? (double)NAN : (double)INFINITY)
                   : ldexp((place ? 1 << bits : 0) + fraction, (place ? place : 1) - bias - bits);
    return half & 0x8000 ? -v : v;
}

static inline void narrow_set(enum dtype t, void *p, int64_t i, double v)
{
    if (t == DTYPE_fp64) {
        ((double *)p)[i] = v;
    } else if (t == DTYPE_fp32) {
        ((float *)p)[i] = (float)v;
    } else {
        uint16_t half = t == DTYPE_bf16 ? narrow_bits(narrow_value(t, v), 7, 8)
                                        : narrow_bits(narrow_value(t, v), 10, 5);
        memcpy((char *)p + 2 * i, &half, sizeof half);
    }
}

#endif
