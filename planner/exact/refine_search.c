#include "planner/exact/refine_search.h"

#include "core/base/arena.h"
#include "planner/exact/candidate.h"
#include "planner/exact/local_search.h"
#include "planner/schedule/refine.h"

struct polishing {
    struct tries *t;
    struct trials trials;
    struct kept *refined;
};

static enum status score_refined(void *user, const struct trial *x, int64_t best_ns, int64_t *ns,
                                 struct error *err)
{
    struct polishing *q = user;
    struct tries *t = q->t;
    struct plan p;
    struct error why = {0};
    *ns = trials_known(&q->trials, x);
    if (*ns) return OK;
    *ns = INT64_MAX;
    if (trial_bound(x) == INT64_MAX || trial_work(x) >= best_ns) return OK;
    struct arena *a = scorer_arena(t->scorer);
    trial_plan(x, a, &p);
    t->evaluations_left--;
    enum status st = scorer_fit(t->scorer, x->s, &p, ns, &why);
    if (st != OK && st != ERR_INPUT) return error_set(err, st, "%s", why.text);
    if (st != OK) *ns = INT64_MAX; /* two neighbours of a ring without a link */
    if (*ns < INT64_MAX)
        TRY(refine_plan(a, t->scorer, x->s, &p, ns, &t->evaluations_left, t->work_end, t->o->stop, err));
    kept_add(q->refined, &p, *ns);
    trials_put(&q->trials, x, *ns);
    tries_report(t);
    return OK;
}

enum status polish(struct tries *t, const struct space *spaces, int32_t n_spaces,
                   struct kept *refined, struct error *err)
{
    struct arena *scratch = arena_new();
    struct polishing q = {.t = t, .refined = refined};
    struct climb_way way = {t, &q, score_refined, false};
    struct trial start[POLISH_STARTS];
    int64_t ns[POLISH_STARTS];
    int32_t n = 0;
    enum status st = OK;
    trials_init(&q.trials, scratch);
    for (int32_t i = 0; i < refined->n && i < POLISH_STARTS; i++) {
        const struct plan *p = &refined->plans[i].plan;
        int32_t s = 0;
        while (s < n_spaces && spaces[s].microbatch != p->microbatch) s++;
        ns[n] = refined->plans[i].iteration_ns;
        if (s < n_spaces && trial_of(p, &spaces[s], &start[n])) n++;
    }
    for (int32_t i = 0; i < n && st == OK; i++) st = climb(&way, &start[i], &ns[i], err);
    arena_free(scratch);
    return st;
}
