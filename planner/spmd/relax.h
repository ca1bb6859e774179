/* planner/spmd/relax.h - between the files of the search: what must at least follow a state.
 *
 * The relaxed problem forgets which versions of a tensor there are: of each live tensor it knows where it was made (of a
 * shared parameter its home so far). A reader pays its share, 1 ÷ the tensor's readers, of what the tensor would cost
 * if it were the only reader: the way from where it was made, what flows back on it, what it keeps. What all readers cost
 * together is no less than what the dearest costs alone, so no less than those shares. The least that follows each
 * such state is found exactly, from the end on, in tables over the product of placements (a place of a Transformer has
 * some hundreds); where they would be too large the tensors of most placements are forgotten, the cheapest of which counts.
 * (Mini-buckets: Kask and Dechter 2001, with what costs are shared by as the buckets.)
 *
 * A state that has versions has paid for them in full, its past readers' shares came to less or, with what still flows back,
 * to more: spmd_relax_min takes off the difference, and what it says is a lower bound of what the state has yet to pay.
 */
#ifndef PLANNER_SPMD_RELAX_H
#define PLANNER_SPMD_RELAX_H

#include "planner/spmd/state.h"

struct arena;
struct spmd_relax;

/* rules: (n_ops) of each operator those that count, -1 behind them. price: (n_columns) ns of a byte, or NULL.
 * O(places · states of the relaxed problem · rules), both bounded. */
struct spmd_relax *spmd_relax_new(struct arena *a, struct spmd_states *s,
                                  const int32_t *const *rules, const double *price);
/* What follows a state in front of a place costs no less; SPMD_NEVER and more: nothing can follow. O(live tensors). */
int64_t spmd_relax_min(const struct spmd_relax *x, int32_t place, const int32_t *state);
/* Bytes by the prices of columns. */
int64_t spmd_relax_priced(const struct spmd_problem *p, const double *price, const int64_t *bytes);

#define SPMD_NEVER (INT64_MAX / 64)

#endif
