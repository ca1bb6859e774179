/* core/model/repeats.h - runs of equal pieces in a sequence, found from its elements alone.
 *
 * A repeat is `copies` pieces of `period` elements, one after the other, that are equal element by element. The sequence is
 * known only by a comparison, so operators, layers or letters will do. Found are the repeats that say most (copies less one,
 * times the period), longest first, then the same on both sides of them; none overlap. Of periods that say as much the
 * shortest is taken, so a repeat is maximal: no piece of it is itself a repeat of the whole piece.
 * Every repeat of period p has a matching pair at a multiple of p, so trying those alone misses none:
 * O(n log n) comparisons for a sequence without repeats (after Main and Lorentz, J. Algorithms 5, 1984, without their
 * halving: the sequences here are thousands long).
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
    /* Are elements i < j equal, as members of pieces j - i apart? */
    bool (*same)(const void *user, int32_t i, int32_t j);
    /* What it costs to part the sequence in front of an element; a repeat that may begin at several places begins where
     * this is least (then: with most copies, then: earliest). NULL: nothing. */
    int64_t (*seam)(const void *user, int32_t at);
};
/* The repeats, ascending; the list is the arena's. */
int32_t repeats_find(struct arena *a, const struct repeats_of *s, struct repeat **out);

#endif
