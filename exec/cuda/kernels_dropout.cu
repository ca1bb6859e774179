/* exec/cuda/kernels_dropout.cu - dropout by Philox4x32-10 (core/base/rng.h): element i of a sequence uses word i mod
 * 4 of the block (i / 4, number of the sequence) under the operator's key.
 *
 * A thread computes the blocks of its own pack, two for eight bf16 elements. Ten rounds are 20 64-bit products and 20
 * three-way exclusive ors, some 12 instructions per element, about the time of its 4 bytes: for half precision the
 * kernel is near both limits, arithmetic and bandwidth. A pack that begins inside a block (a slice of a row) needs
 * one more.
 */
#include "exec/cuda/kernels_dropout.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"
#include "exec/cuda/philox.cuh"

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    dropout_kernel(struct cuda_drop d, bool packed, const T *x, T *y)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= d.n) return;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < d.rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        int64_t s = r / d.per_sequence, at = d.begin + (r - s * d.per_sequence) * d.step + i;
        int odd = (int)(at & 3);
        W v[N], scale = (W)d.scale;
        elements<T, N> in; /* comes while bits are made */
        in.load(x + r * d.n, i, d.n, packed);
        philox_words bits = philox((uint64_t)at >> 2, (uint64_t)(d.first + s), d.key);
        in.get(v);
        if (odd == 0) {
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (j && j % 4 == 0)
                    bits = philox((uint64_t)(at + j) >> 2, (uint64_t)(d.first + s), d.key);
                v[j] = bits.w[j % 4] < d.below ? W(0) : scale * v[j];
            }
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (((odd + j) & 3) == 0)
                    bits = philox((uint64_t)(at + j) >> 2, (uint64_t)(d.first + s), d.key);
                v[j] = word(bits, (odd + j) & 3) < d.below ? W(0) : scale * v[j];
            }
        }
        write<T, N>(y + r * d.n, i, d.n, packed, v);
    }
}

extern "C" cudaError_t cuda_dropout(enum cuda_dtype dtype, const struct cuda_drop *d,
                                    const void *x, void *y, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (d->rows <= 0 || d->n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(dtype, T, {
        bool packed = lies_packed(x, y) && d->n % pack<T>::N == 0;
        int64_t packs = over(d->n, pack<T>::N);
        dim3 block = block_for_row(packs);
        dim3 grid((unsigned)over(packs, block.x),
                  (unsigned)least(over(d->rows, block.y), GRID_YZ_MAX));
        e = LAUNCH((dropout_kernel<T>), grid, block, 0, stream, *d, packed, (const T *)x, (T *)y);
    });
    return e;
}
