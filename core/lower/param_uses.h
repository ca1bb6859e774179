/* core/lower/param_uses.h - the training graphs of a plan's stages and their common uses of parameters.
 *
 * A view is a training graph with lookup tables. There is one for each variant in which stages of the plan compute
 * (lower.h), and one for each device of each distinct sharded stage, which has only the stage's part of its graph
 * (core/lower/stage_graph.h). Tensors and operators are numbered per view, parameter uses and layers are common to all.
 */
#ifndef CORE_LOWER_PARAM_USES_H
#define CORE_LOWER_PARAM_USES_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/graph/graph.h"

struct
    param_use { /* one use of one parameter, the unit of gradient all-reduce. Sorted by layer, parameter, use. */
    int32_t gradient, parameter, use, layer; /* tensors; layer of the use */
};

struct lower_view {
    const struct graph *g;
    bool kept; /* g outlives the lowering (lower_options.memo) */
    struct param_use *param_uses; /* (n_param_uses); tensors -1: not in the part */
    int32_t *param_use_of;        /* (n_tensors): parameter use of a parameter gradient, else -1 */
    int32_t *param_uses_of;       /* (n_tensors, 2): parameter uses of a parameter's uses, -1 */
    const struct cut *gradient_cut; /* (n_layers - 1): gradients that cross back after layer k */
    /* (n_tensors) shards of inputs and parameters, for as long as the program; NULL: all are full */
    const struct tensor_shard **shard;
};

/* A parameter use, in every view. */
struct use_place {
    int32_t layer, use, uses[2]; /* parameter uses of its parameter, -1: none */
    const char *parameter;
    int64_t elements; /* of the whole parameter */
};

struct param_uses {
    int32_t n_views, n_param_uses;
    struct lower_view *views; /* (most) */
    struct use_place *places; /* (n_param_uses) */
    int32_t n_graphs, *graph; /* (n_graphs) views of whole graphs */
};

/* The uses of the job's parameters, as in g, a training graph of any variant; an empty list with room for `most` views. ERR_INPUT: a
 * parameter with more than two uses. */
MUST_CHECK enum status param_uses_new(struct arena *a, int32_t most, const struct graph *g,
                                      struct param_uses **out, struct error *err);
/* The view of a graph, added if new; param_uses_find completes it. O(views of whole graphs). */
const struct lower_view *param_uses_view(struct param_uses *u, const struct graph *g, bool kept);
/* The complete view of a stage's part of graph g, a window of the model, which may end after this call. ERR_INPUT as above. */
struct stage_graph;
MUST_CHECK enum status param_uses_part(const struct param_uses *u, struct arena *a,
                                       const struct graph *g, const struct stage_graph *part,
                                       struct lower_view *out, struct error *err);
/* Adds a complete view. */
const struct lower_view *param_uses_add(struct param_uses *u, const struct lower_view *v);
/* Requires all views, each with n_layers layers. ERR_INPUT as above. O(tensors · log(parameter uses)) a view. */
MUST_CHECK enum status param_uses_find(struct param_uses *u, struct arena *a, int32_t n_layers,
                                       struct error *err);

#endif
