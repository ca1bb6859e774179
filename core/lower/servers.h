/* core/lower/servers.h - the stages, lanes and channels of a plan's parameter servers (core/program/program.h). */
#ifndef CORE_LOWER_SERVERS_H
#define CORE_LOWER_SERVERS_H

#include "core/lower/lowering.h"

struct writer;

static inline bool lower_is_served(const struct lowering *l) { return l->plan->servers.rule.n > 0; }
/* Tensors of optimizer state that a stage keeps for each parameter: none on a worker. */
int64_t lower_state_tensors(const struct lowering *l);
/* A worker's U: adds the gradients of both uses of a parameter (done), zeroes all. Messages are inserted by lower_servers. */
void lower_worker_update(struct writer *w);
/* Behind all stages, lanes and orders of the workers: appends the servers, and puts their devices in front, so that the first rank is a
 * server. Parameters are divided over the servers by whole tensors, the largest first, each to the server with the fewest bytes.
 * ERR_INPUT: more servers than parameters; no link between a worker and a server; a link that blocks compute streams. */
MUST_CHECK enum status lower_servers(struct lowering *l, struct error *err);

#endif
