/* planner/topology/igraph_guard.h - igraph's failures as error statuses, and mutual exclusion around igraph.
 *
 * igraph 0.10 as built by Debian keeps its error state and its cleanup list in process-wide variables and ends the process if
 * a call fails. So every use of it is enclosed by enter and leave, which hold a lock and set handlers that record the message
 * and return the error code:
 *
 *     igraph_guard_enter();
 *     status = igraph_guard(igraph_empty(&graph, n, IGRAPH_DIRECTED), "a graph of the operators", err);
 *     ...
 *     igraph_guard_leave();
 *
 * igraph objects are freed before leave (`goto done`). The lock is not recursive.
 */
#ifndef PLANNER_TOPOLOGY_IGRAPH_GUARD_H
#define PLANNER_TOPOLOGY_IGRAPH_GUARD_H

#include "core/base/error.h"

void igraph_guard_enter(void);
void igraph_guard_leave(void);
/* code: an igraph function's return value. OK: success; ERR_RESOURCE: out of memory; ERR_INTERNAL: any other failure, with
 * `what` and igraph's message. Call between enter and leave. */
MUST_CHECK enum status igraph_guard(int code, const char *what, struct error *err);

#endif
