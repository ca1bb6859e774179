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
        const struct tensor *t = &v->g->tensors[x->parameter];
        u->places[i] = (struct use_place){x->layer, x->use, {uses[0], uses[1]}, arena_strdup(a, t->name), shape_elements(&t->shape)};
    }
}

/* Every variant creates parameters in the same order, so the k-th parameter use is the same in each. */
static void check_alike(const struct param_uses *u, const struct lower_view *v, int32_t n)
{
    bool alike = n == u->n_param_uses;
    for (int32_t i = 0; alike && i < n; i++) {
        const struct use_place *x = &u->places[i];
        const struct param_use *y = &v->param_uses[i];
        alike = x->layer == y->layer && x->use == y->use &&
                !strcmp(x->parameter, v->g->tensors[y->parameter].name);
    }
    if (!alike)
        BUG("graphs of one job differ in parameters");
}

enum status param_uses_new(struct arena *a, int32_t most, const struct graph *g,
                           struct param_uses **out, struct error *err)
{
    struct param_uses *u = *out = ARENA_ARRAY(a, struct param_uses, 1);
    struct lower_view v = {.g = g};
    int32_t n = 0;
    u->views = ARENA_ARRAY(a, struct lower_view, (size_t)most);
    u->graph = ARENA_ARRAY(a, int32_t, (size_t)most);
    TRY(find_param_uses(a, &v, &n, err));
    set_places(u, a, &v, n);
    return OK;
}

const struct lower_view *param_uses_view(struct param_uses *u, const struct graph *g, bool kept)
{
    for (int32_t i = 0; i < u->n_graphs; i++)
        if (u->views[u->graph[i]].g == g) return &u->views[u->graph[i]];
    u->graph[u->n_graphs++] = u->n_views;
    u->views[u->n_views].g = g, u->views[u->n_views].kept = kept;
    return &u->views[u->n_views++];
}

/* The window has the plan's uses in the same order, without those of other layers. numbers: (n) of the plan. */
static void match_places(const struct param_uses *u, const struct lower_view *v, int32_t n, int32_t *numbers)
{
    for (int32_t i = 0, at = 0; i < n; i++, at++) {
        const struct param_use *x = &v->param_uses[i];
        const char *name = v->g->tensors[x->parameter].name;
        while (at < u->n_param_uses && (u->places[at].layer != x->layer || u->places[at].use != x->use ||
                                        strcmp(u->places[at].parameter, name) != 0))
            at++;
        if (at == u->n_param_uses) BUG("use %" PRId32 " of parameter %s is not the plan's", x->use, name);
        numbers[i] = at;
    }
}

enum status param_uses_part(const struct param_uses *u, struct arena *a, const struct graph *g,
                            const struct stage_graph *part, struct lower_view *out,
                            struct error *err)
{
    struct lower_view window = {.g = g}, *v = out;
    size_t n_uses = (size_t)u->n_param_uses, n_tensors = (size_t)part->g->n_tensors;
    int32_t n = 0, *number = ARENA_ARRAY(g->arena, int32_t, n_uses + 1);
    TRY(find_param_uses(g->arena, &window, &n, err));
    match_places(u, &window, n, number);
    *v = (struct lower_view){.g = part->g,
                             .param_uses = ARENA_ARRAY(a, struct param_use, n_uses),
                             .param_use_of = ARENA_ARRAY(a, int32_t, n_tensors),
                             .param_uses_of = ARENA_ARRAY(a, int32_t, 2 * n_tensors),
                             .gradient_cut = part->gradient_cut,
                             .shard = part->shard};
    for (int32_t i = 0; i < u->n_param_uses; i++)
        v->param_uses[i] = (struct param_use){-1, -1, u->places[i].use, u->places[i].layer};
    memset(v->param_use_of, -1, n_tensors * sizeof *v->param_use_of);
    memset(v->param_uses_of, -1, 2 * n_tensors * sizeof *v->param_uses_of);
    for (int32_t i = 0; i < n; i++) {
        struct param_use *x = &v->param_uses[number[i]];
        x->gradient = part->tensor[window.param_uses[i].gradient];
        x->parameter = part->tensor[window.param_uses[i].parameter];
        if (x->gradient >= 0) v->param_use_of[x->gradient] = number[i];
        /* both uses, one of which may be another stage's */
        const int32_t *uses = u->places[number[i]].uses;
        for (int k = 0; x->parameter >= 0 && k < 2; k++) {
            v->param_uses_of[2 * x->parameter + k] = uses[k];
            if (uses[k] >= 0) v->param_uses[uses[k]].parameter = x->parameter;
        }
    }
    return OK;
}

const struct lower_view *param_uses_add(struct param_uses *u, const struct lower_view *v)
{
    u->views[u->n_views] = *v;
    return &u->views[u->n_views++];
}

enum status param_uses_find(struct param_uses *u, struct arena *a, int32_t n_layers,
                            struct error *err)
{
    for (int32_t i = 0; i < u->n_views; i++)
        if (u->views[i].g->n_layers != n_layers)
            BUG("graphs of one job differ in layers");
    for (int32_t i = 0; i < u->n_graphs; i++) {
        struct lower_view *v = &u->views[u->graph[i]];
        int32_t n = 0;
        TRY(find_param_uses(a, v, &n, err));
        check_alike(u, v, n);
        v->gradient_cut = graph_gradient_cuts(a, v->g);
    }
    return OK;
}
