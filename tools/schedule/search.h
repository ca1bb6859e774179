/* tools/schedule/search.h - `musher schedule --cases`: searches the best order for every pipeline of a table, with a lower bound.
 *
 * In: a table in the format of tools/schedule/cases.h. Out, one line per case: case, makespan, peak_memory (one value per stage,
 * between bars), lower_bound, gap, binding, schedule (one order per device, between bars: "F0 F1 I0 W0|…"; with two chunks the chunk
 * stands before the letter). With two chunks the columns are repeated as chunks2_… for half stages (tools/schedule/halves.h),
 * V-shaped or interleaved, whichever is shorter (chunks2_placement). Empty cells: no order fits the memory.
 */
#ifndef TOOLS_SCHEDULE_SEARCH_H
#define TOOLS_SCHEDULE_SEARCH_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct schedule_search_options {
    const char *cases, *out; /* out: file, "-": stdout, NULL: none */
    int64_t chunks;          /* 1 or 2 */
    uint64_t seed;
    int64_t operations; /* budget of each search; 0: the default of the search */
    double seconds;     /* wall-time limit of each search; 0: none */
    bool json;
};
/* Prints the cases without proof of optimality, those worse than the table's own makespans, and a summary.
 * ERR_TOLERANCE: a makespan is below a lower bound of the table. */
MUST_CHECK enum status schedule_search(struct arena *a, const struct schedule_search_options *o,
                                       struct error *err);

#endif
