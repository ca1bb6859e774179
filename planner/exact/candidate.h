/* planner/exact/candidate.h - a complete plan of the exact search's class, small enough to be copied and changed.
 *
 * Everything else of the plan follows: which stages recompute from what fits, warm-ups and buckets are 1F1B's own. Each trial
 * is simulated once, however often it is come by.
 */
#ifndef PLANNER_EXACT_CANDIDATE_H
#define PLANNER_EXACT_CANDIDATE_H

#include "planner/candidate/search_context.h"

struct candidate {
    const struct space *s;
    int32_t n_replicas;
    int32_t share[SPACE_TABLES_MAX], n_stages[SPACE_TABLES_MAX];
    int8_t device[SPACE_TABLES_MAX][SPACE_TABLES_MAX];
    int16_t last[SPACE_TABLES_MAX][SPACE_TABLES_MAX]; /* last layer of each stage */
};
/* Of a plan of such a space; false: it is not of the class's shape (tensor parallelism, several stages a device …). */
bool candidate_of(const struct plan *p, const struct space *s, struct candidate *out);
/* What it takes at least: planner/bound/pipeline_bound.h for each replica, its gradient sum included. INT64_MAX: a device lacks memory however it is
 * scheduled, or two neighbours have no link. */
int64_t candidate_bound(const struct candidate *x);
/* Least time of the sum that the first stage of a replica waits for before its update. Several groups may be summed over several of
 * its links at once. */
int64_t candidate_reduce_ns(const struct space *s, int32_t n_replicas, int32_t device, int32_t last);

/* A stage's own work, update included: no order is faster. */
int64_t candidate_work(const struct candidate *x);
void candidate_plan(const struct candidate *x, struct arena *a, struct plan *out);

/* What was tried, and what came of it. */
struct candidates {
    struct arena *arena;
    size_t n, capacity; /* a power of two; free where ns is 0 */
    uint64_t *key;
    int64_t *ns;
};
void candidates_init(struct candidates *q, struct arena *a);
int64_t candidates_known(const struct candidates *q, const struct candidate *x); /* 0: was not tried */
void candidates_put(struct candidates *q, const struct candidate *x, int64_t ns);
/* *ns: simulated and kept now, or known; INT64_MAX where it does not fit. */
MUST_CHECK enum status candidates_score(struct candidates *q, struct search_context *t, const struct candidate *x,
                                    int64_t *ns, struct error *err);

#endif
