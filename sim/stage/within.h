/* sim/stage/within.h - for every range of layers, the sum over intervals that lie inside it.
 *
 * Each item is an interval of layers with an amount; a range counts the intervals that it contains. "The range has at least one
 * of the layers r1 < r2 < ... < rn" is such a sum too: the points (ri, ri) minus the neighbours (ri, ri+1); "k or more of
 * them" likewise: intervals of k consecutive layers minus those of k + 1. Memory that a stage holds once, whatever the number
 * of its layers that use it, is therefore found without a scan over the items for each range.
 */
#ifndef SIM_STAGE_WITHIN_H
#define SIM_STAGE_WITHIN_H

#include "core/base/arena.h"

#include <stddef.h>
#include <stdint.h>

struct within_item {
    int32_t first, last;
    int64_t amount;
};

struct within {
    struct arena *arena;
    int32_t n_layers;
    int64_t *point; /* (n_layers): of the intervals of one layer */
    int32_t n_items;
    struct within_item *items; /* (n_items): the longer ones */
    size_t capacity;
};

void within_init(struct within *w, struct arena *a, int32_t n_layers);
void within_add(struct within *w, int32_t first, int32_t last, int64_t amount);
/* Adds the amount to all ranges with `least` (1, 2 ...) or more of the layers, ascending; duplicates are allowed. */
void within_add_any(struct within *w, const int32_t *layers, int32_t n, int32_t least,
                    int64_t amount);
/* sum[l] = total of the items within first ... l, for l >= first; earlier entries are not written. O(layers + items). */
void within_row(const struct within *w, int32_t first, int64_t *sum);

#endif
