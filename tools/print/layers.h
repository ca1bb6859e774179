/* tools/print/layers.h - where a job's model may be cut, and which layers are the same. */
#ifndef TOOLS_PRINT_LAYERS_H
#define TOOLS_PRINT_LAYERS_H

#include "core/base/error.h"
#include "core/document/json.h"
#include "core/graph/graph.h"

#include <stdbool.h>

/* One line, "24 blocks of 2 layers, 6 unique of 52"; with `table` also a row for each unique layer: how often it stands,
 * its operators, work and parameters, what crosses behind it and the least that could. g: a training graph, unfused.
 * Into out as members "unique_layers", "repeats" and "layer_table" where out is not NULL. */
MUST_CHECK enum status print_layers(struct arena *a, const struct graph *g, bool table,
                                    struct json *out, struct error *err);

#endif
