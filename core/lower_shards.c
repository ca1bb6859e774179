/* core/lower_shards.c - stages whose devices share operators: their graphs, what crosses, who meets, who sums.
 *
 * Each device's operators come from its own view of the whole graph (core/shard.h), so that everything else of lowering
 * goes as for any other stage. Conversions of a group of devices become meetings, one for each operator, whose operands
 * are filled in device by device. What crosses into or out of such a stage is whole on each device, or rows of it.
 *
 * Sums of gradients. A device's gradient of a parameter is a term along some axes of the mesh and the same along the others.
 * Its key is its place along those others; devices of one key, over all replicas, hold one part and a term each: a group.
 * Replicas have equally many keys for a parameter, and keep the same part for each of them.
 */
#include "core/gradient.h"
#include "core/lower_internal.h"
#include "core/part.h"
#include "core/shard.h"

#include <inttypes.h>
#include <string.h>

/* --- views --- */

/* Forward, of a whole microbatch, unfused; made once. */
static enum status whole_graph(struct lowering *l, struct error *err)
{
    struct job j = l->plan->job;
    if (l->whole) return OK;
    j.model.tensor_parallel = 1, j.model.sequence_parallel = false;
    return lower_graph(l->a, &j, l->plan->microbatch, &l->whole, err);
}

static enum status make_view(struct lowering *l, struct stage_build *b, struct graph **out,
                             struct error *err)
{
    const struct plan *p = l->plan;
    const struct device_type *t = &p->cluster.types[p->cluster.devices[b->device].type];
    if (p->job.model.measured)
        return error_set(err, ERR_INPUT, "layers that were measured whole cannot be shared");
    if (t->tensor_parallel > 1)
        return error_set(err, ERR_INPUT,
                         "device type %s is several cards that are simulated as one; those cannot "
                         "share operators with other devices",
                         t->name);
    TRY(whole_graph(l, err));
    if (b->plan->last_layer >= l->whole->n_layers) return OK; /* plan_check has said so */
    struct graph *g;
    TRY(shard_graph(l->a, l->whole, b->plan->sharding, b->shard, b->plan->first_layer,
                    b->plan->last_layer, &g, err));
    g = graph_fuse(g, l->o->fused, l->o->n_fused);
    TRY(gradient_build(g, (double)p->microbatch / (double)p->job.global_batch, err));
    if (b->plan->last_layer + 1 == g->n_layers) {
        b->s->shares_loss = true;
        TRY(shard_loss_share(l->a, l->whole, b->plan->sharding, b->shard, &b->s->loss_share, err));
    }
    *out = g;
    return OK;
}

enum status lower_shard_view(struct lowering *l, struct stage_build *b, const struct graph **out,
                             struct error *err)
{
    struct graph *g = NULL;
    struct error why = {0};
    enum status status = make_view(l, b, &g, &why);
    if (status != OK) return lower_error(l, b, err, status, "sharding: %.400s", why.text);
    *out = g;
    return OK;
}

static bool whole_or_rows(const struct tensor *t, struct rows *out)
{
    if (t->part.n_cuts == 0) return true;
    if (t->part.n_cuts != 1 || t->part.cut[0].dim != 0 || t->part.cut[0].n_runs != 1) return false;
    *out = (struct rows){t->part.cut[0].run[0].first, t->part.cut[0].run[0].n};
    return true;
}

/* A gradient has the rows of its activation; a term of one, those of an activation of its size. */
enum status lower_shard_rows(const struct lowering *l, const struct stage_build *b,
                             const struct cut *activations, int32_t tensor, struct rows *out,
                             struct error *err)
{
    const struct tensor *list = b->v->g->tensors, *t = &list[tensor];
    bool good = false;
    *out = (struct rows){b->first_sequence, b->sequences};
    if (!b->plan->sharding) return OK;
    if (t->role == TENSOR_ACTIVATION) good = whole_or_rows(t, out);
    if (t->role == TENSOR_GRADIENT && t->of >= 0) good = whole_or_rows(&list[t->of], out);
    for (int32_t i = 0; t->role == TENSOR_GRADIENT && t->of < 0 && i < activations->n && !good; i++)
        good = shape_equal(&list[activations->tensor[i]].shape, &t->shape) &&
               whole_or_rows(&list[activations->tensor[i]], out);
    if (good && out->n == t->shape.dim[0]) return OK;
    return lower_error(l, b, err, ERR_INPUT,
                       "sharding: '%s' crosses to another stage neither whole nor by sequences",
                       t->name);
}

/* Whose gradient, or a term of it, crosses back over the cut behind layer k: told by who takes it there, since one tensor is
 * the gradient of several activations where it passes unchanged. */
static int32_t activation_of(const struct graph *g, int32_t t, int32_t k)
{
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        bool takes = false;
        for (int32_t j = 0; j < op->n_inputs; j++) takes |= op->input[j] == t;
        if (!takes || op->layer > k) continue;
        int32_t out = op->output[0];
        bool sum = op->kind == OP_add || op->kind == OP_take_part || op->kind == OP_add_part ||
                   op_is_group(op->kind);
        if (!sum) return g->ops[op->forward].output[0];
        return g->tensors[out].of >= 0 ? g->tensors[out].of : activation_of(g, out, k);
    }
    return g->tensors[t].of;
}

/* Whether what crosses back there is a term of a sum that the devices have not made yet. */
static bool is_term(const struct graph *g, int32_t t, int32_t k)
{
    if (g->tensors[t].producer < 0) return false;
    const struct graph_op *op = &g->ops[g->tensors[t].producer];
    if (op_is_group(op->kind) || op->kind == OP_take_part || op->forward < 0) return false;
    if (op->kind == OP_add) return is_term(g, op->input[0], k) || is_term(g, op->input[1], k);
    const struct graph_op *forward = &g->ops[op->forward];
    int32_t of = activation_of(g, t, k);
    for (int32_t i = 0; i < forward->n_inputs; i++)
        if (forward->input[i] == of && forward->partial[i]) return true;
    return false;
}

enum status lower_shard_no_terms(const struct lowering *l, const struct stage_build *b,
                                 const struct cut *gradients, int32_t layer, struct error *err)
{
    for (int32_t i = 0; b->plan->sharding && i < gradients->n; i++)
        if (is_term(b->v->g, gradients->tensor[i], layer))
            return lower_error(l, b, err, ERR_INPUT,
                               "sharding: '%s' crosses back as a term of each device; a stage that "
                               "shares operators begins where one activation is alive",
                               b->v->g->tensors[gradients->tensor[i]].name);
    return OK;
}

/* What a tensor of a view was before conversions; of a gradient, what its activation was. */
static const char *origin(const struct graph *g, int32_t t, int32_t k)
{
    if (g->tensors[t].role == TENSOR_GRADIENT) t = activation_of(g, t, k);
    while (t >= 0 && g->tensors[t].producer >= 0) {
        const struct graph_op *op = &g->ops[g->tensors[t].producer];
        if (!op_is_group(op->kind) && op->kind != OP_take_part) break;
        t = op->input[0];
    }
    return t < 0 ? "" : g->tensors[t].name;
}

int32_t lower_shard_same(const struct lower_view *v, const struct cut *cut, int32_t i,
                         const struct lower_view *other, const struct cut *others, int32_t layer)
{
    if (cut->n == 1 && others->n == 1) return 0;
    const char *name = origin(v->g, cut->tensor[i], layer);
    int32_t before = 0; /* terms of one gradient stand in one order */
    for (int32_t k = 0; k < i; k++) before += !strcmp(name, origin(v->g, cut->tensor[k], layer));
    for (int32_t k = 0; k < others->n; k++)
        if (!strcmp(name, origin(other->g, others->tensor[k], layer)) && before-- == 0) return k;
    return -1;
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

/* --- meetings --- */

/* Parts of one size go round in a ring that wastes nothing; others from each to each. */
static enum meeting_way way_of(const struct graph_op *op)
{
    const struct division *d = op->attrs.exchange->parts;
    if (op->kind == OP_group_all_reduce) return MEETING_BY_ring;
    if (op->kind == OP_group_all_to_all) return MEETING_BY_pairs;
    for (int32_t i = 1; i < d->n; i++)
        if (division_extent(d, i) != division_extent(d, 0)) return MEETING_BY_pairs;
    return MEETING_BY_ring;
}

/* The links of a group of devices, as far as its meetings use them. */
static enum status find_links(struct lowering *l, struct stage_build *first,
                              const struct exchange *e, enum meeting_way way, struct error *err)
{
    struct lower_team *t = first[e->member[0]].team[e->axis];
    if (!t) {
        t = ARENA_ARRAY(l->a, struct lower_team, 1);
        for (int32_t i = 0; i < e->n; i++) first[e->member[i]].team[e->axis] = t;
    }
    size_t n = (size_t)e->n;
    if (!t->link) {
        t->link = ARENA_ARRAY(l->a, int32_t, n), t->direction = ARENA_ARRAY(l->a, int32_t, n);
        for (int32_t i = 0; i < e->n; i++) t->link[i] = -1;
    }
    if (way == MEETING_BY_ring && !t->ring)
        for (int32_t i = 0; i < e->n && e->n > 1; i++)
            TRY(lower_link(l, &first[e->member[i]], &first[e->member[(i + 1) % e->n]], &t->link[i],
                           &t->direction[i], err));
    if (way == MEETING_BY_ring) t->ring = true;
    if (way == MEETING_BY_ring || t->pair_link) return OK;
    t->pair_link = ARENA_ARRAY(l->a, int32_t, n * n);
    t->pair_direction = ARENA_ARRAY(l->a, int32_t, n * n);
    for (int32_t i = 0; i < e->n * e->n; i++) {
        int32_t from = i / e->n, to = i % e->n;
        t->pair_link[i] = -1;
        if (from != to)
            TRY(lower_link(l, &first[e->member[from]], &first[e->member[to]], &t->pair_link[i],
                           &t->pair_direction[i], err));
    }
    return OK;
}

enum status lower_shard_teams(struct lowering *l, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        struct stage_build *b = &l->stages[i];
        const struct graph *g = b->v->g;
        for (int32_t k = 0; b->plan->sharding && k < g->n_ops; k++)
            if (op_is_group(g->ops[k].kind) && lower_owns(b, g->ops[k].layer))
                TRY(find_links(l, b - b->shard, g->ops[k].attrs.exchange, way_of(&g->ops[k]), err));
    }
    return OK;
}

static struct meeting_cut cut_of(struct lowering *l, int32_t dimension, const struct division *d)
{
    size_t n = (size_t)d->n * (size_t)d->n_runs;
    struct meeting_cut c = {dimension, d->n_runs, ARENA_ARRAY(l->a, int64_t, n),
                            ARENA_ARRAY(l->a, int64_t, n)};
    for (size_t i = 0; i < n; i++) c.first[i] = d->run[i].first, c.count[i] = d->run[i].n;
    return c;
}

static struct meeting *meeting_of(struct lowering *l, const struct stage_build *b,
                                  const struct graph_op *op)
{
    const struct exchange *e = op->attrs.exchange;
    const struct tensor *in = &b->v->g->tensors[op->input[0]],
                        *out = &b->v->g->tensors[op->output[0]];
    struct meeting *m = ARENA_ARRAY(l->a, struct meeting, 1);
    *m = (struct meeting){.n = e->n, .way = way_of(op), .whole = in->shape};
    m->from.dimension = m->to.dimension = -1;
    if (op->kind == OP_group_all_gather) {
        m->kind = MEETING_all_gather, m->whole = out->shape;
        m->from = cut_of(l, e->dim, e->parts);
    } else if (op->kind == OP_group_reduce_scatter) {
        m->kind = MEETING_reduce_scatter;
        m->to = cut_of(l, e->dim, e->parts);
    } else if (op->kind == OP_group_all_to_all) {
        m->kind = MEETING_all_to_all;
        m->whole.dim[e->dim] = e->parts->whole;
        m->from = cut_of(l, e->dim, e->parts), m->to = cut_of(l, e->to_dim, e->to);
    } else {
        m->kind = MEETING_all_reduce;
    }
    m->most = meeting_most(m);
    m->in = ARENA_ARRAY(l->a, int32_t, (size_t)e->n);
    m->out = ARENA_ARRAY(l->a, int32_t, (size_t)e->n);
    return m;
}

static int32_t new_meeting(struct lowering *l, struct stage_build *b, const struct graph_op *op,
                           const char *name)
{
    const struct exchange *e = op->attrs.exchange;
    const struct lower_team *t = b->team[e->axis];
    struct meeting *m = meeting_of(l, b, op);
    struct group *g =
        lower_group_new(l, name, GROUP_RING, e->n, (struct group_plan){.last_unit = -1});
    for (int32_t i = 0; i < e->n; i++)
        g->members[i] =
            (struct group_member){.stage = b->index - b->shard + e->member[i], .apart = -1};
    if (m->way == MEETING_BY_ring)
        g->link = t->link, g->direction = t->direction;
    else
        for (int32_t i = 0; i < e->n; i++) g->link[i] = -1;
    m->pair_link = m->way == MEETING_BY_pairs ? t->pair_link : NULL;
    m->pair_direction = m->way == MEETING_BY_pairs ? t->pair_direction : NULL;
    g->each_call = true, g->meeting = m;
    g->elements = shape_elements(&m->whole);
    g->dtype = b->v->g->tensors[op->input[0]].dtype;
    return l->p->n_groups - 1;
}

int32_t lower_shard_meeting(struct lowering *l, struct stage_build *b, int32_t op, bool again,
                            const char *name, int32_t in, int32_t out)
{
    const struct graph *g = b->v->g;
    const struct exchange *e = g->ops[op].attrs.exchange;
    struct stage_build *first = b - b->shard;
    int32_t n_ops = g->n_ops, n = b->n_shards;
    if (!first->meetings)
        first->meetings = ARENA_ARRAY(l->a, int32_t, 2 * (size_t)n_ops * (size_t)n);
    int32_t *known = &first->meetings[((again ? n_ops : 0) + op) * n + e->member[0]];
    if (!*known) *known = 1 + new_meeting(l, b, &g->ops[op], name);
    struct group *x = &l->p->groups[*known - 1];
    x->meeting->in[e->self] = in, x->meeting->out[e->self] = out;
    int64_t staging = meeting_staging_bytes(x->meeting, x->dtype);
    if (staging > b->s->buffer_bytes) b->s->buffer_bytes = staging;
    return *known - 1;
}

/* --- sums of gradients --- */

static const struct tensor *gradient_on(const struct stage_build *b, int32_t unit)
{
    return &b->v->g->tensors[b->v->units[unit].gradient];
}

int32_t lower_shard_keys(const struct stage_build *first, int32_t unit)
{
    const struct sharding *s = first->plan->sharding;
    int32_t n = 1;
    for (int32_t x = 0; s && x < s->n_axes; x++)
        if (!(gradient_on(first, unit)->partial >> x & 1)) n *= s->mesh[x];
    return n;
}

int32_t lower_shard_key(const struct stage_build *b, int32_t unit)
{
    const struct sharding *s = b->plan->sharding;
    int32_t key = 0;
    for (int32_t x = 0; s && x < s->n_axes; x++)
        if (!(gradient_on(b, unit)->partial >> x & 1))
            key = key * s->mesh[x] + sharding_place(s, b->shard, x);
    return key;
}

bool lower_shard_same_keys(const struct stage_build *first, int32_t unit, int32_t other)
{
    return !first->plan->sharding ||
           gradient_on(first, unit)->partial == gradient_on(first, other)->partial;
}

static const struct tensor_part *part_on(const struct stage_build *b, int32_t unit)
{
    return &b->v->g->tensors[b->v->units[unit].parameter].part;
}

static const struct stage_build *with_key(const struct stage_build *first, int32_t unit,
                                          int32_t key)
{
    for (int32_t k = 0; k < first->n_shards; k++)
        if (lower_shard_key(first + k, unit) == key) return first + k;
    BUG("nobody has key %" PRId32, key);
}

enum status lower_shard_check(const struct lowering *l, struct error *err)
{
    for (int32_t u = 0; u < l->n_units; u++)
        for (int32_t r = 1; r < l->plan->n_replicas; r++) {
            const struct stage_build *a = lower_unit_owner(l, 0, u), *b = lower_unit_owner(l, r, u);
            int32_t n = lower_shard_keys(a, u);
            bool same = n == lower_shard_keys(b, u);
            if (!a->plan->sharding && !b->plan->sharding) continue;
            for (int32_t k = 0; same && k < n; k++)
                same = part_equal(part_on(with_key(a, u, k), u), part_on(with_key(b, u, k), u));
            if (!same)
                return lower_error(l, b, err, ERR_INPUT,
                                   "sharding: parameter %s is kept in other parts than in replica "
                                   "0; replicas that differ in that cannot sum its gradients",
                                   a->v->g->tensors[a->v->units[u].parameter].name);
        }
    return OK;
}

enum status lower_shard_check_tied(const struct lowering *l, const struct stage_build *a,
                                   const struct stage_build *b, int32_t unit, struct error *err)
{
    bool whole = true;
    for (int32_t k = 0; a->plan->sharding && k < a->n_shards; k++)
        whole &= part_on(a + k, unit)->n_cuts == 0;
    for (int32_t k = 0; b->plan->sharding && k < b->n_shards; k++)
        whole &= part_on(b + k, unit)->n_cuts == 0;
    if (whole) return OK;
    return lower_error(l, b, err, ERR_INPUT,
                       "sharding: parameter %s is used in two stages; both keep it whole, or its "
                       "two gradients cannot be added up",
                       a->v->g->tensors[a->v->units[unit].parameter].name);
}
