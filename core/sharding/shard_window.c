/* core/sharding/shard_window.c - how much of the model a sharded stage's graph needs.
 *
 * Operators outside the stage influence it through what crosses its cuts only. The window begins and ends at cuts of one activation, at
 * least a layer away from the stage, that the stage neither reads nor makes: the activation that enters has the placement that its
 * producer outside gives it, and the gradient that enters at the other end is that of the activation there. Names of operators,
 * numbers of conversions and of parameter uses count what is left out (shard_count_outside).
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

/* --- operators outside the stage --- */

/* The index of an operator outside the stage, whose neighbour in the stage has choice c. */
static struct op_choice outside(const struct shard_view *v, int32_t op, struct op_choice c)
{
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (v->s->mesh[x] == 1 ||
            op_index_meant(v->whole, &v->whole->ops[op], v->grains, c.index[x]) == INDEX_COUNT)
            c.index[x] = INDEX_none;
    return c;
}

/* The axes along which it is sharded by batch. */
static struct op_choice batch_of(const struct shard_view *v, const struct op_choice *c)
{
    struct op_choice out = {0};
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (c->index[x] == INDEX_batch) out.index[x] = INDEX_batch, out.ratio[x] = c->ratio[x];
    return out;
}

/* Operators outside the stage are sharded by batch where the neighbour is, and replicated along other axes. */
void shard_choose_outside(struct shard_view *v)
{
    const struct graph *g = v->whole;
    struct op_choice before = {0}, after = {0};
    const struct cut *in = v->first_layer ? &g->cut[v->first_layer - 1] : NULL;
    bool found = false;
    for (int32_t i = v->window.begin; i < v->window.end; i++) {
        if (!graph_op_within(g, i, v->first_layer, v->last_layer)) continue;
        for (int32_t k = 0; in && k < g->ops[i].n_inputs && !found; k++)
            for (int32_t c = 0; c < in->n && !found; c++)
                if (in->tensor[c] == g->ops[i].input[k])
                    before = batch_of(v, shard_choice_of(v, i)), found = true;
        after = batch_of(v, shard_choice_of(v, i));
    }
    v->before = before;
    for (int32_t i = v->window.begin; i < v->window.end; i++)
        if (!graph_op_within(g, i, v->first_layer, v->last_layer))
            *shard_choice_of(v, i) =
                outside(v, i, g->ops[i].layer < v->first_layer ? before : after);
}

/* Placements of the operands of an operator before the window. */
static struct op_placements needs_outside(const struct shard_view *v, int32_t op)
{
    struct op_placements need;
    struct error err = {0};
    struct op_choice c = outside(v, op, v->before);
    if (op_placements_of(v->s, v->whole, &v->whole->ops[op], v->grains, &c, &need, &err) != OK)
        BUG("%s", err.text);
    return need;
}

/* A tensor from before the window, as its producer places it; NULL: it is from inside. */
const struct shard_version *shard_enter_window(struct shard_view *v, int32_t t)
{
    struct tensor copy = v->whole->tensors[t];
    int32_t op = copy.producer, k = 0;
    if (op < 0 || op >= v->window.begin) return NULL;
    while (v->whole->ops[op].output[k] != t) k++;
    struct op_placements need = needs_outside(v, op);
    copy.shape = placement_local(v->a, v->s, &need.output[k], &copy.shape, v->device, &copy.shard);
    copy.producer = -1;
    shard_add_version(v, t, &need.output[k], graph_add_tensor(v->g, copy));
    return v->versions[t];
}

/* --- what is left out --- */

/* Uses of inputs and parameters before the window: versions of inputs, conversions of parameters that the window uses as well. */
enum status shard_count_outside(struct shard_view *v, const bool *used, int32_t *uses,
                                struct error *err)
{
    for (int32_t i = 0; i < v->window.begin; i++) {
        const struct graph_op *op = &v->whole->ops[i];
        struct op_placements need;
        bool known = false;
        for (int32_t k = 0; k < op->n_inputs; k++) {
            int32_t t = op->input[k], unread, n = 0;
            enum tensor_role role = v->whole->tensors[t].role;
            if (!used[t] || (role != TENSOR_INPUT && role != TENSOR_PARAMETER)) continue;
            if (!known) need = needs_outside(v, i), known = true;
            if (role == TENSOR_INPUT) {
                TRY(shard_version_of(v, t, &need.input[k], i, &unread, err));
                continue;
            }
            struct conversion steps[CONVERSIONS_MAX];
            TRY(shard_conversions(v->s, &v->home[t], &need.input[k], &n, steps, err));
            v->n_conversions[t] += n;
            uses[t] += v->shared->reaches[i];
        }
    }
    return OK;
}
