/* planner/baseline/baseline.h - textbook plans as points of the same plan space: families of settings.
 *
 * A family enumerates settings. Each setting has an estimate (planner/baseline/grid.c), which orders the simulations, and defines one plan.
 * Most families are grids: `replicas` equal pipelines of `stages` stages, times `chunks` on every device. HARP's and HAP's
 * plans are not grids and are constructed as a whole (planner/baseline/harp.h, planner/baseline/hap.h).
 */
#ifndef PLANNER_BASELINE_BASELINE_H
#define PLANNER_BASELINE_BASELINE_H

#include "planner/candidate/plan_skeleton.h"
#include "planner/candidate/search_context.h"
#include "planner/candidate/space.h"
#include "planner/coarse/coarse.h"

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
    bool hierarchical; /* gradient all-reduces */
    int32_t part; /* hybrid_shard: GPUs of a node that share the state; 0: all replicas */
    int64_t bucket_bytes;
    int64_t estimate_ns; /* INT64_MAX: infeasible */
    bool fits;           /* in memory, by estimate */
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
    struct coarse *coarse; /* classes, prices and estimates */
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) microbatch sizes */
    int32_t n_sizes, n_degrees;
    int32_t n_grouped; /* the first sizes, at which stages on several GPUs are priced */
    const struct baseline_degree *degrees; /* degrees[0]: single GPUs */
    const int32_t *class_of; /* (devices) class of each; of a class that was left out, another one of its type, or 0 */
    struct space *spaces;    /* (n_sizes) of the plans' cluster; arena NULL: not made yet */
    const bool *idle;        /* (devices) of a part of the cluster; NULL: none is idle */
    int64_t known_ns;        /* as in baselines_request */
    int64_t limit_ns;        /* of a part: only settings estimated below it are simulated */
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
/* Whether links join the cluster's devices in several parts only. Every preset uses all devices, so none has a plan: "no link joins
 * b.0 to the others", those outside the largest part, is the reason of all. */
bool baseline_apart(struct arena *a, const struct cluster *c, struct search_result *out);
baseline_family *baseline_settings(int32_t i); /* NULL: harp-published and hap, which have no settings */

/* Sets class_of, the degrees and the empty list of spaces. ERR_INPUT: those of the cluster's links. */
MUST_CHECK enum status baseline_degrees(struct baseline_task *k, struct error *err);
/* The space of a microbatch size, made on first use. */
MUST_CHECK enum status baseline_space(struct baseline_task *k, int32_t size, struct space **out,
                                      struct error *err);
/* The degree of the device's class for the setting's number of GPUs, an index; 0: single GPUs. */
int32_t baseline_class_degree(const struct baseline_task *k, const struct baseline_setting *x,
                              int32_t device);
/* The type of the space that prices a device of the setting's grid; -1: the model has no rules for so many GPUs. */
int32_t baseline_type(const struct baseline_task *k, const struct baseline_setting *x,
                      int32_t device);
/* Rules of its stages on several GPUs. */
const struct sharding *baseline_sharding(const struct baseline_task *k,
                                         const struct baseline_setting *x, int32_t device);
/* Estimates x and adds it to the settings, or sets `why` if it is infeasible. */
MUST_CHECK enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err);
/* The setting's plan. ERR_INFEASIBLE with the reason. */
MUST_CHECK enum status baseline_make(struct baseline_task *k, const struct baseline_setting *x,
                                     const char *name, struct arena *a, struct plan *out,
                                     struct error *err);

#endif
