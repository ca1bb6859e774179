/* core/lower/param_uses.c - in which ways the stages compute, and the uses of parameters that all ways have in common. */
#include "core/lower/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *x, const void *y)
{
    const struct unit *a = x, *b = y;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    if (a->parameter != b->parameter) return a->parameter < b->parameter ? -1 : 1;
    return (a->use > b->use) - (a->use < b->use);
}

static enum status find_units(struct lowering *l, struct lower_view *v, int32_t *n_units,
                              struct error *err)
{
    const struct graph *g = v->g;
    int32_t n = 0;
    v->units = ARENA_ARRAY(l->a, struct unit, (size_t)g->n_tensors);
    v->unit_of = ARENA_ARRAY(l->a, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        v->unit_of[t] = -1;
        if (x->role != TENSOR_PARAMETER_GRADIENT || x->producer < 0) continue;
        if (x->use > 1)
            return error_set(err, ERR_INPUT, "parameter %s is used more than twice",
                             g->tensors[x->of].name);
        v->units[n++] = (struct unit){t, x->of, x->use, g->ops[x->producer].layer};
    }
    qsort(v->units, (size_t)n, sizeof *v->units, by_place);
    v->use_unit = ARENA_ARRAY(l->a, int32_t, 2 * (size_t)g->n_tensors);
    memset(v->use_unit, -1, 2 * (size_t)g->n_tensors * sizeof *v->use_unit);
    for (int32_t i = 0; i < n; i++) {
        v->unit_of[v->units[i].gradient] = i;
        v->use_unit[2 * v->units[i].parameter + v->units[i].use] = i;
    }
    *n_units = n;
    return OK;
}

/* Parameters are made in one order whatever the way, so the k-th unit is the same in each. */
static void check_alike(const struct lowering *l, const struct lower_view *v, int32_t n_units)
{
    const struct lower_view *first = &l->views[0];
    bool alike = n_units == l->n_units && v->g->n_layers == l->n_layers;
    for (int32_t i = 0; alike && i < n_units; i++) {
        const struct unit *x = &first->units[i], *y = &v->units[i];
        alike = x->layer == y->layer && x->use == y->use &&
                !strcmp(first->g->tensors[x->parameter].name, v->g->tensors[y->parameter].name);
    }
    if (!alike)
        BUG("graphs of %" PRId32 " and %" PRId32 " cards differ in layers or parameters",
            first->g->cards, v->g->cards);
}

enum status lower_units(struct lowering *l, struct error *err)
{
    for (int32_t i = 0; i < l->n_views; i++) {
        int32_t n = 0;
        TRY(find_units(l, &l->views[i], &n, err));
        if (!i) l->n_units = n;
        check_alike(l, &l->views[i], n);
        l->views[i].gradient_cut = graph_gradient_cuts(l->a, l->views[i].g);
    }
    return OK;
}
