#include "planner/candidate/search_context.h"

int64_t search_context_limit(const struct search_context *q)
{
    return q->o->exhaustive ? INT64_MAX : incumbents_limit(&q->incumbents);
}

bool search_context_stopped(struct search_context *q)
{
    if (q->o->stop && *q->o->stop) q->interrupted = true;
    return q->interrupted;
}

bool search_context_over(struct search_context *q)
{
    bool evaluations = q->evaluations_left <= 0,
         work = q->work_end && scorer_work(q->scorer) >= q->work_end;
    q->left_by_evaluations |= evaluations, q->left_by_work |= work && !evaluations;
    return search_context_stopped(q) || evaluations || work;
}

enum status search_context_unfound(struct error *err)
{
    return error_set(err, ERR_INTERRUPTED, "interrupted before any plan was found");
}

void search_context_report(const struct search_context *q)
{
    if (q->o->progress)
        q->o->progress(q->o->user, scorer_runs(q->scorer),
                       q->incumbents.n ? q->incumbents.plans[0].iteration_ns : INT64_MAX);
}

enum status search_context_evaluate(struct search_context *q, const struct space *s, struct plan *p,
                                    int64_t *iteration_ns, struct error *err)
{
    struct error why = {0};
    q->evaluations_left--;
    enum status st = scorer_fit(q->scorer, s, p, iteration_ns, &why);
    /* No route between neighbours of a ring; with four members or more another ring order may exist. */
    if (st == ERR_INPUT && p->n_replicas > 3) q->truncated = true;
    if (st == ERR_INPUT) return OK;
    if (st != OK) return error_set(err, st, "%s", why.text);
    incumbents_add(&q->incumbents, p, *iteration_ns);
    search_context_report(q);
    return OK;
}

enum status search_context_score(struct search_context *q, const struct space *s, struct plan *p,
                                 int64_t *iteration_ns, struct error *err)
{
    *iteration_ns = INT64_MAX;
    q->evaluations_left--;
    q->candidates++;
    struct error why;
    enum status st = scorer_fit(q->scorer, s, p, iteration_ns, &why);
    search_context_report(q);
    if (st != OK && st != ERR_INPUT && err) *err = why;
    return st == ERR_INPUT ? OK : st;
}
