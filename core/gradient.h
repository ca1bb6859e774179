/* core/gradient.h - from a forward graph to the training graph of one microbatch.
 *
 * Reverse-mode differentiation over the operator table's gradient rules: forward operators in
 * reverse, each appending its I and W operators. A tensor with several consumers gets its gradient
 * summed by `add` operators in consumer order. Every *use* of a parameter has a gradient tensor of
 * its own ("grad.wte", "grad.wte#1"), so that tied parameters add up in an order that does not
 * depend on who computes them. Gradients of inputs (ids) are not computed.
 */
#ifndef CORE_GRADIENT_H
#define CORE_GRADIENT_H

#include "core/error.h"
#include "core/graph.h"

#include <stdbool.h>
#include <stdint.h>

/* loss_weight: this microbatch's share of the global batch's mean loss, 1 / n_microbatches of the
 * whole step; cross_entropy_grad's scale is loss_weight / rows. Appends to g. */
MUST_CHECK enum status gradient_build(struct graph *g, double loss_weight, struct error *err);

/* For the rules in op's rows. */
struct gradient_builder;
struct graph *gradient_graph(struct gradient_builder *b);
double gradient_loss_weight(const struct gradient_builder *b);
/* Gradient tensor of tensor (already summed), -1 where none flows. */
int32_t gradient_of(struct gradient_builder *b, int32_t tensor);
/* One more contribution to the gradient of tensor (an activation). */
MUST_CHECK enum status gradient_contribute(struct gradient_builder *b, int32_t tensor, int32_t grad,
                                           struct error *err);
/* Is the gradient of tensor wanted (an activation; false for inputs)? */
bool gradient_wanted(struct gradient_builder *b, int32_t tensor);
/* A fresh parameter-gradient tensor for the next use of the parameter. */
int32_t gradient_parameter(struct gradient_builder *b, int32_t parameter);
/* Appends an operator for forward operator `forward`; outputs given (existing tensors) or, where -1, created. */
/* W operators are appended after all I operators and gradient sums of the same forward operator. */
MUST_CHECK enum status gradient_emit(struct gradient_builder *b, int32_t forward, enum op_kind kind,
                                     enum phase phase, const char *suffix,
                                     const struct op_attrs *attrs, const int32_t *inputs,
                                     int32_t n_inputs, int32_t *outputs, int32_t n_outputs,
                                     struct error *err);

#endif
