#include "planner/baseline.h"

#include "core/arena.h"

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

static enum status make_even_pipeline(struct arena *a, const struct space *s, struct plan *out,
                                      struct error *err)
{
    int32_t n = s->n_devices;
    if (s->n_layers < n)
        return error_set(err, ERR_INFEASIBLE, "even-pipeline: %d layers on %d devices",
                         (int)s->n_layers, (int)n);
    plan_skeleton(a, s, "even-pipeline", 1, &n, out);
    out->replicas[0].microbatches = s->microbatches;
    for (int32_t i = 0, first = 0; i < n; i++) {
        struct plan_stage *stage = &out->replicas[0].stages[i];
        int32_t layers = s->n_layers / n + (i < s->n_layers % n);
        stage->device = i;
        stage->first_layer = first;
        stage->last_layer = first + layers - 1;
        first += layers;
    }
    return OK;
}

static enum status make_data_parallel(struct arena *a, const struct space *s, struct plan *out,
                                      struct error *err)
{
    int32_t n = s->n_devices, *ones = ARENA_ARRAY(a, int32_t, (size_t)n);
    if (s->microbatches < n)
        return error_set(err, ERR_INFEASIBLE, "data-parallel: %d microbatches on %d devices",
                         (int)s->microbatches, (int)n);
    for (int32_t i = 0; i < n; i++) ones[i] = 1;
    plan_skeleton(a, s, "data-parallel", n, ones, out);
    for (int32_t i = 0; i < n; i++) {
        out->replicas[i].microbatches = s->microbatches / n + (i < s->microbatches % n);
        out->replicas[i].stages[0].device = i;
        out->replicas[i].stages[0].last_layer = s->n_layers - 1;
    }
    return OK;
}

static const struct {
    const char *name;
    baseline_make *make;
} table[] = {
#define X(id, name, help) {name, make_##id},
    BASELINES(X)
#undef X
};

int32_t baseline_count(void) { return (int32_t)(sizeof table / sizeof *table); }
const char *baseline_name(int32_t i) { return table[i].name; }
baseline_make *baseline_maker(int32_t i) { return table[i].make; }
