/* planner/offers.h - what cards may be taken together as one device, and what each such device costs.
 *
 * Equal cards of one node may share every operator (options.tensor). So a pool of cards (a kind of the device graph) offers
 * a kind of template devices for every number of cards that its nodes have; plans may take any of them side by side, and the
 * pool's cards are the budget (planner/mix). One space for each microbatch size prices them all: its cluster is the task's,
 * with a device type more for each type and number of cards.
 * Which cards are taken together is known once a mix is placed: then the plan gets a cluster of its own (core/cluster_group).
 */
#ifndef PLANNER_OFFERS_H
#define PLANNER_OFFERS_H

#include "planner/bound_any.h"
#include "planner/template.h"

struct offers {
    struct cluster priced; /* the task's, with more types */
    struct job job;        /* its model knows how many cards share */
    const struct profile *profile;
    struct cost *cost;
    struct device_graph *graph; /* of single cards */
    int32_t n_kinds, n_base;    /* n_base: types of the task's cluster, which come first */
    struct template_kind *kinds;
    int32_t *base_type; /* (types of priced) */
};

/* numbers: (n) of cards; NULL: devices are taken as they are. Of more than TEMPLATE_KINDS_MOST kinds the first ones. */
MUST_CHECK enum status offers_make(struct arena *a, const struct job *j, const struct cluster *c,
                                   const struct profile *p, const int32_t *numbers, int32_t n,
                                   struct offers *out, struct error *err);
/* The space of a microbatch size, and what makes templates of it. */
MUST_CHECK enum status offers_size(struct arena *a, const struct offers *o, int64_t microbatch,
                                   const struct lower_options *lower, struct space *space,
                                   struct template_maker **maker, struct error *err);

#endif
