#include "planner/exact/candidate.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "planner/bound/pipeline_bound.h"
#include "planner/candidate/plan_skeleton.h"

#include <string.h>

bool candidate_of(const struct plan *p, const struct space *s, struct candidate *out)
{
    uint64_t taken = 0;
    *out = (struct candidate){.s = s, .n_replicas = p->n_replicas};
    if (p->n_replicas > SPACE_TABLES_MAX || p->microbatch != s->microbatch) return false;
    if (p->cluster.n_devices != s->n_devices) return false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        if (x->n_stages > SPACE_TABLES_MAX) return false;
        out->share[r] = x->microbatches;
        out->n_stages[r] = x->n_stages;
        for (int32_t i = 0; i < x->n_stages; i++) {
            int32_t d = x->stages[i].device;
            if (x->stages[i].n_shards || d >= s->n_devices || d >= 64 || taken >> d & 1)
                return false;
            taken |= UINT64_C(1) << d;
            out->device[r][i] = (int8_t)d;
            out->last[r][i] = (int16_t)x->stages[i].last_layer;
        }
    }
    return true;
}

static int32_t in_flight(const struct candidate *x, int32_t r, int32_t i)
{
    int32_t left = x->n_stages[r] - i;
    return left < x->share[r] ? left : x->share[r];
}

static void time_of(const struct candidate *x, int32_t r, int32_t i, struct space_stage_time *out)
{
    int32_t first = i ? x->last[r][i - 1] + 1 : 0;
    space_stage_time(x->s, x->device[r][i], first, x->last[r][i], in_flight(x, r, i), out);
}

int64_t candidate_reduce_ns(const struct space *s, int32_t n_replicas, int32_t device, int32_t last)
{
    double all = 0;
    for (int32_t e = 0; e < s->n_devices; e++)
        if (space_linked(s, device, e)) all += space_link(s, device, e)->bandwidth_Bps;
    if (n_replicas < 2 || all <= 0 || cost_prices_collectives(s->cost)) return 0;
    return bound_ring((double)space_stage(s, device, 0, last)->parameter_bytes, n_replicas, all, 0);
}

static int64_t replica_bound(const struct candidate *x, int32_t r)
{
    struct bound_stage stage[SPACE_TABLES_MAX];
    int64_t path;
    for (int32_t i = 0; i < x->n_stages[r]; i++) {
        struct space_stage_time t;
        time_of(x, r, i, &t);
        if (t.missing_bytes > 0) return INT64_MAX;
        stage[i] = (struct bound_stage){.forward_ns = t.forward_ns,
                                        .backward_ns = t.backward_ns,
                                        .update_ns = t.update_ns,
                                        .recompute_ns = t.recompute_ns,
                                        .return_ns = t.return_ns,
                                        .in_flight = in_flight(x, r, i)};
        if (i + 1 == x->n_stages[r]) break;
        int32_t from = x->device[r][i], to = x->device[r][i + 1];
        if (!space_linked(x->s, from, to) || !space_linked(x->s, to, from)) return INT64_MAX;
        stage[i].transfer_ns = space_least_transfer_ns(x->s, from, to, x->last[r][i]);
    }
    int64_t bound = bound_pipeline(stage, x->n_stages[r], x->share[r], &path);
    path += candidate_reduce_ns(x->s, x->n_replicas, x->device[r][0], x->last[r][0]);
    return path > bound ? path : bound;
}

int64_t candidate_bound(const struct candidate *x)
{
    int64_t most = 0;
    for (int32_t r = 0; r < x->n_replicas && most < INT64_MAX; r++) {
        int64_t bound = replica_bound(x, r);
        if (bound > most) most = bound;
    }
    return most;
}

int64_t candidate_work(const struct candidate *x)
{
    int64_t most = 0;
    for (int32_t r = 0; r < x->n_replicas; r++)
        for (int32_t i = 0; i < x->n_stages[r]; i++) {
            struct space_stage_time t;
            time_of(x, r, i, &t);
            int64_t work = x->share[r] * (t.forward_ns + t.backward_ns - t.recompute_ns);
            if (work + t.update_ns > most) most = work + t.update_ns;
        }
    return most;
}

void candidate_plan(const struct candidate *x, struct arena *a, struct plan *out)
{
    plan_skeleton(a, x->s, "found", x->n_replicas, x->n_stages, out);
    for (int32_t r = 0; r < x->n_replicas; r++) {
        out->replicas[r].microbatches = x->share[r];
        for (int32_t i = 0; i < x->n_stages[r]; i++) {
            struct plan_stage *stage = &out->replicas[r].stages[i];
            struct space_stage_time t;
            time_of(x, r, i, &t);
            stage->device = x->device[r][i];
            stage->first_layer = i ? x->last[r][i - 1] + 1 : 0;
            stage->last_layer = x->last[r][i];
            stage->recompute = t.recompute;
        }
    }
}

/* --- simulated candidates --- */

static uint64_t key_of(const struct candidate *x)
{
    uint64_t key = hash_map_key((uint64_t)x->s->microbatch, &x->n_replicas, sizeof x->n_replicas);
    for (int32_t r = 0; r < x->n_replicas; r++) {
        size_t n = (size_t)x->n_stages[r];
        int32_t head[2] = {x->n_stages[r], x->share[r]};
        key = hash_map_key(key, head, sizeof head);
        key = hash_map_key(key, x->device[r], n * sizeof x->device[r][0]);
        key = hash_map_key(key, x->last[r], n * sizeof x->last[r][0]);
    }
    return key;
}

/* Removes recomputation and all other repairs. false: no stage recomputes. */
static bool unset_recompute(struct plan *p)
{
    bool any = false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            any |= x->recompute != RECOMPUTE_NONE;
            *x = (struct plan_stage){.device = x->device,
                                     .first_layer = x->first_layer,
                                     .last_layer = x->last_layer,
                                     .receive_ahead = 2};
        }
    return any;
}

enum status candidate_score(const struct candidate *x, struct hash_map *memo,
                            struct search_context *t, int64_t *ns, struct error *err)
{
    struct plan p;
    int64_t *known = &hash_map_at(memo, key_of(x))->number;
    *ns = *known;
    if (*ns) return OK;
    candidate_plan(x, scorer_arena(t->scorer), &p);
    TRY(search_context_evaluate(t, x->s, &p, ns, err));
    /* Recomputation may have a larger peak than fewer warm-ups without it, so the repair starts again without recomputation. */
    if (*ns == INT64_MAX && unset_recompute(&p)) TRY(search_context_evaluate(t, x->s, &p, ns, err));
    *known = *ns > 0 ? *ns : 1;
    return OK;
}
