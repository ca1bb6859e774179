/* planner/baseline/baseline.h - textbook plans as points of the same plan space: families of settings.
 *
 * A family enumerates settings; each has an estimate, which only ranks them, and makes one plan, which is simulated. Most
 * families are grids: `replicas` equal pipelines of `stages` stages (times `chunks` on every device). HARP's plans are not
 * and are made whole (planner/baseline/harp.h).
 */
#ifndef PLANNER_BASELINE_BASELINE_H
#define PLANNER_BASELINE_BASELINE_H

#include "planner/candidate/plan_skeleton.h"
#include "planner/candidate/search_context.h"
#include "planner/candidate/space.h"

/* How a family cuts layers into stages. EVEN: equal numbers; BALANCED: the slowest stage as fast as it gets; COARSE: the
 * same, with HARP's closed form, over `coarse` runs of layers of about equal cost. */
enum baseline_cut { CUT_EVEN, CUT_BALANCED, CUT_COARSE };

/* One choice of a family. Devices: listed: replica after replica, in the order of the cluster; strided: the first stages of
 * all replicas, then their second ones. */
struct baseline_setting {
    int32_t tp_variant, size; /* into baseline_task's */
    int32_t stages, replicas, chunks, coarse;
    enum baseline_cut cut;
    bool strided, gpipe;
    enum recompute recompute;
    int32_t zero;
    int64_t bucket_bytes;
    const int32_t *team; /* the task's */
    int64_t estimate_ns; /* INT64_MAX: it cannot be */
    int32_t number;      /* of the order in which settings came; ties */
};

/* A cluster in which some GPUs may shard operators, and its space for each microbatch size (NULL: not asked for yet). */
struct tp_variant {
    int32_t tp;
    bool possible; /* every node's GPUs can be taken together so many at a time */
    struct cluster cluster;
    struct job job; /* its model knows how many */
    struct cost *cost;
    struct device_graph *graph;
    struct space **spaces; /* (n_sizes) */
};

/* What all families draw on, and the settings of the one at hand. */
struct baseline_task {
    struct arena *arena;
    struct search_context *t;
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) microbatch sizes */
    int32_t n_sizes, n_tp_variants;
    struct tp_variant *tp_variants; /* tp_variants[0]: the cluster as it is */
    /* (n_team) devices of tp_variants[0] that the families of grids may use; NULL: every device */
    const int32_t *team;
    int32_t n_team;
    int64_t limit_ns;   /* plans of a team must beat it to be worth a simulation */
    int32_t max_tries; /* simulations a family */
    int64_t calls;      /* of stages, in all that was lowered to score them */
    int32_t n_settings;
    size_t capacity;
    struct baseline_setting *settings;
    char why
        [256]; /* of the setting of the family that cannot be and comes nearest to it; the first of those */
    /* how far that is: bytes that a device lacks; numbers that do not go up are farther than any */
    int64_t miss;
};

/* Adds the settings of a family; none, and `why`, where it cannot exist. */
typedef enum status baseline_family(struct baseline_task *k, struct error *err);

int32_t baseline_count(void);
const char *baseline_name(int32_t i);
baseline_family *baseline_settings(int32_t i); /* NULL: harp-published's and hap's are made whole */

/* The tensor-parallel variants that the search's options ask for; errors: those of the cluster as it is. */
MUST_CHECK enum status baseline_tp_variants(struct baseline_task *k, struct error *err);
/* The space of a variant and microbatch size, made at its first use. */
MUST_CHECK enum status baseline_space(struct baseline_task *k, int32_t tp_variant, int32_t size,
                                      struct space **out, struct error *err);
/* Estimates x and keeps it, or says why it cannot be. */
MUST_CHECK enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err);
/* The setting's plan; ERR_INFEASIBLE says why not. */
MUST_CHECK enum status baseline_make(struct baseline_task *k, const struct baseline_setting *x,
                                     const char *name, struct arena *a, struct plan *out,
                                     struct error *err);

#endif
