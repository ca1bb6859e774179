#include "planner/exact.h"

#include "core/arena.h"
#include "planner/baseline.h"
#include "planner/bound.h"
#include "planner/partition.h"
#include "planner/pipeline.h"

#include <string.h>

enum { LIST_MOST = 60000, FIRST_MOST = 16 };

/* The search of one space. What cannot beat the worst kept plan is pruned, so that how many plans
 * are asked for does not change which are found. */
struct exact {
    struct tries *t;
    struct arena *lists; /* pipelines */
    const struct space *s;
    const struct bottleneck *b;
    struct pipeline_list *memo; /* (1 << n_devices, microbatches + 1) */
    int64_t *memo_limit;
};

static void plan_of(struct exact *q, struct arena *a, const struct partition *part,
                    const struct pipeline *const *chosen, const int32_t *share, struct plan *out)
{
    int32_t n_stages[SPACE_DEVICES_MAX];
    for (int32_t r = 0; r < part->n_replicas; r++) n_stages[r] = chosen[r]->n_stages;
    plan_skeleton(a, q->s, "found", part->n_replicas, n_stages, out);
    for (int32_t r = 0; r < part->n_replicas; r++) {
        out->replicas[r].microbatches = share[r];
        for (int32_t i = 0, first = 0; i < n_stages[r]; i++) {
            struct plan_stage *stage = &out->replicas[r].stages[i];
            stage->device = chosen[r]->device[i];
            stage->first_layer = first;
            stage->last_layer = chosen[r]->last[i];
            stage->recompute = chosen[r]->recompute[i];
            first = stage->last_layer + 1;
        }
    }
}

/* Least time of the gradient sum that the first stage of a pipeline waits for before its update.
 * Several groups may be summed over several of its links at once. */
static int64_t reduce_bound(const struct exact *q, const struct partition *part,
                            const struct pipeline *p)
{
    double all = 0;
    int32_t d = p->device[0];
    for (int32_t e = 0; e < q->s->n_devices; e++)
        if (space_linked(q->s, d, e)) all += space_link(q->s, d, e)->bandwidth_Bps;
    if (part->n_replicas < 2 || all <= 0) return 0;
    return bound_ring((double)space_stage(q->s, d, 0, p->last[0])->parameter_bytes,
                      part->n_replicas, all, 0);
}

static const struct pipeline_list *pipelines(struct exact *q, uint32_t mask, int32_t m, size_t most)
{
    size_t at = (size_t)mask * (size_t)(q->s->microbatches + 1) + (size_t)m;
    int64_t limit = tries_limit(q->t);
    if (q->memo_limit[at] && (q->memo[at].complete || most == FIRST_MOST)) return &q->memo[at];
    pipeline_enumerate(q->lists, q->s, q->b, mask, m, limit, most, &q->memo[at]);
    q->memo_limit[at] = limit;
    q->t->candidates += q->memo[at].seen;
    if (!q->memo[at].complete && most == LIST_MOST) q->t->truncated = true;
    return &q->memo[at];
}

struct combination {
    const struct partition *part;
    const struct pipeline_list *list[SPACE_DEVICES_MAX];
    const struct pipeline *chosen[SPACE_DEVICES_MAX];
    int32_t share[SPACE_DEVICES_MAX];
    bool first_only;
};

static enum status combine(struct exact *q, struct combination *c, int32_t r, struct error *err)
{
    if (r == c->part->n_replicas) {
        struct arena *scratch = scorer_arena(q->t->scorer);
        struct plan p;
        plan_of(q, scratch, c->part, c->chosen, c->share, &p);
        return tries_evaluate(q->t, q->s, &p, err);
    }
    for (size_t i = 0; i < c->list[r]->n && !tries_over(q->t); i++) {
        const struct pipeline *p = &c->list[r]->items[i];
        if (p->bound_ns >= tries_limit(q->t)) break;
        if (p->path_ns + reduce_bound(q, c->part, p) >= tries_limit(q->t)) continue;
        c->chosen[r] = p;
        TRY(combine(q, c, r + 1, err));
        if (c->first_only) break;
    }
    return OK;
}

static enum status try_shares(struct exact *q, struct combination *c, struct error *err)
{
    for (int32_t r = 0; r < c->part->n_replicas; r++) {
        c->list[r] =
            pipelines(q, c->part->mask[r], c->share[r], c->first_only ? FIRST_MOST : LIST_MOST);
        if (!c->list[r]->n) return OK;
    }
    return combine(q, c, 0, err);
}

/* Every way to share `left` microbatches among replicas r … that could still beat the incumbent. */
static enum status all_shares(struct exact *q, struct combination *c, int32_t r, int32_t left,
                              struct error *err)
{
    int32_t behind = c->part->n_replicas - r - 1;
    int64_t weight = bottleneck_ns(q->b, c->part->mask[r], 0);
    for (int32_t m = behind ? 1 : left; m <= left - behind && !tries_over(q->t); m++) {
        if (m * weight >= tries_limit(q->t)) break;
        c->share[r] = m;
        if (behind)
            TRY(all_shares(q, c, r + 1, left - m, err));
        else
            TRY(try_shares(q, c, err));
    }
    return OK;
}

/* A good incumbent first: the best-bound plan of every promising partition, greedy shares. */
static enum status first_round(struct exact *q, const struct partition *parts, size_t n,
                               struct error *err)
{
    for (size_t i = 0; i < n && !tries_over(q->t) && parts[i].bound_ns < tries_limit(q->t); i++) {
        struct combination c = {.part = &parts[i], .first_only = true};
        int64_t weight[SPACE_DEVICES_MAX];
        for (int32_t r = 0; r < parts[i].n_replicas; r++)
            weight[r] = bottleneck_ns(q->b, parts[i].mask[r], 0);
        partition_shares(weight, parts[i].n_replicas, q->s->microbatches, c.share);
        TRY(try_shares(q, &c, err));
    }
    return OK;
}

enum status exact_search(struct tries *t, struct arena *lists, const struct space *s,
                         struct error *err)
{
    struct exact q = {.t = t, .lists = lists, .s = s, .b = bottleneck_make(lists, s)};
    struct partition *parts = NULL;
    size_t n = 0, cells = ((size_t)1 << s->n_devices) * (size_t)(s->microbatches + 1);
    partition_all(lists, s, q.b, &parts, &n);
    q.memo = ARENA_ARRAY(lists, struct pipeline_list, cells);
    q.memo_limit = ARENA_ARRAY(lists, int64_t, cells);
    TRY(first_round(&q, parts, n, err));
    memset(q.memo_limit, 0, cells * sizeof *q.memo_limit);
    for (size_t i = 0; i < n && !tries_over(t) && parts[i].bound_ns < tries_limit(t); i++) {
        struct combination c = {.part = &parts[i]};
        TRY(all_shares(&q, &c, 0, s->microbatches, err));
    }
    return OK;
}
