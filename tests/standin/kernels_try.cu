/* tests/standin/kernels_try.cu - kernels that only the stand-in's own suites run. */
#include "tests/standin/kernels_try.h"

#include "exec/cuda/dtypes.cuh"
#include "exec/cuda/launch.h"

enum { THREADS = 256, TILE = 8, ALL = -1 };

template <class T> __global__ void block_sums(const T *in, T *out, int n)
{
    using W = typename dtype_traits<T>::wide;
    __shared__ W part[THREADS / 32];
    W sum = 0;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        sum += dtype_traits<T>::get(in[i]);
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync((unsigned)ALL, sum, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++) sum += part[w];
        out[blockIdx.x] = dtype_traits<T>::put(sum);
    }
}

cudaError_t try_block_sums(enum cuda_dtype dtype_, const void *in, void *out, int n, int blocks,
                           cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    CUDA_WITH_DTYPE(dtype_, T,
                     e = LAUNCH((block_sums<T>), blocks, THREADS, 0, stream,
                                static_cast<const T *>(in), static_cast<T *>(out), n));
    return e;
}

__global__ void coordinates(uint64_t *out)
{
    uint64_t block = blockIdx.x + (uint64_t)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    uint64_t at = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[at] = (uint64_t)blockIdx.z << 40 | (uint64_t)blockIdx.y << 32 | (uint64_t)blockIdx.x << 24 |
              threadIdx.z << 16 | threadIdx.y << 8 | threadIdx.x;
}

cudaError_t try_coordinates(struct dim3 grid, struct dim3 block, uint64_t *out, cudaStream_t stream)
{
    return LAUNCH(coordinates, grid, block, 0, stream, out);
}

__global__ void turn(const float *in, float *out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    int row = (int)(blockIdx.y * TILE + threadIdx.y),
        column = (int)(blockIdx.x * TILE + threadIdx.x);
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    row = (int)(blockIdx.x * TILE + threadIdx.y), column = (int)(blockIdx.y * TILE + threadIdx.x);
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

cudaError_t try_turn(const float *in, float *out, int rows, int columns, cudaStream_t stream)
{
    dim3 grid((unsigned)((columns + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE));
    return LAUNCH(turn, grid, dim3(TILE, TILE), 0, stream, in, out, rows, columns);
}

__global__ void reverse(const float *in, float *out, int n, bool whole)
{
    DYNAMIC_SHARED(float, all);
    all[threadIdx.x] = in[threadIdx.x];
    if (whole) __syncthreads();
    out[threadIdx.x] = all[n - 1 - (int)threadIdx.x];
}

cudaError_t try_reverse(const float *in, float *out, int n, int whole, cudaStream_t stream)
{
    return LAUNCH(reverse, 1, (unsigned)n, (size_t)n * sizeof(float), stream, in, out, n,
                  whole != 0);
}

__global__ void lanes(int *out)
{
    int lane = (int)threadIdx.x % 32, n = (int)blockDim.x, i = (int)threadIdx.x;
    unsigned all = (unsigned)ALL;
    out[i] = __shfl_xor_sync(all, lane, 5);
    out[n + i] = __shfl_down_sync(all, lane, 3);
    out[2 * n + i] = __shfl_up_sync(all, lane, 2);
    out[3 * n + i] = __shfl_sync(all, lane, 9);
    out[4 * n + i] = __shfl_down_sync(all, lane, 1, 8);
    out[5 * n + i] = (int)__ballot_sync(all, lane & 1);
    out[6 * n + i] = __syncthreads_count(lane & 1);
}

cudaError_t try_lanes(int *out, int n, cudaStream_t stream)
{
    return LAUNCH(lanes, 1, (unsigned)n, 0, stream, out);
}

/* Written after it was read, so that a second block would see what the first one left. */
__global__ void unwritten(uint32_t *out)
{
    DYNAMIC_SHARED(uint32_t, dynamic);
    __shared__ uint32_t fixed;
    if (threadIdx.x) return;
    out[0] = dynamic[3];
    out[1] = fixed;
    dynamic[3] = fixed = 1;
}

cudaError_t try_unwritten(uint32_t *out, int blocks, cudaStream_t stream)
{
    return LAUNCH(unwritten, (unsigned)blocks, 2, 16, stream, out);
}

__global__ void copies(const float *in, float *out, int n, int wait)
{
    DYNAMIC_SHARED(float, tile);
    int i = (int)threadIdx.x;
    if (i == 0) {
        standin_copy_later(tile, in, (size_t)(n / 2) * sizeof *in);
        standin_copies_commit();
        standin_copy_later(tile + n / 2, in + n / 2, (size_t)(n - n / 2) * sizeof *in);
        standin_copies_commit();
        if (wait) standin_copies_wait(wait == 1 ? 1 : 0);
    }
    __syncthreads();
    out[i] = tile[i];
}

cudaError_t try_copies(const float *in, float *out, int n, int wait, cudaStream_t stream)
{
    return LAUNCH(copies, 1, (unsigned)n, (size_t)n * sizeof *in, stream, in, out, n, wait);
}

__global__ void mistakes(enum try_mistake mistake)
{
    unsigned lane = threadIdx.x % 32, all = (unsigned)ALL;
    switch (mistake) {
    case TRY_BARRIER_MISSED:
        if (threadIdx.x == 7) return;
        __syncthreads();
        break;
    case TRY_BARRIERS_TWO:
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case TRY_MASK_LACKS_CALLER:
        __syncwarp(1);
        break;
    case TRY_MASK_NAMES_NOBODY:
        __syncwarp();
        break;
    case TRY_MASKS_DIFFER:
        __syncwarp(lane < 16 ? all : 0xffff0001u);
        break;
    case TRY_OPERATIONS_DIFFER:
        if (lane < 16)
            __syncwarp();
        else
            (void)__ballot_sync(all, 1);
        break;
    case TRY_SHUFFLE_OUTSIDE:
        if (lane < 16) (void)__shfl_sync(0xffffu, lane, 20);
        break;
    case TRY_WARP_MISSED:
        if (lane == 3) __syncthreads();
        __syncwarp();
        break;
    }
}

cudaError_t try_mistake(enum try_mistake mistake, cudaStream_t stream)
{
    return LAUNCH(mistakes, 1, mistake == TRY_MASK_NAMES_NOBODY ? 8 : 64, 0, stream, mistake);
}

__global__ void traps(int *out)
{
    if (blockIdx.x == 1 && threadIdx.x == 3) __trap();
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
}

cudaError_t try_trap(int *out, cudaStream_t stream) { return LAUNCH(traps, 3, 64, 0, stream, out); }

__global__ void count_threads(unsigned *count) { atomicAdd(count, 1u); }

cudaError_t try_count(unsigned *count, int blocks, int threads, cudaStream_t stream)
{
    return LAUNCH(count_threads, (unsigned)blocks, (unsigned)threads, 0, stream, count);
}

__global__ void add(const float *in, float *out, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] += in[i];
}

cudaError_t try_add(const float *in, float *out, int n, cudaStream_t stream)
{
    return LAUNCH(add, (unsigned)((n + 63) / 64), 64, 0, stream, in, out, n);
}

__global__ void nothing() {}

cudaError_t try_shared(int shared_bytes, int raise, cudaStream_t stream)
{
    if (raise) {
        cudaError_t e = cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             shared_bytes);
        if (e != cudaSuccess) return e;
    }
    return LAUNCH(nothing, 1, 1, (size_t)shared_bytes, stream);
}

template <class T> __global__ void round_trip(const double *in, double *out, int n)
{
    int i = (int)threadIdx.x + (int)(blockIdx.x * blockDim.x);
    if (i >= n) return;
    using W = typename dtype_traits<T>::wide;
    out[i] = (double)dtype_traits<T>::get(dtype_traits<T>::put((W)in[i]));
}

cudaError_t try_round(enum cuda_dtype dtype_, const double *in, double *out, int n,
                      cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    CUDA_WITH_DTYPE(
        dtype_, T,
        e = LAUNCH((round_trip<T>), (unsigned)((n + 127) / 128), 128, 0, stream, in, out, n));
    return e;
}
