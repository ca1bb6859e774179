/* planner/coarse/place.c - the GPUs of every stage of a candidate. */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/schedule/refine.h"

#include <string.h>

struct giving {
    struct coarse *q;
    const struct plan *plan;
    int32_t next[COARSE_CLASSES];
};

/* The next n GPUs of a class that are on one node; NULL: none. */
static const int32_t *give(struct giving *g, int32_t class, int32_t n)
{
    const struct coarse_class *k = &g->q->classes[class];
    const struct device *d = g->q->task->cluster->devices;
    int32_t *at = &g->next[class];
    while (*at + n <= k->n && d[k->device[*at]].node != d[k->device[*at + n - 1]].node) ++*at;
    if (*at + n > k->n) return NULL;
    *at += n;
    return &k->device[*at - n];
}

static bool put_stage(struct giving *g, const struct coarse_template *t, int32_t i, struct arena *a,
                      struct plan_stage *out)
{
    const struct coarse_stage *x = &t->stages[i];
    const struct coarse_degree *d = &g->q->classes[x->of].degree[x->degree];
    const int32_t *device = give(g, x->of, d->n);
    if (!device) return false;
    out->first_layer = x->first, out->last_layer = x->last;
    out->device = device[0];
    out->recompute = x->recompute, out->recompute_blocks = x->recompute_blocks;
    out->bucket_bytes = x->bucket_bytes;
    if (d->n > 1) {
        out->n_shards = d->n, out->sharding = d->sharding;
        out->devices = arena_copy(a, device, (size_t)d->n * sizeof *device);
    }
    if (plan_stage_replicated(g->plan, out)) out->zero = t->zero;
    return true;
}

void coarse_set_schedule(const struct coarse_template *t, struct plan_replica *r)
{
    if (t->schedule == COARSE_EAGER)
        refine_eager(r);
    else if (t->n_stages > 1)
        (void)refine_schedule(r, t->schedule);
}

bool coarse_place(struct coarse *q, const struct coarse_candidate *c, struct arena *a,
                  struct plan *out)
{
    struct giving g = {.q = q, .plan = out};
    int32_t n = 0, r = 0;
    for (int32_t i = 0; i < c->n_teams; i++) n += c->team[i]->replicas;
    int32_t *n_stages = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < c->n_teams; i++)
        for (int32_t k = 0; k < c->team[i]->replicas; k++) n_stages[r++] = c->team[i]->n_stages;
    plan_skeleton(a, &q->spaces[c->size], "found", n, n_stages, out);
    out->cluster = *q->task->cluster;
    r = 0;
    for (int32_t i = 0; i < c->n_teams; i++) {
        const struct coarse_template *t = c->team[i];
        for (int32_t k = 0; k < t->replicas; k++)
            out->replicas[r + k].microbatches =
                c->share[i] / t->replicas + (k < c->share[i] % t->replicas);
        for (int32_t x = 0; x < t->replicas * t->n_stages; x++) {
            int32_t k = t->by_stage ? x % t->replicas : x / t->n_stages,
                    s = t->by_stage ? x / t->replicas : x % t->n_stages;
            if (!put_stage(&g, t, s, a, &out->replicas[r + k].stages[s])) return false;
        }
        r += t->replicas;
    }
    return true;
}
