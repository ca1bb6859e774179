/* exec/worker/hosts.h - the hosts that a scheduler chose, in place of the names in the plan (run_options.any_host). */
#ifndef EXEC_WORKER_HOSTS_H
#define EXEC_WORKER_HOSTS_H

#include "core/base/error.h"

struct rank;

/* All ranks together, after they have joined. r->p becomes a copy of the program whose devices have the host names of the ranks that run
 * them. ERR_INPUT: devices of one node are on two hosts, or GPUs of two nodes on one, whose numbers would then name the same GPUs.
 * Cost: one gathering of host names, O(devices²) comparisons of names. */
MUST_CHECK enum status hosts_take(struct rank *r, struct error *err);

#endif
