/* core/lower/shards.c - sharded stages: graphs, crossing tensors, groups.
 *
 * Each device's operators come from its own view of the whole graph (core/sharding/shard.h); the rest of lowering
 * is as for any other stage. Conversions become collectives, one for each operator, whose operands
 * are filled in device by device. A tensor that crosses the stage's boundary is replicated on each device, or sharded by rows.
 *
 * Gradient all-reduces. A device's gradient of a parameter is partial along some axes of the mesh and replicated along the others.
 * Its key is its position along those others; devices of one key, over all replicas, hold one shard and a partial value each: a group.
 * Replicas with other keys for a parameter, or other shards, reduce over intersections (core/lower/cells.c).
 */
#include "core/lower/shards.h"

#include "core/collective/tensor_shard.h"
#include "core/graph/gradient.h"
#include "core/lower/lowering.h"
#include "core/lower/param_uses.h"
#include "core/lower/stage_graph.h"
#include "core/lower/uses.h"
#include "core/sharding/shard.h"

#include <inttypes.h>
#include <string.h>

/* --- views --- */

/* The view of one device of each stage with these layers and this sharding; replicas have equal ones. */
struct known_view {
    int32_t rules, first_layer, last_layer, shard;
    const struct lower_view *v;
    bool shares_loss;
    double loss_share;
    int32_t next; /* with the same hash, -1 */
};

struct rules { /* a distinct sharding, and what its stages share */
    const struct sharding *s;
    struct shard_choices *choices; /* NULL: not resolved yet */
};

struct shard_views {
    struct arena *tables;           /* the lowering's */
    struct arena *of_stage, *of_view; /* until the next stage, the next view */
    struct stage_graph_pool *pool;
    struct graph *whole; /* forward, of a microbatch; made when a stage first needs it */
    struct rules *rules;
    size_t n_rules, rule_capacity;
    struct shard_stage *shared;     /* what the devices of one stage share */
    const struct plan_stage *stage; /* the stage */
    struct known_view *known;
    size_t n_known, known_capacity;
    int32_t *first; /* (n_first) by hash, index into known + 1 */
    size_t n_first; /* a power of two */
};

struct shard_views *shard_views_new(const struct lowering *l)
{
    struct shard_views *x = ARENA_ARRAY(l->tables, struct shard_views, 1);
    *x = (struct shard_views){.tables = l->tables,
                              .of_stage = arena_new(),
                              .of_view = arena_new(),
                              .pool = stage_graph_pool_new(l->a, l->tables)};
    for (x->n_first = 64; x->n_first < 2 * (size_t)l->p->n_stages;) x->n_first *= 2;
    x->first = ARENA_ARRAY(l->tables, int32_t, x->n_first);
    return x;
}

void shard_views_end(struct shard_views *x)
{
    arena_free(x->of_stage);
    arena_free(x->of_view);
}

/* The index of the first sharding that is equal to s; the last one found is usually the next. O(distinct shardings). */
static int32_t rules_of(struct shard_views *x, const struct sharding *s)
{
    for (size_t i = x->n_rules; i-- > 0;)
        if (x->rules[i].s == s) return (int32_t)i;
    for (size_t i = 0; i < x->n_rules; i++)
        if (sharding_equal(x->rules[i].s, s)) return (int32_t)i;
    x->rules = arena_grow(x->tables, x->rules, x->n_rules, &x->rule_capacity, sizeof *x->rules);
    x->rules[x->n_rules] = (struct rules){.s = s};
    return (int32_t)x->n_rules++;
}

static size_t hash_of(const struct shard_views *x, const struct known_view *k)
{
    uint64_t h = (uint64_t)k->rules;
    h = h * 1000003 + (uint64_t)k->first_layer;
    h = h * 1000003 + (uint64_t)k->last_layer;
    h = h * 1000003 + (uint64_t)k->shard;
    return (size_t)(h * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (x->n_first - 1);
}

static const struct known_view *find_known(const struct shard_views *x, const struct known_view *k)
{
    for (int32_t i = x->first[hash_of(x, k)] - 1; i >= 0; i = x->known[i].next) {
        const struct known_view *y = &x->known[i];
        if (y->rules == k->rules && y->first_layer == k->first_layer &&
            y->last_layer == k->last_layer && y->shard == k->shard)
            return y;
    }
    return NULL;
}

static void add_known(struct shard_views *x, struct known_view k)
{
    int32_t *first = &x->first[hash_of(x, &k)];
    x->known = arena_grow(x->tables, x->known, x->n_known, &x->known_capacity, sizeof *x->known);
    k.next = *first - 1;
    x->known[x->n_known++] = k;
    *first = (int32_t)x->n_known;
}

/* Measured layers were measured on equal GPUs of one node. */
static enum status check_equal(const struct lowering *l, const struct stage_build *b,
                               struct error *err)
{
    const struct device *d = l->plan->cluster.devices, *first = &d[plan_stage_device(b->plan, 0)],
                        *here = &d[b->device];
    if (here->type == first->type && here->node == first->node) return OK;
    return error_set(
        err, ERR_INPUT,
        "%s and %s are not %s: measured layers are sharded over equal devices of one node",
        first->name, here->name, here->type != first->type ? "of one type" : "on one node");
}

static enum status check_device(const struct lowering *l, const struct stage_build *b,
                                struct error *err)
{
    const struct plan *p = l->plan;
    const struct device_type *t = &p->cluster.types[p->cluster.devices[b->device].type];
    if (p->job.model.measured) TRY(check_equal(l, b, err));
    if (t->tensor_parallel > 1)
        return error_set(err, ERR_INPUT,
                         "device type %s is tensor parallel; its devices cannot "
                         "shard operators with other devices",
                         t->name);
    return OK;
}

static int32_t last_op(const struct graph *g, int32_t layer)
{
    int32_t i = g->n_forward - 1;
    while (i > 0 && g->ops[i].layer > layer) i--;
    return i;
}

/* The device's training graph, in the arena of views. */
static enum status make_graph(const struct lowering *l, struct shard_views *x,
                              const struct stage_build *b, struct known_view *k,
                              struct graph **out, struct error *err)
{
    const struct plan *p = l->plan;
    struct rules *rules = &x->rules[k->rules];
    struct graph *g;
    if (!rules->choices) TRY(shard_choices_new(x->tables, x->whole, b->plan->sharding, &rules->choices, err));
    if (x->stage != b->plan) { /* devices of a stage are consecutive */
        arena_reset(x->of_stage);
        x->stage = NULL;
        int32_t until = lower_third_block(x->whole, last_op(x->whole, k->last_layer));
        TRY(shard_stage_of(x->of_stage, rules->choices, k->first_layer, k->last_layer, until,
                           &x->shared, err));
    }
    x->stage = b->plan;
    arena_reset(x->of_view);
    TRY(shard_stage_graph(x->of_view, x->shared, k->shard, &g, err));
    g = graph_fuse(g, l->o->fused, l->o->n_fused);
    if (k->first_layer > 0) g->edge[g->n_edges++] = k->first_layer - 1;
    if (k->last_layer + 1 < g->n_layers) g->edge[g->n_edges++] = k->last_layer;
    TRY(gradient_build(g, (double)p->microbatch / (double)p->job.global_batch, err));
    k->shares_loss = k->last_layer + 1 == g->n_layers;
    if (k->shares_loss) k->loss_share = shard_loss_share(x->of_view, x->shared, k->shard);
    *out = g;
    return OK;
}

/* No graph for layers that plan_check refuses. */
static enum status make_view(const struct lowering *l, struct shard_views *x,
                             const struct stage_build *b, struct known_view *k, struct graph **out,
                             struct error *err)
{
    TRY(check_device(l, b, err));
    if (!x->whole)
        TRY(lower_graph_unsharded(x->tables, &l->plan->job, l->plan->microbatch, &x->whole, err));
    *k = (struct known_view){.rules = rules_of(x, b->plan->sharding),
                             .first_layer = b->plan->first_layer,
                             .last_layer = b->plan->last_layer,
                             .shard = b->shard};
    const struct known_view *known = find_known(x, k);
    if (!known) return make_graph(l, x, b, k, out, err);
    *k = *known;
    return OK;
}

enum status lower_shard_view(const struct lowering *l, struct shard_views *x, struct stage_build *b,
                             struct error *err)
{
    struct graph *g = NULL;
    struct known_view k = {0};
    struct error why = {0};
    enum status status = make_view(l, x, b, &k, &g, &why);
    size_t file = l->plan->file ? strlen(l->plan->file) : 0;
    bool placed = file && !strncmp(why.text, l->plan->file, file) && why.text[file] == ':';
    if (status != OK && placed) return error_set(err, status, "%s", why.text); /* a rule's own error */
    if (status != OK) return lower_error(l, b, err, status, "sharding: %s", why.text);
    if (!k.v) {
        struct stage_graph part =
            stage_graph_of(x->pool, g, x->whole->layer_name, k.first_layer, k.last_layer);
        TRY(param_uses_part(l->uses, l->tables, g, &part, &k.v, err));
        add_known(x, k);
    }
    b->v = k.v;
    b->s->shares_loss = k.shares_loss, b->s->loss_share = k.loss_share;
    return OK;
}

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
        bool tp = a->s->tp > 1 || a->v->g->tp > 1, shared = a->plan->sharding;
        for (int32_t r = 1; r < l->plan->n_replicas; r++) {
            const struct stage_build *b = lower_param_use_owner(l, r, u);
            tp |= b->s->tp > 1 || b->v->g->tp > 1, shared |= b->plan->sharding != NULL;
            if (shared && !same_kept(a, b, u)) mixed[u] = true, odd = b;
        }
        if (shared && (tp || (mixed[u] && a->plan->zero)))
            return lower_error(l, odd, err, ERR_INPUT,
                               "sharding: parameter %s is sharded differently from replica 0, "
                               "and %s; the two cannot be combined",
                               a->v->g->tensors[a->v->param_uses[u].parameter].name,
                               tp ? "it is also sharded by tensor parallelism"
                                  : "its state is also sharded by zero");
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
