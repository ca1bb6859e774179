/* planner/fleet/template.h - pipeline templates: stages over device classes, before placement on devices.
 *
 * A template is a list of stages in order of layers, each with a device class (planner/topology/device_graph.h). For a pace
 * tau, the time between two microbatches, a stage may have as many layers as it computes within tau and holds in memory. A
 * dynamic program runs backwards from the last layer. Its label is (first layer so far, class of that stage, microbatches in
 * flight there, cost). An extension prepends the longest stage of some class (shorter stages would need more devices), with
 *   w_before = w + max(1, ceil((t + 2 c) / tau))                                       (warm-ups, planner/schedule/refine.h)
 * microbatches in flight, so that memory is right by construction. Messages that block compute streams count as work of both
 * stages. A stage recomputes only if it does not fit otherwise.
 * Classes may appear in any order, repeatedly, or not at all. Pruning: no pace is below the slowest layer, none above the whole
 * model on the slowest device helps (HARP's bidirectional pruning, arXiv 2509.24859, applied to paces), and of labels with one
 * layer and class only the cheapest is extended.
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

/* Class of a template's devices: tp GPUs of a pool (a class of the device graph) that shard every operator. */
struct template_class {
    int32_t pool, type, zone; /* type: of the space */
    int32_t tp;
    int32_t per_node, n; /* devices of the class on a node, and in total */
};
/* Generator of templates for one space: usable classes, routes between them, and memos. */
struct template_maker {
    struct arena *arena;
    const struct space *s;
    const struct device_graph *g;
    int32_t n_classes, n_pools;
    int32_t most_tp, min_pool; /* largest tp of any class; GPUs of the smallest pool */
    const struct template_class *classes;
    int32_t max_layers;               /* of a stage */
    int32_t max_replicas;             /* of a mix; 0: no limit */
    const bool *starts;               /* (n_layers) allowed first layers of stages; NULL: all */
    const struct device_route **near; /* (n_classes, n_classes) between neighbours; NULL: no route */
    const struct device_route **far;  /* the same between nodes */
    int64_t **busy_ns; /* (n_classes, n_classes) rows of cuts, memoised; -1: not computed yet */
    struct template_label *labels; /* scratch */
    size_t n_labels, capacity;
    int32_t *best;                /* (n_layers, n_classes) label of least cost, -1 */
    struct template_found *found; /* (n_layers, n_classes) scratch */
    int64_t stamp;                /* validity of `found`: the current pace */
    /* templates generated so far, initial columns of the next mix (planner/fleet/mix) */
    struct template *pool;
    int32_t n_pool;
    size_t pool_capacity;
};
struct template_maker *template_maker_new(struct arena *a, const struct space *s,
                                          const struct device_graph *g,
                                          const struct template_class *classes, int32_t n_classes);

/* Transfer time of a message between neighbouring stages of these classes after layer `cut`; INT64_MAX: no route. */
int64_t template_transfer_ns(const struct template_maker *m, int32_t from, int32_t to, int32_t cut);
/* Time for which the activation and gradient messages of a cut block the compute stream of `device_class`: both directions and
 * the assembly of sharded tensors (OP_assemble). 0 if messages overlap computation. */
int64_t template_busy_ns(const struct template_maker *m, int32_t device_class, int32_t other,
                         int32_t cut);
/* The same on a given route. */
int64_t template_busy_on(const struct template_maker *m, int32_t device_class,
                         const struct device_route *route, int32_t cut);

/* Time of a stage; false: it does not fit with `warmup` microbatches in flight. */
struct template_time {
    int64_t t_ns; /* F + B, with recomputation */
    bool recompute;
};
bool template_stage_time(const struct template_maker *m, int32_t device_class, int32_t first,
                         int32_t last, int32_t warmup, struct template_time *out);

/* Pricing problem: the template of pace tau that minimises Σ over stages (t + 2 c) / tau + price[device_class]; a class of
 * price < 0 is excluded. false: none exists. The result lives in the maker's arena. O(labels · classes · log layers). */
bool template_cheapest(struct template_maker *m, int64_t tau_ns, const double *price,
                       struct template *out);
/* The split of least tau for a given order of classes, within most_ns / 4 … most_ns and to 0.5 %; false: none at most_ns.
 * O(stages · log layers). */
bool template_balance(struct template_maker *m, const int32_t *classes, int32_t n, int64_t most_ns,
                      struct template *out);
/* Computes use, tau, fill and tail from the stages. */
void template_measure(const struct template_maker *m, struct template *t);

/* Estimated time of m microbatches on a replica. */
static inline int64_t template_ns(const struct template *t, int64_t microbatches)
{
    return t->fill_ns + (microbatches - 1) * t->tau_ns + t->tail_ns;
}
/* Range of useful paces: the slowest layer on its fastest class; the whole model, recomputing, on the slowest class. */
void template_paces(const struct template_maker *m, int64_t *least_ns, int64_t *most_ns);

#endif
