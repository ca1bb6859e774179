/* planner/spmd/state.h - states of the search over rules: live tensors between two operators, and the transition by a rule.
 *
 * A record describes one live tensor: its versions in order of creation. Records are interned, so a state is a short list of
 * numbers in order of the tensors' first appearance. Equal lists are equal states, independent of tensor names.
 */
#ifndef PLANNER_SPMD_STATE_H
#define PLANNER_SPMD_STATE_H

#include "planner/spmd/search.h"

struct arena;

enum { SPMD_VERSIONS_MAX = 12, SPMD_LIVE_MAX = 64 };

struct spmd_version {
    uint16_t placement, target; /* step `step` of the resharding from the initial placement to `target` */
    uint8_t
        partial; /* bit m: some reader's gradient is partial over the axis set m; shared parameter: the axis set */
    uint8_t kept, parent, step;
};
struct spmd_record {
    int32_t n; /* versions; [0] is the initial one */
    struct spmd_version version[SPMD_VERSIONS_MAX];
};

struct spmd_live { /* at one place */
    int32_t n;
    int32_t *tensor; /* (n) */
    int32_t *
        from; /* (n) index in the list before; -1 - k: output k of the operator before; -1 - 6 - k: its input k */
};

struct spmd_states {
    struct arena *a;
    const struct spmd_problem *p;
    struct spmd_live *live; /* (n_ops + 1) before each operator */
    int32_t *last_reader;   /* (n_tensors) n_ops: an output of the sequence; -1: not read */
    int32_t n_records;
    size_t record_capacity, n_buckets;
    struct spmd_record *records;
    int32_t *buckets;
    struct spmd_event *events; /* recorded if listen */
    size_t n_events, event_capacity;
    bool listen;
};
/* O(operators · live tensors). */
struct spmd_states *spmd_states_new(struct arena *a, const struct spmd_problem *p);
/* Index of a tensor among those live before operator `place`; -1: not live. */
int32_t spmd_live_place(const struct spmd_states *s, int32_t place, int32_t tensor);
/* Transition: state `in` before operator op becomes `out` after it by a rule. Adds to *ns and bytes (NULL: not counted).
 * false: a resharding does not exist, or more than SPMD_VERSIONS_MAX versions or SPMD_LIVE_MAX live tensors. */
bool spmd_apply(struct spmd_states *s, int32_t op, const struct spmd_rule *rule, const int32_t *in,
                int32_t *out, int64_t *ns, int64_t *bytes);

#endif
