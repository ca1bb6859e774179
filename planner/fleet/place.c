#include "planner/fleet/place.h"

#include "core/base/arena.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/candidate/scorer.h"


static int32_t least32(int32_t a, int32_t b) { return a < b ? a : b; }

/* --- assignment of GPUs --- */

struct node_gpus { /* GPUs of one pool on one node, free from `next` on */
    int32_t next, end;
};
struct pool_gpus {
    int32_t n;
    struct node_gpus *nodes;
    int32_t *from; /* (degree + 1) first node with at least that many free GPUs */
};
struct giving {
    struct arena *arena;
    const struct template_maker *m;
    struct pool_gpus *pools;
};

static void find_gpus(struct giving *q)
{
    const struct device_graph *g = q->m->g;
    q->pools = ARENA_ARRAY(q->arena, struct pool_gpus, (size_t)g->n_classes);
    for (int32_t p = 0; p < g->n_classes; p++) {
        const struct device_class *k = &g->classes[p];
        struct pool_gpus *x = &q->pools[p];
        x->nodes = ARENA_ARRAY(q->arena, struct node_gpus, (size_t)k->n);
        x->from = ARENA_ARRAY(q->arena, int32_t, (size_t)k->per_node + 1);
        for (int32_t i = 0; i < k->n; i++) {
            bool same = i && g->cluster->devices[k->devices[i]].node ==
                                 g->cluster->devices[k->devices[i - 1]].node;
            if (!same) x->nodes[x->n++].next = i;
            x->nodes[x->n - 1].end = i + 1;
        }
    }
}

static int32_t *give(struct giving *q, int32_t device_class)
{
    const struct template_class *k = &q->m->classes[device_class];
    struct pool_gpus *p = &q->pools[k->pool];
    int32_t *at = &p->from[k->tp];
    while (*at < p->n && p->nodes[*at].end - p->nodes[*at].next < k->tp) ++*at;
    if (*at == p->n) return NULL;
    int32_t *gpus = &q->m->g->classes[k->pool].devices[p->nodes[*at].next];
    p->nodes[*at].next += k->tp;
    return gpus;
}

/* Replicas of a template placed stage by stage together. */
static int32_t block_of(const struct template_maker *m, const struct template *t,
                        enum placement_order how)
{
    int32_t block = how == PLACEMENT_STAGES ? INT32_MAX : 1;
    for (int32_t i = 0; i < t->n_stages && how == PLACEMENT_STAGES; i++)
        block = least32(block, m->classes[t->stages[i].device_class].per_node);
    return block;
}

static void fill_replica(const struct template *t, int32_t microbatches, struct plan_replica *r)
{
    bool usual = true;
    r->microbatches = microbatches;
    for (int32_t i = 0; i < t->n_stages; i++) {
        const struct template_stage *x = &t->stages[i];
        r->stages[i].first_layer = x->first, r->stages[i].last_layer = x->last;
        r->stages[i].recompute = x->recompute ? RECOMPUTE_STAGE : RECOMPUTE_NONE;
        usual &= least32(x->warmup, microbatches) == least32(t->n_stages - i, microbatches);
    }
    for (int32_t i = 0; i < t->n_stages && !usual; i++)
        r->stages[i].warmup = least32(t->stages[i].warmup, microbatches);
}

static void make_skeleton(struct arena *a, const struct template_maker *m, const struct mix *x,
                          struct placed *out)
{
    int32_t n = 0, r = 0, at = 0;
    for (int32_t i = 0; i < x->n; i++) n += x->count[i];
    int32_t *n_stages = ARENA_ARRAY(a, int32_t, (size_t)n);
    *out = (struct placed){.maker = m};
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->count[i]; c++)
            out->n_stages += n_stages[r++] = x->templates[i].n_stages;
    plan_skeleton(a, m->s, "found", n, n_stages, &out->plan);
    out->device_class = ARENA_ARRAY(a, int32_t, (size_t)out->n_stages);
    out->gpus = ARENA_ARRAY(a, int32_t *, (size_t)out->n_stages);
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->count[i]; c++)
            for (int32_t s = 0; s < x->templates[i].n_stages; s++)
                out->device_class[at++] = x->templates[i].stages[s].device_class;
}

bool place_mix(struct arena *a, const struct template_maker *m, const struct mix *x,
               enum placement_order how, struct placed *out)
{
    struct giving q = {.arena = a, .m = m};
    int32_t r = 0, at = 0;
    find_gpus(&q);
    make_skeleton(a, m, x, out);
    for (int32_t i = 0; i < x->n; i++) {
        const struct template *t = &x->templates[i];
        int32_t block = block_of(m, t, how);
        for (int32_t c = 0; c < x->count[i]; c++)
            fill_replica(t, x->least[i] + (c < x->more[i]), &out->plan.replicas[r + c]);
        for (int32_t c = 0; c < x->count[i]; c += block)
            for (int32_t s = 0; s < t->n_stages; s++)
                for (int32_t k = c; k < x->count[i] && k - c < block; k++) {
                    int32_t *gpus = give(&q, t->stages[s].device_class);
                    if (!gpus) return false;
                    out->plan.replicas[r + k].stages[s].device = gpus[0];
                    out->gpus[at + k * t->n_stages + s] = gpus;
                }
        r += x->count[i];
        at += x->count[i] * t->n_stages;
    }
    return true;
}

/* --- the plan --- */

void place_plan(struct arena *a, const struct tp_options *o, const struct placed *x,
                struct plan *out, struct space *space)
{
    int32_t at = 0;
    *out = scorer_copy_plan(a, &x->plan);
    *space = *x->maker->s;
    for (int32_t r = 0; r < out->n_replicas; r++)
        for (int32_t s = 0; s < out->replicas[r].n_stages; s++, at++) {
            const struct template_class *k = &x->maker->classes[x->device_class[at]];
            struct plan_stage *stage = &out->replicas[r].stages[s];
            if (k->tp < 2) continue;
            stage->n_shards = k->tp, stage->sharding = o->sharding[k->type];
            stage->devices = arena_copy(a, x->gpus[at], (size_t)k->tp * sizeof *stage->devices);
        }
    space->cluster = x->maker->g->cluster;
    out->cluster = *space->cluster;
}
