/* exec/cuda/functions.cuh - elementary functions, by the dtype that their result is rounded to.
 *
 * An element of bf16 costs 4 bytes of traffic: at 4.8 TB/s a multiprocessor has some 27 instructions for it, half as many where it is
 * only read. Narrow numbers so get the short forms - the hardware's 2^x and 1/x, erfc by a polynomial with 1.5e-7 (Abramowitz and
 * Stegun 1964, 7.1.26) - whose errors are a thousandth of what rounding the result costs. They flush what is below 2^-126 to 0:
 * __expf and __fdividef would spend half of their instructions on keeping it. fp32 and fp64 get the library's, of 1 or 2 in the last place.
 */
#ifndef EXEC_CUDA_FUNCTIONS_CUH
#define EXEC_CUDA_FUNCTIONS_CUH

#include "exec/cuda/dtypes.cuh"

static constexpr float LOG2_E = 1.44269504088896341f;

/* 2^x in one instruction: results below 2^-126 become 0; error 2 ulp (PTX ISA, ex2). */
static __device__ __forceinline__ float power_of_2(float x)
{
#ifdef STANDIN
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* 1/x in one instruction, error 1 ulp (PTX ISA, rcp); 0 for |x| beyond 2^126, including infinity. */
static __device__ __forceinline__ float inverse(float x)
{
#ifdef STANDIN
    return 1.0f / x;
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* e^(x - m) of many x and one m is exp_beside(x, beside(m)): for half precision a multiply-add and a power. */
template <class T> struct functions { /* bf16, fp16 */
    static __device__ __forceinline__ float exp(float x) { return power_of_2(x * LOG2_E); }
    static __device__ __forceinline__ float beside(float m) { return m * LOG2_E; }
    static __device__ __forceinline__ float exp_beside(float x, float m)
    {
        return power_of_2(fmaf(x, LOG2_E, -m));
    }
    static __device__ __forceinline__ float over(float a, float b) { return a * inverse(b); }
    /* Φ(x), and e^(-x²/2) with it */
    static __device__ __forceinline__ float normal(float x, float *density)
    {
        float a = fabsf(x) * 0.70710678f, t = inverse(1.0f + 0.3275911f * a);
        float e = exp(-a * a);
        float p = 1.061405429f;
        p = p * t - 1.453152027f;
        p = p * t + 1.421413741f;
        p = p * t - 0.284496736f;
        p = p * t + 0.254829592f;
        float tail = 0.5f * p * t * e;
        *density = e;
        return x < 0 ? tail : 1.0f - tail;
    }
};

template <> struct functions<float> {
    static __device__ __forceinline__ float exp(float x) { return expf(x); }
    static __device__ __forceinline__ float beside(float m) { return m; }
    static __device__ __forceinline__ float exp_beside(float x, float m) { return expf(x - m); }
    static __device__ __forceinline__ float over(float a, float b) { return a / b; }
    static __device__ __forceinline__ float normal(float x, float *density)
    {
        *density = expf(-0.5f * x * x);
        return 0.5f * erfcf(x * -0.70710678f);
    }
};

template <> struct functions<double> {
    static __device__ __forceinline__ double exp(double x) { return ::exp(x); }
    static __device__ __forceinline__ double beside(double m) { return m; }
    static __device__ __forceinline__ double exp_beside(double x, double m) { return ::exp(x - m); }
    static __device__ __forceinline__ double over(double a, double b) { return a / b; }
    static __device__ __forceinline__ double normal(double x, double *density)
    {
        *density = ::exp(-0.5 * x * x);
        return 0.5 * erfc(x * -0.70710678118654752440);
    }
};

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W sigmoid(W x)
{
    return functions<T>::over(W(1), W(1) + functions<T>::exp(-x)); /* for a very negative x 1/∞ */
}

/* gelu(x) = x Φ(x); with tanh x(1 + tanh u)/2, u = √(2/π)(x + 0.044715x³) (Hendrycks and Gimpel 2016), and
 * (1 + tanh u)/2 = sigmoid(2u). */
template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W gelu_gate(W x)
{
    return sigmoid<T>(W(1.5957691216057307) * x * (W(1) + W(0.044715) * x * x)); /* 2√(2/π) */
}

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W gelu_tanh(W x)
{
    return x * gelu_gate<T>(x);
}

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W gelu_tanh_slope(W x)
{
    W s = gelu_gate<T>(x);
    return s + x * s * (1 - s) * W(1.5957691216057307) * (1 + W(3 * 0.044715) * x * x);
}

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W gelu_erf(W x)
{
    W density;
    return x * functions<T>::normal(x, &density);
}

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W gelu_erf_slope(W x)
{
    W density, phi = functions<T>::normal(x, &density);
    return phi + x * density * W(0.39894228040143267794); /* 1/√(2π) */
}

template <class T, class W = typename dtype_traits<T>::wide> static __device__ __forceinline__ W silu(W x)
{
    return x * sigmoid<T>(x);
}

template <class T, class W = typename dtype_traits<T>::wide>
static __device__ __forceinline__ W silu_slope(W x)
{
    W s = sigmoid<T>(x);
    return s * (1 + x * (1 - s));
}

#endif
