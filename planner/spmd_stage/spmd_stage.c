/* planner/spmd_stage/spmd_stage.c - the sharded program of one stage from planner/spmd/spmd and planner/spmd/ratio,
 * memoised. */
#include "planner/spmd_stage/spmd_stage.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/graph/gradient.h"
#include "core/program/device_memory.h"
#include "core/program/program.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/spmd/mesh.h"
#include "planner/spmd/ratio.h"
#include "sim/collective/price.h"

#include <string.h>

enum {
    MESH_FROM = 4 /* fewest devices of a mesh of two axes */
};

struct replicated { /* a training graph, unfused */
    const struct job *job;
    int64_t microbatch;
    const struct graph *g;
    struct replicated *next;
};
struct spmd_stage {
    struct arena *arena;
    struct hash_map known; /* of struct spmd_stage_answer, by spmd_stage_key */
    struct replicated *wholes;
};

struct spmd_stage *spmd_stage_new(void)
{
    struct arena *a = arena_new();
    struct spmd_stage *j = ARENA_ARRAY(a, struct spmd_stage, 1);
    j->arena = j->known.arena = a;
    return j;
}

void spmd_stage_free(struct spmd_stage *j)
{
    if (j) arena_free(j->arena);
}

bool spmd_stage_in_plan(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].sharding) return true;
    return false;
}

enum bound_stages spmd_stage_extent(const struct plan *p)
{
    enum bound_stages widest = BOUND_STAGES_WHOLE;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            if (!x->sharding) continue;
            if (widest < BOUND_STAGES_ON_NODE) widest = BOUND_STAGES_ON_NODE;
            for (int32_t k = 1; k < x->n_shards; k++)
                if (p->cluster.devices[x->devices[k]].node !=
                    p->cluster.devices[x->devices[0]].node)
                    widest = BOUND_STAGES_ANY;
        }
    return widest;
}

/* --- keys of answers --- */

/* The first of the team's devices on the node of its device k. */
static int32_t first_of_node(const struct spmd_stage_team *t, int32_t k)
{
    const struct device *device = t->s->cluster->devices;
    int32_t first = 0;
    while (device[t->device[first]].node != device[t->device[k]].node) first++;
    return first;
}

/* Whether its messages within the node use a link shared by all devices of the node. */
static bool on_bus(const struct spmd_stage_team *t, int32_t k)
{
    const struct cluster *c = t->s->cluster;
    int32_t direction;
    for (int32_t m = 0; m < t->n; m++) {
        if (m == k || c->devices[t->device[m]].node != c->devices[t->device[k]].node) continue;
        int32_t link = cluster_link(c, t->device[k], t->device[m], &direction);
        if (link >= 0 && c->links[link].n_ends == 1) return true;
    }
    return false;
}

uint64_t spmd_stage_key(const struct spmd_stage_team *t, bool thorough)
{
    const struct cluster *c = t->s->cluster;
    int64_t head[11] = {t->s->microbatch,
                        t->first_layer,
                        t->last_layer,
                        t->microbatches,
                        t->in_flight,
                        t->n,
                        thorough,
                        t->memory != NULL,
                        t->rough,
                        t->excluded,
                        t->shard_parameters + 2 * t->complete_cuts};
    uint64_t key = hash_map_key(1, head, sizeof head);
    if (t->memory) key = hash_map_key(key, t->memory, (size_t)t->n * sizeof *t->memory);
    for (int32_t k = 0; k < t->n; k++) {
        const struct device_type *type = &c->types[c->devices[t->device[k]].type];
        key = hash_map_key(key, type->name, strlen(type->name) + 1);
        int32_t first = first_of_node(
            t, k); /* co-location on nodes: devices of a node share its outgoing links */
        bool bus = on_bus(t, k);
        key = hash_map_key(key, &first, sizeof first),
        key = hash_map_key(key, &bus, sizeof bus);
        for (int32_t m = 0; m < t->n; m++) {
            const struct cost_link *l = space_link(t->s, t->device[k], t->device[m]);
            if (!l || k == m) continue;
            key = hash_map_key(key, &l->bandwidth_Bps, sizeof l->bandwidth_Bps);
            key = hash_map_key(key, &l->latency_ns, sizeof l->latency_ns);
        }
    }
    return key;
}

static enum status training_graph(struct spmd_stage *j, const struct spmd_stage_team *t,
                                  const struct graph **out, struct error *err)
{
    for (struct replicated *w = j->wholes; w; w = w->next)
        if (w->job == t->s->job && w->microbatch == t->s->microbatch) return *out = w->g, OK;
    struct graph *g;
    TRY(lower_graph(j->arena, t->s->job, t->s->microbatch, &g, err));
    TRY(gradient_build(g, (double)t->s->microbatch / (double)t->s->job->global_batch, err));
    struct replicated w = {t->s->job, t->s->microbatch, g, j->wholes};
    j->wholes = arena_copy(j->arena, &w, sizeof w);
    *out = g;
    return OK;
}

/* --- question --- */

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    const struct spmd_stage_team *t = of;
    return *space_link(t->s, t->device[from], t->device[to]);
}

static int64_t measured(const void *of, enum collective_kind kind,
                        enum collective_algorithm algorithm, const int32_t *member, int32_t n,
                        int64_t bytes)
{
    const struct spmd_stage_team *t = of;
    int32_t device[256];
    if (n > 256) return -1;
    for (int32_t i = 0; i < n; i++) device[i] = t->device[member[i]];
    return collective_price_devices_ns(t->s->cost, kind, algorithm, device, n, bytes, NULL);
}

/* Lowers a plan of this stage alone, which has all layers. */
static bool lay(const void *of, const struct sharding *sharding, int64_t *bytes)
{
    static const int32_t one = 1;
    const struct spmd_stage_team *t = of;
    struct lower_options o = {.n_fused = t->s->lower->n_fused, .fused = t->s->lower->fused, .timed_only = true};
    struct arena *a = arena_new();
    struct program program;
    struct plan p;
    struct error why;
    plan_skeleton(a, t->s, "stage", 1, &one, &p);
    p.replicas[0].microbatches = t->microbatches;
    spmd_stage_put(a, t, &(struct spmd_stage_answer){.sharding = sharding}, p.replicas[0].stages);
    bool lowered = lower_plan_graphs(a, &p, &t->s->graphs, &o, &program, &why) == OK;
    for (int32_t k = 0; k < t->n && lowered; k++)
        bytes[k] = program_lane_bytes(&program, program.stages[k].device);
    arena_free(a);
    return lowered;
}

/* Reason why these devices cannot have a sharded stage; NULL: they can. */
static const char *refusal(struct spmd_stage *j, const struct spmd_stage_team *t)
{
    const struct cluster *c = t->s->cluster;
    if (t->s->job->model.measured) return "measured layers have no operators to shard";
    if (t->n < 2) return "a device alone cannot shard operators";
    for (int32_t k = 0; k < t->n; k++) {
        const struct device *d = &c->devices[t->device[k]];
        for (int32_t m = 0; m < t->n; m++)
            if (m != k && !space_linked(t->s, t->device[k], t->device[m]))
                return arena_printf(j->arena, "no route from %s to %s", d->name,
                                    c->devices[t->device[m]].name);
    }
    return NULL;
}

int64_t spmd_stage_reserve(const struct device_type *t, int32_t communicators, bool emulated)
{
    int64_t bytes = device_type_reserve(t), shared = 0;
    if (t->context_bytes > 0)
        shared = t->context_bytes + (emulated ? 0 : communicators * t->communicator_bytes) +
                 DEVICE_WORKSPACE;
    return bytes > shared ? bytes : shared;
}

int32_t spmd_stage_beside(int32_t n, int32_t m) { return m ? 1 + m / n : 0; }

static enum status question(struct spmd_stage *j, struct arena *a, const struct spmd_stage_team *t,
                            struct spmd_question *q, struct error *err)
{
    const struct cluster *c = t->s->cluster;
    int32_t *type = ARENA_ARRAY(a, int32_t, (size_t)t->n),
            *node = ARENA_ARRAY(a, int32_t, (size_t)t->n);
    int64_t *reserve = ARENA_ARRAY(a, int64_t, (size_t)t->n);
    bool *bus = ARENA_ARRAY(a, bool, (size_t)t->n);
    double *ratios = ARENA_ARRAY(a, double, (size_t)t->n);
    for (int32_t k = 0; k < t->n; k++) {
        const struct stage_cost *x = space_stage(t->s, t->device[k], t->first_layer, t->last_layer);
        type[k] = c->devices[t->device[k]].type, node[k] = c->devices[t->device[k]].node;
        reserve[k] = spmd_stage_reserve(&c->types[type[k]], 1, c->emulated);
        bus[k] = on_bus(t, k);
        ratios[k] = 1e9 / (double)(x->forward_ns + x->input_ns + x->weight_ns + 1);
    }
    struct sharding s = {
        .n_devices = t->n, .n_axes = 1, .mesh = {t->n, 1}, .n_ratios = 1, .ratios = ratios};
    *q = (struct spmd_question){.first_layer = t->first_layer,
                                .last_layer = t->last_layer,
                                .s = arena_copy(a, &s, sizeof s),
                                .cost = t->s->cost,
                                .type = type,
                                .memory_bytes = t->memory,
                                .reserve_bytes = reserve,
                                .hop = hop,
                                .measured = cost_prices_collectives(t->s->cost) ? measured : NULL,
                                .lay = lay,
                                .of = t,
                                .node = node,
                                .bus = bus,
                                .microbatches = t->microbatches,
                                .in_flight = t->in_flight,
                                .optimizer = &t->s->job->optimizer,
                                /* not those of few, dependent rounds: a GPU launches each round by itself, and NCCL's ring is one launch with
                                   protocols of low latency */
                                .algorithms = ~(COLLECTIVE_ALGORITHM_BIT(HALVING_DOUBLING) | COLLECTIVE_ALGORITHM_BIT(DOUBLE_TREE)),
                                .gather = t->memory != NULL || t->shard_parameters,
                                .sufficient_factors = true,
                                .excluded = t->excluded,
                                .complete_cuts = t->complete_cuts,
                                .shard_parameters = t->shard_parameters};
    return training_graph(j, t, &q->g, err);
}

/* --- answer --- */

/* Whether proportional and even ratios are equal, so that one search suffices. */
static bool all_equal(const double *ratios, int32_t n)
{
    for (int32_t k = 1; k < n; k++)
        if (ratios[k] < ratios[0] || ratios[k] > ratios[0]) return false;
    return true;
}

struct asking {
    struct spmd_stage *j;
    struct arena *a; /* scratch */
    struct spmd_question q;
    struct spmd_stage_answer *out;
    bool rough; /* one search */
    int64_t work;
};

static void take(struct asking *k, const struct spmd_answer *x, const struct sharding *s)
{
    k->out->ns = x->ns;
    k->out->sharding = s;
}

/* One search each, of proportional and of even ratios. */
static enum status query_twice(struct asking *k, struct error *err)
{
    struct spmd_question *q = &k->q;
    struct sharding even = *q->s, fast = *q->s;
    double *ones = ARENA_ARRAY(k->a, double, (size_t)q->s->n_devices);
    for (int32_t d = 0; d < q->s->n_devices; d++) ones[d] = 1;
    even.ratios = ones;
    const struct sharding *turn[2] = {&fast, &even};
    int first =
        all_equal(fast.ratios, fast.n_devices); /* then even ones, which have a shorter text */
    for (int i = first; i < (k->rough && !first ? 1 : 2); i++) {
        struct spmd_answer x;
        q->s = turn[i];
        TRY(spmd_best(k->a, q, &x, err));
        k->work += x.work_ns;
        if (x.ns < k->out->ns) take(k, &x, spmd_sharding(k->a, q, &x));
    }
    return OK;
}

/* Applies the best ratios of one axis to meshes of two. */
static enum status query_meshes(struct asking *k, const double *ratios, struct error *err)
{
    struct spmd_question q = k->q;
    struct sharding s = *q.s;
    struct spmd_mesh_best best;
    s.n_ratios = 1;
    if (ratios) s.ratios = ratios;
    q.s = &s;
    TRY(spmd_best_mesh(k->a, &q, &best, err));
    k->work += best.work_ns;
    if (best.answer.ns < k->out->ns) take(k, &best.answer, best.sharding);
    return OK;
}

static enum status query(struct asking *k, const struct spmd_stage_team *t, bool thorough,
                         struct error *err)
{
    TRY(question(k->j, k->a, t, &k->q, err));
    if (!thorough) return query_twice(k, err);
    struct ratio_best best;
    TRY(ratio_alternate(k->a, &k->q, &best, err));
    k->work += best.work_ns;
    if (best.answer.ns < INT64_MAX) take(k, &best.answer, best.sharding);
    if (t->n < MESH_FROM) return OK;
    return query_meshes(k, best.answer.ns < INT64_MAX ? best.sharding->ratios : NULL, err);
}

enum status spmd_stage_solve(struct spmd_stage *j, struct scorer *w,
                             const struct spmd_stage_team *t, bool thorough,
                             struct spmd_stage_answer *out, struct error *err)
{
    uint64_t key = spmd_stage_key(t, thorough);
    const struct spmd_stage_answer *known = hash_map_at(&j->known, key)->pointer;
    if (known) return *out = *known, OK;
    *out = (struct spmd_stage_answer){.ns = INT64_MAX, .why = refusal(j, t)};
    if (!out->why) {
        struct arena *scratch = arena_new();
        struct error why = {0};
        struct asking k = {.j = j, .a = scratch, .out = out, .rough = t->rough};
        enum status st = query(&k, t, thorough, &why);
        if (w) scorer_charge(w, k.work);
        if (st != OK) *out = (struct spmd_stage_answer){.ns = INT64_MAX};
        if (out->sharding) out->sharding = sharding_copy(j->arena, out->sharding);
        if (out->ns == INT64_MAX)
            out->why = *why.text   ? arena_strdup(j->arena, why.text)
                       : t->memory ? "no sharding of the operators fits these devices' memory"
                                   : "no sharding of the operators was found";
        arena_free(scratch);
        if (st != OK && st != ERR_INPUT && st != ERR_INFEASIBLE)
            return error_set(err, st, "%s", out->why);
    }
    hash_map_at(&j->known, key)->pointer = arena_copy(j->arena, out, sizeof *out);
    return OK;
}

const int64_t *spmd_stage_memory(struct arena *a, const struct spmd_stage_team *t)
{
    int64_t *out = ARENA_ARRAY(a, int64_t, (size_t)t->n);
    const struct cluster *c = t->s->cluster;
    for (int32_t k = 0; k < t->n; k++)
        out[k] = c->types[c->devices[t->device[k]].type].memory_bytes;
    return out;
}

void spmd_stage_put(struct arena *a, const struct spmd_stage_team *t,
                    const struct spmd_stage_answer *x, struct plan_stage *out)
{
    bool same = out->first_layer == t->first_layer && out->last_layer == t->last_layer;
    *out = (struct plan_stage){.first_layer = t->first_layer,
                               .last_layer = t->last_layer,
                               .device = t->device[0],
                               .n_shards = t->n,
                               .warmup = same ? out->warmup : 0,
                               .receive_ahead = 2};
    out->devices = arena_copy(a, t->device, (size_t)t->n * sizeof *t->device);
    out->sharding = x->sharding;
}
