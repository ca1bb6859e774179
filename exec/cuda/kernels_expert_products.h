/* exec/cuda/kernels_expert_products.h - matrix products of the rows that experts have; launchers.
 *
 * How many of an expert's slots are filled only the device knows (expert_route), so no library's product fits: these look it
 * up, read no slot behind the last one and give zeros there.
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
    int32_t experts, capacity, n_left, n_right; /* n_left: of each row of left; n_right: of the result */
    const int32_t *filled;                      /* (b, experts) */
    const void *left;                           /* (b, experts, capacity, n_left) */
    /* rows: w (experts, n_left, n_right), turned: (experts, n_right, n_left). weights: (b, experts, capacity, n_right) */
    const void *right;
    void *out;
    bool turned;
    bool wide_out, accumulate; /* of weights: out is fp32 beside narrow operands; out is added to */
};

/* Tensor cores: bf16 and fp16 from sm_80 (10 major + minor), sizes multiples of 8, addresses of 16 bytes. */
bool expert_product_is_fast(const struct expert_product *p, int capability);
/* out (b, experts, capacity, n_right) = left · w of each expert; 0 in slots that are not filled. */
cudaError_t cuda_expert_rows(const struct expert_product *p, bool fast, cudaStream_t stream);
/* out (experts, n_left, n_right) = or += Σ over filled slots, sequences in their order, of leftᵀ · right. */
cudaError_t cuda_expert_weights(const struct expert_product *p, bool fast, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
