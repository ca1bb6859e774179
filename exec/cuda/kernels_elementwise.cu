/* exec/cuda/kernels_elementwise.cu - elementwise kernels.
 *
 * A thread loads PACKS packs of each operand before it uses the first, so that a multiprocessor has 2,048 · 2 · 16
 * bytes of one operand in flight. The grid has one block per piece of work up to its maximum, then blocks iterate. A
 * shared row's bias is read once for ROWS rows. Nothing is __restrict__, because an output may be an input.
 */
#include "exec/cuda/kernels_elementwise.h"

#include "exec/cuda/functions.cuh"
#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { PACKS = 2, ROWS = 4 };

/* What is done to an element: a, b, c are inputs, k the constant of the call, y and z outputs. */
#define ELEMENT(name, inputs, outputs, ...)                                                        \
    template <class T> struct of_##name {                                                          \
        using W = wide_of<T>;                                                                      \
        enum { INPUTS = inputs, OUTPUTS = outputs };                                               \
        static __device__ __forceinline__ void one(W a, W b, W c, W k, W &y, W &z)                 \
        {                                                                                          \
            (void)a, (void)b, (void)c, (void)k, (void)z;                                                   \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    };
ELEMENT(add, 2, 1, y = a + b)
ELEMENT(multiply, 2, 1, y = a * b)
ELEMENT(gelu_tanh, 1, 1, y = gelu_tanh<T>(a))
ELEMENT(gelu_tanh_grad, 2, 1, y = gelu_tanh_slope<T>(a) * b)
ELEMENT(gelu_erf, 1, 1, y = gelu_erf<T>(a))
ELEMENT(gelu_erf_grad, 2, 1, y = gelu_erf_slope<T>(a) * b)
ELEMENT(silu, 1, 1, y = silu<T>(a))
ELEMENT(silu_grad, 2, 1, y = silu_slope<T>(a) * b)
ELEMENT(relu, 1, 1, y = a < 0 ? W(0) : a)
ELEMENT(relu_grad, 2, 1, y = a > 0 ? b : W(0))
ELEMENT(swiglu, 2, 1, y = silu<T>(a) * b)
ELEMENT(swiglu_grad, 3, 2, y = silu_slope<T>(a) * (c * b); z = c * silu<T>(a))
ELEMENT(scale, 1, 1, y = k * a)
ELEMENT(softcap, 1, 1, y = k * tanh(a / k))
ELEMENT(softcap_grad, 2, 1, y = b * (1 - a / k * (a / k)))
/* a is x + bias, b is dy */
ELEMENT(bias, 1, 1, y = a)
ELEMENT(bias_gelu_tanh, 1, 1, y = gelu_tanh<T>(a))
ELEMENT(bias_gelu_tanh_grad, 2, 1, y = gelu_tanh_slope<T>(a) * b)
ELEMENT(bias_gelu_erf, 1, 1, y = gelu_erf<T>(a))
ELEMENT(bias_gelu_erf_grad, 2, 1, y = gelu_erf_slope<T>(a) * b)

template <class T> struct flat_operands {
    const T *a, *b, *c;
    T *y, *z;
    wide_of<T> k;
};

template <class T, class F, bool WHOLE>
static __device__ __forceinline__ void flat_tile(const flat_operands<T> &o, int64_t tile, int64_t n,
                                                 bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    elements<T, N> in_a[PACKS], in_b[PACKS], in_c[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = tile + (int64_t)(k * BLOCK + threadIdx.x) * N;
        in_a[k].template load<WHOLE>(o.a, i, n, packed);
        if (F::INPUTS > 1) in_b[k].template load<WHOLE>(o.b, i, n, packed);
        if (F::INPUTS > 2) in_c[k].template load<WHOLE>(o.c, i, n, packed);
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = tile + (int64_t)(k * BLOCK + threadIdx.x) * N;
        W a[N], b[N], c[N], y[N], z[N];
        in_a[k].get(a);
        if (F::INPUTS > 1) in_b[k].get(b);
        if (F::INPUTS > 2) in_c[k].get(c);
#pragma unroll
        for (int j = 0; j < N; j++)
            F::one(a[j], F::INPUTS > 1 ? b[j] : W(0), F::INPUTS > 2 ? c[j] : W(0), o.k, y[j], z[j]);
        write<T, N, WHOLE>(o.y, i, n, packed, y);
        if (F::OUTPUTS > 1) write<T, N, WHOLE>(o.z, i, n, packed, z);
    }
}

template <class T, class F>
static __global__ void __launch_bounds__(BLOCK)
    flat_kernel(flat_operands<T> o, int64_t n, bool packed)
{
    constexpr int64_t TILE = BLOCK * PACKS * pack<T>::N;
    for (int64_t tile = blockIdx.x * TILE; tile < n; tile += gridDim.x * TILE) {
        if (packed && tile + TILE <= n)
            flat_tile<T, F, true>(o, tile, tile + TILE, true);
        else
            flat_tile<T, F, false>(o, tile, n, packed);
    }
}

static dim3 grid_for(int64_t n, int64_t a_block)
{
    return dim3((unsigned)least(over(n, a_block), INT32_MAX));
}

template <class T>
static cudaError_t launch_flat(enum cuda_flat_kind kind, flat_operands<T> o, int64_t n,
                               cudaStream_t stream)
{
    bool packed = lies_packed(o.a, o.b, o.c, o.y, o.z);
    dim3 grid = grid_for(n, BLOCK * PACKS * pack<T>::N);
    switch (kind) {
#define X(name, inputs, outputs)                                                                   \
    case CUDA_FLAT_##name:                                                                         \
        return LAUNCH((flat_kernel<T, of_##name<T>>), grid, BLOCK, 0, stream, o, n, packed);
        CUDA_FLAT_KINDS(X)
#undef X
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t cuda_flat(enum cuda_flat_kind kind, enum cuda_dtype dtype, const void *a,
                                 const void *b, const void *c, double constant, void *y, void *z, int64_t n,
                                 cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(dtype, T, {
        flat_operands<T> o = {(const T *)a, (const T *)b, (const T *)c, (T *)y, (T *)z,
                              (wide_of<T>)constant};
        e = launch_flat<T>(kind, o, n, stream);
    });
    return e;
}

/* --- rows that share a row --- */

template <class T> struct row_operands {
    const T *x;
    either b;
    const T *dy;
    T *y;
};

template <class T, class F, bool WHOLE>
static __device__ __forceinline__ void some_rows(const row_operands<T> &o, int64_t i, int64_t rows,
                                                 int64_t n, bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    W b[N];
    read_either<T, N, WHOLE>(o.b, i, n, packed, b);
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += ROWS * step) {
        elements<T, N> in_x[ROWS], in_dy[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            int64_t row = r + k * step;
            if (row >= rows) break;
            in_x[k].template load<WHOLE>(o.x + row * n, i, n, packed);
            if (F::INPUTS > 1) in_dy[k].template load<WHOLE>(o.dy + row * n, i, n, packed);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            int64_t row = r + k * step;
            if (row >= rows) break;
            W x[N], dy[N], y[N], z;
            in_x[k].get(x);
            if (F::INPUTS > 1) in_dy[k].get(dy);
#pragma unroll
            for (int j = 0; j < N; j++)
                F::one(x[j] + b[j], F::INPUTS > 1 ? dy[j] : W(0), W(0), W(0), y[j], z);
            write<T, N, WHOLE>(o.y + row * n, i, n, packed, y);
        }
    }
}

template <class T, class F>
static __global__ void __launch_bounds__(BLOCK)
    row_kernel(row_operands<T> o, int64_t rows, int64_t n, bool packed)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * pack<T>::N;
    if (i >= n) return;
    if (packed)
        some_rows<T, F, true>(o, i, rows, n, true);
    else
        some_rows<T, F, false>(o, i, rows, n, false);
}

template <class T>
static cudaError_t launch_rows(enum cuda_row_kind kind, row_operands<T> o, int64_t rows, int64_t n,
                               cudaStream_t stream)
{
    bool packed = lies_packed(o.x, o.b.p, o.dy, o.y) && n % pack<T>::N == 0;
    int64_t packs = over(n, pack<T>::N);
    dim3 block = block_for_row(packs);
    dim3 grid((unsigned)over(packs, block.x),
              (unsigned)least(over(rows, (int64_t)block.y * ROWS), GRID_YZ_MAX));
    switch (kind) {
#define X(name)                                                                                    \
    case CUDA_ROW_##name:                                                                          \
        return LAUNCH((row_kernel<T, of_##name<T>>), grid, block, 0, stream, o, rows, n, packed);
        CUDA_ROW_KINDS(X)
#undef X
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t cuda_rows(enum cuda_row_kind kind, enum cuda_dtype dtype, const void *x,
                                 const void *b, bool b_wide, const void *dy, void *y, int64_t rows,
                                 int64_t n, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (rows <= 0 || n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(dtype, T, {
        row_operands<T> o = {(const T *)x, {b, b_wide}, (const T *)dy, (T *)y};
        e = launch_rows<T>(kind, o, rows, n, stream);
    });
    return e;
}

/* --- channels of images --- */

/* One block row a plane (outer, middle): its inner elements have the same bias. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    channel_kernel(const T *x, either b, T *y, int64_t planes, int64_t middle, int64_t inner,
                   bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= inner) return;
    for (int64_t p = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; p < planes;
         p += (int64_t)gridDim.y * blockDim.y) {
        W v[N], add = read_either<T>(b, p % middle);
        read<T, N>(x + p * inner, i, inner, packed, v);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] += add;
        write<T, N>(y + p * inner, i, inner, packed, v);
    }
}

extern "C" cudaError_t cuda_channel_bias(enum cuda_dtype dtype, const void *x, const void *b,
                                         bool b_wide, void *y, int64_t outer, int64_t middle,
                                         int64_t inner, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t planes = outer * middle;
    if (planes <= 0 || inner <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(dtype, T, {
        bool packed = lies_packed(x, y) && inner % pack<T>::N == 0;
        int64_t packs = over(inner, pack<T>::N);
        dim3 block = block_for_row(packs);
        dim3 grid((unsigned)over(packs, block.x),
                  (unsigned)least(over(planes, block.y), GRID_YZ_MAX));
        either bias = {b, b_wide};
        e = LAUNCH((channel_kernel<T>), grid, block, 0, stream, (const T *)x, bias, (T *)y, planes,
                   middle, inner, packed);
    });
    return e;
}

/* --- from one dtype to another --- */

/* A thread takes a pack of the narrower one. fp64 of fp32 and back go through fp64, the rest through fp32. */
template <class X, class Y>
static __global__ void __launch_bounds__(BLOCK)
    cast_kernel(const X *x, Y *y, bool add, int64_t n, bool packed)
{
    enum { N = 16 / (sizeof(X) < sizeof(Y) ? sizeof(X) : sizeof(Y)) };
    int64_t stride = (int64_t)gridDim.x * BLOCK * N;
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < n; i += stride) {
        wide_of<X> from[N];
        wide_of<Y> to[N];
        elements<X, N> in;
        elements<Y, N> there;
        in.load(x, i, n, packed);
        if (add) there.load(y, i, n, packed);
        in.get(from);
        if (add) {
            there.get(to);
#pragma unroll
            for (int j = 0; j < N; j++) to[j] += (wide_of<Y>)from[j];
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) to[j] = (wide_of<Y>)from[j];
        }
        write<Y, N>(y, i, n, packed, to);
    }
}

extern "C" cudaError_t cuda_cast(enum cuda_dtype from, const void *x, enum cuda_dtype to, void *y,
                                 bool add, int64_t n, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    bool packed = lies_packed(x, y);
    if (n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(from, X, CUDA_WITH_DTYPE(to, Y, {
                         size_t one = sizeof(X) < sizeof(Y) ? sizeof(X) : sizeof(Y);
                         dim3 grid = grid_for(n, BLOCK * (int64_t)(16 / one));
                         e = LAUNCH((cast_kernel<X, Y>), grid, BLOCK, 0, stream, (const X *)x,
                                    (Y *)y, add, n, packed);
                     }));
    return e;
}
