/* tools/profile/collectives.h - measurement of collectives between this machine's GPUs, run by the executor, for `musher profile`.
 *
 * Members are the first 1, 2, 3 … 8, 16 … GPUs of each node, on every number of nodes that this machine has, in the order of the
 * cluster; a table's key is the number of ranks and of nodes. Measured are all-reduce, all-gather and reduce-scatter of the library
 * (rows without an algorithm), and the last two with uneven shards in three algorithms (padded, grouped, pairwise; the protocol field
 * names the shares). Sizes start at 1 KiB and grow by factors of four.
 */
#ifndef TOOLS_PROFILE_COLLECTIVES_H
#define TOOLS_PROFILE_COLLECTIVES_H

#include "tools/profile/links.h"

/* Adds tables to *p; existing ones are kept, unless `again`. Each table that cannot be measured here is logged with the reason.
 * *measured: rows added. */
MUST_CHECK enum status profile_collectives_measure(struct profile_links *b, int64_t repeats,
                                                   bool again, struct profile *p, size_t *measured,
                                                   struct error *err);
void profile_collectives_print(const struct profile *p);
void profile_collectives_json(struct json *j, const struct profile *p);

#endif
