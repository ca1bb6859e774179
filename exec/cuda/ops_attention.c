/* exec/cuda/ops_attention.c - attention and attention_grad by exec/cuda/kernels_attention.h.
 *
 * A packed qkv and separate operands map to the same strides, as do queries that are a shard of the positions
 * (attrs.lines of a packed qkv, attrs.start otherwise). In a packed gradient the queries of other devices are zeros.
 * Beside bf16 and fp16 only lse may be fp32, because a sum of probabilities needs more digits than its terms.
 */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_attention.h"
#include "exec/cuda/operands.h"

#include <inttypes.h>

cuda_op cuda_op_attention, cuda_op_attention_grad;

/* n_in: 1 for a packed qkv, 3 for q, k, v. base: those operands, or their gradients. */
static void place(const struct op_call *c, int32_t n_in, const void *const base[3], const void **q,
                  const void **k, const void **v, struct attention_call *a)
{
    const struct op_attrs *t = c->attrs;
    int64_t bytes = dtype_bytes(c->dtype), heads = (int64_t)t->heads * t->head_dim,
            kv_heads = (int64_t)t->kv_heads * t->head_dim, all = heads + 2 * kv_heads;
    if (n_in == 1) {
        const char *qkv = base[0];
        a->q_at = a->kv_at = (struct attention_strides){a->keys * all, all};
        *q = qkv + t->lines.first * all * bytes;
        *k = qkv + heads * bytes, *v = qkv + (heads + kv_heads) * bytes;
        return;
    }
    a->q_at = (struct attention_strides){a->queries * heads, heads};
    a->kv_at = (struct attention_strides){a->keys * kv_heads, kv_heads};
    *q = base[0], *k = base[1], *v = base[2];
}

/* Positions and a sequence's rows of heads are 31-bit, heads and sequences 16-bit. */
static enum status sizes(const struct op_call *c, int32_t n_in, struct attention_call *a,
                         struct error *err)
{
    const struct op_attrs *t = c->attrs;
    const struct shape *s = c->shapes->input;
    int64_t queries = t->lines.of ? t->lines.n : s[0].dim[1], keys = s[n_in > 1].dim[1];
    int64_t sequences = s[0].dim[0] * (t->head_dim / 32 + 1);
    if (keys > 1 << 30 || t->heads > 65535 || sequences > 65535 || queries * t->heads > INT32_MAX)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId64 " sequences of %" PRId64
                         " positions and %" PRId32 " heads are more than a launch takes",
                         op_kind_name(c->kind), s[0].dim[0], keys, t->heads);
    *a = (struct attention_call){.dtype = cuda_dtype_of(c->dtype),
                                 .b = s[0].dim[0],
                                 .queries = (int32_t)queries,
                                 .keys = (int32_t)keys,
                                 .heads = t->heads,
                                 .kv_heads = t->kv_heads,
                                 .head_dim = t->head_dim,
                                 .start = (int32_t)(t->start + t->lines.first),
                                 .window = t->window,
                                 .bidirectional = t->bidirectional,
                                 .softcap = t->softcap};
    return OK;
}

/* Operands other than lse must have the call's dtype. */
static enum status refuse_wide(const struct op_call *c, uint32_t inputs, uint32_t outputs,
                               struct error *err)
{
    if (!dtype_is_half(c->dtype) || (!(c->wide_input & ~inputs) && !(c->wide_output & ~outputs)))
        return OK;
    return error_set(err, ERR_INPUT, "%s: beside %s only lse may be fp32", op_kind_name(c->kind),
                     dtype_name(c->dtype));
}

enum status cuda_op_attention(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct attention_call a;
    TRY(refuse_wide(c, 0, 2, err));
    TRY(sizes(c, c->shapes->n_inputs, &a, err));
    place(c, c->shapes->n_inputs, c->input, &a.q, &a.k, &a.v, &a);
    a.o = c->output[0], a.lse = c->output[1];
    a.wide_lse = !dtype_is_half(c->dtype) || cuda_output_is_wide(c, 1);
    bool fast = cuda_attention_is_fast(&a, x->capability);
    return cuda_failed(fast ? cuda_attention_forward_fast(&a, x->stream)
                            : cuda_attention_forward_plain(&a, x->stream),
                       "attention", err);
}

/* Zeroes gradients of queries of other devices, and of keys and values without heads. */
static enum status clear(struct cuda_context *x, const struct op_call *c,
                         const struct attention_call *a, struct error *err)
{
    bool some = a->b && a->heads && a->keys;
    if (some && (!c->attrs->lines.of || c->attrs->lines.n == c->attrs->lines.of)) return OK;
    for (int32_t i = 0; i < c->shapes->n_outputs; i++) {
        size_t bytes = (size_t)(shape_elements(&c->shapes->output[i]) * dtype_bytes(c->dtype));
        if (bytes)
            TRY(cuda_failed(cudaMemsetAsync(c->output[i], 0, bytes, x->stream),
                            "attention_grad: cudaMemsetAsync", err));
    }
    return OK;
}

enum status cuda_op_attention_grad(struct cuda_context *x, const struct op_call *c,
                                   struct error *err)
{
    int32_t n = c->shapes->n_inputs - 3;
    struct attention_call a;
    TRY(refuse_wide(c, 1u << (n + 1), 0, err));
    TRY(sizes(c, n, &a, err));
    place(c, n, c->input, &a.q, &a.k, &a.v, &a);
    const void *gradient[3] = {c->output[0], c->output[1], c->output[2]}, *dq, *dk, *dv;
    place(c, n, gradient, &dq, &dk, &dv, &a);
    a.dq = (void *)(uintptr_t)dq, a.dk = (void *)(uintptr_t)dk, a.dv = (void *)(uintptr_t)dv;
    a.o = (void *)(uintptr_t)c->input[n], a.lse = (void *)(uintptr_t)c->input[n + 1];
    a.dout = c->input[n + 2];
    a.wide_lse = !dtype_is_half(c->dtype) || cuda_input_is_wide(c, n + 1);
    TRY(clear(x, c, &a, err));
    int64_t rows = a.b * a.heads * a.queries;
    TRY(cuda_scratch(x, (size_t)(rows * dtype_bytes(dtype_master(c->dtype))), &a.delta, err));
    TRY(cuda_failed(cuda_attention_delta(&a, x->stream), "attention_grad: delta", err));
    bool fast = cuda_attention_is_fast(&a, x->capability);
    return cuda_failed(fast ? cuda_attention_grad_fast(&a, x->stream)
                            : cuda_attention_grad_plain(&a, x->stream),
                       "attention_grad", err);
}
