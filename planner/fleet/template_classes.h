/* planner/fleet/template_classes.h - the classes of devices of templates: a pool of GPUs (a class of the device graph) offers one class
 * per number of GPUs in a stage that its nodes allow. A plan may mix numbers; the pool's GPUs are the budget (planner/fleet/mix).
 */
#ifndef PLANNER_FLEET_TEMPLATE_CLASSES_H
#define PLANNER_FLEET_TEMPLATE_CLASSES_H

#include "planner/fleet/template.h"
#include "planner/spmd_stage/tp_options.h"

struct template_classes {
    int32_t n;
    struct template_class *classes; /* (n) at most TEMPLATE_CLASSES_MAX; further ones are dropped */
};

/* numbers: (n) of the options. */
void template_classes_make(struct arena *a, const struct tp_options *o, const int32_t *numbers,
                           int32_t n, struct template_classes *out);
/* The space of a microbatch size, and its template generator for the classes that have prices. */
MUST_CHECK enum status template_classes_size(struct arena *a, const struct template_classes *k,
                                             const struct tp_options *o, int64_t microbatch,
                                             const struct lower_options *lower,
                                             struct space *space, struct template_maker **maker,
                                             struct error *err);

#endif
