/* exec/cuda/kernels_copy.cu - copies of shards, and transposes of images.
 *
 * Threads of a copy go along a run in packs and over runs side by side, as over rows of a matrix. A transpose moves
 * 64 x 64 elements at a time through shared memory, whose rows are one or two elements longer than 64, so that
 * neither row writes nor column reads have bank conflicts; device memory is accessed in lines of 64 elements, 128
 * bytes of bf16.
 */
#include "exec/cuda/kernels_copy.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { TILE = 64, LINES = 8 };

template <class X, class Y>
static __global__ void __launch_bounds__(BLOCK) copy_kernel(struct cuda_runs c, bool packed)
{
    enum { N = 16 / (sizeof(X) < sizeof(Y) ? sizeof(X) : sizeof(Y)) };
    const X *__restrict__ from = static_cast<const X *>(c.from);
    Y *__restrict__ to = static_cast<Y *>(c.to);
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= c.run) return;
#pragma unroll 2
    for (int64_t o = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; o < c.outer;
         o += (int64_t)gridDim.y * blockDim.y) {
        wide_of<X> v[N];
        wide_of<Y> w[N];
        elements<X, N> in;
        elements<Y, N> there;
        in.load(from + o * c.from_step, i, c.run, packed);
        if (c.add) there.load(to + o * c.to_step, i, c.run, packed);
        in.get(v);
        if (c.add) {
            there.get(w);
#pragma unroll
            for (int j = 0; j < N; j++) w[j] += (wide_of<Y>)v[j];
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) w[j] = (wide_of<Y>)v[j];
        }
        write<Y, N>(to + o * c.to_step, i, c.run, packed, w);
    }
}

template <class X, class Y>
static cudaError_t launch_copy(const struct cuda_runs *c, cudaStream_t stream)
{
    const int64_t n = 16 / (sizeof(X) < sizeof(Y) ? sizeof(X) : sizeof(Y));
    /* a narrow pack is 16 bytes of one and 32 of the other, steps in elements of each */
    bool packed = lies_packed(c->from, c->to) && c->run % n == 0 && c->from_step % n == 0 &&
                  c->to_step % n == 0;
    int64_t packs = over(c->run, n);
    dim3 block = block_for_row(packs);
    dim3 grid((unsigned)over(packs, block.x),
              (unsigned)least(over(c->outer, block.y), GRID_YZ_MAX));
    return LAUNCH((copy_kernel<X, Y>), grid, block, 0, stream, *c, packed);
}

/* Runs that are consecutive on both sides are merged into one, copied as bytes. */
extern "C" cudaError_t cuda_copy_runs(const struct cuda_runs *c, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (c->outer <= 0 || c->run <= 0) return cudaSuccess;
    bool one = c->outer == 1 || (c->from_step == c->run && c->to_step == c->run);
    CUDA_WITH_DTYPE(c->dtype, T, {
        if (one && !c->add && !c->from_wide && !c->to_wide)
            e = cudaMemcpyAsync(c->to, c->from, (size_t)(c->outer * c->run) * sizeof(T),
                                cudaMemcpyDeviceToDevice, stream);
        else
            e = c->from_wide ? launch_copy<wide_of<T>, T>(c, stream)
                : c->to_wide ? launch_copy<T, wide_of<T>>(c, stream)
                             : launch_copy<T, T>(c, stream);
    });
    return e;
}

template <class T>
static __global__ void __launch_bounds__(TILE *LINES / 2)
    transpose_kernel(const T *x, T *y, int64_t rows, int64_t columns, int64_t across)
{
    enum { PITCH = TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1) };
    __shared__ T tile[TILE * PITCH];
    int64_t r0 = (int64_t)blockIdx.x / across * TILE, c0 = (int64_t)blockIdx.x % across * TILE;
    int64_t matrix = (int64_t)blockIdx.y * rows * columns;
    /* a warp takes one line in two sides */
#pragma unroll
    for (int k = 0; k < TILE; k += LINES)
#pragma unroll
        for (int side = 0; side < TILE; side += WARP) {
            int r = k + (int)threadIdx.y, c = side + (int)threadIdx.x;
            if (r0 + r < rows && c0 + c < columns)
                tile[r * PITCH + c] = x[matrix + (r0 + r) * columns + c0 + c];
        }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; k += LINES)
#pragma unroll
        for (int side = 0; side < TILE; side += WARP) {
            int c = k + (int)threadIdx.y, r = side + (int)threadIdx.x;
            if (r0 + r < rows && c0 + c < columns)
                y[matrix + (c0 + c) * rows + r0 + r] = tile[r * PITCH + c];
        }
}

template <class T>
static cudaError_t launch_transpose(const void *x, void *y, int64_t b, int64_t rows,
                                    int64_t columns, cudaStream_t stream)
{
    int64_t across = over(columns, TILE), each = rows * columns;
    cudaError_t e = cudaSuccess;
    for (int64_t first = 0; first < b && !e; first += GRID_YZ_MAX) {
        dim3 grid((unsigned)(across * over(rows, TILE)), (unsigned)least(GRID_YZ_MAX, b - first));
        e = LAUNCH((transpose_kernel<T>), grid, dim3(WARP, LINES), 0, stream,
                   (const T *)x + first * each, (T *)y + first * each, rows, columns, across);
    }
    return e;
}

/* Only bits move, so dtypes of equal size share a kernel. */
extern "C" cudaError_t cuda_transpose(enum cuda_dtype dtype, const void *x, void *y, int64_t b,
                                      int64_t rows, int64_t columns, cudaStream_t stream)
{
    if (b <= 0 || rows <= 0 || columns <= 0) return cudaSuccess;
    if (dtype == CUDA_fp64) return launch_transpose<uint64_t>(x, y, b, rows, columns, stream);
    if (dtype == CUDA_fp32) return launch_transpose<uint32_t>(x, y, b, rows, columns, stream);
    return launch_transpose<uint16_t>(x, y, b, rows, columns, stream);
}
