/* exec/cuda/attention_tiles.cuh - tiles of q, k, v and of results, for the tensor-core attention kernels.
 *
 * A tile is ROWS positions of one head with W elements each: head_dim, zero-padded to W = 64 or 128. Zeros do not
 * change a product, so only this file uses the head's true size.
 */
#ifndef EXEC_CUDA_ATTENTION_TILES_CUH
#define EXEC_CUDA_ATTENTION_TILES_CUH

#include "exec/cuda/attention.cuh"
#include "exec/cuda/functions.cuh"
#include "exec/cuda/tensor_core.cuh"

static constexpr float LN_2 = 0.69314718055994531f;

/* Starts the copy of positions [first, first + ROWS), zeros from `end` on. base: position 0 of the head. */
template <class T, int W, int ROWS, int THREADS>
static __device__ __forceinline__ void copy_tile(T *tile, const T *base, int64_t position_stride,
                                                 int first, int end, int head_dim)
{
    enum { CHUNKS = W / CHUNK, APART = THREADS / CHUNKS };
    static_assert(ROWS % APART == 0, "every thread copies as much");
    int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS; /* all chunks of a thread are in one column */
    bool beside = chunk * CHUNK < head_dim;
    const T *from = base + (first + row) * position_stride + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++) {
        bool there = beside && first + row + i * APART < end;
        copy_chunk(tile + at_chunk<W>(row + i * APART, chunk), there ? from : base, there);
        from += APART * position_stride;
    }
}

/* Writes a warp's c (16, W) times scale, rounded, to positions [first, first + 16) below `end` in device memory. It
 * goes through shared memory private to the warp, so that 16 bytes are written at a time: a lane of c has four bytes
 * of a row. */
template <class T, int W>
static __device__ __forceinline__ void write_rows(const float c[W / 8][4], float scale_low,
                                                  float scale_high, T *room, T *base,
                                                  int64_t position_stride, int first, int end,
                                                  int head_dim, int lane)
{
    enum { CHUNKS = W / CHUNK };
    int g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < W / 8; n++) {
        uint32_t low = pack<T>(c[n][0] * scale_low, c[n][1] * scale_low);
        uint32_t high = pack<T>(c[n][2] * scale_high, c[n][3] * scale_high);
        *reinterpret_cast<uint32_t *>(room + at_chunk<W>(g, n) + 2 * t) = low;
        *reinterpret_cast<uint32_t *>(room + at_chunk<W>(g + 8, n) + 2 * t) = high;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * CHUNKS / 32; i++) {
        int at = lane + i * 32, row = at / CHUNKS, chunk = at % CHUNKS;
        if (first + row < end && chunk * CHUNK < head_dim)
            *reinterpret_cast<uint4 *>(base + (first + row) * position_stride + chunk * CHUNK) =
                *reinterpret_cast<const uint4 *>(room + at_chunk<W>(row, chunk));
    }
}

#endif
