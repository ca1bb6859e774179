/* tests/standin/kernels_try.h - kernels for the stand-in's own suites. */
#ifndef TESTS_STANDIN_KERNELS_TRY_H
#define TESTS_STANDIN_KERNELS_TRY_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

enum try_mistake {                     /* undefined behaviour of a kernel */
                   TRY_BARRIER_MISSED, /* thread 7 ends before it */
                   TRY_BARRIERS_TWO,   /* half of a block at another one */
                   TRY_MASK_LACKS_CALLER,
                   TRY_MASK_NAMES_NOBODY, /* lanes 0 … 31 in a warp of 8 */
                   TRY_MASKS_DIFFER,
                   TRY_OPERATIONS_DIFFER,
                   TRY_SHUFFLE_OUTSIDE, /* reads a lane that is not in the mask */
                   TRY_WARP_MISSED,     /* lane 3 waits at a barrier instead */
};

#ifdef __cplusplus
extern "C" {
#endif

/* out[b]: the sum of what block b of 256 threads took of in (n). */
cudaError_t try_block_sums(enum cuda_dtype dtype, const void *in, void *out, int n, int blocks,
                           cudaStream_t stream);
/* out[i], i the number of a thread in the grid: block z y x, thread z y x, a byte each. */
cudaError_t try_coordinates(struct dim3 grid, struct dim3 block, uint64_t *out,
                            cudaStream_t stream);
/* out (columns,rows) = in (rows,columns) turned, by tiles of 8 x 8 in static shared memory. */
cudaError_t try_turn(const float *in, float *out, int rows, int columns, cudaStream_t stream);
/* out[i] = in[n - 1 - i] by one block; `whole`: with the barrier that this needs. */
cudaError_t try_reverse(const float *in, float *out, int n, int whole, cudaStream_t stream);
/* One block of n threads: out (7,n): lanes as shuffled by xor 5, down 3, up 2, from lane 9, down 1 in segments of 8; ballot
 * of odd lanes; how many threads of the block are odd. */
cudaError_t try_lanes(int *out, int n, cudaStream_t stream);
/* out (2): the bits of a dynamic and a static shared number that nobody wrote. */
cudaError_t try_unwritten(uint32_t *out, int blocks, cudaStream_t stream);
/* out (n) = in (n), n threads, by copies that arrive when they are waited for, two groups of halves; wait: all, the first alone,
 * or not. What had not come is NaN. */
cudaError_t try_copies(const float *in, float *out, int n, int wait, cudaStream_t stream);
cudaError_t try_mistake(enum try_mistake mistake, cudaStream_t stream);
/* Thread 3 of block 1 traps; the others before it write out[block]. */
cudaError_t try_trap(int *out, cudaStream_t stream);
/* *count += threads of the grid. */
cudaError_t try_count(unsigned *count, int blocks, int threads, cudaStream_t stream);
/* out[i] += in[i], (n) */
cudaError_t try_add(const float *in, float *out, int n, cudaStream_t stream);
/* Launches of shared_bytes that write nothing; `raise`: after asking for that much. */
cudaError_t try_shared(int shared_bytes, int raise, cudaStream_t stream);
/* out[0] = in[0] of the number's type, rounded and widened again. */
cudaError_t try_round(enum cuda_dtype dtype, const double *in, double *out, int n,
                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
