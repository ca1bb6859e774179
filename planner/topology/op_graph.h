/* planner/topology/op_graph.h - minimum cuts of a forward graph, independent of its order of operators.
 *
 * Layers are cut in the one topological order of the file, by the tensors live at each place (core/graph/graph,
 * core/model/layers). The *least cut* between two sets of operators is the least number of bytes that crosses
 * between them in any order: a minimum s-t cut (igraph's push-relabel) of a network in which each tensor is counted once for
 * all its readers and no operator precedes a tensor that it reads:
 *     producer --bytes--> tensor --inf--> reader,   reader --inf--> producer.
 * No search uses it. `musher show --layers` prints it beside the actual cuts, and tests check the clustering against it.
 */
#ifndef PLANNER_TOPOLOGY_OP_GRAPH_H
#define PLANNER_TOPOLOGY_OP_GRAPH_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdint.h>

/* Side of a cut to which an operator is fixed. */
enum op_side { OP_SIDE_FREE, OP_SIDE_BEFORE, OP_SIDE_BEHIND };

/* Least bytes that cross a cut within operators first ... last of the forward graph; side[i - first]: constraint of each
 * operator. Operators before `first` are before the cut, those after `last` behind it. -1: the sides contradict the graph's
 * dependences. One minimum cut over the operators of the range. */
MUST_CHECK enum status op_graph_least_cut(struct arena *a, const struct graph *g, int32_t first,
                                          int32_t last, const enum op_side *side, int64_t *bytes,
                                          struct error *err);

/* Least bytes of a cut after `layer`: matrix products of layers up to `layer` are before it, those of later layers behind it
 * (a layer without any: its last operator). Only operators of the two adjacent layers may change sides. */
MUST_CHECK enum status op_graph_least_after(struct arena *a, const struct graph *g, int32_t layer,
                                            int64_t *bytes, struct error *err);

#endif
