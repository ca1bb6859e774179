/* planner/topology/igraph_guard.h - igraph's failures become ours, and one thread at a time is inside it.
 *
 * igraph 0.10 as Debian builds it keeps its error state and the list of what to free in one place for the whole
 * process, and ends the program where a call fails. So every use of it stands between enter and leave, which hold one
 * lock and set handlers that take the text down and give the code back:
 *
 *     igraph_guard_enter();
 *     status = igraph_guard(igraph_empty(&graph, n, IGRAPH_DIRECTED), "a graph of the operators", err);
 *     ...
 *     igraph_guard_leave();
 *
 * The foreign handles in between are freed with `goto done`, before leave. Do not enter twice from one thread.
 */
#ifndef PLANNER_TOPOLOGY_IGRAPH_GUARD_H
#define PLANNER_TOPOLOGY_IGRAPH_GUARD_H

#include "core/base/error.h"

void igraph_guard_enter(void);
void igraph_guard_leave(void);
/* code: what an igraph function returned. OK where it went well; ERR_RESOURCE where memory gave out, else ERR_INTERNAL,
 * with what was to be made and igraph's own words. Between enter and leave. */
MUST_CHECK enum status igraph_guard(int code, const char *what, struct error *err);

#endif
