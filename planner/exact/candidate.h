/* planner/exact/candidate.h - a complete plan of the exact search's class, small enough to be copied and changed.
 *
 * The rest of the plan follows from it: a stage recomputes where it would not fit otherwise; warm-ups and buckets are those of 1F1B.
 * Results are memoised: each candidate is simulated once.
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
/* The candidate of a plan of such a space. False: the plan is outside the class (tensor parallelism, several stages a device …). */
bool candidate_of(const struct plan *p, const struct space *s, struct candidate *out);
/* Lower bound of its iteration in ns: planner/bound/pipeline_bound.h for each replica, gradient all-reduce included. INT64_MAX: a device
 * lacks memory in every schedule, or two neighbouring stages have no link. */
int64_t candidate_bound(const struct candidate *x);
/* Lower bound in ns of the gradient all-reduce that the first stage of a replica waits for before its update. Several groups may use
 * several of its links at once. */
int64_t candidate_reduce_ns(const struct space *s, int32_t n_replicas, int32_t device,
                            int32_t last);

/* A stage's own work, update included: no order is faster. */
int64_t candidate_work(const struct candidate *x);
void candidate_plan(const struct candidate *x, struct arena *a, struct plan *out);

/* Candidates that were simulated, with their times: a hash table. */
struct candidates {
    struct arena *arena;
    size_t n, capacity; /* a power of two; free where ns is 0 */
    uint64_t *key;
    int64_t *ns;
};
void candidates_init(struct candidates *q, struct arena *a);
int64_t candidates_known(const struct candidates *q,
                         const struct candidate *x); /* 0: was not tried */
void candidates_put(struct candidates *q, const struct candidate *x, int64_t ns);
/* *ns: simulated and kept now, or known; INT64_MAX where it does not fit. */
MUST_CHECK enum status candidates_score(struct candidates *q, struct search_context *t,
                                        const struct candidate *x, int64_t *ns, struct error *err);

#endif
