#include "core/sharding/keys.h"

/* sharding of a stage */
const struct document_key sharding_keys[] = {
    {"mesh", "list of 1 or 2 numbers", "one axis with all devices", "device mesh, row-major"},
    {"ratios", "list of lists of numbers", "equal shards",
     "vectors of relative shard sizes, one number per device"},
    {"operators", "list of maps", "none sharded",
     "index by which operators are sharded; the first match applies"},
    {"parameters", "list of maps", "as the operators need them",
     "parameters that are stored sharded"},
    {"collectives", "list of maps", "ring for equal shards, else pairs",
     "algorithms of collectives; the first match applies"},
    {0}};

/* an entry of operators */
const struct document_key sharding_operator_keys[] = {
    {"match", "pattern", NULL, "names of operators; * stands for any characters, e.g. h.*.attn.*"},
    {"shard", "index, or list of one per axis", NULL,
     "index to shard by: batch, heads, features and so on (docs/reference/operators.md), or none; "
     "tensor: a measured layer, on all devices of the stage in the time measured for as many GPUs"},
    {"ratio", "number, or list of one per axis", "0", "vector of ratios, counted from 0"},
    {"sufficient_factors", "true or false", "false",
     "weight gradient computed by every device from gathered activations (sufficient factors) "
     "instead of a gradient all-reduce"},
    {0}};

/* an entry of parameters */
const struct document_key sharding_parameter_keys[] = {
    {"match", "pattern", NULL, "names of parameters"},
    {"sharded", "true or false", "true", "stored sharded; false: replicated"},
    {"reshard_after_forward", "true or false", NULL,
     "true: all-gathered for the forward and again for the backward, as in FSDP2; false: gathered "
     "once for both"},
    {0}};

/* an entry of collectives */
const struct document_key sharding_collective_keys[] = {
    {"match", "pattern", NULL, "names of collectives, e.g. h.*.ln_2.*"},
    {"kind", "all_gather, reduce_scatter, all_reduce or all_to_all", "any", "kind of collective"},
    {"algorithm", "ring, pairs, hierarchical, halving-doubling or double-tree", NULL, "algorithm"},
    {0}};
