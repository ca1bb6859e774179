/* planner/spmd/relax.h - the relaxation of the search over rules: an admissible lower bound of the remaining cost (h of A*).
 *
 * The relaxation forgets the versions of a tensor. Of each live tensor it keeps the placement in which it was made (of a
 * shared parameter its home so far). A reader pays its share, 1 ÷ the tensor's readers, of the cost of the tensor with this
 * reader alone: resharding from the initial placement, its backward dual, kept bytes. All readers together cost at least as
 * much as the dearest alone, so at least the sum of those shares. The minimum over the remaining operators is exact for each
 * relaxed state, computed backwards in tables over the product of placements (some hundreds of states at a place of a
 * Transformer). If a table would be too large, the tensors with most placements are dropped and their cheapest placement
 * counts. (Mini-buckets: Kask and Dechter 2001, with cost-shifting between readers.)
 *
 * A real state has paid its versions in full, while the shares of its past readers came to less, or to more with what still
 * flows back. spmd_relax_min subtracts the difference, so its result is a lower bound of the remaining cost of the state.
 */
#ifndef PLANNER_SPMD_RELAX_H
#define PLANNER_SPMD_RELAX_H

#include "planner/spmd/state.h"

struct arena;
struct spmd_relax;

/* rules: (n_ops) candidate rules of each operator, -1 terminated. price: (n_columns) ns per byte, or NULL.
 * O(places · relaxed states · rules), with bounded states and rules. */
struct spmd_relax *spmd_relax_new(struct arena *a, struct spmd_states *s,
                                  const int32_t *const *rules, const double *price);
/* Lower bound in ns of the remaining cost of a state before a place; >= SPMD_NEVER: infeasible. O(live tensors). */
int64_t spmd_relax_min(const struct spmd_relax *x, int32_t place, const int32_t *state);
/* Σ bytes · price over the columns, in ns. */
int64_t spmd_relax_priced(const struct spmd_problem *p, const double *price, const int64_t *bytes);

#define SPMD_NEVER (INT64_MAX / 64)

#endif
