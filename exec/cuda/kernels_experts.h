/* exec/cuda/kernels_experts.h - launchers of gating, and of dispatch to experts and combine (MoE).
 *
 * The gates alone determine the row of each slot (core/graph/op_experts.c): expert_route computes it once per call
 * into int32 scratch, which the copying and summing kernels read. No row is written by two threads. All launchers
 * return the launch error; nothing is launched for empty operands.
 */
#ifndef EXEC_CUDA_KERNELS_EXPERTS_H
#define EXEC_CUDA_KERNELS_EXPERTS_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gates (rows, n): softmax of logits (rows, n), with only the `chosen` largest kept. */
cudaError_t cuda_expert_gating(enum cuda_dtype dtype, const void *logits, bool wide_logits,
                               void *gates, bool wide_gates, int64_t rows, int64_t n,
                               int32_t chosen, bool renormalise, cudaStream_t stream);

struct gating_grad_call {
    enum cuda_dtype dtype;
    const void *logits, *gates, *dgates; /* (b, positions, experts) */
    void *out;
    bool wide_logits, wide_gates, wide_dgates, wide_out;
    int64_t b, positions, experts;
    bool renormalise;
    double scale;    /* of the load-balancing loss; 0: none */
    const float *by; /* on the device, multiplies scale; NULL: 1 */
    int32_t *shares; /* scratch (b, experts) if scale is not 0 */
};
cudaError_t cuda_expert_gating_grad(const struct gating_grad_call *c, cudaStream_t stream);

struct expert_routes { /* of all sequences */
    enum cuda_dtype dtype;
    const void *gates; /* (b, positions, experts) */
    bool wide_gates;
    int64_t b;
    int32_t positions, experts, capacity, first; /* capacity slots on this device, from slot `first` on */
    int32_t row, rows;                           /* positions on this device: [row, row + rows) */
    int32_t *slot;   /* (b, positions, experts): slot on this device, -1 for none; NULL: not needed */
    int32_t *token;  /* (b, experts, capacity): position, valid for filled slots only; NULL: not needed */
    int32_t *filled; /* (b, experts) filled slots on this device */
};
cudaError_t cuda_expert_route(const struct expert_routes *r, cudaStream_t stream);

/* x (b, rows, d) -> out (b, experts, capacity, d); slots without a row on this device are 0. */
cudaError_t cuda_expert_dispatch(const struct expert_routes *r, const void *x, void *out, int64_t d,
                                 bool weighted, cudaStream_t stream);
/* in (b, experts, capacity, d) -> y (b, rows, d), the rows of a position added in the order of experts. */
cudaError_t cuda_expert_combine(const struct expert_routes *r, const void *in, void *y, int64_t d,
                                bool weighted, cudaStream_t stream);
/* in as above, dy (b, rows, d) -> out (b, positions, experts) = dy·row, 0 without a row on this device. */
cudaError_t cuda_expert_gates_grad(const struct expert_routes *r, const void *in, const void *dy,
                                   void *out, bool wide_out, int64_t d, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
