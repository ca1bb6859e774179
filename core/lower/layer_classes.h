/* core/lower/layer_classes.h - classes of equal layers, so that each class is profiled and priced once.
 *
 * A layer's *key* covers its operators in order (kind, attributes, shapes, types: core/graph/op's op_key, the profiler's key),
 * the origin of each operand (an operator of the layer, a position among the tensors that cross its borders, one of its
 * parameters), and the tensors that leave it on either side. It covers neither names nor the position in the model. A layer
 * whose parameter is shared with another layer has a class of its own, because a range with both holds the parameter once. So
 * ranges of layers with equal keys in equal order cost the same on a device type, whatever else the model contains: sim_stage
 * returns identical bytes. Any graph with layers will do: forward or training, fused or not, computed or measured. Source:
 * HARP's zero-redundant profiling (arXiv 2509.24859), with repeats discovered instead of declared.
 */
#ifndef CORE_LOWER_LAYER_CLASSES_H
#define CORE_LOWER_LAYER_CLASSES_H

#include "core/graph/graph.h"
#include "core/model/repeats.h"

#include <stdbool.h>
#include <stdint.h>

struct layer_classes {
    int32_t n_layers, n_classes;
    int32_t *class_of;      /* (n_layers), numbered in order of first appearance */
    uint64_t *key;          /* (n_classes) */
    int32_t *first_of;      /* (n_classes): first layer of each class */
    int32_t *same;          /* (n_layers, n_layers): [first][last], see layer_classes_same */
    int64_t distinct;       /* number of different ranges of layers */
    int32_t n_repeats;      /* 0: no repeated layers */
    struct repeat *repeats; /* (n_repeats), in layers, ascending */
    /* (n_layers) the first and the last block of the model, by the operators' names, that has operators in the layer; none: the
     * first is one more than the last */
    int32_t *first_block, *last_block;
};

/* O(operators + layers²). */
struct layer_classes *layer_classes_new(struct arena *a, const struct graph *g);

/* first_block and last_block alone. O(operators). */
void layer_classes_number_blocks(struct arena *a, const struct graph *g, struct layer_classes *c);

/* First layer of the earliest range with the same cost; `first` itself if there is no earlier one. */
static inline int32_t layer_classes_same(const struct layer_classes *c, int32_t first, int32_t last)
{
    return c->same[(int64_t)first * c->n_layers + last];
}

/* Blocks of which the layers have operators: those that recomputation takes one by one (core/plan/plan.h). */
static inline int32_t layer_classes_blocks(const struct layer_classes *c, int32_t first, int32_t last)
{
    return c->last_block[last] - c->first_block[first] + 1;
}

/* "24 blocks of 2 layers, 4 unique of 50", "nothing repeats, 7 layers". */
const char *layer_classes_text(struct arena *a, const struct layer_classes *c);

/* Traffic after each layer, (n_layers - 1). A message leaves as soon as its producer ends, so only the last message is certain
 * to follow all of the layer's work; the others may overlap it. */
struct layer_crossing {
    int64_t activation_bytes, gradient_bytes; /* per microbatch, all tensors */
    int64_t min_late_bytes; /* the smaller of the last activation and the last gradient */
};
struct layer_crossing *layer_classes_crossings(struct arena *a, const struct graph *g);

#endif
