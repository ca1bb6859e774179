/* exec/worker/preflight.h - can this program be run here? Each rank checks its own host, device and lane, before any of them
 * allocates; all return the same answer. */
#ifndef EXEC_WORKER_PREFLIGHT_H
#define EXEC_WORKER_PREFLIGHT_H

#include "core/base/error.h"

struct chunks;
struct program;
struct rank;
struct transports;

MUST_CHECK enum status preflight_place(const struct rank *r, struct error *err);
MUST_CHECK enum status preflight_program(const struct rank *r, const struct chunks *c,
                                         struct error *err);
/* The backend is there, its device not opened. */
MUST_CHECK enum status preflight_device(struct rank *r, struct error *err);
/* What lanes need is there; transports are chosen. */
MUST_CHECK enum status preflight_memory(struct rank *r, const struct transports *t,
                                        struct error *err);
void preflight_warn_if_crowded(const struct program *p);

#endif
