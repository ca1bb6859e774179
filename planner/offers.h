/* planner/offers.h - ways in which equal cards of a node may share operators: a cluster of devices for each.
 *
 * A way is a number of cards for each device type. Cards of a type on one node are taken together in the order of the file,
 * so many at a time; what is left over on a node stays single and is not offered work. Each way has its own cluster
 * (core/cluster_group), costs, device graph, and a space for every microbatch size.
 */
#ifndef PLANNER_OFFERS_H
#define PLANNER_OFFERS_H

#include "planner/bound_any.h"
#include "planner/template.h"

struct offer {
    int32_t *cards;         /* (n_types of the task's cluster) */
    struct cluster cluster; /* of devices that may be several cards */
    struct job job;         /* its model knows how many */
    int32_t *base_type;     /* (n_types of .cluster) type of the task's cluster, -1: no device */
    struct cost *cost;
    struct device_graph *graph;
    struct space *spaces;           /* (n_sizes), made when asked for: n_layers > 0 */
    struct template_maker **makers; /* (n_sizes) likewise */
};

/* Whether a type of the cluster may be shared by so many: every node with the type has that many of it. */
bool offer_possible(const struct cluster *c, int32_t type, int32_t cards);
/* cards: (n_types), kept. n_sizes: how many spaces there will be. */
MUST_CHECK enum status offer_make(struct arena *a, const struct job *j, const struct cluster *c,
                                  const struct profile *p, const int32_t *cards, int32_t n_sizes,
                                  struct offer *out, struct error *err);
/* The space and the maker of templates of size number `size`. */
MUST_CHECK enum status offer_size(struct arena *a, struct offer *o, int32_t size,
                                  int64_t microbatch, const struct lower_options *lower,
                                  struct error *err);

#endif
