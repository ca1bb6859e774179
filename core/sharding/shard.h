/* core/sharding/shard.h - one device's own forward graph, from the whole one and a sharding.
 *
 * The view of device k has the same operators, layers and parameters (same order, same names) with the shapes of its own
 * shards, and conversions between them: what an operator needs is made from what its operands' makers give, once for every
 * tensor and placement, in the layer of the first operator that needs it. gradient_build on a view gives the backward:
 * the duals come from the gradient rules of the conversion kinds, the sums that are owed from graph_op.partial.
 * Nothing is differentiated a second time.
 * Every view of one stage has the same operators and tensors in the same order; only shapes, shards and attributes differ.
 *
 * A stage is a run of layers. Operators outside it are in the view, since the training graph needs them, and are
 * computed replicated or sharded by batch as the stage's first or last activation is: so what crosses into or out of a stage is
 * REPLICATED or SHARDED by dimension 0, and a crossing tensor's `shard` says which of it this device has.
 *
 * Sources (inputs, parameters) are not converted but had: an input tensor stands once for every shard that is needed of it
 * (tokens, "tokens@1" …). A parameter is kept in the shard that all its uses need, else replicated, and a use that needs less
 * takes its shard; the gradient of that use is then added into its place (add_to_slice) and is partial.
 *
 * An operator of sufficient factors carries how x and dy are gathered (graph_op.factors); its matmul rule gathers them in
 * the backward and multiplies the wholes, so that its weight's gradient is not partial and is summed by nobody.
 *
 * The gradient tensors of parameters (gradient_build) say in `partial` over which axes they are partial; a
 * gradient without an axis there is the same on all its members (or cut along it).
 */
#ifndef CORE_SHARDING_SHARD_H
#define CORE_SHARDING_SHARD_H

#include "core/base/error.h"
#include "core/collective/collective.h"
#include "core/graph/graph.h"
#include "core/sharding/sharding.h"

struct arena;

/* --- placements --- */

struct on_axis { /* of a tensor, along one axis of the mesh */
    enum placing how;
    int32_t dim;        /* SHARDED */
    int32_t ratio;      /* SHARDED: which vector */
    struct grain grain; /* SHARDED */
};
struct placement { /* axis 0 is the outer one where both shard one dimension */
    struct on_axis axis[MESH_AXES_MAX];
};
/* The same shard on every device: other grains and ratios may give the same. Two partial sums are equal. */
bool placement_equal(const struct sharding *s, const struct placement *a,
                     const struct placement *b);
/* Said alike: by one dimension, vector and grain, along one axis or all. Then they are equal; but equal ones may be said
 * otherwise. */
bool on_axis_said_alike(const struct on_axis *a, const struct on_axis *b);
bool placement_said_alike(const struct placement *a, const struct placement *b);
/* What `choice` makes of operands; gradient_partial: bit x where what flows back is partial over axis x. */
struct op_placements {
    struct placement input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
    uint8_t gradient_partial[OP_OPERANDS_MAX]; /* of inputs */
};
MUST_CHECK enum status op_placements_of(const struct sharding *s, const struct graph *g,
                                        const struct graph_op *op, const struct grain *grains,
                                        const struct op_choice *choice, struct op_placements *out,
                                        struct error *err);
/* Shape of a device's shard of a whole tensor; shard may be NULL. */
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
/* The steps from one placement to another, cheapest order; n = 0 where they are equal. ERR_INPUT where there is no way
 * (nothing becomes a partial sum). */
MUST_CHECK enum status shard_conversions(const struct sharding *s, const struct placement *from,
                                           const struct placement *to, int32_t *n,
                                           struct conversion out[CONVERSIONS_MAX],
                                           struct error *err);
/* What a step does with the gradient: the kind, or OP_KIND_COUNT for nothing. partial: what flows back to its output is a
 * partial value over its axis. */
enum op_kind conversion_dual(enum op_kind kind, bool partial);
/* Elements of device's operand before and after the step. A check of placements against views. */
void conversion_elements(const struct sharding *s, const struct conversion *c,
                         const struct shape *whole, int32_t device, int64_t *before,
                         int64_t *after);

/* --- views --- */

/* The graph of `device` (its place among the stage's) for the stage of layers [first_layer, last_layer] of `whole`, a
 * forward graph with layers. ERR_INPUT: a rule of the sharding that fits nobody, an operator whose operands cannot be
 * converted. O(operators · conversions · devices). */
MUST_CHECK enum status shard_graph(struct arena *a, const struct graph *whole,
                                   const struct sharding *s, int32_t device, int32_t first_layer,
                                   int32_t last_layer, struct graph **out, struct error *err);
/* The same in two steps, for all devices of a stage: what they have in common is found once. Errors as above; it refers to
 * whole and s. */
struct shard_stage; /* opaque */
MUST_CHECK enum status shard_stage_new(struct arena *a, const struct graph *whole,
                                       const struct sharding *s, int32_t first_layer,
                                       int32_t last_layer, struct shard_stage **out,
                                       struct error *err);
MUST_CHECK enum status shard_stage_graph(struct arena *a, const struct shard_stage *x,
                                         int32_t device, struct graph **out, struct error *err);
/* For which share of the microbatch's rows a device's loss speaks: local mean · share, summed over the devices, is the
 * mean over all. 0 for those whose rows another one speaks for. */
double shard_loss_share(struct arena *a, const struct shard_stage *stage, int32_t device);

/* --- collectives --- */

/* What a conversion of a view (op_is_group) is among devices; tier: (members) which node each stands on, NULL where not equally
 * many stand on each of several (collective_tiers_of). */
enum collective_kind shard_collective_kind(const struct graph_op *op);
enum collective_algorithm shard_collective_algorithm(const struct sharding *s, const struct graph_op *op,
                                            const int32_t *tier);
/* All of it but links and slots. */
struct collective *shard_collective(struct arena *a, const struct graph *view,
                                 const struct graph_op *op, const struct sharding *s,
                                 const int32_t *tier);

#endif
