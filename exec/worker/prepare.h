/* exec/worker/prepare.h - before the first step: this rank's members of groups that the host carries, or that are within a device. */
#ifndef EXEC_WORKER_PREPARE_H
#define EXEC_WORKER_PREPARE_H

#include "core/base/error.h"

#include <stdint.h>

struct chunks;
struct pinned;
struct rank;
struct transports;

/* The members of a group that are this rank's, to the communication thread; their staging to the bounce buffers. Nothing for
 * a group whose devices communicate directly. */
MUST_CHECK enum status prepare_members(struct rank *r, const struct chunks *c, struct transports *t,
                                       const struct pinned *pinned, int32_t group,
                                       struct error *err);

#endif
