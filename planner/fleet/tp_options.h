/* planner/fleet/tp_options.h - what GPUs may be taken together as one device, and what each such device costs.
 *
 * Equal GPUs of one node may shard every operator (options.tensor). So a pool of GPUs (a class of the device graph) offers
 * a class of template devices for every number of GPUs that its nodes have; plans may take any of them side by side, and the
 * pool's GPUs are the budget (planner/fleet/mix). One space for each microbatch size prices them all: its cluster is the task's,
 * with a device type more for each type and number of GPUs.
 * Which GPUs are taken together is known once a mix is placed: then the plan gets a cluster of its own (core/cluster/group).
 */
#ifndef PLANNER_FLEET_TP_OPTIONS_H
#define PLANNER_FLEET_TP_OPTIONS_H

#include "planner/bound/any.h"
#include "planner/fleet/template.h"

struct tp_options {
    struct cluster priced; /* the task's, with more types */
    struct job job;        /* its model knows how many GPUs share */
    const struct profile *profile;
    struct cost *cost;
    struct device_graph *graph; /* of single GPUs */
    int32_t n_classes, n_base;  /* n_base: types of the task's cluster, which come first */
    struct template_class *classes;
    int32_t *base_type; /* (types of priced) */
};

/* numbers: (n) of GPUs; NULL: devices are taken as they are. Of more than TEMPLATE_CLASSES_MAX classes the first ones. */
MUST_CHECK enum status tp_options_make(struct arena *a, const struct job *j,
                                       const struct cluster *c, const struct profile *p,
                                       const int32_t *numbers, int32_t n, struct tp_options *out,
                                       struct error *err);
/* Tensor-parallel degrees for those who name none: on real clusters of more than TP_OPTIONS_LARGE GPUs a model that fills half of twelve
 * devices of the least memory is offered the least power of two for which it does not, and twice that, where its heads and the
 * nodes allow it; and never so few that there are more than TP_OPTIONS_DEVICES_MAX devices. Returns how many; 0: single GPUs, as everywhere else. A certificate then speaks of these numbers. */
enum { TP_OPTIONS_LARGE = 1024, TP_OPTIONS_DEVICES_MAX = 2560, TP_OPTIONS_DEFAULT_MAX = 2 };
int32_t tp_options_default(const struct job *j, const struct cluster *c, int32_t *numbers);
/* The space of a microbatch size, and what makes templates of it. */
MUST_CHECK enum status tp_options_size(struct arena *a, const struct tp_options *o,
                                       int64_t microbatch, const struct lower_options *lower,
                                       struct space *space, struct template_maker **maker,
                                       struct error *err);

#endif
