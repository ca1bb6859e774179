/* core/lower/graphs.h - training graphs of stages next to a sharded one; the others are in core/lower/lower.h. */
#ifndef CORE_LOWER_GRAPHS_H
#define CORE_LOWER_GRAPHS_H

#include "core/lower/lower.h"

/* The training graph of a stage that ends after these layers (graph.edge). */
MUST_CHECK enum status lower_graph_between(struct arena *a, const struct job *j, int64_t sequences,
                                           const struct lower_options *o, int32_t n_edges,
                                           const int32_t *edge, struct graph **out,
                                           struct error *err);

#endif
