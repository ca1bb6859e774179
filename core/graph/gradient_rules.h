/* core/graph/gradient_rules.h - the gradient rules that rows of the operator table point to; for
 * core/graph/op.c alone.
 *
 * A rule is called for a forward operator whose output carries a gradient (or is the loss) and
 * appends, through core/graph/gradient.h, its I and W operators.
 */
#ifndef CORE_GRAPH_GRADIENT_RULES_H
#define CORE_GRAPH_GRADIENT_RULES_H

#include "core/graph/op.h"

/* clang-format off */
#define GRADIENT_RULES(X) \
    X(matmul) X(linear) X(linear_gelu) X(logits) X(bias) X(add) X(multiply) X(activation) X(bias_gelu) X(swiglu) X(layer_norm) X(rms_norm) \
    X(embedding) X(rotary) X(attention) X(cross_entropy) X(all_reduce) X(all_gather) X(reduce_scatter) \
    X(measured_forward) X(conv2d) X(relu) X(max_pool2d) X(avg_pool2d) X(group_norm) X(to_rows) X(prepend) X(slice) \
    X(dropout) X(gating) X(dispatch) X(combine) X(expert_matmul) \
    X(local_slice) X(group_all_gather) X(group_reduce_scatter) X(group_all_to_all) X(cross_entropy_join)
/* clang-format on */
#define X(name) op_gradient_rule gradient_rule_##name;
GRADIENT_RULES(X)
#undef X

#endif
