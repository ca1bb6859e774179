/* core/lower/param_uses.c - the variants of the stages, and the parameter uses common to all variants. */
#include "core/lower/param_uses.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *x, const void *y)
{
    const struct param_use *a = x, *b = y;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    if (a->parameter != b->parameter) return a->parameter < b->parameter ? -1 : 1;
    return (a->use > b->use) - (a->use < b->use);
}

static enum status find_param_uses(struct arena *a, struct lower_view *v, int32_t *n_param_uses,
                                   struct error *err)
{
    const struct graph *g = v->g;
    int32_t n = 0;
    v->param_uses = ARENA_ARRAY(a, struct param_use, (size_t)g->n_tensors);
    v->param_use_of = ARENA_ARRAY(a, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        v->param_use_of[t] = -1;
        if (x->role != TENSOR_PARAMETER_GRADIENT || x->producer < 0) continue;
        if (x->use > 1)
            return error_set(err, ERR_INPUT, "parameter %s is used more than twice",
                             g->tensors[x->of].name);
        v->param_uses[n++] = (struct param_use){t, x->of, x->use, g->ops[x->producer].layer};
    }
    qsort(v->param_uses, (size_t)n, sizeof *v->param_uses, by_place);
    v->param_uses_of = ARENA_ARRAY(a, int32_t, 2 * (size_t)g->n_tensors);
    memset(v->param_uses_of, -1, 2 * (size_t)g->n_tensors * sizeof *v->param_uses_of);
    for (int32_t i = 0; i < n; i++) {
        v->param_use_of[v->param_uses[i].gradient] = i;
        v->param_uses_of[2 * v->param_uses[i].parameter + v->param_uses[i].use] = i;
    }
    *n_param_uses = n;
    return OK;
}

/* Every variant creates parameters in the same order, so the k-th parameter use is the same in each. */
static void check_alike(const struct param_uses *u, const struct lower_view *v,
                        int32_t n_param_uses, int32_t n_layers)
{
    const struct lower_view *first = &u->views[0];
    bool alike = n_param_uses == u->n_param_uses && v->g->n_layers == n_layers;
    for (int32_t i = 0; alike && i < n_param_uses; i++) {
        const struct param_use *x = &first->param_uses[i], *y = &v->param_uses[i];
        alike = x->layer == y->layer && x->use == y->use &&
                !strcmp(first->g->tensors[x->parameter].name, v->g->tensors[y->parameter].name);
    }
    if (!alike)
        BUG("graphs of %" PRId32 " and %" PRId32 " GPUs differ in layers or parameters",
            first->g->tp, v->g->tp);
}

struct param_uses *param_uses_new(struct arena *a, int32_t most)
{
    struct param_uses *u = ARENA_ARRAY(a, struct param_uses, 1);
    u->views = ARENA_ARRAY(a, struct lower_view, (size_t)most);
    return u;
}

const struct lower_view *param_uses_view(struct param_uses *u, const struct graph *g)
{
    for (int32_t i = 0; i < u->n_views; i++)
        if (u->views[i].g == g) return &u->views[i];
    u->views[u->n_views].g = g;
    return &u->views[u->n_views++];
}

enum status param_uses_find(struct param_uses *u, struct arena *a, int32_t n_layers,
                            struct error *err)
{
    for (int32_t i = 0; i < u->n_views; i++) {
        int32_t n = 0;
        TRY(find_param_uses(a, &u->views[i], &n, err));
        if (!i) u->n_param_uses = n;
        check_alike(u, &u->views[i], n, n_layers);
        u->views[i].gradient_cut = graph_gradient_cuts(a, u->views[i].g);
    }
    return OK;
}
