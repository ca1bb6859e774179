/* core/lower/param_uses.h - the training graphs of a plan's stages and their common uses of parameters.
 *
 * A view is a training graph with lookup tables. There is one for each variant in which stages of the plan compute
 * (lower.h): tensors and operators are numbered per view, parameter uses and layers are common to all.
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
    struct param_use *param_uses; /* (n_param_uses) */
    int32_t *param_use_of;        /* (n_tensors): parameter use of a parameter gradient, else -1 */
    int32_t *param_uses_of;       /* (n_tensors, 2): parameter uses of a parameter's uses, -1 */
    struct cut *gradient_cut;     /* (n_layers - 1): gradients that cross back after layer k */
};

struct param_uses {
    int32_t n_views, n_param_uses;
    struct lower_view *views; /* (most) */
};

/* An empty list with room for `most` views. */
struct param_uses *param_uses_new(struct arena *a, int32_t most);
/* The view of a graph, added if new; param_uses_find completes it. O(views). */
const struct lower_view *param_uses_view(struct param_uses *u, const struct graph *g);
/* Requires all views, each with n_layers layers. ERR_INPUT: a parameter with more than two uses. O(tensors · log(parameter uses)) a view. */
MUST_CHECK enum status param_uses_find(struct param_uses *u, struct arena *a, int32_t n_layers,
                                       struct error *err);

#endif
