/* exec/cuda/kernels_images.cu - im2col, col2im and pooling: one thread per output place, adjacent threads on adjacent
 * places.
 *
 * Gradients are gathered, never scattered: an element of dx reads the places whose windows contain it, in ascending
 * order, so no word has two writers and sums have one order. Windows overlap, and shared reads hit L1. Indices within
 * an image fit 32 bits; divisions by widths are multiplications.
 */
#include "exec/cuda/kernels_images.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

struct window {
    int32_t h, w, oh, ow, first;
    int32_t kh, kw, sh, sw, ph, pw;
    int64_t planes;                                    /* b·c */
    divider by_w, by_ow, by_sh, by_sw, by_kw, by_taps; /* taps: of one channel */
};

static window window_of(const struct cuda_window *v)
{
    window o;
    o.h = (int32_t)v->h, o.w = (int32_t)v->w, o.oh = (int32_t)v->oh, o.ow = (int32_t)v->ow;
    o.first = (int32_t)v->first;
    o.kh = v->kernel[0], o.kw = v->kernel[1], o.sh = v->stride[0], o.sw = v->stride[1];
    o.ph = v->padding[0], o.pw = v->padding[1];
    o.planes = v->b * v->c;
    o.by_w = divider_of(most(1, v->w)), o.by_ow = divider_of(most(1, v->ow));
    o.by_sh = divider_of(o.sh), o.by_sw = divider_of(o.sw), o.by_kw = divider_of(o.kw);
    o.by_taps = divider_of(o.kh * o.kw);
    return o;
}

/* Which of n elements of a plane this thread has, and which planes: grid (n, planes). */
#define FOR_PLANES(plane, count)                                                                   \
    for (int64_t plane = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; plane < (count);          \
         plane += (int64_t)gridDim.y * blockDim.y)

static dim3 plane_block(int64_t n) { return block_for_row(n); }
static dim3 plane_grid(dim3 block, int64_t n, int64_t planes)
{
    return dim3((unsigned)over(n, block.x), (unsigned)least(over(planes, block.y), GRID_YZ_MAX));
}

/* --- columns --- */

/* A plane here is a row of columns: (image, channel, tap). A thread writes a pack of neighbouring places, whose elements of x it
 * asks for all at once. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    columns_kernel(window v, const T *x, T *columns, bool packed)
{
    enum { N = pack<T>::N };
    int64_t places = (int64_t)v.oh * v.ow;
    int64_t place = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (place >= places) return;
    int32_t r = (int32_t)((uint32_t)place / v.by_ow), q = (int32_t)place - r * v.ow, top[N],
            left[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        top[k] = (v.first + r) * v.sh - v.ph, left[k] = q * v.sw - v.pw;
        if (++q == v.ow) q = 0, r++;
    }
    FOR_PLANES(row, v.planes * v.kh * v.kw)
    {
        int64_t plane = row / v.by_taps.d;
        uint32_t tap = (uint32_t)(row - plane * v.by_taps.d), ki = tap / v.by_kw;
        int32_t di = (int32_t)ki, dj = (int32_t)(tap - ki * v.by_kw.d);
        const T *from = x + plane * v.h * v.w;
        wide_of<T> seen[N];
#pragma unroll
        for (int k = 0; k < N;
             k++) { /* behind the last place nothing is read: its line may be below x */
            int32_t i = top[k] + di, j = left[k] + dj;
            bool inside = i >= 0 && i < v.h && j >= 0 && j < v.w;
            seen[k] = inside ? dtype_traits<T>::get(from[(int64_t)i * v.w + j]) : wide_of<T>(0);
        }
        write<T, N>(columns + row * places, place, places, packed, seen);
    }
}

extern "C" cudaError_t cuda_columns(const struct cuda_window *v, const void *x, void *columns,
                                    cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t rows = v->b * v->c * v->kernel[0] * v->kernel[1], n = v->oh * v->ow;
    if (rows <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    CUDA_WITH_DTYPE(v->dtype, T, {
        bool packed = lies_packed(columns) && n % pack<T>::N == 0;
        int64_t packs = over(n, pack<T>::N);
        dim3 block = plane_block(packs), grid = plane_grid(block, packs, rows);
        e = LAUNCH((columns_kernel<T>), grid, block, 0, stream, o, (const T *)x, (T *)columns,
                   packed);
    });
    return e;
}

/* Places that see line i of x through tap k = 0 … kernel-1 in ascending order: (i + padding - k) / stride where that goes up.
 * -1 where none does. */
static __device__ __forceinline__ int32_t place_of(int32_t i, int32_t k, int32_t padding,
                                                   const divider &stride, int32_t first, int32_t n)
{
    int32_t at = i + padding - k;
    if (at < 0) return -1;
    int32_t p = (int32_t)((uint32_t)at / stride);
    if (p * (int32_t)stride.d != at) return -1;
    p -= first;
    return p >= 0 && p < n ? p : -1;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    columns_back_kernel(window v, const wide_of<T> *columns, T *x)
{
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, i = at / v.by_w, j = at - i * v.by_w.d;
    int64_t places = (int64_t)v.oh * v.ow, n = (int64_t)v.h * v.w;
    if (at >= n) return;
    FOR_PLANES(plane, v.planes)
    {
        wide_of<T> sum = 0;
        for (int32_t ki = 0; ki < v.kh; ki++) {
            int32_t r = place_of((int32_t)i, ki, v.ph, v.by_sh, v.first, v.oh);
            if (r < 0) continue;
            const wide_of<T> *line =
                columns + (plane * v.kh + ki) * v.kw * places + (int64_t)r * v.ow;
#pragma unroll 4
            for (int32_t kj = 0; kj < v.kw; kj++) {
                int32_t q = place_of((int32_t)j, kj, v.pw, v.by_sw, 0, v.ow);
                sum += q >= 0 ? line[kj * places + q] : wide_of<T>(0);
            }
        }
        x[plane * n + at] = dtype_traits<T>::put(sum);
    }
}

extern "C" cudaError_t cuda_columns_back(const struct cuda_window *v, const void *columns, void *x,
                                         cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t n = v->h * v->w;
    if (v->b * v->c <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    dim3 block = plane_block(n), grid = plane_grid(block, n, v->b * v->c);
    CUDA_WITH_DTYPE(v->dtype, T,
                     e = LAUNCH((columns_back_kernel<T>), grid, block, 0, stream, o,
                                (const wide_of<T> *)columns, (T *)x));
    return e;
}

/* --- pooling --- */

/* The part [i0, i1) x [j0, j1) of x that a place sees. */
struct seen {
    int32_t top, left, i0, i1, j0, j1;
};

static __device__ __forceinline__ seen seen_at(const window &v, int32_t r, int32_t q)
{
    seen s;
    s.top = (v.first + r) * v.sh - v.ph, s.left = q * v.sw - v.pw;
    s.i0 = max(s.top, 0), s.i1 = min(s.top + v.kh, v.h);
    s.j0 = max(s.left, 0), s.j1 = min(s.left + v.kw, v.w);
    return s;
}

/* The first largest, by its place in the kernel; NaN wins, so that it is seen. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    max_pool_kernel(window v, const T *x, T *y, void *index, bool index_wide)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x, r = place / v.by_ow;
    int64_t places = (int64_t)v.oh * v.ow;
    if (place >= places) return;
    seen s = seen_at(v, (int32_t)r, (int32_t)(place - r * v.by_ow.d));
    FOR_PLANES(plane, v.planes)
    {
        const T *from = x + plane * v.h * v.w;
        wide_of<T> largest = 0;
        int32_t found = -1;
        for (int32_t i = s.i0; i < s.i1; i++)
            for (int32_t j = s.j0; j < s.j1; j++) {
                wide_of<T> value = dtype_traits<T>::get(from[(int64_t)i * v.w + j]);
                if (found >= 0 && !(value > largest) && value == value) continue;
                if (found >= 0 && largest != largest) continue;
                found = (i - s.top) * v.kw + j - s.left;
                largest = value;
            }
        y[plane * places + place] = dtype_traits<T>::put(largest);
        put_either<T>(index, index_wide, plane * places + place, (wide_of<T>)found, false);
    }
}

extern "C" cudaError_t cuda_max_pool(const struct cuda_window *v, const void *x, void *y,
                                     void *index, bool index_wide, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t n = v->oh * v->ow;
    if (v->b * v->c <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    dim3 block = plane_block(n), grid = plane_grid(block, n, v->b * v->c);
    CUDA_WITH_DTYPE(v->dtype, T,
                     e = LAUNCH((max_pool_kernel<T>), grid, block, 0, stream, o, (const T *)x,
                                (T *)y, index, index_wide));
    return e;
}

/* f(place, tap) for the places whose windows an element (i, j) of x is in: lines and columns of y ascend, so taps descend. */
template <class F>
static __device__ __forceinline__ void each_place(const window &v, uint32_t at, F f)
{
    uint32_t i = at / v.by_w, j = at - i * v.by_w.d;
    for (int32_t ki = v.kh - 1; ki >= 0; ki--) {
        int32_t r = place_of((int32_t)i, ki, v.ph, v.by_sh, v.first, v.oh);
        if (r < 0) continue;
        for (int32_t kj = v.kw - 1; kj >= 0; kj--) {
            int32_t q = place_of((int32_t)j, kj, v.pw, v.by_sw, 0, v.ow);
            if (q >= 0) f(r * v.ow + q, ki * v.kw + kj);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    max_pool_grad_kernel(window v, either index, const T *dy, T *dx)
{
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    int64_t n = (int64_t)v.h * v.w, places = (int64_t)v.oh * v.ow;
    if (at >= n) return;
    FOR_PLANES(plane, v.planes)
    {
        wide_of<T> sum = 0;
        each_place(v, at, [&](int32_t place, int32_t tap) {
            if (read_either<T>(index, plane * places + place) == (wide_of<T>)tap)
                sum += dtype_traits<T>::get(dy[plane * places + place]);
        });
        dx[plane * n + at] = dtype_traits<T>::put(sum);
    }
}

extern "C" cudaError_t cuda_max_pool_grad(const struct cuda_window *v, const void *index,
                                          bool index_wide, const void *dy, void *dx,
                                          cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t n = v->h * v->w;
    if (v->b * v->c <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    either taps = {index, index_wide};
    dim3 block = plane_block(n), grid = plane_grid(block, n, v->b * v->c);
    CUDA_WITH_DTYPE(v->dtype, T,
                     e = LAUNCH((max_pool_grad_kernel<T>), grid, block, 0, stream, o, taps,
                                (const T *)dy, (T *)dx));
    return e;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK) avg_pool_kernel(window v, const T *x, T *y)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x, r = place / v.by_ow;
    int64_t places = (int64_t)v.oh * v.ow;
    if (place >= places) return;
    seen s = seen_at(v, (int32_t)r, (int32_t)(place - r * v.by_ow.d));
    FOR_PLANES(plane, v.planes)
    {
        const T *from = x + plane * v.h * v.w;
        wide_of<T> sum = 0;
        for (int32_t i = s.i0; i < s.i1; i++)
            for (int32_t j = s.j0; j < s.j1; j++) sum += dtype_traits<T>::get(from[(int64_t)i * v.w + j]);
        y[plane * places + place] = dtype_traits<T>::put(sum / (wide_of<T>)(v.kh * v.kw));
    }
}

extern "C" cudaError_t cuda_avg_pool(const struct cuda_window *v, const void *x, void *y,
                                     cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t n = v->oh * v->ow;
    if (v->b * v->c <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    dim3 block = plane_block(n), grid = plane_grid(block, n, v->b * v->c);
    CUDA_WITH_DTYPE(
        v->dtype, T,
        e = LAUNCH((avg_pool_kernel<T>), grid, block, 0, stream, o, (const T *)x, (T *)y));
    return e;
}

template <class T>
static __global__ void __launch_bounds__(BLOCK) avg_pool_grad_kernel(window v, const T *dy, T *dx)
{
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    int64_t n = (int64_t)v.h * v.w, places = (int64_t)v.oh * v.ow;
    if (at >= n) return;
    FOR_PLANES(plane, v.planes)
    {
        wide_of<T> sum = 0, area = (wide_of<T>)(v.kh * v.kw);
        each_place(v, at, [&](int32_t place, int32_t) {
            sum += dtype_traits<T>::get(dy[plane * places + place]);
        });
        dx[plane * n + at] = dtype_traits<T>::put(sum / area);
    }
}

extern "C" cudaError_t cuda_avg_pool_grad(const struct cuda_window *v, const void *dy, void *dx,
                                          cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t n = v->h * v->w;
    if (v->b * v->c <= 0 || n <= 0) return cudaSuccess;
    window o = window_of(v);
    dim3 block = plane_block(n), grid = plane_grid(block, n, v->b * v->c);
    CUDA_WITH_DTYPE(
        v->dtype, T,
        e = LAUNCH((avg_pool_grad_kernel<T>), grid, block, 0, stream, o, (const T *)dy, (T *)dx));
    return e;
}
