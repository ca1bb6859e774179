/* planner/spmd/labels.h - labels (partial solutions) of the search over sharding rules; private to its files.
 *
 * A label assigns rules to the operators before `place`. Labels of one place and state form one chain of the hash table; if
 * memory does not count, a chain has one member. A label dominated after its expansion is discarded when it is popped.
 */
#ifndef PLANNER_SPMD_LABELS_H
#define PLANNER_SPMD_LABELS_H

#include "planner/spmd/relax.h"
#include "planner/spmd/state.h"

#include <stddef.h>

struct label {
    int64_t ns;
    int64_t least_ns; /* lower bound of every complete solution with this prefix (f of A*) */
    int32_t place, rule;
    int32_t parent; /* -1: none */
    int32_t via;    /* >= 0: the path from parent to here equals that from the root of label `via` to it */
    int32_t next;   /* in the chain of the table; -1: last */
    int32_t run;    /* labels of different runs are never compared */
    bool beaten;    /* dominated */
    size_t state; /* into states, live[place].n numbers */
};

struct search {
    struct arena *a;
    const struct spmd_problem *p;
    struct spmd_states *s;
    const int32_t **rules; /* (n_ops) rules not dominated by another of the operator, -1 terminated */
    struct spmd_relax *relax; /* lower bound of the remaining cost; NULL: none */
    int64_t *least_bytes,
        *most_bytes; /* (n_ops + 1, n_columns) least and most remaining bytes; NULL: memory does not count */
    struct label *labels;
    int32_t n_labels;
    size_t label_capacity;
    int32_t *states;
    size_t n_states, state_capacity;
    int64_t *bytes; /* (labels, n_columns) */
    size_t byte_capacity;
    int32_t *table;
    size_t n_table;
    int32_t *heap;
    size_t n_heap, heap_capacity;
    int64_t n_applied, most;
    int64_t enough_ns; /* solutions that are not below it are pruned; INT64_MAX: none */
    /* (n_columns) Lagrange multipliers in ns per byte, added to the labels' ns; NULL: none */
    const double *price;
    int64_t *spare; /* (n_columns) */
};

/* Number of live tensors before a place; 0 after the last operator. */
int32_t spmd_live_at(const struct search *q, int32_t place);
/* Grows the list for one more label. */
void spmd_room(struct search *q);
/* Inserts the last label of the list into the table; if it is dominated, removes it and returns -1. */
int32_t spmd_settle_label(struct search *q, const int32_t *state);
/* Extends a label by a rule of the next operator. -1: no conversion exists, or the result is dominated. */
int32_t spmd_extend(struct search *q, int32_t from, int32_t rule);
int32_t spmd_new_root(struct search *q, int32_t place, int32_t run, const int32_t *state);
/* Sets to 0 the bytes of devices whose cap can no longer be exceeded. false: a cap is exceeded. */
bool spmd_bound_bytes(const struct search *q, int32_t place, int64_t *bytes);
/* Final label of the whole sequence, composed from repeated pieces; -1: none. *n_pieces 0: not applicable (nothing repeats, or more
 * than q->most labels). */
int32_t spmd_by_pieces(struct search *q, int32_t *n_pieces);

/* Largest price of a column's cap, in ns, at which no sum over the bytes of any choice overflows, however small the cap is.
 * O(rules + tensors · placements) per column. */
double spmd_price_max(const struct spmd_problem *p);

#endif
