/* core/graph/gradient.h - from a forward graph to the training graph of one microbatch.
 *
 * Reverse-mode differentiation over the operator table's gradient rules: forward operators in
 * reverse, each appending its I and W operators. A tensor with several consumers gets its gradient
 * summed by `add` operators in consumer order. Every *use* of a parameter has a gradient tensor of
 * its own ("grad.wte", "grad.wte#1"), so that tied parameters add up in an order that does not
 * depend on who computes them. Gradients of inputs (ids) are not computed.
 *
 * In the view of one device of several (core/sharding/shard) a contribution may be partial over the devices of an axis
 * (graph_op.partial). Partial values are added up first, summed over the group once, and what is whole is added to that. A tensor
 * that was gathered keeps its partial values apart: its rule sums and deals out in one reduce-scatter. The gradient of a
 * parameter is not summed here: its tensor says over which axes it is partial.
 */
#ifndef CORE_GRAPH_GRADIENT_H
#define CORE_GRAPH_GRADIENT_H

#include "core/base/error.h"
#include "core/graph/graph.h"

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
/* The same where the contribution is partial over the axes of `partial` (bit x: axis x), whatever the operator says. */
MUST_CHECK enum status gradient_contribute_partial(struct gradient_builder *b, int32_t tensor,
                                                   int32_t grad, uint8_t partials,
                                                   struct error *err);
/* What flowed back to a tensor that keeps its partial values apart: out[m] is partial over the axes of m, out[0] whole; -1 where
 * there is none. Of any other tensor out[0] alone. Such is a tensor that is made by group_all_gather, or from a parameter
 * by conversions. */
enum { GRADIENT_PARTIALS = 1 << MESH_AXES_MAX };
void gradient_partials(struct gradient_builder *b, int32_t tensor, int32_t out[GRADIENT_PARTIALS]);
/* Is it a parameter, or a part of one that conversions made? */
bool gradient_is_of_parameter(struct gradient_builder *b, int32_t tensor);
/* Makes one whole gradient of all the partial values, in the layer of forward operator `forward`. */
int32_t gradient_reduce_partials(struct gradient_builder *b, int32_t forward, int32_t tensor,
                                 int32_t partials[GRADIENT_PARTIALS]);
/* Is the gradient of tensor wanted (an activation; false for inputs)? */
bool gradient_wanted(struct gradient_builder *b, int32_t tensor);
/* A fresh parameter-gradient tensor for the next use of the parameter. */
int32_t gradient_parameter(struct gradient_builder *b, int32_t parameter);
/* The same, partial over those axes, whatever the operator says. */
int32_t gradient_parameter_partial(struct gradient_builder *b, int32_t parameter, uint8_t partials);
/* Appends an operator for forward operator `forward`; outputs given (existing tensors) or, where -1, created. */
/* W operators are appended after all I operators and additions of gradients of the same forward operator. */
MUST_CHECK enum status gradient_emit(struct gradient_builder *b, int32_t forward, enum op_kind kind,
                                     enum phase phase, const char *suffix,
                                     const struct op_attrs *attrs, const int32_t *inputs,
                                     int32_t n_inputs, int32_t *outputs, int32_t n_outputs,
                                     struct error *err);

#endif
