/* Operators that a stage runs again under recompute, and the activations it must keep for them.
 *
 * In a walk over a stage from its last layer to its first, the state behind a layer is the set of received activations
 * that are needed again: a subset of the tensors of one cut. A (layer, set) pair therefore has one result: the
 * operators of the layer that run again, and the set of the preceding cut. Few pairs occur (two per layer if
 * cuts have one tensor), each is computed once, and a range of layers is one walk over them.
 */
#include "sim/stage/stage_internal.h"

#include "core/base/arena.h"

#include <string.h>

struct state { /* a layer, and the activations needed behind it */
    uint64_t behind, before;
    int32_t n_ops, *ops; /* that run again */
    int64_t *ns;         /* (n_types), -1: not computed yet */
    struct state *next;  /* of the layer */
};

struct stage_again {
    struct arena *arena;
    const struct graph *g;
    int32_t n_types;
    int32_t *first_op;      /* (n_layers + 1): forward operators */
    struct layer_back {     /* tensors that the layer's backward reads */
        int32_t n, *tensor; /* (n) */
    } * back;               /* (n_layers) */
    struct state **states;  /* (n_layers) */
    bool *need;             /* (n_tensors), all false between calls */
};

static void find_back(struct stage_again *s)
{
    const struct graph *g = s->g;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t l = 0; l < g->n_layers; l++) {
            if (pass) s->back[l].tensor = ARENA_ARRAY(s->arena, int32_t, (size_t)s->back[l].n);
            s->back[l].n = 0;
        }
        for (int32_t i = g->n_forward; i < g->n_ops; i++) {
            struct layer_back *b = &s->back[g->ops[i].layer];
            for (int32_t k = 0; k < g->ops[i].n_inputs; k++, b->n++)
                if (pass) b->tensor[b->n] = g->ops[i].input[k];
        }
    }
}

struct stage_again *stage_again_new(struct arena *a, const struct graph *g, int32_t n_types)
{
    struct stage_again *s = ARENA_ARRAY(a, struct stage_again, 1);
    size_t n = (size_t)g->n_layers;
    *s = (struct stage_again){.arena = a,
                              .g = g,
                              .n_types = n_types,
                              .first_op = ARENA_ARRAY(a, int32_t, n + 1),
                              .back = ARENA_ARRAY(a, struct layer_back, n),
                              .states = ARENA_ARRAY(a, struct state *, n),
                              .need = ARENA_ARRAY(a, bool, (size_t)g->n_tensors)};
    for (int32_t i = 0; i < g->n_forward; i++) s->first_op[g->ops[i].layer + 1] = i + 1;
    for (int32_t l = 0; l + 1 < g->n_layers; l++)
        if (g->cut[l].n > CUT_TENSORS_MAX) BUG("too many activations cross behind layer %d", l);
    find_back(s);
    return s;
}

/* Marks the needs of later layers and of the layer's own backward; then, last operator first, their inputs. */
static void run_again(struct stage_again *s, int32_t layer, struct state *x)
{
    const struct graph *g = s->g;
    int32_t first = s->first_op[layer], end = s->first_op[layer + 1];
    const struct layer_back *b = &s->back[layer];
    x->ops = ARENA_ARRAY(s->arena, int32_t, (size_t)(end - first));
    for (int32_t k = 0; k < b->n; k++) s->need[b->tensor[k]] = true;
    for (int32_t k = 0; layer + 1 < g->n_layers && k < g->cut[layer].n; k++)
        if (x->behind >> k & 1) s->need[g->cut[layer].tensor[k]] = true;
    for (int32_t i = end - 1; i >= first; i--) {
        const struct graph_op *op = &g->ops[i];
        bool again = false;
        for (int32_t k = 0; k < op->n_outputs; k++) again |= s->need[op->output[k]];
        for (int32_t k = 0; again && k < op->n_inputs; k++) s->need[op->input[k]] = true;
        if (again) x->ops[x->n_ops++] = i;
    }
    for (int32_t k = 0; layer > 0 && k < g->cut[layer - 1].n; k++)
        x->before |= (uint64_t)s->need[g->cut[layer - 1].tensor[k]] << k;
}

static void forget(struct stage_again *s, int32_t layer, const struct state *x)
{
    const struct graph *g = s->g;
    const struct layer_back *b = &s->back[layer];
    for (int32_t k = 0; k < b->n; k++) s->need[b->tensor[k]] = false;
    for (int32_t k = 0; layer + 1 < g->n_layers && k < g->cut[layer].n; k++)
        s->need[g->cut[layer].tensor[k]] = false;
    for (int32_t i = 0; i < x->n_ops; i++)
        for (int32_t k = 0; k < g->ops[x->ops[i]].n_inputs; k++)
            s->need[g->ops[x->ops[i]].input[k]] = false;
}

static struct state *state_of(struct stage_again *s, int32_t layer, uint64_t behind)
{
    for (struct state *x = s->states[layer]; x; x = x->next)
        if (x->behind == behind) return x;
    struct state *x = ARENA_ARRAY(s->arena, struct state, 1);
    *x = (struct state){.behind = behind, .next = s->states[layer]};
    x->ns = ARENA_ARRAY(s->arena, int64_t, (size_t)s->n_types);
    memset(x->ns, -1, (size_t)s->n_types * sizeof *x->ns);
    run_again(s, layer, x);
    forget(s, layer, x);
    return s->states[layer] = x;
}

static int64_t state_ns(struct state *x, int32_t type, const int64_t *op_ns)
{
    if (x->ns[type] >= 0) return x->ns[type];
    x->ns[type] = 0;
    for (int32_t i = 0; i < x->n_ops; i++) x->ns[type] += op_ns[x->ops[i]];
    return x->ns[type];
}

struct stage_again_cost stage_again_of(struct stage_again *s, int32_t first, int32_t last,
                                       int32_t type, const int64_t *op_ns)
{
    struct stage_again_cost out = {0};
    for (int32_t l = last; l >= first; l--) {
        struct state *x = state_of(s, l, out.keeps);
        out.ns += state_ns(x, type, op_ns), out.keeps = x->before;
    }
    return out;
}
