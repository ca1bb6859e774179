/* planner/fleet/tp_options.h - tensor-parallel degrees: groups of GPUs that act as one device, and their prices.
 *
 * Equal GPUs of one node may shard every operator (options.tensor). A pool of GPUs (a class of the device graph) offers one
 * class of template devices per degree that its nodes allow. A plan may mix degrees; the pool's GPUs are the budget
 * (planner/fleet/mix). One space per microbatch size prices all of them: its cluster is the task's with one more device type
 * for each type and degree.
 * The grouping of actual GPUs is fixed by placement; then the plan gets a derived cluster (core/cluster/group).
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
    int32_t *base_type; /* (types of priced) type of a single GPU */
    /* (types of priced) of stages of measured layers, which are sharded; NULL: other models, whose GPUs act as one device */
    const struct sharding **sharding;
};

/* numbers: (n) degrees; NULL: the devices of the cluster file. Classes beyond TEMPLATE_CLASSES_MAX are dropped. */
MUST_CHECK enum status tp_options_make(struct arena *a, const struct job *j,
                                       const struct cluster *c, const struct profile *p,
                                       const int32_t *numbers, int32_t n, struct tp_options *out,
                                       struct error *err);
/* Default degrees if the options name none. Measured layers on more than TP_OPTIONS_FEW GPUs: those measured on every type of which a
 * node has as many GPUs. Other models on more than TP_OPTIONS_LARGE: a model that fills half of twelve
 * devices of the least memory gets the least power of two for which it does not, and twice that, if its heads and the nodes
 * allow it; degrees that leave more than TP_OPTIONS_DEVICES_MAX devices are too small. Returns the number of degrees; 0: single
 * GPUs, as in all other cases. Certificates then hold for these degrees. */
enum {
    TP_OPTIONS_FEW = 8,
    TP_OPTIONS_LARGE = 1024,
    TP_OPTIONS_DEVICES_MAX = 2560,
    TP_OPTIONS_DEFAULT_MAX = 16
};
int32_t tp_options_default(const struct job *j, const struct cluster *c, const struct profile *p,
                           int32_t numbers[TP_OPTIONS_DEFAULT_MAX]);
/* The space of a microbatch size and its template generator. */
MUST_CHECK enum status tp_options_size(struct arena *a, const struct tp_options *o,
                                       int64_t microbatch, const struct lower_options *lower,
                                       struct space *space, struct template_maker **maker,
                                       struct error *err);

#endif
