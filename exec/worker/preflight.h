/* exec/worker/preflight.h - checks before a run: placement, program, device and memory.
 *
 * Each rank checks its own host, device and lane before any rank allocates; all ranks return the same status. */
#ifndef EXEC_WORKER_PREFLIGHT_H
#define EXEC_WORKER_PREFLIGHT_H

#include "core/base/error.h"

#include <stdint.h>

struct chunks;
struct program;
struct rank;
struct transports;

MUST_CHECK enum status preflight_place(const struct rank *r, struct error *err);
MUST_CHECK enum status preflight_program(const struct rank *r, const struct chunks *c,
                                         struct error *err);
/* The backend is found; its device is not open yet. */
MUST_CHECK enum status preflight_device(struct rank *r, struct error *err);
/* After the transports are chosen, with all requirements of the lane. */
MUST_CHECK enum status preflight_memory(struct rank *r, const struct transports *t,
                                        struct error *err);
void preflight_warn_if_crowded(const struct program *p);
/* Of a run of the steps (before, before + steps]: some are behind the end of the learning-rate schedule. */
void preflight_warn_of_schedule(const struct program *p, int64_t before, int64_t steps);

#endif
