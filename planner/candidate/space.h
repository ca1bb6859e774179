/* planner/candidate/space.h - everything the search asks about one microbatch size, each stage and route priced when it is asked for.
 *
 * All costs come from stage_table_cost and cost_link; the planner has no cost formula of its own.
 */
#ifndef PLANNER_CANDIDATE_SPACE_H
#define PLANNER_CANDIDATE_SPACE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "core/model/job.h"
#include "planner/candidate/layer_classes.h"
#include "planner/topology/device_graph.h"
#include "sim/cost.h"
#include "sim/stage/stage.h"

#include <stdbool.h>
#include <stdint.h>

/* Of teams of which every choice of devices is looked at, and of those whose sets of devices have tables; a space may have more. */
enum { SPACE_DEVICES_MAX = 8, SPACE_TABLES_MAX = 12 };

struct space {
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct cost *cost;
    const struct lower_options *lower; /* the caller's */
    /* fused training graphs: of in each direction in which types shard operators */
    struct lower_graphs graphs;
    struct graph *graph; /* the first of them; all have the same layers */
    int32_t n_layers, n_devices, n_types;
    int64_t microbatch;
    int32_t microbatches;          /* of the global batch */
    struct layer_classes *classes; /* of every graph alike: GPUs share equal operators alike */
    struct stage_table *table;
    /* (n_types · n_layers) rows by last layer: [type][first]; made when asked for, of the earliest of the ranges that are the
     * same (layer_classes_same) alone */
    struct stage_cost **stage;
    /* (n_layers): the gradient that enters the layer before is not made by this one's last operators but weight gradients,
     * so nothing is known of when it leaves */
    bool *early;
    int64_t *cut_bytes; /* (n_layers - 1) activations that cross after layer k, at least */
    /* (n_layers - 1) of them, what is sure to leave after all that the layer computes, and so for the gradients;
     * the same where one tensor crosses */
    int64_t *late_bytes;
    struct device_graph *devices;
    const struct cost_link **link; /* (n_devices, n_devices): from, to; of few only, else NULL */
    /* interchangeable devices have equal classes; of few only */
    int32_t class_of[SPACE_TABLES_MAX];
};
/* A message between two devices; NULL where none gets there. */
static inline const struct cost_link *space_link(const struct space *s, int32_t from, int32_t to)
{
    return s->link ? s->link[(int64_t)from * s->n_devices + to]
                   : device_graph_link(s->devices, from, to);
}
static inline bool space_linked(const struct space *s, int32_t from, int32_t to)
{
    return space_link(s, from, to) != NULL;
}

/* A space belongs to one thread. Errors: those of lowering, of prices and of the cluster's links. */
MUST_CHECK enum status space_make(struct arena *a, const struct job *j, const struct cluster *c,
                                  struct cost *k, int64_t microbatch,
                                  const struct lower_options *lower, struct space *out,
                                  struct error *err);
/* The same on a device graph of the cluster that the spaces of a search share; NULL: the space's own. */
MUST_CHECK enum status space_make_on(struct arena *a, const struct job *j, const struct cluster *c,
                                     struct cost *k, struct device_graph *devices,
                                     int64_t microbatch, const struct lower_options *lower,
                                     struct space *out, struct error *err);
/* Fills row (type, first) of the table up to `last`. */
const struct stage_cost *space_price(const struct space *s, int32_t type, int32_t first,
                                     int32_t last);
static inline const struct stage_cost *space_stage_type(const struct space *s, int32_t type,
                                                        int32_t first, int32_t last)
{
    int32_t like = layer_classes_same(s->classes, first, last), end = last - first + like;
    const struct stage_cost *row = s->stage[type * s->n_layers + like];
    if (!row || row[end].parameter_bytes < 0) return space_price(s, type, like, end);
    return &row[end];
}
static inline const struct stage_cost *space_stage(const struct space *s, int32_t device,
                                                   int32_t first, int32_t last)
{
    return space_stage_type(s, s->cluster->devices[device].type, first, last);
}
/* Whether compute streams wait for every link, so that no gradient all-reduce is hidden behind a backward. */
bool space_awaits(const struct space *s);
/* What crosses after layer `cut` between two devices: occupancy and latency. */
int64_t space_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut);
/* Least time from the end of a stage to when the next one may begin, either way: of several tensors all but the last may
 * have left while the stage went on. For bounds. */
int64_t space_least_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut);

/* Most that a stage may still compute when the last gradient it hands on has left. */
int64_t space_late_ns(const struct space *s, int32_t device, int32_t first, int32_t last);

/* A stage as the search sees it. */
struct space_stage_time {
    int64_t forward_ns, backward_ns, update_ns; /* backward: recompute included where recompute */
    int64_t recompute_ns;                       /* of backward_ns */
    int64_t return_ns; /* from a gradient's arrival until the next one leaves, at least */
    bool recompute;
    int64_t missing_bytes; /* at least, however it is scheduled; 0 where it may fit */
};
/* in_flight: microbatches whose activations are alive at once. Bytes are never above what lowering lays out, so recompute
 * is set only where it cannot do without; scorer_fit has the last word. */
void space_stage_time(const struct space *s, int32_t device, int32_t first, int32_t last,
                      int32_t in_flight, struct space_stage_time *out);

#endif
