/* planner/spmd/labels.h - partial solutions of a search, between its files.
 *
 * A label: the operators before `place` have their rules. Labels of one place and state hang in one chain of the table; without
 * memory that counts a chain has one member. A label that was beaten after it went somewhere else is dropped there.
 */
#ifndef PLANNER_SPMD_LABELS_H
#define PLANNER_SPMD_LABELS_H

#include "planner/spmd/relax.h"
#include "planner/spmd/state.h"

#include <stddef.h>

struct label {
    int64_t ns;
    int64_t least_ns; /* of every whole solution that begins so */
    int64_t priced;   /* of its bytes, where labels have a second bound */
    int32_t place, rule;
    int32_t parent; /* -1: none */
    int32_t via;    /* >= 0: from parent to here as from the root of this label's chain to it */
    int32_t next;   /* in the chain of the table; -1 */
    int32_t run;    /* labels of different runs are different */
    bool beaten;
    size_t state; /* into states, live[place].n numbers */
};

struct search {
    struct arena *a;
    const struct spmd_problem *p;
    struct spmd_states *s;
    const int32_t **rules; /* (n_ops) those that no other of the operator beats, -1 behind them */
    struct spmd_relax *relax; /* what must follow; NULL: it is not asked for */
    struct spmd_relax
        *second; /* the same with bytes at their price, which `second_price` says, or NULL */
    const double *second_price;
    int64_t second_owed; /* what bytes up to all caps come to at that price */
    int64_t *least_bytes,
        *most_bytes; /* (n_ops + 1, n_columns) that must, and can, follow; NULL: memory does not count */
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
    int64_t enough_ns; /* what is no better than this is not wanted; INT64_MAX */
    /* (n_columns) ns of a byte: labels' ns have it on top (Lagrange); NULL: none */
    const double *price;
    int64_t *spare; /* (n_columns) */
};

/* Live tensors in front of a place; none count behind the last. */
int32_t spmd_live_at(const struct search *q, int32_t place);
/* Before a label is written behind the others. */
void spmd_room(struct search *q);
/* Takes the label that stands last in the list into the table, or takes it away: -1. */
int32_t spmd_settle_label(struct search *q, const int32_t *state);
/* One more operator. -1: no way, or no better than what is there. */
int32_t spmd_extend(struct search *q, int32_t from, int32_t rule);
int32_t spmd_new_root(struct search *q, int32_t place, int32_t run, const int32_t *state);
/* Members that cannot run out any more count as 0. false: one has. */
bool spmd_bound_bytes(const struct search *q, int32_t place, int64_t *bytes);
/* The label of the whole sequence's end, composed from pieces; -1: none. *n_pieces 0: no repeat of so many copies, or more
 * than q->most labels: nothing is known. */
int32_t spmd_by_pieces(struct search *q, int32_t min_copies, int32_t *n_pieces);

/* The highest price of a column's cap at which all that any choice may keep is a number of ns that sums bear, however little room
 * a column has. O(rules + tensors · placements) a column. */
double spmd_price_max(const struct spmd_problem *p);

#endif
