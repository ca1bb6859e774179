/* core/graph/gradient.h - automatic differentiation: forward graph → training graph of one microbatch.
 *
 * Reverse-mode differentiation with the operator table's gradient rules: forward operators in
 * reverse, each appending its I and W operators. The gradients of a tensor with several consumers are
 * added by `add` operators in consumer order. Every *use* of a parameter has its own gradient tensor
 * ("grad.wte", "grad.wte#1"), so the order in which tied parameters' gradients are added does not
 * depend on their devices. Gradients of inputs (ids) are not computed.
 *
 * In a device's view (core/sharding/shard) a contribution may be partial over the devices of an axis
 * (graph_op.partial). Partial values are added first, reduced over the group once, and the non-partial contributions are added to
 * the result. A tensor that was gathered keeps partial values separate: its rule reduces and shards them in one reduce-scatter. The
 * gradient of a parameter is not reduced here: its tensor records the axes over which it is partial.
 */
#ifndef CORE_GRAPH_GRADIENT_H
#define CORE_GRAPH_GRADIENT_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdbool.h>
#include <stdint.h>

/* loss_weight: the microbatch's weight in the global batch's mean loss, 1 / n_microbatches of the
 * whole step; cross_entropy_grad's scale is loss_weight / rows. Appends to g. */
MUST_CHECK enum status gradient_build(struct graph *g, double loss_weight, struct error *err);

/* For gradient rules. */
struct gradient_builder;
struct graph *gradient_graph(struct gradient_builder *b);
double gradient_loss_weight(const struct gradient_builder *b);
/* Gradient of tensor, contributions added; -1: none. */
int32_t gradient_of(struct gradient_builder *b, int32_t tensor);
/* Adds a contribution to the gradient of tensor (an activation). */
MUST_CHECK enum status gradient_contribute(struct gradient_builder *b, int32_t tensor, int32_t grad,
                                           struct error *err);
/* The same for a contribution that is partial over the axes of `partials` (bit x: axis x), in place of the operator's. */
MUST_CHECK enum status gradient_contribute_partial(struct gradient_builder *b, int32_t tensor,
                                                   int32_t grad, uint8_t partials,
                                                   struct error *err);
/* Gradients of a tensor that keeps partial values separate: out[m] is partial over the axes of m, out[0] is not partial; -1:
 * none. Such a tensor is made by group_all_gather, or from a parameter
 * by conversions; any other has out[0] only. */
enum { GRADIENT_PARTIALS = 1 << MESH_AXES_MAX };
void gradient_partials(struct gradient_builder *b, int32_t tensor, int32_t out[GRADIENT_PARTIALS]);
/* Whether tensor is a parameter, or derived from one by conversions. */
bool gradient_is_of_parameter(struct gradient_builder *b, int32_t tensor);
/* Reduces all partial values to one gradient, in the layer of forward operator `forward`. */
int32_t gradient_reduce_partials(struct gradient_builder *b, int32_t forward, int32_t tensor,
                                 int32_t partials[GRADIENT_PARTIALS]);
/* Operands of forward operators that are this tensor of the forward graph. */
int32_t gradient_readers(const struct gradient_builder *b, int32_t tensor);
/* Whether tensor requires a gradient (an activation; false for inputs). */
bool gradient_wanted(struct gradient_builder *b, int32_t tensor);
/* A new parameter-gradient tensor for the next use of the parameter. */
int32_t gradient_parameter(struct gradient_builder *b, int32_t parameter);
/* The same, partial over the axes of `partials`, in place of the operator's. */
int32_t gradient_parameter_partial(struct gradient_builder *b, int32_t parameter, uint8_t partials);
/* Appends an operator for forward operator `forward`; outputs are existing tensors or, if -1, created. */
/* W operators are appended after all I operators and additions of gradients of the same forward operator. */
MUST_CHECK enum status gradient_emit(struct gradient_builder *b, int32_t forward, enum op_kind kind,
                                     enum phase phase, const char *suffix,
                                     const struct op_attrs *attrs, const int32_t *inputs,
                                     int32_t n_inputs, int32_t *outputs, int32_t n_outputs,
                                     struct error *err);

/* Whether a gradient starts at the operator: that of a loss, in proportion to the loss weight. */
static inline bool gradient_starts(const struct graph_op *op)
{
    return op->kind == OP_cross_entropy_grad ||
           (op->kind == OP_gating_grad && op->attrs.scale != 0);
}

#endif
