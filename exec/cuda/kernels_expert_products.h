/* exec/cuda/kernels_expert_products.h - launchers of grouped matrix products over the rows of experts (MoE).
 *
 * Only the device has the number of filled slots per expert (expert_route), so library products do not apply: these
 * kernels read it, skip empty slots and write zeros there.
 */
#ifndef EXEC_CUDA_KERNELS_EXPERT_PRODUCTS_H
#define EXEC_CUDA_KERNELS_EXPERT_PRODUCTS_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct expert_product {
    enum cuda_dtype dtype;
    int64_t b;
    int32_t experts, capacity, n_left, n_right; /* n_left: row length of left; n_right: of the result */
    const int32_t *filled;                      /* (b, experts) */
    const void *left;                           /* (b, experts, capacity, n_left) */
    /* rows: w (experts, n_left, n_right), turned: (experts, n_right, n_left). weights: (b, experts, capacity,
     * n_right) */
    const void *right;
    void *out;
    bool turned;
    bool wide_out, accumulate; /* of weights: out is fp32 with half-precision operands; out is accumulated */
};

/* Tensor cores: bf16 and fp16 from sm_80 (10 major + minor), sizes multiples of 8, addresses multiples of 16 bytes. */
bool expert_product_is_fast(const struct expert_product *p, int capability);
/* out (b, experts, capacity, n_right) = left · w of each expert; 0 in empty slots. */
cudaError_t cuda_expert_rows(const struct expert_product *p, bool fast, cudaStream_t stream);
/* out (experts, n_left, n_right) = or += Σ of leftᵀ · right over filled slots, in the order of sequences. */
cudaError_t cuda_expert_weights(const struct expert_product *p, bool fast, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
