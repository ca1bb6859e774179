/* core/lower/param_uses.c - the variants of the stages, and the parameter uses common to all variants. */
#include "core/lower/param_uses.h"

#include "core/lower/stage_graph.h"

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

static void set_places(struct param_uses *u, struct arena *a, const struct lower_view *v, int32_t n)
{
    u->n_param_uses = n;
    u->places = ARENA_ARRAY(a, struct use_place, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) {
        const struct param_use *x = &v->param_uses[i];
        const int32_t *uses = &v->param_uses_of[2 * x->parameter];
        u->places[i] = (struct use_place){x->layer, x->use, {uses[0], uses[1]},
                                          arena_strdup(a, v->g->tensors[x->parameter].name)};
    }
}

/* Every variant creates parameters in the same order, so the k-th parameter use is the same in each. */
static void check_alike(struct param_uses *u, struct arena *a, const struct lower_view *v, int32_t n)
{
    if (!u->places) set_places(u, a, v, n);
    bool alike = n == u->n_param_uses;
    for (int32_t i = 0; alike && i < n; i++) {
        const struct use_place *x = &u->places[i];
        const struct param_use *y = &v->param_uses[i];
        alike = x->layer == y->layer && x->use == y->use &&
                !strcmp(x->parameter, v->g->tensors[y->parameter].name);
    }
    if (!alike)
        BUG("graphs of one job, one of %" PRId32 " GPUs, differ in parameters", v->g->tp);
}

struct param_uses *param_uses_new(struct arena *a, int32_t most)
{
    struct param_uses *u = ARENA_ARRAY(a, struct param_uses, 1);
    u->views = ARENA_ARRAY(a, struct lower_view, (size_t)most);
    u->graph = ARENA_ARRAY(a, int32_t, (size_t)most);
    return u;
}

const struct lower_view *param_uses_view(struct param_uses *u, const struct graph *g)
{
    for (int32_t i = 0; i < u->n_graphs; i++)
        if (u->views[u->graph[i]].g == g) return &u->views[u->graph[i]];
    u->graph[u->n_graphs++] = u->n_views;
    u->views[u->n_views].g = g;
    return &u->views[u->n_views++];
}

static int32_t part_of(const struct stage_graph *part, int32_t tensor) { return part->tensor[tensor]; }

enum status param_uses_part(struct param_uses *u, struct arena *a, const struct graph *g,
                            const struct stage_graph *part, const struct lower_view **out,
                            struct error *err)
{
    struct lower_view whole = {.g = g}, *v = &u->views[u->n_views++];
    int32_t n = 0;
    size_t n_tensors = (size_t)part->g->n_tensors;
    TRY(find_param_uses(g->arena, &whole, &n, err));
    check_alike(u, a, &whole, n);
    *v = (struct lower_view){.g = part->g,
                             .param_uses = ARENA_ARRAY(a, struct param_use, (size_t)n),
                             .param_use_of = ARENA_ARRAY(a, int32_t, n_tensors),
                             .param_uses_of = ARENA_ARRAY(a, int32_t, 2 * n_tensors),
                             .gradient_cut = part->gradient_cut,
                             .shard = part->shard};
    for (int32_t i = 0; i < n; i++) {
        const struct param_use *x = &whole.param_uses[i];
        v->param_uses[i] = (struct param_use){part_of(part, x->gradient), part_of(part, x->parameter),
                                              x->use, x->layer};
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        int32_t k = part_of(part, t);
        if (k < 0) continue;
        v->param_use_of[k] = whole.param_use_of[t];
        for (int i = 0; i < 2; i++) v->param_uses_of[2 * k + i] = whole.param_uses_of[2 * t + i];
    }
    *out = v;
    return OK;
}

enum status param_uses_find(struct param_uses *u, struct arena *a, int32_t n_layers,
                            struct error *err)
{
    for (int32_t i = 0; i < u->n_views; i++)
        if (u->views[i].g->n_layers != n_layers)
            BUG("graphs of one job, one of %" PRId32 " GPUs, differ in layers", u->views[i].g->tp);
    for (int32_t i = 0; i < u->n_graphs; i++) {
        struct lower_view *v = &u->views[u->graph[i]];
        int32_t n = 0;
        TRY(find_param_uses(a, v, &n, err));
        check_alike(u, a, v, n);
        v->gradient_cut = graph_gradient_cuts(a, v->g);
    }
    return OK;
}
