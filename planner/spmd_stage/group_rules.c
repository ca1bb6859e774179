#include "planner/spmd_stage/group_rules.h"

enum status group_rules_solve(struct spmd_stage *memo, struct scorer *w, const struct space *s,
                              const int32_t *device, int32_t n, enum group_rules kind,
                              struct arena *keep, const struct sharding **out, struct error *err)
{
    if (s->job->model.measured) {
        *out = sharding_of_index(keep, INDEX_tensor, NULL, n);
        return OK;
    }
    struct spmd_stage_team t = {.s = s,
                                .first_layer = 0,
                                .last_layer = s->n_layers - 1,
                                .n = n,
                                .device = device,
                                .microbatches = s->microbatches,
                                .in_flight = 1,
                                .excluded = kind == GROUP_RULES_ANY ? 0 : 1U << INDEX_batch,
                                .complete_cuts = true,
                                .shard_parameters = kind == GROUP_RULES_PARAMETERS,
                                .rough = true};
    struct spmd_stage_answer answer;
    TRY(spmd_stage_solve(memo, w, &t, false, &answer, err));
    *out = answer.ns < INT64_MAX ? sharding_copy(keep, answer.sharding) : NULL;
    return OK;
}
