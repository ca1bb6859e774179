#include "planner/candidate/search_context.h"

int64_t tries_limit(const struct tries *q)
{
    return q->o->exhaustive ? INT64_MAX : kept_limit(&q->kept);
}

bool tries_stopped(struct tries *q)
{
    if (q->o->stop && *q->o->stop) q->interrupted = true;
    return q->interrupted;
}

bool tries_over(struct tries *q)
{
    return tries_stopped(q) || q->evaluations_left <= 0 ||
           (q->work_end && scorer_work(q->scorer) >= q->work_end);
}

void tries_report(const struct tries *q)
{
    if (q->o->progress)
        q->o->progress(q->o->user, scorer_runs(q->scorer),
                       q->kept.n ? q->kept.plans[0].iteration_ns : INT64_MAX);
}

enum status tries_evaluate(struct tries *q, const struct space *s, struct plan *p,
                           int64_t *iteration_ns, struct error *err)
{
    struct error why = {0};
    q->evaluations_left--;
    enum status st = scorer_fit(q->scorer, s, p, iteration_ns, &why);
    /* No link between neighbours of a ring: with four members or more another ring may have them all. */
    if (st == ERR_INPUT && p->n_replicas > 3) q->truncated = true;
    if (st == ERR_INPUT) return OK;
    if (st != OK) return error_set(err, st, "%s", why.text);
    kept_add(&q->kept, p, *iteration_ns);
    if (q->spots.most) kept_add(&q->spots, p, *iteration_ns);
    tries_report(q);
    return OK;
}

enum status tries_score(struct tries *q, const struct space *s, struct plan *p,
                        int64_t *iteration_ns, struct error *err)
{
    *iteration_ns = INT64_MAX;
    q->evaluations_left--;
    q->candidates++;
    struct error why;
    enum status st = scorer_fit(q->scorer, s, p, iteration_ns, &why);
    tries_report(q);
    if (st != OK && st != ERR_INPUT && err) *err = why;
    return st == ERR_INPUT ? OK : st;
}
