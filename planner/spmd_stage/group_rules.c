#include "planner/spmd_stage/group_rules.h"

#include "core/base/arena.h"

/* A mesh of two axes: the positions over the first one, the rules of half of the GPUs over the second; NULL: those have a mesh already. */
static const struct sharding *with_positions(struct arena *keep, const struct sharding *half)
{
    int32_t n = 2 * half->n_devices;
    size_t rules = (size_t)half->n_operators;
    if (half->n_axes != 1 || half->n_parameters) return NULL;
    struct sharding *out = ARENA_ARRAY(keep, struct sharding, 1);
    double *ratios = ARENA_ARRAY(keep, double, (size_t)n);
    for (int32_t d = 0; d < n; d++) ratios[d] = 1;
    *out = (struct sharding){.n_devices = n,
                             .n_axes = 2,
                             .mesh = {2, half->n_devices},
                             .n_ratios = 1,
                             .ratios = ratios,
                             .n_operators = half->n_operators};
    struct sharding_rule *own = arena_copy(keep, half->operators, rules * sizeof *own);
    out->operators = own;
    for (size_t r = 0; r < rules; r++) {
        struct op_choice *x = &own[r].choice;
        x->index[1] = x->index[0], x->index[0] = INDEX_positions;
        x->ratio[0] = x->ratio[1] = 0;
    }
    return out;
}

enum status group_rules_solve(struct spmd_stage *memo, struct scorer *w, const struct space *s,
                              const int32_t *device, int32_t n, enum group_rules kind,
                              struct arena *keep, const struct sharding **out, struct error *err)
{
    if (s->job->model.measured) {
        *out = sharding_of_index(keep, INDEX_tensor, NULL, n);
        return OK;
    }
    if (kind == GROUP_RULES_MESH) {
        const struct sharding *half = NULL;
        *out = NULL;
        if (n < 4 || n % 2) return OK;
        TRY(group_rules_solve(memo, w, s, device, n / 2, GROUP_RULES_PARAMETERS, keep, &half, err));
        if (half) *out = with_positions(keep, half);
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
