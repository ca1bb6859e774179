/* planner/topology/op_graph.h - a forward graph as igraph sees it: what its order of operators hides.
 *
 * Layers are cut in the one order in which operators stand, by what lives at each place (core/graph/graph, core/model/layers). That
 * order is one of many: here the same questions are asked of the graph itself. *Separators* are the operators that every way
 * to the loss passes, found as the dominators of the last one (igraph's dominator tree; Lengauer and Tarjan 1979); the
 * default layers end with them. The *least cut* between two sets of operators is the least number of bytes that
 * any order could leave to cross between them: a minimum s-t cut (igraph's push-relabel) of a network in which each
 * tensor is paid for once, however many operators read it, and no operator may stand before what it reads:
 *     producer --bytes--> tensor --inf--> reader,   reader --inf--> producer.
 * Nothing here is asked in a search; `musher show --layers` prints it beside the cuts that are used, and tests hold the
 * clustering to it.
 */
#ifndef PLANNER_TOPOLOGY_OP_GRAPH_H
#define PLANNER_TOPOLOGY_OP_GRAPH_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdint.h>

/* The operators, ascending, that every way from inputs and parameters to the last one passes, the last one included.
 * O(operators log operators). Errors: igraph's (planner/topology/igraph_guard.h). */
MUST_CHECK enum status op_graph_separators(struct arena *a, const struct graph *g, int32_t *n,
                                           int32_t **out, struct error *err);

/* Which side of a cut an operator must stand on. */
enum op_side { OP_SIDE_FREE, OP_SIDE_BEFORE, OP_SIDE_BEHIND };

/* Least bytes that cross between operators first ... last of the forward graph, side[i - first] telling where each
 * must be; all before `first` stand before, all behind `last` behind. -1 where the sides contradict the graph.
 * A minimum cut over the operators of the range alone. */
MUST_CHECK enum status op_graph_least_cut(struct arena *a, const struct graph *g, int32_t first,
                                          int32_t last, const enum op_side *side, int64_t *bytes,
                                          struct error *err);

/* Least bytes of any cut with the matrix products of layers up to `layer` before it and those of later ones behind (the last
 * operator of a layer without any), when only the operators of the two layers beside it may change sides. */
MUST_CHECK enum status op_graph_least_after(struct arena *a, const struct graph *g, int32_t layer,
                                            int64_t *bytes, struct error *err);

#endif
