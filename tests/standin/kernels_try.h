/* tests/standin/kernels_try.h - kernels that only the stand-in's own suites run. */
#ifndef TESTS_STANDIN_KERNELS_TRY_H
#define TESTS_STANDIN_KERNELS_TRY_H

#include "exec/cuda/number.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[b]: the sum of what block b of 256 threads took of in (n). */
cudaError_t try_block_sums(enum cuda_number number, const void *in, void *out, int n, int blocks,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
