/* core/lower/shards.c - sharded stages: crossing tensors, groups.
 *
 * Each device's operators come from its own view of the whole graph (core/lower/shard_views.h); the rest of lowering
 * is as for any other stage. Conversions become collectives, one for each operator, whose operands
 * are filled in device by device. A tensor that crosses the stage's boundary is replicated on each device, or sharded by rows.
 *
 * Gradient all-reduces. A device's gradient of a parameter is partial along some axes of the mesh and replicated along the others.
 * Its key is its position along those others; devices of one key, over all replicas, hold one shard and a partial value each: a group.
 * Replicas with other keys for a parameter, or other shards, reduce over intersections (core/lower/cells.c).
 */
#include "core/lower/shards.h"

#include "core/collective/tensor_shard.h"
#include "core/lower/lowering.h"
#include "core/lower/param_uses.h"
#include "core/sharding/sharding.h"

#include <inttypes.h>
#include <string.h>

static bool whole_or_rows(const struct tensor *t, struct rows *out)
{
    if (t->shard.n_cuts == 0) return true;
    if (t->shard.n_cuts != 1 || t->shard.cut[0].dim != 0 || t->shard.cut[0].n_runs != 1)
        return false;
    *out = (struct rows){t->shard.cut[0].run[0].first, t->shard.cut[0].run[0].n};
    return true;
}

enum status lower_shard_rows(const struct lowering *l, const struct stage_build *b,
                             int32_t activation, struct rows *out, struct error *err)
{
    const struct tensor *t = &b->v->g->tensors[activation];
    *out = (struct rows){b->first_sequence, b->sequences};
    if (!b->plan->sharding || (whole_or_rows(t, out) && out->n == t->shape.dim[0])) return OK;
    return lower_error(l, b, err, ERR_INPUT,
                       "sharding: '%s' crosses to another stage, but is neither replicated nor sharded by sequences",
                       t->name);
}

/* The tensor of the whole graph that a view's tensor was converted from. */
static const char *origin(const struct graph *g, int32_t t)
{
    while (g->tensors[t].producer >= 0) {
        const struct graph_op *op = &g->ops[g->tensors[t].producer];
        if (!op_is_group(op->kind) && op->kind != OP_local_slice) break;
        t = op->input[0];
    }
    return g->tensors[t].name;
}

int32_t lower_shard_same(const struct lower_view *v, int32_t i, const struct lower_view *other,
                         int32_t layer)
{
    const struct cut *cut = &v->g->cut[layer], *others = &other->g->cut[layer];
    if (cut->n == 1 && others->n == 1) return 0;
    for (int32_t k = 0; k < others->n; k++)
        if (!strcmp(origin(v->g, cut->tensor[i]), origin(other->g, others->tensor[k]))) return k;
    return -1;
}

int32_t lower_shard_back(const struct lower_view *v, int32_t i, int32_t layer)
{
    const struct graph *g = v->g;
    for (int32_t e = 0; e < g->n_edges; e++)
        if (g->edge[e] == layer) return g->crossing[e][g->cut[layer].tensor[i]];
    return g->cut[layer].n == 1 && v->gradient_cut[layer].n == 1 ? v->gradient_cut[layer].tensor[0]
                                                                 : -1;
}

bool lower_shard_gives(const struct stage_build *giver, const struct stage_build *taker,
                       const struct rows *of)
{
    const struct rows *mine = &of[giver->shard];
    int32_t alike = 0, place = 0;
    for (int32_t k = 0; k < giver->n_shards; k++) {
        if (of[k].first != mine->first || of[k].n != mine->n) continue;
        if (k == giver->shard) place = alike;
        alike++;
    }
    return (int64_t)taker->shard * alike / taker->n_shards == place;
}

/* --- gradient all-reduces --- */

static const struct tensor *gradient_on(const struct stage_build *b, int32_t param_use)
{
    return &b->v->g->tensors[b->v->param_uses[param_use].gradient];
}

int32_t lower_shard_keys(const struct stage_build *first, int32_t param_use)
{
    const struct sharding *s = first->plan->sharding;
    int32_t n = 1;
    for (int32_t x = 0; s && x < s->n_axes; x++)
        if (!(gradient_on(first, param_use)->partial >> x & 1)) n *= s->mesh[x];
    return n;
}

int32_t lower_shard_key(const struct stage_build *b, int32_t param_use)
{
    const struct sharding *s = b->plan->sharding;
    int32_t key = 0;
    for (int32_t x = 0; s && x < s->n_axes; x++)
        if (!(gradient_on(b, param_use)->partial >> x & 1))
            key = key * s->mesh[x] + sharding_place(s, b->shard, x);
    return key;
}

bool lower_shard_same_keys(const struct stage_build *first, int32_t param_use, int32_t other)
{
    return !first->plan->sharding ||
           gradient_on(first, param_use)->partial == gradient_on(first, other)->partial;
}

const struct tensor_shard *lower_parameter_shard(const struct stage_build *b, int32_t param_use)
{
    return &b->v->g->tensors[b->v->param_uses[param_use].parameter].shard;
}

static const struct stage_build *with_key(const struct stage_build *first, int32_t param_use,
                                          int32_t key)
{
    for (int32_t k = 0; k < first->n_shards; k++)
        if (lower_shard_key(first + k, param_use) == key) return first + k;
    BUG("nobody has key %" PRId32, key);
}

static bool same_kept(const struct stage_build *a, const struct stage_build *b, int32_t param_use)
{
    int32_t n = lower_shard_keys(a, param_use);
    bool same = n == lower_shard_keys(b, param_use);
    for (int32_t k = 0; same && k < n; k++)
        same = tensor_shard_equal(lower_parameter_shard(with_key(a, param_use, k), param_use),
                                  lower_parameter_shard(with_key(b, param_use, k), param_use));
    return same;
}

enum status lower_shard_mixed(const struct lowering *l, bool *mixed, struct error *err)
{
    for (int32_t u = 0; u < l->uses->n_param_uses; u++) {
        const struct stage_build *a = lower_param_use_owner(l, 0, u), *odd = a;
        bool shared = a->plan->sharding;
        for (int32_t r = 1; r < l->plan->n_replicas; r++) {
            const struct stage_build *b = lower_param_use_owner(l, r, u);
            shared |= b->plan->sharding != NULL;
            if (shared && !same_kept(a, b, u)) mixed[u] = true, odd = b;
        }
        if (mixed[u] && a->plan->zero)
            return lower_error(l, odd, err, ERR_INPUT,
                               "sharding: parameter %s is sharded differently from replica 0, "
                               "and its state is also sharded by zero; the two cannot be combined",
                               a->v->g->tensors[a->v->param_uses[u].parameter].name);
    }
    return OK;
}

bool lower_parameter_replicated(const struct stage_build *first, int32_t param_use)
{
    bool whole = true;
    for (int32_t k = 0; first->plan->sharding && k < first->n_shards; k++)
        whole &= lower_parameter_shard(first + k, param_use)->n_cuts == 0;
    return whole;
}

bool lower_shards_equal(const struct stage_build *a, const struct stage_build *b, int32_t param_use)
{
    bool same = a->n_shards == b->n_shards;
    for (int32_t k = 0; same && k < a->n_shards; k++)
        same = tensor_shard_equal(lower_parameter_shard(a + k, param_use),
                                  lower_parameter_shard(b + k, param_use));
    return same;
}
