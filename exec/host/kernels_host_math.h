/* exec/host/kernels_host_math.h - elementary functions that compilers can vectorise.
 *
 * libm functions are calls for one element each: a gelu would take longer than the matrix product before it. For fp32
 * these are short polynomials without branches: e^x to 2 ulp, Phi to 6e-7 relative above -4 and 2e-6 at -9, where it
 * is 1e-19. fp64, the reference in tests and equivalence runs, uses libm. NaN inputs give NaN outputs, because a
 * diverged loss must be visible.
 */
#ifndef EXEC_HOST_KERNELS_HOST_MATH_H
#define EXEC_HOST_KERNELS_HOST_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define HOST_INLINE static inline __attribute__((always_inline, unused))

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; Taylor to r^7 (next term < 6e-9).
 * Adding 1.5·2^23 rounds to an integer and leaves it in the low bits. ln 2 is in two parts, the
 * first short enough that n times it is exact. Results below 2^-126 are 0. */
HOST_INLINE float host_exp_fp32(float x)
{
    const float round = 12582912.0f, log2_e = 1.44269504f;
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    x = x < -87.6f ? -87.6f : x; /* n = -126 */
    x = x > 89.0f ? 89.0f : x;   /* n = 128, overflows to infinity below */
    float shifted = x * log2_e + round;
    float n = shifted - round;
    float r = x - n * ln2_high - n * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 126) << 23; /* 2^(n-1): the upper bits of the shift fall out on the left */
    float half_scale;
    memcpy(&half_scale, &bits, sizeof half_scale);
    return (p + p) * half_scale;
}

HOST_INLINE double host_exp_fp64(double x) { return exp(x); }

/* Phi(x) = erfc(-x/√2)/2 of the normal distribution and e^(-x²/2), which gelu and its derivative
 * share. With a = |x|/√2 and t = 1/(1 + a/2), erfc(a) = e^(-a²) t Q(t); Q interpolates
 * erfc(a) e^(a²) / t in Chebyshev's nodes of 0 <= a <= 9.4, where e^(-a²) ends in fp32 (relative
 * error < 6e-8). Nothing is subtracted in the lower tail; its error is that of rounding x². */
HOST_INLINE float host_normal_fp32(float x, float *density)
{
    float a = fabsf(x) * 0.707106781f, t = 1.0f / (1.0f + 0.5f * a);
    float e = host_exp_fp32(-0.5f * x * x);
    float q = -0.0592518614f;
    q = q * t + 0.285567482f;
    q = q * t - 0.489442964f;
    q = q * t + 0.280815457f;
    q = q * t - 0.0286130136f;
    q = q * t + 0.203550254f;
    q = q * t + 0.242885177f;
    q = q * t + 0.282404593f;
    q = q * t + 0.282084837f;
    float tail = 0.5f * e * t * q;
    *density = e;
    return x < 0 ? tail : 1.0f - tail;
}

HOST_INLINE double host_normal_fp64(double x, double *density)
{
    *density = exp(-0.5 * x * x);
    return 0.5 * erfc(x * -0.70710678118654752440);
}

/* Square roots in place. sqrt() sets errno, which keeps it out of vector loops; the instruction is
 * correctly rounded either way. */
HOST_INLINE void host_roots_fp32(float *x, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    for (; i + 4 <= n; i += 4) _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#endif
    for (; i < n; i++) x[i] = sqrtf(x[i]);
}

HOST_INLINE void host_roots_fp64(double *x, int64_t n)
{
    int64_t i = 0;
#ifdef __SSE2__
    for (; i + 2 <= n; i += 2) _mm_storeu_pd(x + i, _mm_sqrt_pd(_mm_loadu_pd(x + i)));
#endif
    for (; i < n; i++) x[i] = sqrt(x[i]);
}

#endif
