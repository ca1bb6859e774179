/* exec/cuda/kernels_attention.h - launchers of memory-efficient attention (FlashAttention): the (T, T) matrix is
 * never in device memory.
 *
 * Shapes: queries (b, t, heads, head_dim), keys and values (b, keys, kv_heads, head_dim). Query head h uses key-value
 * head h / (heads / kv_heads). Query i has position start + i and sees the keys up to its position, only the last
 * `window` of them if that is not 0, or all keys if bidirectional. scores = q·k / √head_dim. Operands have strides in
 * elements, so that a packed qkv and three operands are one case; gradients have the layout of their operands. Two
 * variants, selected by cuda_attention_is_fast only: tensor cores for bf16 and fp16, multiply-adds otherwise. All
 * launchers return the launch error and launch nothing if a size is 0. Every element of the outputs is written.
 */
#ifndef EXEC_CUDA_KERNELS_ATTENTION_H
#define EXEC_CUDA_KERNELS_ATTENTION_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attention_strides {  /* of q, and of k and v, which share them; a head is contiguous */
    int64_t sequence, position; /* heads are head_dim apart */
};

struct attention_call {
    enum cuda_dtype dtype;
    int64_t b;
    int32_t queries, keys, heads, kv_heads, head_dim, start, window;
    bool bidirectional;
    double softcap; /* > 0: a score s becomes softcap·tanh(s/softcap) */
    const void *q, *k, *v; /* q: address of the first query */
    struct attention_strides q_at, kv_at;
    void *o;   /* (b, queries, heads, head_dim); an input of the gradient */
    void *lse; /* (b, heads, queries) log Σ exp(score), natural; an input of the gradient */
    bool wide_lse; /* lse is fp32 with bf16 or fp16 operands */
    /* gradient only */
    const void *dout; /* shape of o */
    void *delta;      /* scratch (b, heads, queries) of the compute type */
    void *dq, *dk, *dv;
};

/* Without softcap; bf16 or fp16, heads of up to 128 elements and a multiple of 8, all addresses multiples of 16 bytes. capability: 10
 * major + minor; sm_80 and newer, and sm_75 for fp16 with heads of up to 64. */
bool cuda_attention_is_fast(const struct attention_call *a, int capability);

cudaError_t cuda_attention_forward_fast(const struct attention_call *a, cudaStream_t stream);
cudaError_t cuda_attention_forward_plain(const struct attention_call *a, cudaStream_t stream);
/* delta = Σ o·do per row and head, an input of both gradients. queries · heads < 2^31, b at most 65535. */
cudaError_t cuda_attention_delta(const struct attention_call *a, cudaStream_t stream);
/* dq, then dk and dv; keys that no query sees get zeros. */
cudaError_t cuda_attention_grad_fast(const struct attention_call *a, cudaStream_t stream);
cudaError_t cuda_attention_grad_plain(const struct attention_call *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
