#include "planner/experts/place.h"

#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "planner/experts/assign.h"

#include <string.h>

struct owner { /* a stage that shards experts */
    struct plan_stage *stage;
    const struct op_choice *choices; /* (n_forward) */
    struct op_choice *own;           /* (n_forward) those to be */
    int32_t n_blocks, *axis;         /* blocks whose experts it shards; (blocks) along which axis, -1 */
    int32_t n_ratios;
    double *ratios;   /* (vectors, devices) */
    int32_t *experts; /* (devices) of all blocks: of the last try */
    int32_t *most;    /* (devices) of all blocks; INT32_MAX: no limit */
    int64_t *bytes;   /* (devices) of the last try */
};

struct expert_task {
    struct arena *a, *scratch;
    struct search_context *t;
    struct cost *cost;
    const struct cluster *cluster;
    const struct plan *from;
    struct plan plan; /* the new one */
    struct expert_block *blocks;
    const struct graph *whole, *training; /* forward; with gradients: the forward ones in the same order */
    int32_t *block_of;                    /* (n_forward) of operators behind a gating, -1 */
    double *per_token, *per_slots;        /* (blocks, types) ns of all tokens and of all slots; see price */
    int32_t n_owners;
    struct owner *owners;
};

/* --- prices --- */

static enum status price(struct expert_task *q, const struct graph_op *x, int32_t type, double *out, struct error *err)
{
    struct program_op op = {.kind = x->kind, .phase = x->phase, .attrs = x->attrs, .dtype = q->training->dtype, .name = x->name};
    int64_t ns;
    op.attrs.load_ppm = 0;
    op.n_inputs = x->n_inputs, op.n_outputs = x->n_outputs;
    graph_op_shapes(q->training, x, &op.shapes);
    op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
    TRY(cost_op(q->cost, type, &op, &ns, err));
    *out += (double)ns;
    return OK;
}

/* The index along which an axis shards experts of the operator; -1: none does, or both. */
static int32_t axis_of(const struct sharding *s, const struct op_choice *c)
{
    int32_t axis = -1;
    for (int32_t x = 0; x < s->n_axes; x++)
        if (c->index[x] == INDEX_experts) axis = axis < 0 ? x : -2;
    return axis < 0 ? -1 : axis;
}

static bool in_slots(const struct expert_task *q, int32_t i)
{
    const struct graph_op *x = &q->whole->ops[i];
    return op_gates_input(x->kind) >= 0 || q->whole->tensors[x->output[0]].shape.rank == 4;
}

/* Of the operators on the rows of experts and their gradients: products take time by tokens, the others by slots. */
static enum status price_all(struct expert_task *q, struct error *err)
{
    const struct graph *g = q->training;
    int32_t types = q->cluster->n_types, n = q->from->job.model.n_expert_blocks;
    q->per_token = ARENA_ARRAY(q->scratch, double, (size_t)(n * types));
    q->per_slots = ARENA_ARRAY(q->scratch, double, (size_t)(n * types));
    for (int32_t i = 0; i < g->n_ops; i++) {
        int32_t forward = i < g->n_forward ? i : g->ops[i].forward, b = forward < 0 ? -1 : q->block_of[forward];
        if (b < 0 || !in_slots(q, forward)) continue;
        double *of = op_is_product(g->ops[i].kind) ? q->per_token : q->per_slots;
        for (int32_t type = 0; type < types; type++) TRY(price(q, &g->ops[i], type, &of[b * types + type], err));
    }
    return OK;
}

/* --- what the plan has --- */

static void find_blocks(struct expert_task *q)
{
    const struct model *m = &q->from->job.model;
    int32_t block = -1;
    q->block_of = ARENA_ARRAY(q->scratch, int32_t, (size_t)q->whole->n_forward);
    for (int32_t i = 0; i < q->whole->n_forward; i++) {
        const struct graph_op *x = &q->whole->ops[i];
        if (x->kind == OP_gating) block = x->attrs.block - 1;
        q->block_of[i] = -1;
        for (int32_t b = 0; b < m->n_expert_blocks && block >= 0; b++)
            if (m->expert_blocks[b].block == block && m->expert_blocks[b].tokens) q->block_of[i] = b;
    }
}

/* The axis along which the stage shards the products of each block; -1: none, or not all of them alike, or not its layers. */
static void find_axes(const struct expert_task *q, struct owner *o)
{
    int32_t n = q->from->job.model.n_expert_blocks;
    bool *seen = ARENA_ARRAY(q->scratch, bool, (size_t)n);
    o->axis = ARENA_ARRAY(q->scratch, int32_t, (size_t)n);
    for (int32_t b = 0; b < n; b++) o->axis[b] = -1;
    for (int32_t i = 0; i < q->whole->n_forward; i++) {
        int32_t b = q->block_of[i], layer = q->whole->ops[i].layer;
        if (b < 0 || q->whole->ops[i].kind != OP_expert_matmul) continue;
        int32_t x = axis_of(o->stage->sharding, &o->choices[i]);
        bool inside = layer >= o->stage->first_layer && layer <= o->stage->last_layer;
        o->axis[b] = inside && (!seen[b] || o->axis[b] == x) ? x : -1;
        seen[b] = true;
    }
    for (int32_t b = 0; b < n; b++) o->n_blocks += o->axis[b] >= 0;
}

static enum status find_owners(struct expert_task *q, struct error *err)
{
    const struct plan *p = &q->plan;
    size_t most = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) most += (size_t)p->replicas[r].n_stages;
    q->owners = ARENA_ARRAY(q->scratch, struct owner, most);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct owner o = {.stage = &p->replicas[r].stages[i]};
            const bool *gathered;
            if (!o.stage->sharding) continue;
            TRY(sharding_resolve(q->scratch, o.stage->sharding, q->whole, &o.choices, &gathered, err));
            find_axes(q, &o);
            size_t n = (size_t)o.stage->n_shards;
            o.experts = ARENA_ARRAY(q->scratch, int32_t, n), o.most = ARENA_ARRAY(q->scratch, int32_t, n);
            o.bytes = ARENA_ARRAY(q->scratch, int64_t, n);
            for (size_t d = 0; d < n; d++) o.most[d] = INT32_MAX;
            if (o.n_blocks) q->owners[q->n_owners++] = o;
        }
    return OK;
}

/* --- one block --- */

/* Places along the axis, of which the slowest device counts. Blocks share a device's room for experts. */
static struct experts_question question(struct expert_task *q, const struct owner *o, int32_t b)
{
    const struct sharding *s = o->stage->sharding;
    const struct model *m = &q->from->job.model;
    int32_t axis = o->axis[b], types = q->cluster->n_types, n = s->mesh[axis], number = 0;
    for (int32_t k = 0; k < b; k++) number += o->axis[k] >= 0;
    double sum = 0, *token = ARENA_ARRAY(q->scratch, double, (size_t)n), *slots = ARENA_ARRAY(q->scratch, double, (size_t)n);
    int32_t *most = ARENA_ARRAY(q->scratch, int32_t, (size_t)n);
    for (int64_t e = 0; e < m->experts; e++) sum += (double)m->expert_blocks[b].tokens[e];
    for (int32_t k = 0; k < n; k++) most[k] = (int32_t)m->experts;
    for (int32_t d = 0; d < s->n_devices; d++) {
        int32_t k = sharding_place(s, d, axis), type = q->cluster->devices[o->stage->devices[d]].type;
        double t = q->per_token[b * types + type] / sum, x = q->per_slots[b * types + type] / (double)m->experts;
        if (t > token[k]) token[k] = t;
        if (x > slots[k]) slots[k] = x;
        int32_t room = o->most[d] == INT32_MAX ? most[k] : o->most[d] / o->n_blocks + (number < o->most[d] % o->n_blocks);
        if (room < most[k]) most[k] = room;
    }
    return (struct experts_question){(int32_t)m->experts, n, m->expert_blocks[b].tokens, token, slots, most};
}

/* Index of the vector of ratios with these numbers of experts along the axis, which is added if it is new. */
static int32_t vector_of(struct expert_task *q, struct owner *o, int32_t axis, const int64_t *n)
{
    const struct sharding *s = o->stage->sharding;
    size_t width = (size_t)s->n_devices;
    double *v = ARENA_ARRAY(q->scratch, double, width), *all;
    for (int32_t d = 0; d < s->n_devices; d++)
        v[d] = (double)n[sharding_place(s, d, axis)] / ((double)s->n_devices / s->mesh[axis]);
    for (int32_t r = 0; r < o->n_ratios; r++)
        if (!memcmp(o->ratios + (size_t)r * width, v, width * sizeof *v)) return r;
    all = ARENA_ARRAY(q->a, double, (size_t)(o->n_ratios + 1) * width);
    memcpy(all, o->ratios, (size_t)o->n_ratios * width * sizeof *all);
    memcpy(all + (size_t)o->n_ratios * width, v, width * sizeof *v);
    o->ratios = all;
    return o->n_ratios++;
}

static void give(struct expert_task *q, struct owner *o, int32_t b, const int64_t *n)
{
    const struct sharding *s = o->stage->sharding;
    int32_t axis = o->axis[b], vector = vector_of(q, o, axis, n);
    for (int32_t i = 0; i < q->whole->n_forward; i++)
        if (q->block_of[i] == b && axis_of(s, &o->choices[i]) == axis) o->own[i].ratio[axis] = vector;
    for (int32_t d = 0; d < s->n_devices; d++) o->experts[d] += (int32_t)n[sharding_place(s, d, axis)];
}

/* The order by places, within a place by number; n: of each place. */
static int32_t *order_of(struct expert_task *q, const struct experts_question *x, const int32_t *place, int64_t *n)
{
    int32_t at = 0, *order = ARENA_ARRAY(q->a, int32_t, (size_t)x->n_experts);
    for (int32_t k = 0; k < x->n_places; k++)
        for (int32_t e = 0; e < x->n_experts; e++)
            if (place[e] == k) order[at++] = e, n[k]++;
    return order;
}

/* fits: becomes false if some devices have no room. */
static void place_block(struct expert_task *q, int32_t b, bool *fits)
{
    int32_t *order = NULL;
    for (int32_t i = 0; i < q->n_owners && *fits; i++) {
        struct owner *o = &q->owners[i];
        if (o->axis[b] < 0) continue;
        struct experts_question x = question(q, o, b);
        int64_t *n = ARENA_ARRAY(q->scratch, int64_t, (size_t)x.n_places);
        int32_t *place = ARENA_ARRAY(q->scratch, int32_t, (size_t)x.n_experts);
        if (order)
            *fits = experts_cut(&x, order, n) >= 0;
        else if ((*fits = experts_assign(&x, place) >= 0))
            order = order_of(q, &x, place, n);
        if (*fits) give(q, o, b, n);
    }
    if (order) q->blocks[b].order = order;
}

/* --- the plan --- */

/* The plan with experts within the limits of its devices; false: there is none. */
static bool place_all(struct expert_task *q)
{
    struct model *m = &q->plan.job.model;
    bool fits = true;
    q->blocks = arena_copy(q->a, q->from->job.model.expert_blocks, (size_t)m->n_expert_blocks * sizeof *q->blocks);
    m->expert_blocks = q->blocks;
    for (int32_t i = 0; i < q->n_owners; i++) {
        struct owner *o = &q->owners[i];
        const struct sharding *s = o->stage->sharding;
        o->own = arena_copy(q->scratch, o->choices, (size_t)q->whole->n_forward * sizeof *o->own);
        o->n_ratios = s->n_ratios;
        o->ratios = arena_copy(q->a, s->ratios, (size_t)(s->n_ratios * s->n_devices) * sizeof *o->ratios);
        memset(o->experts, 0, (size_t)s->n_devices * sizeof *o->experts);
    }
    for (int32_t b = 0; b < m->n_expert_blocks && fits; b++)
        if (q->blocks[b].tokens) place_block(q, b, &fits);
    for (int32_t i = 0; i < q->n_owners && fits; i++) {
        struct owner *o = &q->owners[i];
        struct sharding *s = arena_copy(q->a, o->stage->sharding, sizeof *s), before = *s;
        s->n_ratios = o->n_ratios, s->ratios = o->ratios;
        sharding_set_choices(q->a, s, q->whole, o->own, NULL);
        s->n_parameters = before.n_parameters, s->parameters = before.parameters;
        o->stage->sharding = s;
    }
    return fits;
}

static int64_t lane_bytes(const struct program *p, const char *device)
{
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!strcmp(p->devices[i].name, device)) return program_lane_bytes(p, i);
    return 0;
}

/* Limits of the devices whose memory the last try exceeded, by the bytes of an expert between the plan as it came and the try. false: one
 * of them has no experts to give. */
static bool limit(struct expert_task *q, const struct program *p, int32_t *const *experts, int64_t *const *bytes)
{
    for (int32_t i = 0; i < q->n_owners; i++) {
        struct owner *o = &q->owners[i];
        for (int32_t d = 0; d < o->stage->n_shards; d++) {
            const struct device *at = &q->cluster->devices[o->stage->devices[d]];
            int64_t now = lane_bytes(p, at->name), room = q->cluster->types[at->type].memory_bytes;
            int32_t more = o->experts[d] - experts[i][d];
            double each = more > 0 ? (double)(now - bytes[i][d]) / more : 0;
            if (now <= room) continue;
            if (!o->experts[d]) return false;
            double fit = each > 0 ? (double)o->experts[d] - (double)(now - room) / each : o->experts[d] - 1;
            int32_t most = fit > 0 ? (int32_t)fit : 0;
            o->most[d] = most < o->experts[d] ? most : o->experts[d] - 1;
        }
    }
    return true;
}

/* Of the plan as it came: experts of each device by its ratios, and its bytes. */
static void note_given(struct expert_task *q, const struct program *p, int32_t **experts, int64_t **bytes)
{
    for (int32_t i = 0; i < q->n_owners; i++) {
        const struct owner *o = &q->owners[i];
        const struct sharding *s = o->stage->sharding;
        experts[i] = ARENA_ARRAY(q->scratch, int32_t, (size_t)s->n_devices);
        bytes[i] = ARENA_ARRAY(q->scratch, int64_t, (size_t)s->n_devices);
        for (int32_t d = 0; d < s->n_devices; d++)
            bytes[i][d] = lane_bytes(p, q->cluster->devices[o->stage->devices[d]].name);
        for (int32_t k = 0, last = -1; k < q->whole->n_forward; k++) {
            int32_t b = q->block_of[k];
            if (b < 0 || b == last || o->axis[b] < 0 || q->whole->ops[k].kind != OP_expert_matmul) continue;
            last = b;
            int32_t axis = o->axis[b];
            double *ratios = ARENA_ARRAY(q->scratch, double, (size_t)s->mesh[axis]);
            int64_t *n = ARENA_ARRAY(q->scratch, int64_t, (size_t)s->mesh[axis]);
            sharding_axis_ratios(s, o->choices[k].ratio[axis], axis, ratios);
            sharding_extents(q->from->job.model.experts, ratios, s->mesh[axis], n);
            for (int32_t d = 0; d < s->n_devices; d++) experts[i][d] += (int32_t)n[sharding_place(s, d, axis)];
        }
    }
}

/* Simulates the plan of q; INT64_MAX: it does not fit, *out its program unless lowering refused it. */
static enum status score(struct expert_task *q, struct scorer *w, const struct plan *p, int64_t *ns, const struct program **out, struct error *err)
{
    struct space s;
    enum status refusal;
    TRY(space_make(q->scratch, &p->job, q->cluster, q->cost, p->microbatch, q->t->lower, &s, err));
    TRY(scorer_run(w, &s, p, ns, err));
    *out = scorer_last(w, &refusal);
    return OK;
}

/* Every try keeps its own stages, because the next one starts from the plan as it came. */
static void begin_try(struct expert_task *q)
{
    struct plan next = scorer_copy_plan(q->a, q->from);
    next.predicted_ns = 0;
    for (int32_t i = 0; i < q->n_owners; i++) {
        struct owner *o = &q->owners[i];
        for (int32_t r = 0; r < q->plan.n_replicas; r++) {
            struct plan_replica *x = &q->plan.replicas[r];
            if (o->stage >= x->stages && o->stage < x->stages + x->n_stages) {
                o->stage = &next.replicas[r].stages[o->stage - x->stages];
                break;
            }
        }
    }
    q->plan = next;
}

static enum status try_all(struct expert_task *q, struct scorer *w, int64_t *best_ns, struct plan *best, struct error *err)
{
    size_t n = (size_t)q->n_owners;
    int32_t **experts = ARENA_ARRAY(q->scratch, int32_t *, n);
    int64_t **bytes = ARENA_ARRAY(q->scratch, int64_t *, n), ns;
    const struct program *p;
    TRY(score(q, w, q->from, &ns, &p, err));
    if (ns < *best_ns) *best_ns = ns, *best = *q->from;
    if (!p) return OK;
    note_given(q, p, experts, bytes);
    for (;;) { /* memory grows by the same bytes with every expert, so that the second try usually fits */
        begin_try(q);
        if (!place_all(q)) return OK;
        TRY(score(q, w, &q->plan, &ns, &p, err));
        if (ns < *best_ns) *best_ns = ns, *best = q->plan;
        if (ns != INT64_MAX || !p || !limit(q, p, experts, bytes)) return OK;
    }
}

static enum status place(struct expert_task *q, struct plan *p, int64_t *ns, struct error *err)
{
    struct graph *whole, *training;
    TRY(lower_graph(q->scratch, &p->job, p->microbatch, &whole, err));
    TRY(lower_graph(q->scratch, &p->job, p->microbatch, &training, err));
    TRY(gradient_build(training, 1, err));
    q->whole = whole, q->training = training;
    find_blocks(q);
    TRY(find_owners(q, err));
    if (!q->n_owners) return OK;
    TRY(price_all(q, err));
    struct scorer *w = scorer_new(q->t->lower);
    enum status st = try_all(q, w, ns, p, err);
    scorer_free(w);
    return st;
}

bool experts_known(const struct job *j)
{
    for (int32_t b = 0; b < j->model.n_expert_blocks; b++)
        if (j->model.expert_blocks[b].tokens) return true;
    return false;
}

const struct job *experts_unplaced(struct arena *a, const struct job *j)
{
    int32_t n = j->model.n_expert_blocks, kept = 0;
    if (!n) return j;
    struct job *out = arena_copy(a, j, sizeof *j);
    struct expert_block *blocks = ARENA_ARRAY(a, struct expert_block, (size_t)n);
    for (int32_t b = 0; b < n; b++)
        if (j->model.expert_blocks[b].tokens)
            blocks[kept] = j->model.expert_blocks[b], blocks[kept++].order = NULL;
    out->model.n_expert_blocks = kept, out->model.expert_blocks = kept ? blocks : NULL;
    return out;
}

enum status experts_place(struct search_context *t, struct cost *k, const struct cluster *c, struct plan *p, int64_t *ns, struct error *err)
{
    bool sharded = false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) sharded |= p->replicas[r].stages[i].sharding != NULL;
    if (!sharded || !experts_known(&p->job)) return OK;
    struct plan from = *p;
    struct expert_task q = {.a = t->arena, .scratch = arena_new(), .t = t, .cost = k, .cluster = c, .from = &from};
    q.plan = scorer_copy_plan(t->arena, &from);
    enum status st = place(&q, p, ns, err);
    arena_free(q.scratch);
    return st;
}

static enum status place_and_add(struct search_context *t, struct cost *k, const struct cluster *c, struct plan p, int64_t ns,
                                 struct incumbents *to, struct error *err)
{
    if (!search_context_stopped(t)) TRY(experts_place(t, k, c, &p, &ns, err));
    if (ns != INT64_MAX) incumbents_add(to, &p, ns);
    return OK;
}

enum status experts_place_incumbents(struct search_context *t, const struct job *j, const struct cluster *c, const struct profile *p,
                                     struct error *err)
{
    if (!experts_known(j)) return OK;
    struct cost *k = cost_new(t->arena, p, c);
    struct incumbents found;
    incumbents_init(&found, t->arena, t->incumbents.most, t->o, c);
    found.also = t->incumbents.also;
    for (int32_t i = 0; i < t->incumbents.n; i++)
        TRY(place_and_add(t, k, c, t->incumbents.plans[i].plan, t->incumbents.plans[i].iteration_ns, &found, err));
    for (int32_t i = 0; t->even && i < t->even->n_plans; i++) {
        struct plan plan = scorer_copy_plan(t->arena, &t->even->plans[i].plan);
        plan.job.model.n_expert_blocks = j->model.n_expert_blocks, plan.job.model.expert_blocks = j->model.expert_blocks;
        /* stopped: as it was predicted with equal shares */
        TRY(place_and_add(t, k, c, plan, search_context_stopped(t) ? t->even->plans[i].iteration_ns : INT64_MAX, &found, err));
    }
    t->incumbents = found;
    return OK;
}
