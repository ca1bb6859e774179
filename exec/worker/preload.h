/* exec/worker/preload.h - each operator once, before the first message is asked for.
 *
 * The first launch of a kernel may load it, make a library's plan or grow scratch, and each of these may wait until nothing runs on the
 * device. A receive that was posted ahead runs there until its peer has sent; where the peer waits for what we were about to
 * launch, nobody ever goes on. So lanes whose devices talk among themselves run each operator of their program once, on memory
 * of zeros that is thrown away afterwards: every id is 0, which every vocabulary has, and what updates make of a step number 0 is
 * nobody's number. Nothing is measured, nothing is kept.
 * Discarded: waiting until the first step is through before receives are posted ahead; another schedule than the plan's.
 */
#ifndef EXEC_WORKER_PRELOAD_H
#define EXEC_WORKER_PRELOAD_H

#include "core/base/error.h"

struct chunk;
struct chunks;
struct rank;

/* Each operator of the chunk once; what its memory holds afterwards means nothing. */
MUST_CHECK enum status preload_chunk(struct rank *r, const struct chunks *c, const struct chunk *k,
                                     struct error *err);

#endif
