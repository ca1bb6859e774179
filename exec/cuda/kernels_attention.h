/* exec/cuda/kernels_attention.h - attention that never has the (T, T) matrix in device memory; launchers.
 *
 * What is asked: queries (b, t, heads, head_dim) meet keys and values (b, keys, kv_heads, head_dim); query head h sees
 * those of head h / (heads / kv_heads). Query i stands at position start + i; it sees the keys up to its own position, the last
 * `window` of those where that is not 0, or all of them where bidirectional. scores = q·k / √head_dim.
 * Operands are addressed by strides, in elements, so that a packed qkv and three operands are one case, and so are gradients,
 * which lie like what they are gradients of.
 * Two ways, told apart by cuda_attention_is_fast alone: tensor cores for bf16 and fp16, plain multiply-adds for all else.
 * All launchers: the error of the launch; nothing is launched where a size is 0. Every element of the outputs named is written.
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

struct attention_strides {  /* of q, and of k and v, which have the same ones; a head's elements are one after the other */
    int64_t sequence, position; /* heads lie head_dim apart */
};

struct attention_call {
    enum cuda_dtype dtype;
    int64_t b;
    int32_t queries, keys, heads, kv_heads, head_dim, start, window;
    bool bidirectional;
    const void *q, *k, *v; /* q at the first query */
    struct attention_strides q_at, kv_at;
    void *o;   /* (b, queries, heads, head_dim); of the gradient an input */
    void *lse; /* (b, heads, queries) log Σ exp(score), natural; likewise */
    bool wide_lse; /* fp32 beside bf16, fp16 */
    /* gradient */
    const void *dout; /* as o */
    void *delta;      /* scratch (b, heads, queries) of the type that is computed in */
    void *dq, *dk, *dv;
};

/* bf16 and fp16 with heads of up to 128 elements, a multiple of 8, all addresses multiples of 16 bytes. capability: of the
 * device, 10 major + minor; from sm_80, and from sm_75 fp16 with heads of up to 64. */
bool cuda_attention_is_fast(const struct attention_call *a, int capability);

cudaError_t cuda_attention_forward_fast(const struct attention_call *a, cudaStream_t stream);
cudaError_t cuda_attention_forward_plain(const struct attention_call *a, cudaStream_t stream);
/* delta = Σ o·do of each row and head; both gradients read it. queries · heads < 2^31, b at most 65535. */
cudaError_t cuda_attention_delta(const struct attention_call *a, cudaStream_t stream);
/* dq, then dk and dv; the keys that no query sees get zeros. */
cudaError_t cuda_attention_grad_fast(const struct attention_call *a, cudaStream_t stream);
cudaError_t cuda_attention_grad_plain(const struct attention_call *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
