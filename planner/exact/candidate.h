/* planner/exact/candidate.h - a plan of the exact search's class in a compact form that is cheap to copy and to change.
 *
 * The rest of the plan follows from it: a stage recomputes only if it does not fit otherwise; warm-ups and buckets are those
 * of 1F1B.
 */
#ifndef PLANNER_EXACT_CANDIDATE_H
#define PLANNER_EXACT_CANDIDATE_H

#include "core/base/hash_map.h"
#include "planner/candidate/search_context.h"

struct candidate {
    const struct space *s;
    int32_t n_replicas;
    int32_t share[SPACE_TABLES_MAX], n_stages[SPACE_TABLES_MAX];
    int8_t device[SPACE_TABLES_MAX][SPACE_TABLES_MAX];
    int16_t last[SPACE_TABLES_MAX][SPACE_TABLES_MAX]; /* last layer of each stage */
};
/* The candidate of a plan of such a space. False: the plan is outside the class (tensor parallelism, several stages a device
 * …). */
bool candidate_of(const struct plan *p, const struct space *s, struct candidate *out);
/* Lower bound of its iteration in ns: planner/bound/pipeline_bound.h for each replica, gradient all-reduce included.
 * INT64_MAX: a device lacks memory in every schedule, or two neighbouring stages have no route. */
int64_t candidate_bound(const struct candidate *x);
/* Lower bound in ns of the gradient all-reduce before the update of a replica's first stage. Several collectives may use
 * several of the device's links at once. */
int64_t candidate_reduce_ns(const struct space *s, int32_t n_replicas, int32_t device,
                            int32_t last);

/* Largest work of any stage in ns, update included: a lower bound for every order. */
int64_t candidate_work(const struct candidate *x);
void candidate_plan(const struct candidate *x, struct arena *a, struct plan *out);

/* *ns: of the candidate's plan, simulated and kept among t's incumbents unless it is in the memo; INT64_MAX: does not fit. */
MUST_CHECK enum status candidate_score(const struct candidate *x, struct hash_map *memo,
                                       struct search_context *t, int64_t *ns, struct error *err);

#endif
