/* tools/schedule/search.h - `musher schedule --cases`: the best order for every pipeline of a table, with what bounds it.
 *
 * In: a table in the format of tools/schedule/cases.h. Out, one line a case: case, makespan, peak_memory (a stage, between
 * bars), lower_bound, gap, binding, schedule (devices between bars: "F0 F1 I0 W0|…", chunk of the device before the
 * letter where there are two). With two chunks the same again for halves of the stages (planner/schedule/halves.h), V-shaped or
 * interleaved, whichever is shorter: columns chunks2_…, and chunks2_placement. Empty cells: nothing fits the memory.
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
    int64_t operations; /* of each search; 0: the search's own default */
    double seconds;     /* each search is cut off after so much wall time; 0: never */
    bool json;
};
/* Prints what is not proved and what is worse than the table's own makespans (none: says so), and a summary.
 * ERR_TOLERANCE: a lower bound of the table is beaten. */
MUST_CHECK enum status schedule_search(struct arena *a, const struct schedule_search_options *o,
                                       struct error *err);

#endif
