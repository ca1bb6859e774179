/* planner/spmd_stage/fit.c - repair of sharded stages that exceed memory: solved again with a lower limit. */
#include "core/base/arena.h"
#include "core/program/program.h"
#include "planner/spmd_stage/spmd_stage.h"

enum { TURNS_MAX = 3 };

/* New memory limits of a spot's devices: the old ones minus the missing bytes. false: no memory remains, or none is missing. */
static bool less_memory(struct arena *a, const struct program *program, int32_t first,
                        struct spmd_stage_spot *x)
{
    const int64_t *had = x->team.memory ? x->team.memory : spmd_stage_memory(a, &x->team);
    int64_t *memory = ARENA_ARRAY(a, int64_t, (size_t)x->team.n);
    bool short_of = false;
    for (int32_t k = 0; k < x->team.n; k++) {
        int32_t device = program->stages[first + k].device;
        int64_t lacks = program_lane_bytes(program, device) - program->devices[device].memory_bytes;
        short_of |= lacks > 0;
        memory[k] = had[k] - (lacks > 0 ? lacks : 0);
        if (memory[k] <= 0) return false;
    }
    if (short_of) x->team.memory = memory;
    return short_of;
}

/* Solves again the spots that exceed memory; false: none does, or no answer exists. */
static enum status query_again(struct search_context *t, struct arena *a,
                               const struct program *program,
                               struct spmd_stage_spot *diverse_starts, int32_t n, bool thorough,
                               struct plan *p, bool *changed, struct error *err)
{
    *changed = false;
    for (int32_t r = 0, at = 0, k = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *stage = &p->replicas[r].stages[i];
            int32_t first = at;
            at += plan_stage_devices(stage);
            if (k == n || diverse_starts[k].replica != r || diverse_starts[k].stage != i) continue;
            struct spmd_stage_spot *x = &diverse_starts[k++];
            if (!less_memory(a, program, first, x)) continue;
            TRY(spmd_stage_solve(t->spmd_stage, t->scorer, &x->team, thorough, &x->answer, err));
            if (x->answer.ns == INT64_MAX) return *changed = false, OK;
            spmd_stage_put(a, &x->team, &x->answer, stage);
            *changed = true;
        }
    return OK;
}

/* --- shardings rejected by lowering --- */

/* Whether the operator reads a parameter shared with another layer. */
static bool tied(const struct graph *g, int32_t op)
{
    for (int32_t k = 0; k < g->ops[op].n_inputs; k++) {
        int32_t t = g->ops[op].input[k];
        if (g->tensors[t].role != TENSOR_PARAMETER) continue;
        for (int32_t i = 0; i < g->n_forward; i++)
            for (int32_t j = 0; j < g->ops[i].n_inputs; j++)
                if (g->ops[i].input[j] == t && g->ops[i].layer != g->ops[op].layer) return true;
    }
    return false;
}

/* The same sharding, but readers of tied parameters are sharded by batch, so that the parameters are replicated. */
static struct sharding *replicated_ties(struct arena *a, const struct spmd_stage_spot *x)
{
    const struct graph *g = x->team.s->graph;
    struct sharding *s = arena_copy(a, x->answer.sharding, sizeof *s);
    struct sharding_rule *rules =
        ARENA_ARRAY(a, struct sharding_rule, (size_t)(g->n_forward + s->n_operators));
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_forward; i++) {
        if (g->ops[i].layer < x->team.first_layer || g->ops[i].layer > x->team.last_layer ||
            !tied(g, i))
            continue;
        rules[n].match = g->ops[i].name;
        rules[n++].choice.index[0] = INDEX_batch;
    }
    for (int32_t k = 0; k < s->n_operators; k++) rules[n++] = s->operators[k];
    s->operators = rules, s->n_operators = n;
    return s;
}

/* Shardings for stages that lowering rejected. Turn 0: tied parameters replicated; 1: everything sharded by batch. */
static void simpler(struct arena *a, struct spmd_stage_spot *diverse_starts, int32_t n, int turn,
                    struct plan *p)
{
    for (int32_t k = 0; k < n; k++) {
        struct spmd_stage_spot *x = &diverse_starts[k];
        struct plan_stage *stage = &p->replicas[x->replica].stages[x->stage];
        const struct sharding *s = x->answer.sharding;
        stage->sharding = turn ? sharding_of_index(a, INDEX_batch, s->ratios, s->n_devices)
                               : replicated_ties(a, x);
    }
}

enum status spmd_stage_fit(struct search_context *t, struct arena *a, const struct space *s,
                           struct spmd_stage_spot *diverse_starts, int32_t n, bool thorough,
                           struct plan *p, int64_t *ns, struct error *err)
{
    int refused = 0;
    for (int turn = 0;; turn++) {
        struct plan fitted = scorer_copy_plan(a, p);
        TRY(search_context_score(t, s, &fitted, ns, err));
        if (*ns < INT64_MAX) {
            *p = fitted;
            return OK;
        }
        enum status refusal;
        const struct program *program = scorer_last(t->scorer, &refusal);
        bool changed = false;
        if (turn == TURNS_MAX || search_context_stopped(t)) return OK;
        if (!program && refusal == ERR_INPUT) {
            if (refused == 2) return OK;
            simpler(a, diverse_starts, n, refused++, p);
            continue;
        }
        if (!program || refused) return OK;
        TRY(query_again(t, a, program, diverse_starts, n, thorough, p, &changed, err));
        if (!changed) return OK;
    }
}
