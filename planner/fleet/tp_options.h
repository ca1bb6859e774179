/* planner/fleet/tp_options.h - numbers of GPUs in a stage, and their prices.
 *
 * Equal GPUs of one node may shard every operator of a stage (options.tensor), by rules that shard every parameter
 * (planner/spmd_stage/group_rules.h). A pool of GPUs (a class of the device graph) offers one class of template devices per number
 * that its nodes allow. A plan may mix numbers; the pool's GPUs are the budget (planner/fleet/mix). One space per microbatch size
 * prices all of them: its cluster is the task's with one more device type for each type and number.
 */
#ifndef PLANNER_FLEET_TP_OPTIONS_H
#define PLANNER_FLEET_TP_OPTIONS_H

#include "planner/bound/any.h"
#include "planner/fleet/template.h"

struct tp_options {
    struct cluster priced; /* the task's, with one type per base type and degree */
    struct job job;        /* its model has the degrees */
    const struct profile *profile;
    struct cost *cost;
    struct device_graph *graph; /* of single GPUs */
    int32_t n_classes, n_base;  /* n_base: types of the task's cluster, which come first */
    struct template_class *classes;
    int32_t *base_type, *gpus; /* (types of priced) type of a single GPU; GPUs of a stage */
    const struct sharding **
        sharding; /* (types of priced) rules of stages on several GPUs; NULL: one GPU, or not yet solved */
    struct search_context *t; /* memo of rules, and their work */
};

/* numbers: (n) degrees; NULL: the devices of the cluster file. Classes beyond TEMPLATE_CLASSES_MAX are dropped. */
MUST_CHECK enum status tp_options_make(struct search_context *t, struct arena *a,
                                       const struct job *j, const struct cluster *c,
                                       const struct profile *p, const int32_t *numbers, int32_t n,
                                       struct tp_options *out, struct error *err);
/* Degrees of measured layers on more than TP_OPTIONS_FEW GPUs if the options name none: those measured on every type of which a node
 * has as many GPUs. Returns their number; 0: single GPUs, as for other models, to which the coarse search offers every number. */
enum { TP_OPTIONS_FEW = 8, TP_OPTIONS_DEFAULT_MAX = 16 };
int32_t tp_options_default(const struct job *j, const struct cluster *c, const struct profile *p,
                           int32_t numbers[TP_OPTIONS_DEFAULT_MAX]);
/* The space of a microbatch size and its template generator. */
MUST_CHECK enum status tp_options_size(struct arena *a, const struct tp_options *o,
                                       int64_t microbatch, const struct lower_options *lower,
                                       struct space *space, struct template_maker **maker,
                                       struct error *err);

#endif
