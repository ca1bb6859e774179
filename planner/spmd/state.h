/* planner/spmd/state.h - between the files of the search: what is live between two operators, and what a rule makes of it.
 *
 * A record is one live tensor: its versions in the order in which they came to be. Records are interned, so that a state is
 * a short list of numbers, in the order in which its tensors first appeared; equal numbers, equal states, whatever the
 * tensors are called. Its hash is kept with it.
 */
#ifndef PLANNER_SPMD_STATE_H
#define PLANNER_SPMD_STATE_H

#include "planner/spmd/search.h"

struct arena;

enum { SPMD_VERSIONS_MAX = 12, SPMD_LIVE_MAX = 64 };

struct spmd_version {
    uint16_t placement, target; /* it is step `step` on the way from what was made to `target` */
    uint8_t
        partial; /* bit m: some reader's gradient is partial over the axes of m; of a shared parameter: the axes */
    uint8_t kept, parent, step;
};
struct spmd_record {
    int32_t n; /* versions; [0] is what was made */
    struct spmd_version version[SPMD_VERSIONS_MAX];
};

struct spmd_live { /* at one place */
    int32_t n;
    int32_t *tensor; /* (n) */
    int32_t *
        from; /* (n) its place in the list before, or -1 - k: output k of the operator before, -1 - 6 - k: input k */
};

struct spmd_states {
    struct arena *a;
    const struct spmd_problem *p;
    struct spmd_live *live; /* (n_ops + 1) in front of each operator */
    int32_t *last_reader;   /* (n_tensors) n_ops: leaves; -1: nobody reads it */
    int32_t n_records;
    size_t record_capacity, n_buckets;
    struct spmd_record *records;
    int32_t *buckets;
    struct spmd_event *events; /* where they are asked for */
    size_t n_events, event_capacity;
    bool listen;
};
/* O(operators · live tensors). */
struct spmd_states *spmd_states_new(struct arena *a, const struct spmd_problem *p);
/* Its place among what is live in front of operator `place`; -1. */
int32_t spmd_live_place(const struct spmd_states *s, int32_t place, int32_t tensor);
/* State `in` before operator op becomes `out` behind it by a rule. ns and bytes (NULL: not counted) are added to. false: a
 * conversion that does not exist, or more versions or live tensors than fit. */
bool spmd_apply(struct spmd_states *s, int32_t op, const struct spmd_rule *rule, const int32_t *in,
                int32_t *out, int64_t *ns, int64_t *bytes);

#endif
