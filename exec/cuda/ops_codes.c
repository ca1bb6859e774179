/* exec/cuda/ops_codes.c - encode and decode of compressed messages, orthonormal, by exec/cuda/kernels_codes.h. */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_codes.h"
#include "exec/cuda/operands.h"
#include "exec/op_values.h"

cuda_op cuda_op_encode, cuda_op_decode, cuda_op_orthonormal;

static struct cuda_code code_of(const struct op_call *c)
{
    const struct encoding *k = &c->attrs->code;
    int64_t n = shape_elements(&c->shapes->input[0]), rest = n % k->block;
    return (struct cuda_code){.code = *k,
                              .n = n,
                              .blocks = (n + k->block - 1) / k->block,
                              .last_kept = encoding_kept(k, rest ? rest : k->block),
                              .block_words = encoding_block_words(k, k->block),
                              .number = encoding_float_of(k->kind)};
}

enum status cuda_op_encode(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_code k = code_of(c);
    k.key = op_values_random_key(c), k.sequence = op_values_random_sequence(c);
    return cuda_failed(cuda_encode(cuda_dtype_of(c->dtype), &k, c->input[0],
                                   k.code.feedback ? c->output[1] : NULL, c->output[0], x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_decode(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_code k = code_of(c);
    int64_t each = encoding_words(&k.code, k.n), all = shape_elements(&c->shapes->input[1]);
    if (!each) return OK;
    return cuda_failed(cuda_decode(cuda_dtype_of(c->dtype), &k, c->input[1], all / each, each,
                                   c->output[0],
                                   k.code.feedback == FEEDBACK_EF21 ? c->output[1] : NULL, x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_orthonormal(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *p = &c->shapes->input[0];
    int64_t n = p->dim[0], r = n ? shape_elements(p) / n : 0;
    return cuda_failed(cuda_orthonormal(cuda_dtype_of(c->dtype), c->output[0], n, r, ORTHONORMAL_DRAWS,
                                        op_values_random_key(c), (uint64_t)c->optimizer->step, x->stream),
                       op_kind_name(c->kind), err);
}
