/* exec/cuda/kernels_cross_entropy.h - launchers of softmax, its logarithm and the loss in one pass over the logits.
 *
 * Logits (rows, n) with row stride `row` may be the columns [start, start + n) of a vocabulary sharded over devices.
 * A target outside them, or -1, has no logit here; cuda_check_ids has checked targets against the vocabulary before.
 * All launchers return the launch error; for 0 rows only the loss is launched, which is 0.
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
    /* Per-row values: of `dtype`, or fp32 if that is bf16 or fp16 and the flag is set. */
    void *lse; /* (rows); of shards (rows, 2) with the target's logit, 0 if it is not here */
    bool wide_lse;
    double *row_loss; /* (rows) scratch: lse - logit of the target, 0 without a target */
};

/* lse and row_loss; with `shards` lse and the target's logit, two per row. n = 0: lse is -∞. */
cudaError_t cuda_cross_entropy_rows(const struct cross_entropy_call *c, bool shards,
                                    cudaStream_t stream);

/* shards (rows, 2 n_shards) of `dtype` or fp32 -> lse (rows), row_loss. */
cudaError_t cuda_cross_entropy_join(const struct cross_entropy_call *c, const void *shards,
                                    bool wide_shards, int64_t n_shards, cudaStream_t stream);

/* loss (1) = Σ row_loss / counted, in fp64 in one fixed order; 0 if nothing counts. */
cudaError_t cuda_cross_entropy_mean(const struct cross_entropy_call *c, int64_t counted, void *loss,
                                    bool wide_loss, cudaStream_t stream);

/* dlogits, with the row stride of logits and 0 after column n: scale · by · (exp(logit - lse) - 1 at the target), 0
 * if the target is -1. by: on the device, NULL: 1. dlogits have dtype `out`: that of the logits, or bf16 or fp16 of
 * fp32 logits; cudaErrorInvalidValue otherwise. */
cudaError_t cuda_cross_entropy_grad(const struct cross_entropy_call *c, double scale,
                                    const float *by, void *dlogits, enum cuda_dtype out,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
