/* exec/cuda/kernels_tokens.h - launchers of embedding, its gradient, and rotary embedding.
 *
 * Ids are int32 (n). The table has rows `start` … start + entries - 1 of a vocabulary; an id outside them gives zeros
 * and gets no gradient. kernels_check.h checks ids against the vocabulary.
 */
#ifndef EXEC_CUDA_KERNELS_TOKENS_H
#define EXEC_CUDA_KERNELS_TOKENS_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y (n, d) = table (entries, d)[ids]; table_wide: fp32 with a half-precision y. */
cudaError_t cuda_embedding(enum cuda_dtype dtype, const int32_t *ids, int64_t n, int64_t start,
                           int64_t entries, const void *table, bool table_wide, int64_t d, void *y,
                           cudaStream_t stream);

/* dtable (entries, d) += the rows of dy (n, d), those of equal ids in the order of positions; with add false: =. n <
 * 2^31. Scratch: 8 bytes per entry, 12 per id, and two rows of d per 32 ids. */
size_t cuda_embedding_grad_scratch(enum cuda_dtype dtype, int64_t n, int64_t entries, int64_t d);
cudaError_t cuda_embedding_grad(enum cuda_dtype dtype, const int32_t *ids, int64_t n, int64_t start,
                                int64_t entries, const void *dy, int64_t d, void *dtable,
                                bool dtable_wide, bool add, void *scratch, cudaStream_t stream);

/* table (2, positions, half), fp64 or else fp32: cosines, then sines, of the angles of positions start … for pairs
 * first … first + pairs - 1 of half. frequency (pairs): radians per position; on the host, read before this returns. */
enum { CUDA_ROTARY_PAIRS = 128 }; /* maximum per call */
size_t cuda_rotary_table_bytes(enum cuda_dtype dtype, int64_t positions, int32_t half);
cudaError_t cuda_rotary_table(enum cuda_dtype dtype, const double *frequency, int32_t first,
                              int32_t pairs, int32_t half, int64_t positions, int64_t start,
                              void *table, cudaStream_t stream);
/* y (rows, heads, head_dim) of x: rotates pair (i, i + half), or (2i, 2i + 1) if interleaved, of row r by the table's angle for position r
 * mod positions; by the negative angle if inverse. Features from 2·half on are copied. */
cudaError_t cuda_rotary(enum cuda_dtype dtype, const void *x, void *y, int64_t rows,
                        int64_t positions, int32_t heads, int32_t head_dim, int32_t half,
                        bool interleaved, bool inverse, const void *table, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
