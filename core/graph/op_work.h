/* core/graph/op_work.h - the FLOPs and bytes rules that rows of the operator table point to.
 *
 * For core/graph/op.c alone; everybody else asks op_flops and op_bytes_read, op_bytes_written.
 */
#ifndef CORE_GRAPH_OP_WORK_H
#define CORE_GRAPH_OP_WORK_H

#include "core/graph/op.h"

typedef double flops_rule(const struct op_attrs *attrs, const struct op_shapes *shapes);
/* b: bytes of one element that is not int32 */
typedef void bytes_rule(const struct op_attrs *attrs, const struct op_shapes *shapes, int64_t b,
                        int64_t *read, int64_t *written);

/* clang-format off */
#define FLOPS_RULES(X) \
    X(matmul) X(linear) X(linear_gelu) X(matmul_gelu_grad) X(logits) X(logits_grad) X(logits_weight_grad) X(gelu) X(gelu_grad) X(bias_gelu) X(bias_gelu_grad) X(embedding_grad) X(attention) \
    X(attention_grad) X(adamw) X(sgd) X(conv2d) X(conv2d_grad) X(conv2d_weight_grad) X(pool2d) X(avg_pool2d_grad) \
    X(gating) X(gating_grad) X(dispatch) X(combine) X(gates_grad) X(expert_matmul)
/* clang-format on */
#define BYTES_RULES(X)                                                                             \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(accumulate)                                                                                  \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(slice)                                                                                       \
    X(paste) X(dispatch) X(combine) X(gates_grad) X(expert_matmul) X(cross_entropy_join) X(add_to_slice)
#define X(name) flops_rule flops_##name;
FLOPS_RULES(X)
#undef X
#define X(name) bytes_rule bytes_##name;
BYTES_RULES(X)
#undef X

/* attrs.window, or 0 where it does not bind on sequences this long. */
int64_t op_attention_window(const struct op_attrs *attrs, const struct op_shapes *shapes);

#endif
