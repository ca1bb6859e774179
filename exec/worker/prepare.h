/* exec/worker/prepare.h - registers this rank's members of collectives that run on the host or within one device,
 * before the first step. */
#ifndef EXEC_WORKER_PREPARE_H
#define EXEC_WORKER_PREPARE_H

#include "core/base/error.h"

#include <stdint.h>

struct chunks;
struct pinned;
struct rank;
struct transports;

/* Passes this rank's members of a group to the communication thread and their staging to the bounce buffers. No
 * effect for a group with direct device communication. */
MUST_CHECK enum status prepare_members(struct rank *r, const struct chunks *c, struct transports *t,
                                       const struct pinned *pinned, int32_t group,
                                       struct error *err);

#endif
