/* core/sharding/sharding.h - how the devices of one stage shard its operators; part G of a plan.
 *
 *     sharding:
 *       mesh: [2, 2]                             # devices in row-major order; default: one axis of all devices
 *       ratios: [[4, 4, 2, 2], [1, 1, 1, 1]]     # over the devices; relative, >= 0; default: one vector of ones
 *       operators:                               # the first that matches by name and by index
 *         - {match: "h.*.attn.*", shard: heads}
 *         - {match: "h.*.mlp.c_fc*", shard: features, ratio: 1}
 *         - {match: "lm_head", shard: batch, sufficient_factors: true}
 *         - {match: "*", shard: [batch, none]}   # one an axis
 *       parameters:
 *         - {match: "transformer.wte.weight", reshard_after_forward: false}   # sharded, gathered by the forward
 *                                                                         # and kept until the backward has used it
 *         - {match: "lm_head.weight", reshard_after_forward: true}           # gathered once more by the backward
 *         - {match: "*.bias", sharded: false}      # replicated, whatever the entries behind it state
 *       collectives:                             # the first that matches by name and kind and that can go so
 *         - {match: "h.*.ln_2.*", kind: all_gather, algorithm: pairs}
 *         - {match: "*", algorithm: hierarchical}
 *
 * Names are the forward operators' of the whole graph; `*` stands for any run of characters. An entry is for the operators
 * that it matches by name and that can be sharded by its index: "h.*.attn.*" by heads passes the residual on to the entries
 * behind it. What no entry takes is computed by everybody (none). An entry that is for no operator at all is an error. On a
 * mesh of two axes `split` and `ratio` are lists, one value an axis; none and a ratio may stand alone, for both.
 * Collectives are the collectives of each call (core/collective/collective.h), named after what they convert and how: "h.0.ln_2.group_all_gather",
 * back "h.0.ln_2.group_all_gather.grad_scatter". `kind` is all_gather, reduce_scatter, all_reduce or all_to_all, any of
 * them where it is left out. `algorithm`: ring (padded to the largest shard), pairs (grouped, exact sizes) or hierarchical, which is
 * for members on at least two nodes, equally many and at least two on each. What no entry takes goes round a ring where
 * all shards are of one size, and by pairs where they are not. An entry that is for no collective at all is an error.
 * A sharded parameter is gathered by an all-gather in every forward call. `reshard_after_forward` is FSDP2's option. With
 * `false` the backward uses what its forward gathered: one all-gather a microbatch, and one gathered parameter held for
 * each microbatch in flight. With `true` (ZeRO-3; Rajbhandari et al. 2020) it is freed behind its forward use and gathered
 * once more right before its backward use: two all-gathers, scratch alone. `sharded: false` excludes what it matches.
 * `sufficient_factors: true` (sufficient factors; Xie et al. 2016) is for matmuls by a parameter of their own whose gradient would be
 * a partial value over the axis: everybody gathers x and dy and computes all of dW, in every call, in place of the sum
 * once a step. By traffic it pays while T·(I + O) < 2·I·O, T the rows of all calls of a step.
 * Along an axis a place's ratio is the sum over its devices: a mesh is dealt out by its margins, so that devices in one
 * column have the same shard of what the columns share. Ratios become whole units by largest remainder (extents).
 * Ownership: the arena's. Errors: ERR_INPUT with file:line:column.
 */
#ifndef CORE_SHARDING_SHARDING_H
#define CORE_SHARDING_SHARDING_H

#include "core/base/error.h"
#include "core/collective/collective.h"
#include "core/document/document.h"
#include "core/graph/graph.h"
#include "core/graph/op_index.h"

struct op_choice { /* of one operator, by axis */
    enum op_index index[MESH_AXES_MAX];
    int32_t ratio[MESH_AXES_MAX]; /* which vector of ratios */
    bool sufficient_factors;
};
/* The same on the first n_axes axes; a vector of what is not dealt out does not matter. */
bool op_choice_equal(const struct op_choice *x, const struct op_choice *y, int32_t n_axes);

struct sharding_rule { /* an entry of operators or parameters */
    const char *match;
    struct op_choice choice;             /* operators */
    bool sharded, reshard_after_forward; /* parameters; the second only where the first holds */
    const struct node *node;             /* for messages; NULL where no file has it */
};

struct sharding_algorithm { /* an entry of collectives */
    const char *match;
    enum collective_kind kind; /* COLLECTIVE_CALL_KINDS: any */
    enum collective_algorithm algorithm;
    const struct node *node; /* for messages; NULL where no file has it */
};

struct sharding {
    int32_t n_devices, n_axes;
    int32_t mesh[MESH_AXES_MAX]; /* their product is n_devices; 1 beyond n_axes */
    int32_t n_ratios;
    const double *ratios; /* (n_ratios, n_devices) */
    int32_t n_operators, n_parameters;
    const struct sharding_rule *operators, *parameters;
    int32_t n_algorithms;
    const struct sharding_algorithm *algorithms; /* collectives */
};

/* Integer shards of n_units by relative ratios (n, >= 0, not all 0): the floor of each one's due, then one more to those
 * that are furthest below it, ties to the earlier. Σ out = n_units, |out - due| < 1. O(n²). */
void sharding_extents(int64_t n_units, const double *ratios, int32_t n, int64_t *out);
/* Ratios of the places along an axis: out (mesh[axis]). */
void sharding_axis_ratios(const struct sharding *s, int32_t ratio, int32_t axis, double *out);
/* Place of a device along an axis, and the devices that differ from it along that axis alone: out (mesh[axis]). */
int32_t sharding_place(const struct sharding *s, int32_t device, int32_t axis);
void sharding_group(const struct sharding *s, int32_t device, int32_t axis, int32_t *out);

/* `*` stands for any run of characters. */
bool sharding_matches(const char *pattern, const char *name);
/* Numbers between dots become `*`: "h.0.attn" is "h.*.attn". */
const char *sharding_pattern(struct arena *a, const char *name);
/* Axes over which sufficient factors replace the sum of an operator's weight gradient (bit x: axis x); 0: it has none. */
uint8_t sharding_factor_axes(const struct sharding *s, const struct graph *g,
                             const struct graph_op *op, const struct grain *grains,
                             const struct op_choice *choice);
/* The entry of collectives for one of this name and kind, of n members; tiers: whether they stand in tiers. -1: none. */
int32_t sharding_algorithm_for(const struct sharding *s, const char *name, enum collective_kind kind,
                         int32_t n, bool tiers);
/* The way that a collective goes by itself: even: all shards are of one size. */
enum collective_algorithm sharding_default_algorithm(enum collective_kind kind, bool even);

/* One axis, one vector, everything sharded by batch where it can be. */
struct sharding *sharding_of_batch(struct arena *a, const double *ratios, int32_t n_devices);

/* Everything of s is copied; where a file has its rules is forgotten. */
const struct sharding *sharding_copy(struct arena *a, const struct sharding *s);

/* node: the map under `sharding:`. */
MUST_CHECK enum status sharding_read(struct arena *a, const struct node *node, int32_t n_devices,
                                     struct sharding **out, struct error *err);
/* YAML that sharding_read reads to the same; every line begins with `indent` blanks. */
const char *sharding_write(struct arena *a, const struct sharding *s, int32_t indent);

/* (n_forward) what each operator does, by the first rule for it; then (n_tensors) which parameters are sharded, and gathered on use.
 * ERR_INPUT: a rule that is for nobody, which lists what those it matches by name could be sharded by. */
MUST_CHECK enum status sharding_resolve(struct arena *a, const struct sharding *s,
                                        const struct graph *g, const struct op_choice **choices,
                                        const bool **gathered, struct error *err);
/* Whether a sharded parameter is freed after the forward and gathered again by the backward; by the first rule for it. */
bool sharding_reshards(const struct sharding *s, const char *parameter);
/* The rules of s from choices: the fewest that the repetition of blocks allows; numbers in names become * where all
 * blocks agree. sharding_resolve gives the same choices back. */
void sharding_set_choices(struct arena *a, struct sharding *s, const struct graph *g,
                          const struct op_choice *choices, const bool *gathered);

#endif
