/* planner/fleet/template.h - pipelines over device classes: what a replica looks like before anybody says which devices.
 *
 * A template is stages in order of layers, each of a class (planner/topology/device_graph.h). For a pace tau, the time between two
 * microbatches, a stage may take as many layers as it computes within tau and holds in memory. So the dynamic program goes
 * back from the last layer: a label is (first layer so far, class of that stage, microbatches in flight there, cost), and
 * each extension puts the longest stage of some class before it (shorter ones would want more devices), with
 *   w_before = w + max(1, ceil((t + 2 c) / tau))                                       (warm-ups, planner/schedule/refine.h)
 * microbatches in flight (messages that keep compute streams busy count as work of both stages), so that memory is right by construction; a stage recomputes where it would not fit otherwise.
 * Classes may come in any order, again, or not at all. Pruned from both sides: a pace below the slowest layer is none, one above
 * what the whole model takes on the slowest device is no better (HARP's bidirectional pruning, arXiv 2509.24859, here on paces); and
 * of labels at one layer and class the cheapest is extended.
 * A pipeline of m microbatches takes fill + (m - 1) tau + tail: fill the sum of t + 2 c, tail the longest update.
 */
#ifndef PLANNER_FLEET_TEMPLATE_H
#define PLANNER_FLEET_TEMPLATE_H

#include "planner/candidate/space.h"

enum { TEMPLATE_STAGES_MAX = 256, TEMPLATE_CLASSES_MAX = 128 };

struct template_stage {
    int32_t device_class, first, last, warmup;
    bool recompute;
};
struct template
{
    int32_t n_stages;
    struct template_stage *stages;
    int32_t *use; /* (n_pools) GPUs of each pool */
    int64_t tau_ns, fill_ns, tail_ns;
};

/* Devices that templates are made of: so many GPUs of a pool (a class of the device graph) that shard every operator. */
struct template_class {
    int32_t pool, type, zone; /* type: of the space */
    int32_t tp;
    int32_t per_node, n; /* such devices on a node, and in all */
};
/* What templates of one space are made from: who may be used, and links between classes. */
struct template_maker {
    struct arena *arena;
    const struct space *s;
    const struct device_graph *g;
    int32_t n_classes, n_pools;
    int32_t most_tp, min_pool; /* of any class; GPUs of the smallest pool */
    const struct template_class *classes;
    int32_t max_layers;               /* of a stage */
    int32_t max_replicas;             /* of a mix; 0: as many as there are */
    const bool *starts;               /* (n_layers) where stages may begin; NULL: anywhere */
    const struct device_route **near; /* (n_classes, n_classes): of neighbours; NULL: no way */
    const struct device_route **far;  /* the same between nodes */
    int64_t **busy_ns; /* (n_classes, n_classes) rows of cuts, made when asked for; -1: not yet */
    struct template_label *labels; /* scratch */
    size_t n_labels, capacity;
    int32_t *best;                /* (n_layers, n_classes) label of least cost, -1 */
    struct template_found *found; /* (n_layers, n_classes) scratch */
    int64_t stamp;                /* of what was found at the pace at hand */
    /* templates made so far, for the next mix (planner/fleet/mix) */
    struct template *pool;
    int32_t n_pool;
    size_t pool_capacity;
};
struct template_maker *template_maker_new(struct arena *a, const struct space *s,
                                          const struct device_graph *g,
                                          const struct template_class *classes, int32_t n_classes);

/* Time of one message between neighbouring stages of these classes behind a layer; INT64_MAX where there is no way. */
int64_t template_transfer_ns(const struct template_maker *m, int32_t from, int32_t to, int32_t cut);
/* What a message there and back keeps the compute stream of `device_class` busy, where both ends' are: the two ways, and making whole what
 * comes in parts (OP_assemble). 0 where messages move beside the work. */
int64_t template_busy_ns(const struct template_maker *m, int32_t device_class, int32_t other,
                         int32_t cut);
/* The same on one certain way. */
int64_t template_busy_on(const struct template_maker *m, int32_t device_class,
                         const struct device_route *route, int32_t cut);

/* A stage as templates see it; false where it does not fit with so many microbatches in flight. */
struct template_time {
    int64_t t_ns; /* F + B, with what runs again */
    bool recompute;
};
bool template_stage_time(const struct template_maker *m, int32_t device_class, int32_t first,
                         int32_t last, int32_t warmup, struct template_time *out);

/* The cheapest template at pace tau: the sum over its stages of (t + 2 c) / tau + price[device_class]; a class of price < 0 is not
 * used. false where there is none. The result lives in the maker's arena. O(labels · classes · log layers). */
bool template_cheapest(struct template_maker *m, int64_t tau_ns, const double *price,
                       struct template *out);
/* The split of least tau for this order of classes, within most_ns / 4 … most_ns and to half a per cent; false where none of
 * most_ns fits. O(stages · log layers). */
bool template_balance(struct template_maker *m, const int32_t *classes, int32_t n, int64_t most_ns,
                      struct template *out);
/* Fills use, tau, fill and tail of given stages. */
void template_measure(const struct template_maker *m, struct template *t);

/* m - what the batch of so many microbatches takes on it. */
static inline int64_t template_ns(const struct template *t, int64_t microbatches)
{
    return t->fill_ns + (microbatches - 1) * t->tau_ns + t->tail_ns;
}
/* Slowest single layer on its fastest class, and the whole model on the fastest: where paces may lie. */
void template_paces(const struct template_maker *m, int64_t *least_ns, int64_t *most_ns);

#endif
