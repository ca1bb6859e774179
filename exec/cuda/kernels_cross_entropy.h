/* exec/cuda/kernels_cross_entropy.h - softmax, its logarithm and the loss in one pass over the logits; launchers.
 *
 * Logits (rows, n), `row` elements from one row to the next, may be the columns [start, start + n) of a vocabulary that devices share. A target outside them, or -1,
 * has no logit here; targets outside the vocabulary are found by cuda_check_ids before.
 * All launchers: the error of the launch; of 0 rows nothing is launched but the loss, which is then 0.
 */
#ifndef EXEC_CUDA_KERNELS_CROSS_ENTROPY_H
#define EXEC_CUDA_KERNELS_CROSS_ENTROPY_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cross_entropy_call {
    enum cuda_dtype dtype; /* of logits */
    int64_t rows, n, row, start;
    const void *logits;
    const int32_t *targets;
    /* What stands beside a row: of `dtype`, or fp32 where that is bf16 or fp16 and the flag is set. */
    void *lse; /* (rows); of parts (rows, 2) with the target's logit, 0 where it is not here */
    bool wide_lse;
    double *row_loss; /* (rows) scratch: lse - logit of the target, 0 where it has none */
};

/* lse and row_loss; with `parts` lse and the target's logit, two a row. n = 0: lse is -∞. */
cudaError_t cuda_cross_entropy_rows(const struct cross_entropy_call *c, bool shards,
                                    cudaStream_t stream);

/* parts (rows, 2 n_shards) of `dtype` or fp32 -> lse (rows), row_loss. */
cudaError_t cuda_cross_entropy_join(const struct cross_entropy_call *c, const void *shards,
                                    bool wide_shards, int64_t n_shards, cudaStream_t stream);

/* loss (1) = Σ row_loss / counted, in fp64 in one fixed order; 0 where nothing counts. */
cudaError_t cuda_cross_entropy_mean(const struct cross_entropy_call *c, int64_t counted, void *loss,
                                    bool wide_loss, cudaStream_t stream);

/* dlogits, as far from row to row as logits, 0 behind the n: scale · by · (exp(logit - lse) - 1 at the target), 0 where the target is -1;
 * by is on the device, NULL: 1. dlogits are of `out`: the number of
 * the logits, or bf16 or fp16 of fp32 logits; cudaErrorInvalidValue for another. */
cudaError_t cuda_cross_entropy_grad(const struct cross_entropy_call *c, double scale,
                                    const float *by, void *dlogits, enum cuda_dtype out,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
