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
#include "planner/spmd_stage/tp_options.h"

/* Cuts of layers into stages. EVEN: equal numbers of layers. BALANCED: minimal slowest stage. COARSE: minimal closed form of
 * HARP over `coarse` runs of layers of about equal cost. */
enum baseline_cut { CUT_EVEN, CUT_BALANCED, CUT_COARSE };

/* One setting. Devices in the order of the cluster: replica after replica; strided: the first stages of all replicas, then
 * their second stages. */
struct baseline_setting {
    int32_t degree, size; /* into baseline_task's */
    int32_t stages, replicas, chunks, coarse;
    enum baseline_cut cut;
    bool strided, gpipe;
    enum recompute recompute;
    int32_t zero;
    int64_t bucket_bytes;
    int64_t estimate_ns; /* INT64_MAX: infeasible */
    int32_t number;      /* order of enumeration; breaks ties */
    bool too_large;      /* scored: lacks memory with recomputation too */
};

/* The cluster's GPUs in groups of tp, each of which takes one stage of a grid. */
struct baseline_degree {
    int32_t tp, n;        /* n: groups */
    const int32_t *first; /* (n) first GPU of each, in the order of the file; the others follow it */
};

/* Inputs of all families, and the settings of the current family. */
struct baseline_task {
    struct arena *arena;
    struct search_context *t;
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) microbatch sizes */
    int32_t n_sizes, n_degrees;
    const struct baseline_degree *degrees; /* degrees[0]: single GPUs */
    const struct tp_options *options;      /* prices of stages on several GPUs; NULL: there are none */
    struct space **spaces;                 /* (n_sizes) NULL: not made yet */
    bool **usable;                         /* (n_sizes) of tp_options_space */
    bool part; /* the devices of degrees[0] are a part of the cluster's */
    int64_t known_ns;   /* as in baselines_request */
    int64_t limit_ns;   /* of a part: only settings estimated below it are simulated */
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

/* Sets the degrees (tp_options_numbers), their prices and the empty list of spaces. ERR_INPUT: those of the cluster's links. */
MUST_CHECK enum status baseline_degrees(struct baseline_task *k, struct error *err);
/* The space of a microbatch size, made on first use; priced for every degree. */
MUST_CHECK enum status baseline_space(struct baseline_task *k, int32_t size, struct space **out,
                                      struct error *err);
/* The type of the space that prices a device of the setting's grid; -1: the model has no rules for so many GPUs. */
int32_t baseline_type(const struct baseline_task *k, const struct baseline_setting *x,
                      int32_t device);
/* Estimates x and adds it to the settings, or sets `why` if it is infeasible. */
MUST_CHECK enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err);
/* The setting's plan. ERR_INFEASIBLE with the reason. */
MUST_CHECK enum status baseline_make(struct baseline_task *k, const struct baseline_setting *x,
                                     const char *name, struct arena *a, struct plan *out,
                                     struct error *err);

#endif
