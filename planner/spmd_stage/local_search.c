/* planner/spmd_stage/local_search.c - local search: shared or adjacent stages become sharded stages. */
#include "core/base/arena.h"
#include "planner/spmd_stage/spmd_stage.h"

#include <string.h>

enum {
    STARTS_MAX = 3,
    ROUNDS_MAX = 4,   /* improving moves of one start */
    THOROUGH_MAX = 4, /* moves per round with optimised ratios: the best by simulation */
    WORK_MS = 150
};

struct local_search {
    struct search_context *t;
    struct arena *arena;
    const struct space *s;
    int64_t left; /* simulations */
};
struct point {
    struct search_plan x;
    struct spmd_stage_team team; /* of the changed stage */
    int32_t replica, stage;
};

static bool over(struct local_search *c) { return c->left <= 0 || search_context_over(c->t); }

/* Devices of a replica's stage; 0: there is no such stage. */
static int32_t size_of(const struct plan_replica *r, int32_t stage)
{
    return stage < 0 || stage >= r->n_stages ? 0 : plan_stage_devices(&r->stages[stage]);
}

/* The devices of stages first … last of a replica; false: a device is in several stages, or only one device. */
static bool team_of(struct local_search *c, const struct plan_replica *r, int32_t first,
                    int32_t last, struct spmd_stage_team *out)
{
    int32_t device[SPMD_STAGE_DEVICES_MAX], n = 0, behind = r->n_stages - first;
    for (int32_t i = first; i <= last; i++)
        for (int32_t k = 0; k < plan_stage_devices(&r->stages[i]); k++) {
            int32_t d = plan_stage_device(&r->stages[i], k);
            for (int32_t m = 0; m < n; m++)
                if (device[m] == d) return false;
            if (n == SPMD_STAGE_DEVICES_MAX) return false;
            device[n++] = d;
        }
    behind -= last - first;
    *out =
        (struct spmd_stage_team){.s = c->s,
                                 .first_layer = r->stages[first].first_layer,
                                 .last_layer = r->stages[last].last_layer,
                                 .n = n,
                                 .microbatches = r->microbatches,
                                 .in_flight = behind < r->microbatches ? behind : r->microbatches,
                                 .beside = spmd_stage_beside(n, size_of(r, first - 1)) +
                                           spmd_stage_beside(n, size_of(r, last + 1))};
    out->device = arena_copy(c->arena, device, (size_t)n * sizeof *device);
    out->memory = spmd_stage_memory(c->arena, out);
    return n > 1;
}

/* Resets orders and memory repairs to defaults; the fit of the new plan repeats repairs if needed. */
static void plain(struct plan_replica *r)
{
    for (int32_t i = 0; i < r->n_stages; i++) {
        struct plan_stage *x = &r->stages[i];
        x->warmup = 0, x->order = NULL, x->receive_ahead = 2;
        if (x->recompute == RECOMPUTE_STAGE) x->recompute = RECOMPUTE_NONE;
    }
}

/* A copy of p in which these stages are one and the rest of the replica has defaults. */
static struct plan merged(struct local_search *c, const struct plan *p, int32_t replica,
                          int32_t first, int32_t last, const struct spmd_stage_team *t,
                          const struct spmd_stage_answer *x)
{
    struct plan out = scorer_copy_plan(c->arena, p);
    struct plan_replica *r = &out.replicas[replica];
    spmd_stage_put(c->arena, t, x, &r->stages[first]);
    memmove(&r->stages[first + 1], &r->stages[last + 1],
            (size_t)(r->n_stages - last - 1) * sizeof *r->stages);
    r->n_stages -= last - first;
    plain(r);
    return out;
}

static enum status simulate(struct local_search *c, struct plan *p, struct search_plan *out,
                            struct error *err)
{
    c->left--;
    out->plan = *p;
    TRY(search_context_score(c->t, c->s, &out->plan, &out->iteration_ns, err));
    if (out->iteration_ns < INT64_MAX) out->cost = plan_cost(&out->plan, out->iteration_ns);
    return OK;
}

static bool better(const struct local_search *c, const struct search_plan *x,
                   const struct search_plan *y)
{
    return x->iteration_ns < INT64_MAX &&
           (y->iteration_ns == INT64_MAX || incumbents_better(&c->t->incumbents, x, y));
}

/* Inserts among the best of a round, best first. */
static void put(const struct local_search *c, const struct point *y, struct point *best, int32_t *n)
{
    if (*n == THOROUGH_MAX && !better(c, &y->x, &best[*n - 1].x)) return;
    int32_t k = *n < THOROUGH_MAX ? (*n)++ : *n - 1;
    for (; k > 0 && better(c, &y->x, &best[k - 1].x); k--) best[k] = best[k - 1];
    best[k] = *y;
}

/* Merges stages first … last of a replica into one sharded stage, unless its estimate alone exceeds the best plan's
 * iteration. */
static enum status try_team(struct local_search *c, const struct search_plan *at, int32_t replica,
                            int32_t first, int32_t last, struct point *best, int32_t *n,
                            struct error *err)
{
    const struct plan_replica *r = &at->plan.replicas[replica];
    struct spmd_stage_answer x;
    struct point y = {.replica = replica, .stage = first};
    if ((first == last && r->stages[first].sharding) || over(c)) return OK;
    if (!team_of(c, r, first, last, &y.team)) return OK;
    TRY(spmd_stage_solve(c->t->spmd_stage, c->t->scorer, &y.team, false, &x, err));
    bool by_time = c->t->o->objective != OBJECTIVE_COST && incumbents_inside(&c->t->incumbents, at);
    /* spmd assumes no overlap, so its estimate often exceeds the simulated time */
    if (x.ns == INT64_MAX || (by_time && x.ns / 4 * 3 >= at->iteration_ns)) return OK;
    struct plan p = merged(c, &at->plan, replica, first, last, &y.team, &x);
    TRY(simulate(c, &p, &y.x, err));
    if (y.x.iteration_ns < INT64_MAX) put(c, &y, best, n);
    return OK;
}

/* The same with optimised ratios. */
static enum status try_ratios(struct local_search *c, struct point *y, struct error *err)
{
    struct spmd_stage_answer x;
    struct search_plan better_ratios;
    if (over(c)) return OK;
    TRY(spmd_stage_solve(c->t->spmd_stage, c->t->scorer, &y->team, true, &x, err));
    if (x.ns == INT64_MAX) return OK;
    struct plan p = scorer_copy_plan(c->arena, &y->x.plan);
    spmd_stage_put(c->arena, &y->team, &x, &p.replicas[y->replica].stages[y->stage]);
    TRY(simulate(c, &p, &better_ratios, err));
    if (better(c, &better_ratios, &y->x)) y->x = better_ratios;
    return OK;
}

/* One round: all moves of one stage or of adjacent stages; takes the best if it improves. */
static enum status step(struct local_search *c, struct search_plan *at, bool *moved,
                        struct error *err)
{
    struct point best[THOROUGH_MAX] = {{.replica = 0}};
    int32_t n = 0;
    *moved = false;
    int32_t longest = 0;
    for (int32_t r = 0; r < at->plan.n_replicas; r++)
        if (at->plan.replicas[r].n_stages > longest) longest = at->plan.replicas[r].n_stages;
    for (int32_t more = 0; more < longest; more++) /* few devices first, because they take the least work */
        for (int32_t r = 0; r < at->plan.n_replicas; r++)
            for (int32_t i = 0; i + more < at->plan.replicas[r].n_stages; i++)
                TRY(try_team(c, at, r, i, i + more, best, &n, err));
    for (int32_t i = 0; i < n; i++) {
        TRY(try_ratios(c, &best[i], err));
        if (!better(c, &best[i].x, at)) continue;
        *at = best[i].x, *moved = true;
        incumbents_add(&c->t->incumbents, &at->plan, at->iteration_ns);
    }
    return OK;
}

/* Plans with explicit orders or several stages per device are not changed here. */
static bool possible(const struct plan *p)
{
    if (p->deterministic) return false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        for (int32_t i = 0; i < x->n_stages; i++) {
            if (x->stages[i].zero) return false;
            for (int32_t k = 0; k < i; k++)
                if (x->stages[k].device == x->stages[i].device) return false;
        }
    }
    return true;
}

/* A copy with default orders, for a fair comparison with moves. */
static enum status local_search(struct local_search *c, const struct search_plan *from,
                                struct error *err)
{
    struct search_plan at = *from;
    bool moved = true;
    at.plan = scorer_copy_plan(c->arena, &from->plan);
    for (int32_t r = 0; r < at.plan.n_replicas; r++) {
        struct plan_replica *x = &at.plan.replicas[r];
        x->schedule = NULL, x->split = false, x->orders = NULL;
    }
    for (int round = 0; round < ROUNDS_MAX && moved && !over(c); round++)
        TRY(step(c, &at, &moved, err));
    return OK;
}

static const struct space *space_of(const struct space *const *spaces, int32_t n,
                                    const struct plan *p)
{
    for (int32_t k = 0; k < n; k++)
        if (spaces[k]->microbatch == p->microbatch &&
            spaces[k]->cluster->devices == p->cluster.devices)
            return spaces[k];
    return NULL;
}

/* Whether a start with this plan's microbatch size exists (turn 0: the best of each size first), or with its time (turn 1). */
static bool started(const struct search_plan *starts, int32_t n, const struct search_plan *x,
                    int turn)
{
    for (int32_t i = 0; i < n; i++)
        if (turn ? starts[i].iteration_ns == x->iteration_ns
                 : starts[i].plan.microbatch == x->plan.microbatch)
            return true;
    return false;
}

enum status spmd_stage_local_search(struct search_context *t, const struct space *const *spaces,
                                    int32_t n_spaces, int64_t evaluations, struct error *err)
{
    struct local_search c = {.t = t, .arena = arena_new(), .left = evaluations};
    struct search_plan *starts = ARENA_ARRAY(c.arena, struct search_plan, STARTS_MAX);
    int32_t n = 0;
    enum status st = OK;
    int64_t end = t->work_end;
    int64_t all = scorer_work(t->scorer) + (int64_t)WORK_MS * 1000000;
    for (int turn = 0; turn < 2; turn++)
        for (int32_t i = 0; i < t->incumbents.n && n < STARTS_MAX; i++) {
            const struct search_plan *x = &t->incumbents.plans[i];
            if (!possible(&x->plan) || !space_of(spaces, n_spaces, &x->plan)) continue;
            if (started(starts, n, x, turn)) continue;
            starts[n] = *x;
            starts[n++].plan = scorer_copy_plan(c.arena, &x->plan);
        }
    for (int32_t i = 0; i < n && st == OK; i++) {
        int64_t now = scorer_work(t->scorer);
        t->work_end = now + (all - now) / (n - i);
        c.s = space_of(spaces, n_spaces, &starts[i].plan);
        if (c.s->job->model.measured || c.s->n_devices > SPMD_STAGE_DEVICES_MAX) continue;
        st = local_search(&c, &starts[i], err);
    }
    t->work_end = end;
    arena_free(c.arena);
    return st;
}
