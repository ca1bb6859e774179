#include "planner/candidate/plan_skeleton.h"

#include "core/base/arena.h"

void plan_skeleton(struct arena *a, const struct space *s, const char *name, int32_t n_replicas,
                   const int32_t *n_stages, struct plan *out)
{
    *out = (struct plan){.name = name,
                         .seed = s->job->seed,
                         .microbatch = s->microbatch,
                         .steps = 1,
                         .n_replicas = n_replicas,
                         .job = *s->job,
                         .cluster = *s->cluster};
    out->replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)n_replicas);
    for (int32_t r = 0; r < n_replicas; r++) {
        out->replicas[r].n_stages = n_stages[r];
        out->replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, (size_t)n_stages[r]);
        for (int32_t i = 0; i < n_stages[r]; i++) out->replicas[r].stages[i].receive_ahead = 2;
    }
}
