/* planner/baseline/baseline.h - textbook plans as points of the same plan space: families of settings.
 *
 * A family enumerates settings. Each setting has an estimate, used only for ranking, and defines one plan, which is simulated.
 * Most families are grids: `replicas` equal pipelines of `stages` stages, times `chunks` on every device. HARP's and HAP's
 * plans are not grids and are constructed as a whole (planner/baseline/harp.h, planner/baseline/hap.h).
 */
#ifndef PLANNER_BASELINE_BASELINE_H
#define PLANNER_BASELINE_BASELINE_H

#include "planner/candidate/plan_skeleton.h"
#include "planner/candidate/search_context.h"
#include "planner/candidate/space.h"

/* Cuts of layers into stages. EVEN: equal numbers of layers. BALANCED: minimal slowest stage. COARSE: minimal closed form of
 * HARP over `coarse` runs of layers of about equal cost. */
enum baseline_cut { CUT_EVEN, CUT_BALANCED, CUT_COARSE };

/* One setting. Devices in the order of the cluster: replica after replica; strided: the first stages of all replicas, then
 * their second stages. */
struct baseline_setting {
    int32_t tp_variant, size; /* into baseline_task's */
    int32_t stages, replicas, chunks, coarse;
    enum baseline_cut cut;
    bool strided, gpipe;
    enum recompute recompute;
    int32_t zero;
    int64_t bucket_bytes;
    const int32_t *team; /* the task's */
    int64_t estimate_ns; /* INT64_MAX: infeasible */
    int32_t number;      /* order of enumeration; breaks ties */
    bool too_large;      /* scored: lacks memory with recomputation too */
};

/* The cluster at one tensor-parallel degree, with its space for each microbatch size (NULL: not made yet). */
struct tp_variant {
    int32_t tp;
    bool possible; /* the degree divides the GPUs of every node */
    struct cluster cluster;
    struct job job; /* its model has the degree */
    struct cost *cost;
    struct device_graph *graph;
    struct space **spaces; /* (n_sizes) */
    const struct sharding *sharding; /* of a stage of measured layers; NULL: not made yet */
};

/* Inputs of all families, and the settings of the current family. */
struct baseline_task {
    struct arena *arena;
    struct search_context *t;
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) microbatch sizes */
    int32_t n_sizes, n_tp_variants;
    struct tp_variant *tp_variants; /* tp_variants[0]: the cluster as given */
    /* (n_team) devices of tp_variants[0] for grid families; NULL: every device */
    const int32_t *team;
    int32_t n_team;
    int64_t known_ns;   /* as in baselines_request */
    int64_t limit_ns;   /* with a team: only settings estimated below it are simulated */
    int32_t max_tries; /* simulations per family */
    int64_t calls;      /* stage calls lowered so far */
    int32_t n_settings;
    size_t capacity;
    struct baseline_setting *settings;
    char why[ERROR_TEXT]; /* reason of the family's nearest miss, the first of equals */
    /* its distance: bytes missing on a device; a violated divisibility is farther than any number of bytes */
    int64_t miss;
};

/* Adds the settings of a family; adds none and sets `why` if the family is infeasible. */
typedef enum status baseline_family(struct baseline_task *k, struct error *err);

int32_t baseline_count(void);
const char *baseline_name(int32_t i);
baseline_family *baseline_settings(int32_t i); /* NULL: harp-published and hap, which have no settings */

/* Makes the tensor-parallel variants named by the search options. Errors: those of the cluster as given. */
MUST_CHECK enum status baseline_tp_variants(struct baseline_task *k, struct error *err);
/* The space of a variant and microbatch size, made on first use. */
MUST_CHECK enum status baseline_space(struct baseline_task *k, int32_t tp_variant, int32_t size,
                                      struct space **out, struct error *err);
/* Estimates x and adds it to the settings, or sets `why` if it is infeasible. */
MUST_CHECK enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err);
/* The setting's plan. ERR_INFEASIBLE with the reason. */
MUST_CHECK enum status baseline_make(struct baseline_task *k, const struct baseline_setting *x,
                                     const char *name, struct arena *a, struct plan *out,
                                     struct error *err);
/* Of measured layers at a degree above 1: the plan's stages become sharded stages on the cluster as given, and *s the space of it. */
MUST_CHECK enum status baseline_shard(struct baseline_task *k, const struct baseline_setting *x,
                                      struct arena *a, struct plan *p, struct space **s,
                                      struct error *err);

#endif
