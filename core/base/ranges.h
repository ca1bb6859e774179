/* core/base/ranges.h - compact lists of names, in the hostlist notation of cluster managers: "n0-3.[0,4]".
 *
 * A name is a head and, after its last dot, a tail: "n12.4". Tails of one head are merged, and so are heads that end in
 * consecutive numbers and have equal tails. Names are sorted first, numbers numerically. `most` bounds the runs per list
 * and the number of lists; the rest is "…". O(n log n).
 */
#ifndef CORE_BASE_RANGES_H
#define CORE_BASE_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct arena;

/* "a.0", "n0-3.0-7", "n[0-2,5].[0,4], m0.1"; "" of none. */
const char *ranges_of_names(struct arena *a, const char *const *names, size_t n, size_t most);
/* "0-15,20" of ascending numbers. */
const char *ranges_of_numbers(struct arena *a, const int32_t *numbers, size_t n, size_t most);

#endif
