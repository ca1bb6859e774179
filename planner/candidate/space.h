/* planner/candidate/space.h - the cost tables of one microbatch size: stages and links, priced on first use.
 *
 * All costs come from stage_table_cost and cost_link; the planner has no cost formula of its own. Times in ns, sizes in bytes.
 */
#ifndef PLANNER_CANDIDATE_SPACE_H
#define PLANNER_CANDIDATE_SPACE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "core/model/job.h"
#include "core/lower/layer_classes.h"
#include "planner/topology/device_graph.h"
#include "sim/cost.h"
#include "sim/stage/stage.h"

#include <stdbool.h>
#include <stdint.h>

/* Devices of tables with an entry for each of the 2^n sets of devices, and bits of such a set. A space may have more devices. */
enum { SPACE_TABLES_MAX = 12, SPACE_CHUNK = 16 };

struct space {
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct cost *cost;
    const struct lower_options *lower; /* the caller's */
    /* fused training graphs, one for each number of sequences: the first of full microbatches */
    struct lower_graphs graphs;
    struct graph *graph; /* the first of graphs; all have the same layers */
    struct graph *whole; /* forward, unsharded and unfused; made when a group first needs it */
    struct space_group **groups; /* (n_types) types that are groups of GPUs (planner/candidate/group.h); NULL: none */
    struct group_view *views; /* of groups */
    int32_t n_layers, n_devices, n_types;
    int64_t microbatch;
    int32_t microbatches;          /* per global batch */
    int32_t *ties; /* (n_layers + 1) layers before that share parameters with others; NULL: none do */
    struct layer_classes *classes; /* the same for every graph, because equal operators are sharded equally */
    struct stage_table *table;
    /* (n_types · n_layers) rows [type][first] of chunks of SPACE_CHUNK last layers; computed on first use, once for equal ranges
     * (layer_classes_same). Of a model of repeated layers most rows have only ranges that end near its last layer. */
    struct stage_cost ***stage;
    /* (n_layers): operators other than weight gradients follow the producer of the gradient for the layer before, so no bound
     * on its time of departure is known */
    bool *early;
    int64_t *cut_bytes; /* (n_layers - 1) lower bound of the activation bytes that cross after layer k */
    /* (n_layers - 1) of them, the bytes certain to leave after all of the layer's work, in both directions; equal to cut_bytes
     * if one tensor crosses */
    int64_t *late_bytes;
    struct device_graph *devices;
    const struct cost_link **link; /* (n_devices, n_devices): from, to; NULL above SPACE_TABLES_MAX devices */
    /* interchangeable devices have equal classes; up to SPACE_TABLES_MAX devices */
    int32_t class_of[SPACE_TABLES_MAX];
};
/* Cost of messages between two devices; NULL: no route. */
static inline const struct cost_link *space_link(const struct space *s, int32_t from, int32_t to)
{
    return s->link ? s->link[(int64_t)from * s->n_devices + to]
                   : device_graph_link(s->devices, from, to);
}
static inline bool space_linked(const struct space *s, int32_t from, int32_t to)
{
    return space_link(s, from, to) != NULL;
}

/* A space belongs to one thread. Errors: those of lowering, of operator costs and of the cluster's links. */
MUST_CHECK enum status space_make(struct arena *a, const struct job *j, const struct cluster *c,
                                  struct cost *k, int64_t microbatch,
                                  const struct lower_options *lower, struct space *out,
                                  struct error *err);
/* The same with a device graph shared by the spaces of a search; NULL: the space makes its own. */
MUST_CHECK enum status space_make_on(struct arena *a, const struct job *j, const struct cluster *c,
                                     struct cost *k, struct device_graph *devices,
                                     int64_t microbatch, const struct lower_options *lower,
                                     struct space *out, struct error *err);
/* Makes the graphs of the sequences that each device of the plan's stages takes, in `a`, and keeps them in the space for every plan lowered
 * with it. Without them lowering makes them again for every plan. */
MUST_CHECK enum status space_shard_graphs(struct arena *a, struct space *s, const struct plan *p,
                                          struct error *err);
/* Computes an entry of the table. O(layers). */
const struct stage_cost *space_price(const struct space *s, int32_t type, int32_t first,
                                     int32_t last);
static inline const struct stage_cost *space_stage_type(const struct space *s, int32_t type,
                                                        int32_t first, int32_t last)
{
    int32_t like = layer_classes_same(s->classes, first, last), end = last - first + like;
    struct stage_cost *const *row = s->stage[type * s->n_layers + like];
    const struct stage_cost *chunk = row ? row[end / SPACE_CHUNK] : NULL;
    if (!chunk || chunk[end % SPACE_CHUNK].parameter_bytes < 0)
        return space_price(s, type, like, end);
    return &chunk[end % SPACE_CHUNK];
}
static inline const struct stage_cost *space_stage(const struct space *s, int32_t device,
                                                   int32_t first, int32_t last)
{
    return space_stage_type(s, s->cluster->devices[device].type, first, last);
}
/* Whether every link blocks the compute streams, so that no gradient all-reduce overlaps a backward pass. */
bool space_awaits(const struct space *s);
/* Transfer time of the activations after layer `cut` between two devices: occupancy + latency. */
int64_t space_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut);
/* Lower bound of the time from the end of a stage to the start of its neighbour, in either direction: of several tensors all
 * but the last may overlap the stage's work. */
int64_t space_least_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut);

/* Upper bound of the work that remains in a stage after its last outgoing gradient has left. */
int64_t space_late_ns(const struct space *s, int32_t device, int32_t first, int32_t last);

/* Times and memory of one stage on one device. */
struct space_stage_time {
    int64_t forward_ns, backward_ns, update_ns; /* backward: with recomputation, if any */
    int64_t recompute_ns;                       /* part of backward_ns */
    int64_t return_ns; /* least time from a gradient's arrival to the departure of the next */
    bool recompute;
    int64_t missing_bytes; /* lower bound for any schedule; 0: the stage may fit */
};
/* in_flight: microbatches whose activations are alive at once. Bytes never exceed those of lowering, so recompute is set only
 * if no schedule fits without it; scorer_fit decides. */
void space_stage_time(const struct space *s, int32_t device, int32_t first, int32_t last,
                      int32_t in_flight, struct space_stage_time *out);

#endif
