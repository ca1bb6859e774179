/* core/sharding/sharding.h - how the devices of one stage shard its operators: the `sharding:` section of a plan's stage.
 *
 *     sharding:
 *       mesh: [2, 2]                             # devices in row-major order; default: one axis of all devices
 *       ratios: [[4, 4, 2, 2], [1, 1, 1, 1]]     # over the devices; relative, >= 0; default: one vector of ones
 *       operators:                               # first match by name and by index
 *         - {match: "h.*.attn.*", shard: heads}
 *         - {match: "h.*.mlp.c_fc*", shard: features, ratio: 1}
 *         - {match: "lm_head", shard: batch, sufficient_factors: true}
 *         - {match: "*", shard: [batch, none]}   # one an axis
 *       parameters:
 *         - {match: "transformer.wte.weight", reshard_after_forward: false}   # sharded, all-gathered by the forward
 *                                                                         # and kept until its backward use
 *         - {match: "lm_head.weight", reshard_after_forward: true}           # all-gathered again by the backward
 *         - {match: "*.bias", sharded: false}      # replicated, whatever later entries state
 *       collectives:                             # first match by name and kind whose algorithm fits the members
 *         - {match: "h.*.ln_2.*", kind: all_gather, algorithm: pairs}
 *         - {match: "*", algorithm: hierarchical}
 *
 * Names are those of the whole graph's forward operators; `*` matches any run of characters. An entry applies to the operators
 * that match by name and can be sharded by its index: "h.*.attn.*" by heads leaves the residual to later
 * entries. Operators without an entry are computed replicated (none). An entry that applies to no operator is an error. On a
 * mesh of two axes `shard` and `ratio` are lists, one value an axis; none and a ratio may be single values, for both axes.
 * `collectives` are those of each call (core/collective/collective.h), named after the tensor and the conversion: "h.0.ln_2.group_all_gather",
 * in the backward "h.0.ln_2.group_all_gather.grad_scatter". `kind` is all_gather, reduce_scatter, all_reduce or all_to_all; absent:
 * any. `algorithm`: ring (padded to the largest shard), pairs (grouped, exact sizes) or hierarchical, which
 * needs members on at least two nodes, equally many and at least two on each. The default is ring if
 * all shards have one size, else pairs. An entry that applies to no collective is an error.
 * A sharded parameter is all-gathered in every forward call. `reshard_after_forward` is FSDP2's option. With
 * `false` the backward reuses the gathered parameter: one all-gather a microbatch, and one gathered parameter in memory for
 * each microbatch in flight. With `true` (ZeRO-3; Rajbhandari et al. 2020) it is freed after its forward use and all-gathered
 * again just before its backward use: two all-gathers, scratch memory only. `sharded: false` excludes its matches.
 * `sufficient_factors: true` (sufficient factors; Xie et al. 2016) is for matmuls by an unshared parameter whose gradient would be
 * partial over the axis: every device all-gathers x and dy and computes all of dW, in every call, in place of the gradient all-reduce
 * once a step. It reduces traffic if T·(I + O) < 2·I·O, T = the rows of all calls of a step.
 * `shard: tensor` is for models of measured layers (core/model/measured.h): {match: "*", shard: tensor} runs every layer on all N
 * devices of the stage, equal ones of one node, in the time measured for N GPUs.
 * Along an axis a position's ratio is the sum over its devices: a mesh is divided by its margins, so devices in one
 * column have the same shard of what the columns share. Ratios become integer units by largest remainder (sharding_extents).
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
    int32_t ratio[MESH_AXES_MAX]; /* index into the ratio vectors */
    bool sufficient_factors;
};
/* Equal on the first n_axes axes; the ratio of an axis that is not sharded is ignored. */
bool op_choice_equal(const struct op_choice *x, const struct op_choice *y, int32_t n_axes);

struct sharding_rule { /* an entry of operators or parameters */
    const char *match;
    struct op_choice choice;             /* operators */
    bool sharded, reshard_after_forward; /* parameters; the second only if the first holds */
    const struct node *node;             /* for messages; NULL: not read from a file */
};

struct sharding_algorithm { /* an entry of collectives */
    const char *match;
    enum collective_kind kind; /* COLLECTIVE_CALL_KINDS: any */
    enum collective_algorithm algorithm;
    const struct node *node; /* for messages; NULL: not read from a file */
};

struct sharding {
    int32_t n_devices, n_axes;
    int32_t mesh[MESH_AXES_MAX]; /* product is n_devices; 1 beyond n_axes */
    int32_t n_ratios;
    const double *ratios; /* (n_ratios, n_devices) */
    int32_t n_operators, n_parameters;
    const struct sharding_rule *operators, *parameters;
    int32_t n_algorithms;
    const struct sharding_algorithm *algorithms; /* collectives */
};

/* Largest-remainder apportionment: integer shards of n_units by relative ratios (n, >= 0, not all 0); ties to the earlier.
 * Σ out = n_units, |out - exact share| < 1. O(n²). */
void sharding_extents(int64_t n_units, const double *ratios, int32_t n, int64_t *out);
/* Ratios of the positions along an axis: out (mesh[axis]). */
void sharding_axis_ratios(const struct sharding *s, int32_t ratio, int32_t axis, double *out);
/* Position of a device along an axis; the devices that differ from it along that axis only: out (mesh[axis]). */
int32_t sharding_place(const struct sharding *s, int32_t device, int32_t axis);
void sharding_group(const struct sharding *s, int32_t device, int32_t axis, int32_t *out);

/* `*` matches any run of characters. */
bool sharding_matches(const char *pattern, const char *name);
/* Numbers between dots become `*`: "h.0.attn" is "h.*.attn". */
const char *sharding_pattern(struct arena *a, const char *name);
/* Axes over which sufficient factors replace the reduction of an operator's weight gradient (bit x: axis x); 0: none. */
uint8_t sharding_factor_axes(const struct sharding *s, const struct graph *g,
                             const struct graph_op *op, const struct grain *grains,
                             const struct op_choice *choice);
/* Index of the entry of collectives for this name, kind and n members; tiers: whether they stand in tiers. -1: none. */
int32_t sharding_algorithm_for(const struct sharding *s, const char *name, enum collective_kind kind,
                         int32_t n, bool tiers);
/* The algorithm that a node names, of those that calls have for the kind, COLLECTIVE_CALL_KINDS: for any; n NULL: *out stays. ERR_INPUT. */
MUST_CHECK enum status sharding_read_algorithm(const struct node *n, enum collective_kind kind, enum collective_algorithm *out,
                                               struct error *err);
/* The default algorithm; even: all shards have one size. */
enum collective_algorithm sharding_default_algorithm(enum collective_kind kind, bool even);

/* One axis, one ratio vector (NULL: of ones), every operator sharded by this index if it can be. */
struct sharding *sharding_of_index(struct arena *a, enum op_index index, const double *ratios,
                                   int32_t n_devices);
/* Number of devices over which measured layers are sharded; 1: none (also s NULL). */
static inline int32_t sharding_tensor_degree(const struct sharding *s)
{
    for (int32_t r = 0; s && r < s->n_operators; r++)
        for (int32_t x = 0; x < s->n_axes; x++)
            if (s->operators[r].choice.index[x] == INDEX_tensor) return s->mesh[x];
    return 1;
}

/* Deep copy without the rules' positions in a file. */
const struct sharding *sharding_copy(struct arena *a, const struct sharding *s);

/* Whether both are for as many devices and have equal rules, ratios and algorithms; positions in a file do not count. */
bool sharding_equal(const struct sharding *x, const struct sharding *y);

/* What the rules amount to, by the indices that they name along each axis:
 *   batch       every operator by sequences
 *   context     every operator by positions, attention's keys and values all-gathered (Megatron-LM's context parallelism)
 *   sequence    attention by heads, the rest by positions, all-to-all between them (Jacobs et al. 2023, DeepSpeed-Ulysses)
 *   tensor      heads, features, inputs, vocabulary (Shoeybi et al. 2019); "tensor, sequence": the rest by positions (Korthikanti et
 *               al. 2023)
 *   expert      experts by experts, the rest by sequences or replicated; beside context, sequence or tensor named after them
 *   operators   anything else
 * "batch 2 x tensor 4" on a mesh of two axes; ", fsdp" where parameters are sharded. O(rules). */
const char *sharding_kind(struct arena *a, const struct sharding *s);

/* node: the map under `sharding:`. */
MUST_CHECK enum status sharding_read(struct arena *a, const struct node *node, int32_t n_devices,
                                     struct sharding **out, struct error *err);
/* YAML that sharding_read reads back; every line is indented by `indent` spaces. */
const char *sharding_write(struct arena *a, const struct sharding *s, int32_t indent);

/* (n_forward) choice of each operator by its first rule; (n_tensors) which parameters are sharded and gathered on use.
 * ERR_INPUT: a rule that applies to nothing, with the indices by which its matches could be sharded. */
MUST_CHECK enum status sharding_resolve(struct arena *a, const struct sharding *s,
                                        const struct graph *g, const struct op_choice **choices,
                                        const bool **gathered, struct error *err);
/* reshard_after_forward of a sharded parameter, by its first rule. */
bool sharding_reshards(const struct sharding *s, const char *parameter);
/* The rules of s from choices: the fewest that the repetition of blocks allows; numbers in names become * if all
 * blocks agree. sharding_resolve returns the same choices. */
void sharding_set_choices(struct arena *a, struct sharding *s, const struct graph *g,
                          const struct op_choice *choices, const bool *gathered);

#endif
