#include "tools/strategy/unflushed_plans.h"

#include "core/base/arena.h"

#include <string.h>

static const char *refused(const struct plan *p)
{
    bool pipeline = false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        pipeline |= x->n_stages > 1;
        for (int32_t s = 0; s < x->n_stages; s++) {
            if (x->stages[s].n_shards) return "a stage is on several devices; without a flush each is on one";
            for (int32_t k = 0; k < s; k++)
                if (x->stages[k].device == x->stages[s].device) return "a device has several stages; without a flush each has one";
        }
    }
    return pipeline ? NULL : "no replica is a pipeline, so there is no flush to save";
}

static struct plan_replica unflushed(struct arena *a, const struct plan_replica *of, bool eager)
{
    struct plan_replica r = {.microbatches = of->microbatches, .n_stages = of->n_stages};
    r.stages = arena_copy(a, of->stages, (size_t)of->n_stages * sizeof *of->stages);
    for (int32_t s = 0; s < r.n_stages; s++) {
        struct plan_stage *x = &r.stages[s];
        int32_t warmup = 2 * (r.n_stages - s) - 1;
        x->order = NULL, x->zero = 0, x->hybrid_shard = false;
        x->warmup = !eager ? 0 : warmup < r.microbatches ? warmup : r.microbatches;
    }
    return r;
}

int32_t unflushed_plans(struct arena *a, const struct plan *sync, struct plan out[UNFLUSHED_PLANS], const char **why)
{
    *why = refused(sync);
    for (int eager = 0; eager < UNFLUSHED_PLANS && !*why; eager++) {
        out[eager] = *sync, out[eager].weight_versions = 2;
        out[eager].replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)sync->n_replicas);
        for (int32_t r = 0; r < sync->n_replicas; r++) out[eager].replicas[r] = unflushed(a, &sync->replicas[r], eager);
    }
    return *why ? 0 : UNFLUSHED_PLANS;
}
