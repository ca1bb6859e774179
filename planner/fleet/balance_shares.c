#include "planner/fleet/balance_shares.h"

#include "core/base/arena.h"
#include "planner/candidate/group.h"

enum { PARTS = 64 }; /* fraction of a pace: resolution of the common end time */

int64_t balance_shares_pace(const struct space *s, const struct plan_replica *r)
{
    int64_t most = 1;
    for (int32_t i = 0; i < r->n_stages; i++) {
        const struct plan_stage *x = &r->stages[i];
        int64_t t = group_stage_ns(s, x);
        if (t > most) most = t;
    }
    return most;
}

/* Microbatches that a replica completes until T, at least one. */
static int64_t until(const struct plan_replica *r, int64_t worked_ns, int64_t pace_ns, int64_t t_ns)
{
    int64_t room = t_ns - worked_ns, more = room / pace_ns;
    if (room < 0 && room % pace_ns) more--;
    return r->microbatches + more > 1 ? r->microbatches + more : 1;
}

static int64_t taken(const struct plan *p, const int64_t *worked, const int64_t *pace, int64_t t_ns)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        sum += until(&p->replicas[r], worked[r], pace[r], t_ns);
    return sum;
}

static void set_share(struct plan_replica *r, int64_t microbatches)
{
    r->microbatches = (int32_t)microbatches;
    for (int32_t i = 0; i < r->n_stages; i++)
        if (r->stages[i].warmup > r->microbatches) r->stages[i].warmup = r->microbatches;
}

/* Returns whether any share changed. Surplus microbatches at the common end are taken from the last replicas. */
static bool reshare(const struct space *s, struct plan *p, const int64_t *worked, int64_t *pace)
{
    int64_t batch = 0, low = INT64_MAX, high = 0, shortest = INT64_MAX;
    bool changed = false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        pace[r] = balance_shares_pace(s, &p->replicas[r]);
        batch += p->replicas[r].microbatches;
        if (worked[r] < low) low = worked[r];
        if (worked[r] > high) high = worked[r];
        if (pace[r] < shortest) shortest = pace[r];
    }
    while (high - low > shortest / PARTS) { /* at `high` no share decreases */
        int64_t middle = low + (high - low) / 2;
        *(taken(p, worked, pace, middle) >= batch ? &high : &low) = middle;
        if (middle == low && high - low < 2) break;
    }
    int64_t surplus = taken(p, worked, pace, high) - batch;
    for (int32_t r = p->n_replicas; r-- > 0;) {
        int64_t m = until(&p->replicas[r], worked[r], pace[r], high);
        if (surplus > 0 && m > 1) m--, surplus--;
        changed |= m != p->replicas[r].microbatches;
        set_share(&p->replicas[r], m);
    }
    return changed && !surplus;
}

static bool can_share(const struct plan *p)
{
    bool can = p->n_replicas > 1;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        can &= !p->replicas[r].orders && p->replicas[r].stages[0].zero < 2;
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            can &= !p->replicas[r].stages[i].order;
    }
    return can;
}

bool balance_shares(const struct space *s, struct plan *p, const int64_t *worked)
{
    struct arena *scratch = arena_new();
    int64_t *pace = ARENA_ARRAY(scratch, int64_t, (size_t)p->n_replicas);
    bool changed = can_share(p) && reshare(s, p, worked, pace);
    arena_free(scratch);
    return changed;
}

enum status balance_shares_plan(struct search_context *t, const struct space *s, struct plan *plan,
                                int64_t *worked, int64_t *iteration_ns, int32_t rounds,
                                struct error *err)
{
    struct arena *scratch = arena_new();
    int64_t *pace = ARENA_ARRAY(scratch, int64_t, (size_t)plan->n_replicas), ns = 0;
    enum status st = OK;
    bool can = can_share(plan);
    for (int32_t k = 0; k < rounds && can && st == OK && !search_context_over(t); k++) {
        struct plan p = scorer_copy_plan(t->arena, plan);
        if (!reshare(s, &p, worked, pace)) break;
        st = search_context_score(t, s, &p, &ns, err);
        if (st != OK || ns >= *iteration_ns) break;
        *plan = p, *iteration_ns = ns;
        can = scorer_worked(t->scorer, plan, worked);
    }
    arena_free(scratch);
    return st;
}
