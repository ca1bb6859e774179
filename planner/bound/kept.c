#include "planner/bound/kept.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/lower/uses.h"
#include "planner/candidate/fitting.h"

/* Whether all forward operators of the layer are in one block. */
static bool *in_one_block(struct arena *a, const struct graph *g)
{
    bool *one = ARENA_ARRAY(a, bool, (size_t)g->n_layers);
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)g->n_layers);
    for (int32_t l = 0; l < g->n_layers; l++) first[l] = -1;
    for (int32_t i = 0; i < g->n_forward; i++) {
        int32_t l = g->ops[i].layer;
        if (first[l] < 0) first[l] = i, one[l] = lower_in_block(g, i);
        one[l] &= lower_in_same_block(g, first[l], i);
    }
    return one;
}

/* Per tensor: the layers that read it; whether a gradient operator does. */
struct readers {
    int32_t first, last; /* layers; first > last: none */
    bool back, weight;
};

static struct readers *readers_of(struct arena *a, const struct graph *g)
{
    struct readers *r = ARENA_ARRAY(a, struct readers, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) r[t] = (struct readers){g->n_layers, -1, false, false};
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            struct readers *x = &r[g->ops[i].input[k]];
            if (g->ops[i].layer < x->first) x->first = g->ops[i].layer;
            if (g->ops[i].layer > x->last) x->last = g->ops[i].layer;
            x->back |= i >= g->n_forward;
            x->weight |= g->ops[i].phase == PHASE_W;
        }
    return r;
}

static void add_activations(struct arena *a, const struct space *s, struct bound_kept *out)
{
    const struct graph *g = s->graph;
    const struct readers *r = readers_of(a, g);
    const bool *one = in_one_block(a, g);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        for (int32_t k = 0; one[op->layer] && k < op->n_outputs; k++) {
            const struct readers *x = &r[op->output[k]];
            const struct tensor *t = &g->tensors[op->output[k]];
            bool dropped = op->kind == OP_attention && k == 1; /* by selective recomputation */
            if (dropped || x->first != op->layer || x->last != op->layer) continue;
            double bytes =
                (double)(shape_elements(&t->shape) * dtype_bytes(t->dtype)) / (double)s->microbatch;
            if (i < g->n_forward && x->back) out[op->layer].kept_bytes += bytes;
            if (x->weight && op->phase != PHASE_W) out[op->layer].waiting_bytes += bytes;
        }
    }
}

bool bound_kept_of(struct arena *a, const struct space *s, struct bound_kept *out)
{
    for (int32_t l = 0; l < s->n_layers; l++) out[l] = (struct bound_kept){0, 0, 0};
    if (s->job->model.measured) return false;
    int64_t before = 0;
    for (int32_t l = 0; l < s->n_layers; l++) {
        const struct stage_cost *c = space_stage_type(s, 0, l, l);
        int64_t until = space_stage_type(s, 0, 0, l)->parameter_bytes;
        double own = (double)units_max(0, until - before), all = (double)c->parameter_bytes;
        double rest = (double)(c->gradient_bytes + c->state_bytes);
        out[l].state_bytes = all > 0 ? own + own / all * rest : 0;
        before = until;
    }
    if (!fitting_offers(s)) add_activations(a, s, out); /* else they may be in host memory */
    return true;
}
