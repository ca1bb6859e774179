/* core/sharding/shard_window.c - how much of the model a sharded stage's graph needs.
 *
 * Operators outside the stage influence it through what crosses its cuts only. The window begins and ends at cuts of one activation, at
 * least a layer away from the stage, that the stage neither reads nor makes: the activation that enters has the placement that its
 * producer outside gives it, and the gradient that enters at the other end is that of the activation there. Names of operators,
 * numbers of conversions and of parameter uses count what is left out (shard.c: count_outside).
 */
#include "core/base/arena.h"
#include "core/sharding/shard_internal.h"

void shard_window_prepare(struct arena *a, struct shard_choices *c)
{
    const struct graph *g = c->whole;
    bool *trained = ARENA_ARRAY(a, bool, (size_t)g->n_tensors),
         *reaches = ARENA_ARRAY(a, bool, (size_t)g->n_forward),
         *read = ARENA_ARRAY(a, bool, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        bool trains = false;
        for (int32_t k = 0; k < op->n_inputs; k++)
            trains |= g->tensors[op->input[k]].role == TENSOR_PARAMETER || trained[op->input[k]];
        for (int32_t k = 0; k < op->n_outputs; k++)
            trained[op->output[k]] = trains && g->tensors[op->output[k]].role == TENSOR_ACTIVATION;
    }
    for (int32_t i = g->n_forward - 1; i >= 0; i--) {
        const struct graph_op *op = &g->ops[i];
        for (int32_t k = 0; k < op->n_outputs; k++)
            reaches[i] |= read[op->output[k]] || g->tensors[op->output[k]].role == TENSOR_LOSS;
        for (int32_t k = 0; reaches[i] && k < op->n_inputs; k++) read[op->input[k]] = true;
    }
    c->trained = trained, c->reaches = reaches;
}

static bool crosses(const struct graph *g, int32_t layer, int32_t tensor)
{
    for (int32_t k = 0; k < g->cut[layer].n; k++)
        if (g->cut[layer].tensor[k] == tensor) return true;
    return false;
}

/* Whether a window may begin or end with the cut behind `layer`, of a stage with the cut behind `stage`. */
static bool divides(const struct shard_choices *c, int32_t layer, int32_t stage)
{
    const struct graph *g = c->whole;
    if (g->cut[layer].n != 1) return false;
    int32_t t = g->cut[layer].tensor[0];
    return c->trained[t] && c->reaches[g->tensors[t].producer] && !crosses(g, stage, t);
}

/* The loss's product is padded where the loss is known (graph_fuse). */
static int32_t loss_product_layer(const struct graph *g)
{
    for (int32_t i = g->n_forward - 1; i >= 0; i--) {
        int32_t p = g->tensors[g->ops[i].input[0]].producer;
        if (g->ops[i].kind == OP_cross_entropy && p >= 0) return g->ops[p].layer;
    }
    return g->n_layers;
}

struct shard_window shard_window_of(const struct shard_choices *c, int32_t first_layer,
                                    int32_t last_layer, int32_t until)
{
    const struct graph *g = c->whole;
    struct shard_window w = {0, g->n_forward, -1};
    int32_t low = first_layer - 1, high = last_layer + 1;
    if (until >= 0 && g->ops[until].layer > high) high = g->ops[until].layer;
    while (low > 0 && !divides(c, low - 1, first_layer - 1)) low--;
    while (high + 1 < g->n_layers && !divides(c, high, last_layer)) high++;
    if (high >= loss_product_layer(g)) high = g->n_layers;
    if (low > 0)
        while (g->ops[w.begin].layer < low) w.begin++;
    if (high + 1 < g->n_layers) {
        while (g->ops[w.end - 1].layer > high) w.end--;
        w.open = g->cut[high].tensor[0];
    }
    return w;
}
