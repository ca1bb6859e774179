/* tools/profile/collectives.h - collectives between this machine's GPUs, through the executor, into a profile's table.
 *
 * Among 1, 2, 3 … 8, 16 … GPUs of each of so many nodes, as far as this machine has them, the first in the order of the cluster
 * (a table's key is the number of ranks and of nodes): all-reduce, all-gather and reduce-scatter as the library does them (rows without an algorithm), and the two last in the three forms that uneven
 * parts take (padded, grouped, pairwise; the protocol says the shares). Sizes go from 1 KiB on, four by four.
 */
#ifndef TOOLS_PROFILE_COLLECTIVES_H
#define TOOLS_PROFILE_COLLECTIVES_H

#include "tools/profile/links.h"

/* Tables that *p has already stay as they are, unless `again`. What cannot be measured here is told in a line. *measured: rows made. */
MUST_CHECK enum status profile_collectives_measure(struct profile_links *b, int64_t repeats,
                                                   bool again, struct profile *p, size_t *measured,
                                                   struct error *err);
void profile_collectives_print(const struct profile *p);
void profile_collectives_json(struct json *j, const struct profile *p);

#endif
