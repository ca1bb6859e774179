#include "core/lower/shard_views.h"

#include "core/graph/gradient.h"
#include "core/lower/lowering.h"
#include "core/lower/memo.h"
#include "core/lower/param_uses.h"
#include "core/lower/stage_graph.h"
#include "core/lower/uses.h"
#include "core/sharding/shard.h"

#include <string.h>

/* The view of one device of each stage with these layers and this sharding; replicas have equal ones. */
struct known_view {
    int32_t rules, first_layer, last_layer, shard;
    bool weighted; /* has a loss, weighted by the global batch */
    int64_t global_batch;
    struct lower_view view;
    bool shares_loss;
    double loss_share;
    int64_t lowering;           /* the last one with it */
    const struct lower_view *v; /* its view there */
    int32_t next;               /* with the same hash, -1 */
};

struct rules { /* a distinct sharding, and what its stages share */
    const struct sharding *s;
    struct shard_choices *choices; /* NULL: not resolved yet */
    const struct sharding *stated; /* the same, in the plan … */
    int64_t lowering;              /* … of the last lowering with it */
};

struct shard_views {
    struct lower_memo *memo;
    struct arena *tables;             /* as long as this struct */
    struct arena *of_stage, *of_view; /* until the next stage, the next view */
    struct stage_graph_pool *pool;
    struct job job; /* of the plans, but for their global batch */
    int64_t microbatch, lowering;
    struct shard_views *next; /* of the memo */
    struct graph *whole;      /* forward, of a microbatch; made when a stage first needs it */
    struct rules *rules;
    size_t n_rules, rule_capacity;
    struct shard_stage *shared;     /* what the devices of one stage share */
    const struct plan_stage *stage; /* the stage */
    struct known_view *known;
    size_t n_known, known_capacity;
    int32_t *first; /* (n_first) by hash, index into known + 1 */
    size_t n_first; /* a power of two */
};

/* For any global batch; padding differs at most between copies of one job, which are then made twice. */
static struct job job_of(const struct lowering *l)
{
    struct job j;
    memcpy(&j, &l->plan->job, sizeof j);
    j.global_batch = 0;
    return j;
}

/* contents: what programs refer to. */
static struct shard_views *make(const struct lowering *l, struct arena *contents,
                                struct arena *tables)
{
    struct shard_views *x = ARENA_ARRAY(tables, struct shard_views, 1);
    *x = (struct shard_views){.memo = l->o->memo,
                              .tables = tables,
                              .pool = stage_graph_pool_new(contents, tables),
                              .microbatch = l->plan->microbatch};
    for (x->n_first = x->memo ? 4096 : 64; x->n_first < 2 * (size_t)l->p->n_stages;)
        x->n_first *= 2;
    x->first = ARENA_ARRAY(tables, int32_t, x->n_first);
    return x;
}

static struct shard_views *remembered(const struct lowering *l, struct lower_memo *m)
{
    struct job job = job_of(l);
    struct shard_views *x = m->views;
    while (x && (x->microbatch != l->plan->microbatch || memcmp(&x->job, &job, sizeof job) != 0))
        x = x->next;
    if (x) return x;
    x = make(l, m->contents, m->contents);
    memcpy(&x->job, &job, sizeof job);
    x->next = m->views, m->views = x;
    return x;
}

struct shard_views *shard_views_new(const struct lowering *l)
{
    struct shard_views *x = l->o->memo ? remembered(l, l->o->memo) : make(l, l->a, l->tables);
    x->of_stage = arena_new(), x->of_view = arena_new();
    x->stage = NULL;
    x->lowering++;
    return x;
}

int32_t shard_views_kept(const struct lower_memo *m)
{
    size_t n = 0;
    for (const struct shard_views *x = m->views; x; x = x->next) n += x->n_known;
    return (int32_t)n;
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
        if (x->rules[i].lowering == x->lowering && x->rules[i].stated == s) return (int32_t)i;
    size_t at = 0;
    while (at < x->n_rules && !sharding_equal(x->rules[at].s, s)) at++;
    if (at == x->n_rules) {
        x->rules = arena_grow(x->tables, x->rules, x->n_rules, &x->rule_capacity, sizeof *x->rules);
        x->rules[x->n_rules++] = (struct rules){.s = x->memo ? sharding_copy(x->tables, s) : s};
    }
    x->rules[at].stated = s, x->rules[at].lowering = x->lowering;
    return (int32_t)at;
}

static size_t hash_of(const struct shard_views *x, const struct known_view *k)
{
    uint64_t h = (uint64_t)k->rules;
    h = h * 1000003 + (uint64_t)k->first_layer;
    h = h * 1000003 + (uint64_t)k->last_layer;
    h = h * 1000003 + (uint64_t)k->shard;
    return (size_t)(h * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (x->n_first - 1);
}

/* any_batch: the weight of the loss does not matter. */
static struct known_view *find_known(const struct shard_views *x, const struct known_view *k, bool any_batch)
{
    for (int32_t i = x->first[hash_of(x, k)] - 1; i >= 0; i = x->known[i].next) {
        struct known_view *y = &x->known[i];
        if (y->rules == k->rules && y->first_layer == k->first_layer &&
            y->last_layer == k->last_layer && y->shard == k->shard &&
            (any_batch || !y->weighted || y->global_batch == k->global_batch))
            return y;
    }
    return NULL;
}

static struct known_view *add_known(struct shard_views *x, struct known_view k)
{
    int32_t *first = &x->first[hash_of(x, &k)];
    x->known = arena_grow(x->tables, x->known, x->n_known, &x->known_capacity, sizeof *x->known);
    k.next = *first - 1;
    x->known[x->n_known++] = k;
    *first = (int32_t)x->n_known;
    return &x->known[x->n_known - 1];
}

static bool has_loss(const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (gradient_starts(&g->ops[i])) return true;
    return false;
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
    return l->plan->job.model.measured ? check_equal(l, b, err) : OK;
}

static int32_t last_op(const struct graph *g, int32_t layer)
{
    int32_t i = g->n_forward - 1;
    while (i > 0 && g->ops[i].layer > layer) i--;
    return i;
}

/* The device's training graph, in the arena of views. */
static enum status make_graph(const struct lowering *l, struct shard_views *x,
                              const struct stage_build *b, struct known_view *k, struct graph **out,
                              struct error *err)
{
    const struct plan *p = l->plan;
    struct rules *rules = &x->rules[k->rules];
    struct graph *g;
    if (!x->whole) TRY(lower_graph(x->tables, &p->job, p->microbatch, &x->whole, err));
    if (!rules->choices)
        TRY(shard_choices_new(x->tables, x->whole, rules->s, &rules->choices, err));
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
                             const struct stage_build *b, struct known_view **out,
                             struct error *err)
{
    struct graph *g;
    TRY(check_device(l, b, err));
    struct known_view k = {.rules = rules_of(x, b->plan->sharding),
                           .first_layer = b->plan->first_layer,
                           .last_layer = b->plan->last_layer,
                           .global_batch = l->plan->job.global_batch,
                           .shard = b->shard};
    if ((*out = find_known(x, &k, l->o->timed_only))) return OK;
    TRY(make_graph(l, x, b, &k, &g, err));
    struct stage_graph part =
        stage_graph_of(x->pool, g, x->whole->layer_name, k.first_layer, k.last_layer);
    TRY(param_uses_part(l->uses, x->tables, g, &part, &k.view, err));
    k.weighted = has_loss(k.view.g);
    k.view.kept = x->memo != NULL;
    *out = add_known(x, k);
    return OK;
}

enum status shard_views_set(const struct lowering *l, struct shard_views *x, struct stage_build *b,
                            struct error *err)
{
    struct known_view *k;
    struct error why = {0};
    enum status status = make_view(l, x, b, &k, &why);
    size_t file = l->plan->file ? strlen(l->plan->file) : 0;
    bool placed = file && !strncmp(why.text, l->plan->file, file) && why.text[file] == ':';
    if (status != OK && placed)
        return error_set(err, status, "%s", why.text); /* a rule's own error */
    if (status != OK) return lower_error(l, b, err, status, "sharding: %s", why.text);
    if (k->lowering != x->lowering) k->v = param_uses_add(l->uses, &k->view);
    k->lowering = x->lowering;
    b->v = k->v;
    b->s->shares_loss = k->shares_loss, b->s->loss_share = k->loss_share;
    return OK;
}
