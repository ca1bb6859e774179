/* core/graph/op_shapes.h - the shape rules that rows of the operator table point to; for core/graph/op.c alone.
 *
 * A rule reads shapes->input[0 … n_inputs-1] (their number is already checked against the row) and
 * writes shapes->output; n_outputs arrives as the row says and only attention_grad changes it.
 * Errors: ERR_INPUT naming the kind and the two shapes that do not fit. O(operands) each.
 */
#ifndef CORE_GRAPH_OP_SHAPES_H
#define CORE_GRAPH_OP_SHAPES_H

#include "core/base/error.h"
#include "core/graph/op.h"

typedef enum status op_shape_rule(enum op_kind kind, const struct op_attrs *attrs,
                                  struct op_shapes *shapes, struct error *err);

/* same: every input like the first, every output too. none: the caller fills output[0]. */
/* clang-format off */
#define SHAPE_RULES(X) \
    X(matmul) X(linear) X(matmul_gelu_grad) X(logits) X(logits_grad) X(logits_weight_grad) X(same) X(bias) X(bias_grad) X(norm) X(norm_grad) X(norm_weight_grad) X(embedding) X(embedding_grad) \
    X(rotary) X(attention) X(attention_grad) X(cross_entropy) X(cross_entropy_grad) X(none) X(all_gather) X(reduce_scatter) \
    X(measured_forward) X(measured_backward) X(slice) X(paste) \
    X(local_slice) X(add_to_slice) X(gather) X(to_other_part) X(cross_entropy_part) X(cross_entropy_join) \
    X(conv2d) X(conv2d_grad) X(conv2d_weight_grad) X(pool2d) X(pool2d_grad) \
    X(group_norm) X(group_norm_grad) X(group_norm_weight_grad) X(to_rows) X(prepend) \
    X(overflow) X(rescale) X(dropout) X(gating) X(dispatch) X(combine) X(gates_grad) X(expert_matmul)
/* clang-format on */
#define X(name) op_shape_rule shapes_##name;
SHAPE_RULES(X)
#undef X

enum { SHAPE_TEXT_MAX = SHAPE_RANK_MAX * 20 + 3 };
/* ERR_INPUT with both shapes and why they do not fit. */
MUST_CHECK enum status shapes_misfit(enum op_kind kind, const struct shape *a,
                                     const struct shape *b, const char *why, struct error *err);
/* ERR_INPUT where attrs.lines are no part of `all`; how many there are. */
MUST_CHECK enum status shapes_lines(enum op_kind kind, const struct op_attrs *attrs, int64_t all,
                                    int64_t *n, struct error *err);
/* "(8,128,256)"; returns buffer. */
const char *shape_text(char buffer[SHAPE_TEXT_MAX], const struct shape *s);

#endif
