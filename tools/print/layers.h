/* tools/print/layers.h - the layers of a job's model between cut points, and which of them are equal. */
#ifndef TOOLS_PRINT_LAYERS_H
#define TOOLS_PRINT_LAYERS_H

#include "core/base/error.h"
#include "core/document/json.h"
#include "core/graph/graph.h"

#include <stdbool.h>

/* Prints one line, "24 blocks of 2 layers, 6 unique of 52"; with `table` also a row for each unique layer: its count,
 * operators, FLOPs and parameters, the tensors that cross the cut behind it, and the lower bound of their bytes. g: a training graph,
 * unfused. out not NULL: adds members "unique_layers", "repeats" and "layer_table" instead. */
MUST_CHECK enum status print_layers(struct arena *a, const struct graph *g, bool table,
                                    struct json *out, struct error *err);

#endif
