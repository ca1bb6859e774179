/* exec/cuda/kernels_codes.h - compressed messages (core/graph/encoding.h) on the device; the same codes as the host's, but for the order
 * of SIGN's sums. */
#ifndef EXEC_CUDA_KERNELS_CODES_H
#define EXEC_CUDA_KERNELS_CODES_H

#include "core/graph/encoding.h"
#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_code {
    struct encoding code;
    int64_t n; /* elements */
    int64_t blocks, last_kept, block_words; /* their number, k of the last, words of a whole one */
    struct encoding_float number;           /* of FP8 */
    uint64_t key, sequence;                 /* of Philox */
};
/* g (n) of the dtype, state (n) of fp32 or fp64, NULL without feedback; words: the code. */
cudaError_t cuda_encode(enum cuda_dtype dtype, const struct cuda_code *c, const void *g, void *state,
                        uint32_t *words, cudaStream_t stream);
/* words: `codes` codes of `each` words, one behind the other; g and, with EF21, sum (n), both of the dtype. */
cudaError_t cuda_decode(enum cuda_dtype dtype, const struct cuda_code *c, const uint32_t *words,
                        int64_t codes, int64_t each, void *g, void *sum, cudaStream_t stream);
/* p (n, r) in place; Philox's key and step. */
cudaError_t cuda_orthonormal(enum cuda_dtype dtype, void *p, int64_t n, int64_t r, int64_t draws, uint64_t key,
                             uint64_t step, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
