/* planner/candidate/layer_classes.h - which layers of a graph are the same, so that each is measured and priced once.
 *
 * A layer's *key* says its operators in order (kind, attributes, shapes, types: core/graph/op's op_key, what the profiler measures by),
 * where each operand comes from (which operator of the layer, which place among what crosses its borders, which of
 * its parameters), and what leaves it on either side. Names are not part of it; neither is the place in the model. A
 * parameter that another layer uses too makes a layer one of its own, because a range with both holds it once. So ranges of layers
 * with equal keys in equal order cost the same on a device type, whatever else the model has: sim_stage gives the same bytes for
 * them. Works for any graph with layers: forward or training graph, fused or not, computed or measured.
 * This is HARP's zero-redundant profiling (arXiv 2509.24859), with the repeats discovered instead of declared.
 */
#ifndef PLANNER_CANDIDATE_LAYER_CLASSES_H
#define PLANNER_CANDIDATE_LAYER_CLASSES_H

#include "core/graph/graph.h"
#include "core/model/repeats.h"

#include <stdbool.h>
#include <stdint.h>

struct layer_classes {
    int32_t n_layers, n_classes;
    int32_t *class_of;      /* (n_layers), numbered as they first appear */
    uint64_t *key;          /* (n_classes) */
    int32_t *first_of;      /* (n_classes): the first layer of it */
    int32_t *same;          /* (n_layers, n_layers): [first][last], see layer_classes_same */
    int64_t distinct;       /* ranges that no earlier one equals */
    int32_t n_repeats;      /* of layers; 0: nothing repeats */
    struct repeat *repeats; /* (n_repeats), in layers, ascending */
};

/* O(operators + layers²). */
struct layer_classes *layer_classes_new(struct arena *a, const struct graph *g);

/* The first layer of the earliest range that costs what this one does; `first` itself where no earlier one does. */
static inline int32_t layer_classes_same(const struct layer_classes *c, int32_t first, int32_t last)
{
    return c->same[(int64_t)first * c->n_layers + last];
}

/* "24 blocks of 2 layers, 4 unique of 50", "nothing repeats, 7 layers". */
const char *layer_classes_text(struct arena *a, const struct layer_classes *c);

/* What crosses behind each layer, (n_layers - 1). A message is never later than the operator that makes it, so only the last one's
 * bytes are sure to come after the layer's work; the others may have left while it went on. */
struct layer_crossing {
    int64_t activation_bytes, gradient_bytes; /* a microbatch, of all tensors */
    int64_t min_late_bytes; /* of the last activation or the last gradient, whichever is less */
};
struct layer_crossing *layer_classes_crossings(struct arena *a, const struct graph *g);

#endif
