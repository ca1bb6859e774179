/* planner/local_search/starts.c - local search from the incumbents of a search. */
#include "core/base/arena.h"
#include "planner/local_search/internal.h"
#include "planner/local_search/stage_moves.h"
#include "planner/schedule/refine.h"

enum { STARTS_MAX = PARALLEL_SCORE_BATCH };

void local_search_plain(struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        struct plan_replica *x = &p->replicas[r];
        bool own = x->orders;
        x->orders = NULL;
        for (int32_t i = 0; i < x->n_stages; i++) {
            own |= x->stages[i].order != NULL;
            x->stages[i].order = NULL, x->stages[i].warmup = 0;
            x->stages[i].recompute = RECOMPUTE_NONE, x->stages[i].recompute_blocks = 0, x->stages[i].offload = false, x->stages[i].receive_ahead = 2;
        }
        if (own) x->schedule = NULL, x->split = false;
    }
}

/* Whether no device has two stages. */
static bool is_possible(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            if (plan_stage_devices(x) > STAGE_MOVES_DEVICES_MAX) return false;
            for (int32_t k = 0; k < i; k++)
                if (p->replicas[r].stages[k].device == x->device) return false;
        }
    return !p->deterministic;
}

static bool has_space(const struct space *spaces, int32_t n, const struct plan *p)
{
    for (int32_t k = 0; k < n; k++)
        if (spaces[k].microbatch == p->microbatch &&
            spaces[k].cluster->devices == p->cluster.devices)
            return true;
    return false;
}

static bool same_shape(const struct plan *p, const struct plan *q)
{
    if (p->microbatch != q->microbatch || p->n_replicas != q->n_replicas) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (p->replicas[r].n_stages != q->replicas[r].n_stages) return false;
    return true;
}

/* Whether a start has the plan's microbatch size and numbers of replicas and stages. */
static bool is_started(const struct search_plan *starts, int32_t n, const struct plan *p)
{
    for (int32_t i = 0; i < n; i++)
        if (same_shape(&starts[i].plan, p)) return true;
    return false;
}

static int32_t find_starts(const struct incumbents *from, struct arena *a,
                           const struct space *spaces, int32_t n_spaces, struct search_plan *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < from->n && n < STARTS_MAX; i++) {
        const struct search_plan *x = &from->plans[i];
        if (!has_space(spaces, n_spaces, &x->plan) || !is_possible(&x->plan) ||
            is_started(out, n, &x->plan))
            continue;
        out[n] = *x;
        out[n++].plan = scorer_copy_plan(a, &x->plan);
    }
    return n;
}

static const struct space *space_of(const struct space *spaces, const struct plan *p)
{
    while (spaces->microbatch != p->microbatch) spaces++;
    return spaces;
}

/* A start with default orders, simulated. */
static enum status open_start(struct search_context *t, const struct space *spaces,
                              struct search_plan *x, struct error *err)
{
    const struct space *s = space_of(spaces, &x->plan);
    local_search_plain(&x->plan);
    if (!x->plan.replicas->schedule) refine_warmups(s, &x->plan, 0);
    TRY(search_context_score(t, s, &x->plan, &x->iteration_ns, err));
    if (x->iteration_ns < INT64_MAX) incumbents_add(&t->incumbents, &x->plan, x->iteration_ns);
    return OK;
}

/* Starts, each with an equal part of the work that is left. */
static enum status search_all(struct search_context *t, const struct space *spaces,
                              int32_t n_spaces, struct search_plan *starts, int32_t n,
                              struct plan_set *tried, struct error *err)
{
    int64_t end = t->work_end;
    for (int32_t i = 0; i < n && !search_context_over(t); i++) {
        struct local_search_task task = {.t = t,
                                         .s = space_of(spaces, &starts[i].plan),
                                         .sizes = spaces,
                                         .n_sizes = n_spaces,
                                         .evaluations = INT64_MAX,
                                         .stages = true,
                                         .named = true,
                                         .tried = tried};
        TRY(open_start(t, spaces, &starts[i], err));
        if (starts[i].iteration_ns == INT64_MAX) continue;
        int64_t now = scorer_work(t->scorer);
        if (end) t->work_end = now + (end - now) / (n - i);
        TRY(local_search_plan(&task, &starts[i].plan, &starts[i].iteration_ns, err));
        t->work_end = end;
    }
    return OK;
}

enum status local_search_incumbents(struct search_context *t, const struct incumbents *from,
                                    const struct space *spaces, int32_t n_spaces, struct error *err)
{
    struct arena *a = arena_new();
    struct search_plan starts[STARTS_MAX];
    struct plan_set tried = {.known = {.arena = a}};
    int64_t end = t->work_end;
    int32_t n = find_starts(from, a, spaces, n_spaces, starts);
    enum status st = search_all(t, spaces, n_spaces, starts, n, &tried, err);
    t->work_end = end;
    arena_free(a);
    return st;
}
