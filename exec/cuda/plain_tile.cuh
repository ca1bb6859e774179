/* exec/cuda/plain_tile.cuh - a block's product of two tiles by plain multiply-adds, for numbers that tensor cores are not for;
 * for .cu files.
 *
 * TILE x TILE results, 4 x 4 a thread: rows y, y + TILE/4, …, columns x, x + TILE/4, …, so that neighbouring threads read
 * neighbouring words of the right tile (no bank conflict) and the same word of the left one. Per step along k a thread reads
 * 8 numbers for 16 multiply-adds: about half of an SM's fp32 rate, which is what products by cuBLAS are for where they
 * are large. fp64 has tiles of 32: 64 would fill shared memory.
 */
#ifndef EXEC_CUDA_PLAIN_TILE_CUH
#define EXEC_CUDA_PLAIN_TILE_CUH

#include "exec/cuda/dtypes.cuh"
#include "exec/cuda/launch.h"

#include <stdint.h>

template <class T> struct plain_size {
    enum { TILE = sizeof(typename dtype_traits<T>::wide) == 8 ? 32 : 64 };
    enum { SIDE = TILE / 4, THREADS = SIDE * SIDE, DEPTH = 16 };
};

/* Shared memory of one product. */
template <class T> struct plain_room {
    typename dtype_traits<T>::wide a[plain_size<T>::DEPTH][plain_size<T>::TILE + 1],
        b[plain_size<T>::DEPTH][plain_size<T>::TILE + 1];
};

/* sum[r][c] += Σ_k a(y + r SIDE, k) · b(k, x + c SIDE), k < depth. Neighbouring threads read neighbouring k of a and
 * b, or with TURNED_A neighbouring rows of a, with STRAIGHT_B neighbouring columns of b. Both return 0 outside. */
template <class T, bool TURNED_A, bool STRAIGHT_B, class A, class B>
static __device__ __forceinline__ void plain_product(typename dtype_traits<T>::wide sum[4][4],
                                                     plain_room<T> *room, int64_t depth, A a, B b)
{
    using size = plain_size<T>;
    constexpr int TILE = size::TILE, SIDE = size::SIDE, DEPTH = size::DEPTH;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    for (int64_t k0 = 0; k0 < depth; k0 += DEPTH) {
        __syncthreads(); /* ends the previous step and earlier use of the tile */
        for (int i = threadIdx.x; i < TILE * DEPTH; i += size::THREADS) {
            int row = TURNED_A ? i % TILE : i / DEPTH, k = TURNED_A ? i / TILE : i % DEPTH;
            room->a[k][row] = k0 + k < depth ? a(row, k0 + k) : 0;
        }
        for (int i = threadIdx.x; i < TILE * DEPTH; i += size::THREADS) {
            int column = STRAIGHT_B ? i % TILE : i / DEPTH, k = STRAIGHT_B ? i / TILE : i % DEPTH;
            room->b[k][column] = k0 + k < depth ? b(k0 + k, column) : 0;
        }
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < DEPTH; k++) {
            typename dtype_traits<T>::wide left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[i] = room->a[k][y + i * SIDE], right[i] = room->b[k][x + i * SIDE];
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) sum[r][c] += left[r] * right[c];
        }
    }
}

#endif
