/* exec/cuda/kernels_tokens.h - launchers of embedding, its gradient, and rotary embedding.
 *
 * Ids are int32 (n). Rows of a table are `start` … start + entries - 1 of a vocabulary; an id of none of them is no row: it gives
 * zeros and gets nothing. Whether ids are of the vocabulary at all is asked elsewhere (kernels_check.h).
 */
#ifndef EXEC_CUDA_KERNELS_TOKENS_H
#define EXEC_CUDA_KERNELS_TOKENS_H

#include "exec/cuda/number.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y (n, d) = table (entries, d)[ids]; table_wide: it is fp32 beside a narrow y. */
cudaError_t cuda_embedding(enum cuda_number number, const int32_t *ids, int64_t n, int64_t start,
                           int64_t entries, const void *table, bool table_wide, int64_t d, void *y,
                           cudaStream_t stream);

/* dtable (entries, d) += the rows of dy (n, d), those of equal ids in the order of their positions; or = with add false.
 * n < 2^31. Scratch: 8 bytes an entry, 12 an id, and two rows of d for every 32 ids. */
size_t cuda_embedding_grad_scratch(enum cuda_number number, int64_t n, int64_t entries, int64_t d);
cudaError_t cuda_embedding_grad(enum cuda_number number, const int32_t *ids, int64_t n,
                                int64_t start, int64_t entries, const void *dy, int64_t d,
                                void *dtable, bool dtable_wide, bool add, void *scratch,
                                cudaStream_t stream);

/* y (rows, heads, 2·half): pair (i, i + half) of position start + row mod positions turned by frequency[i] radians a position,
 * backwards where inverse. frequency (half) lies on the host and is read before this returns. */
size_t cuda_rotary_scratch(enum cuda_number number, int64_t positions, int32_t half);
cudaError_t cuda_rotary(enum cuda_number number, const void *x, void *y, int64_t rows,
                        int64_t positions, int32_t heads, int32_t half, int64_t start, bool inverse,
                        const double *frequency, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
