/* exec/worker/preload.h - runs each operator once before the first message is posted.
 *
 * The first launch of a kernel may load its module, create a library plan or grow scratch, and each of these may wait
 * until the device is idle. A receive posted ahead occupies the device until its peer has sent. If that peer waits
 * for the pending launch, the run deadlocks. Therefore a lane whose device communicates directly runs each operator
 * of its program once on zeroed memory that is discarded afterwards: every id is 0, which is in every vocabulary, and
 * updates use step number 0. Nothing is measured or kept. Rejected: posting no receive ahead until the first step has
 * ended; a schedule other than the plan's.
 */
#ifndef EXEC_WORKER_PRELOAD_H
#define EXEC_WORKER_PRELOAD_H

#include "core/base/error.h"

struct chunk;
struct chunks;
struct rank;

/* Runs each operator of the chunk once; its memory is undefined afterwards. */
MUST_CHECK enum status preload_chunk(struct rank *r, const struct chunks *c, const struct chunk *k,
                                     struct error *err);

#endif
