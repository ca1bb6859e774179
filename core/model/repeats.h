/* core/model/repeats.h - tandem repeats: runs of equal pieces in a sequence.
 *
 * A repeat is `copies` consecutive pieces of `period` elements that are equal element by element. Elements are accessed
 * through a comparison only, so operators, layers or letters will do. The result has the repeats that cover most (copies less one,
 * times the period), longest first, then those on both sides of them; none overlap. Of periods with equal coverage the
 * shortest is taken, so a repeat is maximal: no piece is itself a repeat.
 * Every repeat of period p has a matching pair at a multiple of p, so it suffices to try those:
 * O(n log n) comparisons for a sequence without repeats (after Main and Lorentz, J. Algorithms 5, 1984, without their
 * halving, because the sequences here have only thousands of elements).
 */
#ifndef CORE_MODEL_REPEATS_H
#define CORE_MODEL_REPEATS_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct repeat {
    int32_t first, period, copies; /* elements first ... first + period * copies - 1; copies >= 2 */
};

struct repeats_of {
    int32_t n;
    const void *user;
    /* Whether elements i < j are equal, as members of pieces j - i apart. */
    bool (*same)(const void *user, int32_t i, int32_t j);
    /* Cost of a boundary before an element; a repeat with several possible beginnings takes that of the
     * least cost (ties: most copies, then earliest). NULL: no cost. */
    int64_t (*seam)(const void *user, int32_t at);
};
/* The repeats, ascending; the list is the arena's. */
int32_t repeats_find(struct arena *a, const struct repeats_of *s, struct repeat **out);

#endif
