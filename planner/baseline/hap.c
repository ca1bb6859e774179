#include "planner/baseline/hap.h"

#include "core/base/arena.h"

#include <stdio.h>

static enum status all_devices(struct baseline_task *k, int32_t size, struct spmd_stage_team *out,
                               struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, size, &s, err));
    int32_t *device = ARENA_ARRAY(k->arena, int32_t, (size_t)s->n_devices);
    for (int32_t d = 0; d < s->n_devices; d++) device[d] = d;
    *out = (struct spmd_stage_team){.s = s,
                                    .last_layer = s->n_layers - 1,
                                    .n = s->n_devices,
                                    .device = device,
                                    .microbatches = s->microbatches,
                                    .in_flight = 1};
    out->memory = spmd_stage_memory(k->arena, out);
    return OK;
}

enum status hap_plan_make(struct baseline_task *k, int32_t size, bool thorough,
                          struct hap_plan *out, struct error *err)
{
    *out = (struct hap_plan){.size = size};
    struct spmd_stage_answer *x = &out->answer;
    TRY(all_devices(k, size, &out->team, err));
    TRY(spmd_stage_solve(k->t->spmd_stage, k->t->scorer, &out->team, thorough, x, err));
    out->ns = x->ns;
    if (x->why) snprintf(k->why, sizeof k->why, "%s", x->why);
    return OK;
}

enum status hap_plan_fit(struct baseline_task *k, struct hap_plan *x, struct arena *a, struct plan *out, int64_t *ns, struct error *err)
{
    static const int32_t one = 1;
    const struct spmd_stage_team *all = &x->team;
    plan_skeleton(a, all->s, "hap", 1, &one, out);
    out->replicas[0].microbatches = all->microbatches;
    spmd_stage_put(a, all, &x->answer, out->replicas[0].stages);
    return search_context_score(k->t, all->s, out, ns, err);
}

enum status hap_plan_least_ns(struct baseline_task *k, int32_t size, int64_t *ns, struct error *err)
{
    struct spmd_stage_team team;
    struct spmd_stage_answer x;
    TRY(all_devices(k, size, &team, err));
    team.memory = NULL, team.rough = true;
    TRY(spmd_stage_solve(k->t->spmd_stage, k->t->scorer, &team, false, &x, err));
    *ns = x.ns;
    return OK;
}
