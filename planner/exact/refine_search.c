#include "planner/exact/refine_search.h"

#include "core/base/arena.h"
#include "planner/exact/candidate.h"
#include "planner/exact/local_search.h"
#include "planner/schedule/refine.h"

struct polishing {
    struct search_context *t;
    struct candidates trials;
    struct incumbents *refined;
};

static enum status score_refined(void *user, const struct candidate *x, int64_t best_ns,
                                 int64_t *ns, struct error *err)
{
    struct polishing *q = user;
    struct search_context *t = q->t;
    struct plan p;
    struct error why = {0};
    *ns = candidates_known(&q->trials, x);
    if (*ns) return OK;
    *ns = INT64_MAX;
    if (candidate_bound(x) == INT64_MAX || candidate_work(x) >= best_ns) return OK;
    struct arena *a = scorer_arena(t->scorer);
    candidate_plan(x, a, &p);
    t->evaluations_left--;
    enum status st = scorer_fit(t->scorer, x->s, &p, ns, &why);
    if (st != OK && st != ERR_INPUT) return error_set(err, st, "%s", why.text);
    if (st != OK) *ns = INT64_MAX; /* no route between two neighbours of a ring */
    if (*ns < INT64_MAX)
        TRY(refine_plan(a, t->scorer, x->s, &p, ns, &t->evaluations_left, t->work_end, t->o->stop,
                        err));
    incumbents_add(q->refined, &p, *ns);
    candidates_put(&q->trials, x, *ns);
    search_context_report(t);
    return OK;
}

enum status refine_search(struct search_context *t, const struct space *spaces, int32_t n_spaces,
                          struct incumbents *refined, struct error *err)
{
    struct arena *scratch = arena_new();
    struct polishing q = {.t = t, .refined = refined};
    struct local_search_hooks hooks = {t, &q, score_refined, false};
    struct candidate start[REFINE_SEARCH_STARTS];
    int64_t ns[REFINE_SEARCH_STARTS];
    int32_t n = 0;
    enum status st = OK;
    candidates_init(&q.trials, scratch);
    for (int32_t i = 0; i < refined->n && i < REFINE_SEARCH_STARTS; i++) {
        const struct plan *p = &refined->plans[i].plan;
        int32_t s = 0;
        while (s < n_spaces && spaces[s].microbatch != p->microbatch) s++;
        ns[n] = refined->plans[i].iteration_ns;
        if (s < n_spaces && candidate_of(p, &spaces[s], &start[n])) n++;
    }
    for (int32_t i = 0; i < n && st == OK; i++) st = local_search(&hooks, &start[i], &ns[i], err);
    arena_free(scratch);
    return st;
}
