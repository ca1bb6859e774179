/* planner/candidate/scorer_copy.c - copies of plans that outlive a candidate. */
#include "core/base/arena.h"
#include "planner/candidate/scorer.h"

#include <string.h>

/* Stages share few shardings, so each is copied once; of more than these, the latest. */
enum { COPIED_MAX = 64 };
struct copied {
    int32_t n;
    const struct sharding *from[COPIED_MAX], *to[COPIED_MAX];
};

static const struct sharding *copy_sharding(struct arena *a, struct copied *known,
                                            const struct sharding *s)
{
    int32_t n = known->n < COPIED_MAX ? known->n : COPIED_MAX;
    for (int32_t i = 0; i < n; i++)
        if (known->from[i] == s) return known->to[i];
    int32_t at = known->n++ % COPIED_MAX;
    known->from[at] = s;
    return known->to[at] = sharding_copy(a, s);
}

static void copy_devices(struct arena *a, struct copied *known, struct plan_stage *s)
{
    size_t n = (size_t)s->n_shards;
    if (!n) return;
    s->devices = arena_copy(a, s->devices, n * sizeof *s->devices);
    if (s->sequences) s->sequences = arena_copy(a, s->sequences, n * sizeof *s->sequences);
    if (s->sharding) s->sharding = copy_sharding(a, known, s->sharding);
}

struct plan scorer_copy_plan(struct arena *a, const struct plan *p)
{
    struct plan copy = *p;
    struct copied known = {0};
    copy.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        size_t n = (size_t)p->replicas[r].n_stages;
        copy.replicas[r] = p->replicas[r];
        copy.replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, n);
        memcpy(copy.replicas[r].stages, p->replicas[r].stages, n * sizeof *copy.replicas[r].stages);
        for (size_t i = 0; i < n; i++) {
            struct plan_stage *x = &copy.replicas[r].stages[i];
            copy_devices(a, &known, x);
            if (x->order) x->order = arena_strdup(a, x->order);
        }
    }
    return copy;
}
