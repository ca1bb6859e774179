/* planner/spmd_stage/tp_options.h - numbers of GPUs in a stage, and their prices.
 *
 * Equal GPUs of one node may shard every operator of a stage, by rules that shard every parameter (planner/spmd_stage/group_rules.h).
 * One space per microbatch size prices all numbers: its cluster is the task's with one more device type for each type and number. Such
 * a type stands for a stage of n GPUs in prices only; no plan and no file has it.
 */
#ifndef PLANNER_SPMD_STAGE_TP_OPTIONS_H
#define PLANNER_SPMD_STAGE_TP_OPTIONS_H

#include "planner/bound/any.h"
#include "planner/candidate/search_context.h"
#include "planner/candidate/space.h"

struct tp_options {
    struct cluster priced; /* the task's, with one type per base type and number of GPUs */
    struct job job;
    const struct profile *profile;
    struct cost *cost;
    struct device_graph *graph; /* of single GPUs */
    int32_t n_base;             /* types of the task's cluster, which come first */
    int32_t *base_type, *gpus; /* (types of priced) type of a single GPU; GPUs of a stage */
    const struct sharding **
        sharding; /* (types of priced) rules of stages on several GPUs; NULL: one GPU, or not yet solved */
    struct search_context *t; /* memo of rules, and their work */
};

/* numbers: (n) of GPUs of a stage, each once. */
MUST_CHECK enum status tp_options_make(struct search_context *t, struct arena *a,
                                       const struct job *j, const struct cluster *c,
                                       const struct profile *p, const int32_t *numbers, int32_t n,
                                       struct tp_options *out, struct error *err);
/* Numbers of GPUs of a stage, ascending: powers of two up to the largest node (1 with no_sharding); of measured layers those measured
 * on every type of which a node has as many GPUs. Returns how many, at least one. */
enum { TP_NUMBERS_MAX = 16 };
int32_t tp_options_numbers(const struct job *j, const struct cluster *c, const struct profile *p,
                           bool no_sharding, int32_t numbers[TP_NUMBERS_MAX]);
/* The type that prices stages on n GPUs of type `base`; -1: no node has n. */
int32_t tp_options_type(const struct tp_options *o, int32_t base, int32_t n);
/* The space of a microbatch size on the cluster `priced`. usable: (types of priced) whether stages of the type have rules and prices. */
MUST_CHECK enum status tp_options_space(struct arena *a, const struct tp_options *o,
                                        int64_t microbatch, const struct lower_options *lower,
                                        struct space *space, bool *usable, struct error *err);
/* Lower bound of all plans whose stages have one of the numbers of GPUs of tp_options_numbers. */
MUST_CHECK enum status tp_options_bound(struct search_context *t, const struct search_task *task,
                                        struct bound_certificate *out, struct error *err);
#endif
