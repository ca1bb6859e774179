/* core/sharding/shard.h - a device's own forward graph (its *view*), from the whole graph and a sharding: GSPMD's partitioning.
 *
 * The view of device k has the same operators, layers and parameters (same order, same names) with the shapes of its
 * shards, and conversions (resharding) between them: an operand's placement is converted once for every tensor
 * and placement, in the layer of the first operator that needs it. gradient_build on a view gives the backward:
 * the dual conversions come from the gradient rules of the conversion kinds, outstanding reductions from graph_op.partial.
 * There is no second differentiation.
 * All views of one stage have the same operators and tensors in the same order; only shapes, shards and attributes differ.
 *
 * A stage is a run of layers. Operators outside it stay in the view, because the training graph needs them, and are
 * replicated or sharded by batch as the stage's first or last activation is. A tensor that crosses the stage's boundary is therefore
 * REPLICATED or SHARDED by dimension 0, and its `shard` states which of it this device has.
 *
 * Sources (inputs, parameters) need no conversion: an input tensor occurs once for every shard that is needed of it
 * (tokens, "tokens@1" …). A parameter is kept in the shard that all its uses need, else replicated, and a use that needs less
 * takes a local slice; the gradient of that use is added to the slice's place (add_to_slice) and is partial.
 *
 * An operator with sufficient factors records how x and dy are gathered (graph_op.factors); its matmul rule gathers them in
 * the backward and multiplies the full operands, so its weight gradient is not partial and needs no reduction.
 *
 * The gradient tensors of parameters (gradient_build) record in `partial` the axes over which they are partial; along any other
 * axis the gradient is replicated (or sharded).
 */
#ifndef CORE_SHARDING_SHARD_H
#define CORE_SHARDING_SHARD_H

#include "core/base/error.h"
#include "core/collective/collective.h"
#include "core/graph/graph.h"
#include "core/sharding/sharding.h"

struct arena;

/* --- placements --- */

struct on_axis { /* placement of a tensor along one axis of the mesh */
    enum placing how;
    int32_t dim;        /* SHARDED */
    int32_t ratio;      /* SHARDED: index into the ratio vectors */
    struct grain grain; /* SHARDED */
};
struct placement { /* if both axes shard one dimension, axis 0 is the outer one */
    struct on_axis axis[MESH_AXES_MAX];
};
/* Whether every device has the same shard; different grains and ratios may give the same. Two partial placements are equal. */
bool placement_equal(const struct sharding *s, const struct placement *a,
                     const struct placement *b);
/* Whether dimension, ratio vector and grain are identical, along one axis or all. Implies equality, but equal placements may be
 * stated differently. */
bool on_axis_said_alike(const struct on_axis *a, const struct on_axis *b);
bool placement_said_alike(const struct placement *a, const struct placement *b);
/* Placements of an operator's operands under `choice`; gradient_partial: bit x if the returned gradient is partial over axis x. */
struct op_placements {
    struct placement input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
    uint8_t gradient_partial[OP_OPERANDS_MAX]; /* of inputs */
};
MUST_CHECK enum status op_placements_of(const struct sharding *s, const struct graph *g,
                                        const struct graph_op *op, const struct grain *grains,
                                        const struct op_choice *choice, struct op_placements *out,
                                        struct error *err);
/* Shape of a device's shard of a full tensor; shard may be NULL. */
struct shape placement_local(struct arena *a, const struct sharding *s, const struct placement *p,
                             const struct shape *whole, int32_t device, struct tensor_shard *shard);
/* Of all devices: local, shard (n_devices). */
void placement_shards(struct arena *a, const struct sharding *s, const struct placement *p,
                     const struct shape *whole, struct shape *local, struct tensor_shard *shard);

/* --- conversions --- */

struct conversion { /* one step along one axis */
    enum op_kind
        kind; /* local_slice, group_all_gather, group_reduce_scatter, group_all_reduce, group_all_to_all */
    int32_t axis;
    struct placement before, after;
};
enum { CONVERSIONS_MAX = 6 };
/* Steps from one placement to another, in the cheapest order; n = 0 if they are equal. ERR_INPUT if there is none
 * (nothing converts to partial). */
MUST_CHECK enum status shard_conversions(const struct sharding *s, const struct placement *from,
                                           const struct placement *to, int32_t *n,
                                           struct conversion out[CONVERSIONS_MAX],
                                           struct error *err);
/* The conversion of the gradient in the backward, or OP_KIND_COUNT for none. partial: the gradient that reaches its output is
 * partial over its axis. */
enum op_kind conversion_dual(enum op_kind kind, bool partial);
/* Elements of device's operand before and after the step. A check of placements against views. */
void conversion_elements(const struct sharding *s, const struct conversion *c,
                         const struct shape *whole, int32_t device, int64_t *before,
                         int64_t *after);

/* --- views --- */

/* The graph of `device` (its position in the stage) for the stage of layers [first_layer, last_layer] of `whole`, a
 * forward graph with layers. ERR_INPUT: a rule of the sharding that applies to nothing, an operator whose operands cannot be
 * converted. O(operators · conversions · devices). */
MUST_CHECK enum status shard_graph(struct arena *a, const struct graph *whole,
                                   const struct sharding *s, int32_t device, int32_t first_layer,
                                   int32_t last_layer, struct graph **out, struct error *err);
/* The same in two steps, which compute what all devices of a stage share once. Errors as above; it refers to
 * whole and s. */
struct shard_stage; /* opaque */
MUST_CHECK enum status shard_stage_new(struct arena *a, const struct graph *whole,
                                       const struct sharding *s, int32_t first_layer,
                                       int32_t last_layer, struct shard_stage **out,
                                       struct error *err);
/* What the stages of one sharding share: the choice of every operator of whole (sharding_resolve). ERR_INPUT. */
struct shard_choices; /* opaque */
MUST_CHECK enum status shard_choices_new(struct arena *a, const struct graph *whole,
                                         const struct sharding *s, struct shard_choices **out,
                                         struct error *err);
/* shard_stage_new with these choices; it refers to them. Its graphs are a window of the model: the stage, its neighbours up to forward
 * operator `until` (of whole) at least and up to cuts of one activation, so that the operators, tensors and gradients of the stage's
 * layers are those of the graph of all. O(operators of the window · conversions). */
MUST_CHECK enum status shard_stage_of(struct arena *a, const struct shard_choices *choices,
                                      int32_t first_layer, int32_t last_layer, int32_t until,
                                      struct shard_stage **out, struct error *err);
MUST_CHECK enum status shard_stage_graph(struct arena *a, const struct shard_stage *x,
                                         int32_t device, struct graph **out, struct error *err);
/* Share of the microbatch's rows that a device's loss covers: the sum over devices of local mean · share is the
 * mean over all rows. 0 if another device covers the same rows. */
double shard_loss_share(struct arena *a, const struct shard_stage *stage, int32_t device);

/* --- collectives --- */

/* The collective of a view's conversion (op_is_group). tier: (members) node of each, NULL unless equally
 * many stand on each of several nodes (collective_tiers_of). */
enum collective_kind shard_collective_kind(const struct graph_op *op);
enum collective_algorithm shard_collective_algorithm(const struct sharding *s, const struct graph_op *op,
                                            const int32_t *tier);
/* The collective without links and slots. */
struct collective *shard_collective(struct arena *a, const struct graph *view,
                                 const struct graph_op *op, const struct sharding *s,
                                 const int32_t *tier);

#endif
