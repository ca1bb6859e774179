#include "planner/candidate/parallel_score.h"

#include "core/base/arena.h"
#include "core/base/parallel.h"
#include "core/base/stop.h"

struct result { /* of an item */
    enum status status;
    struct error why;
    struct scorer_miss miss;
    int64_t runs, work_ns;
};

struct worker {
    struct arena *arena; /* of its cost */
    struct scorer *scorer;
    struct cost *cost;
    const struct cluster *cluster; /* that the cost is of */
};

struct parallel_score_pool {
    struct search_context *t;
    const struct profile *profile;
    struct parallel_score_item *items;
    struct result *results;
    struct worker *workers;
};

static void score(void *user, int64_t index, int32_t thread)
{
    struct parallel_score_pool *c = user;
    struct worker *w = &c->workers[thread];
    struct parallel_score_item *x = &c->items[index];
    struct result *r = &c->results[index];
    if (c->t->o->stop && *c->t->o->stop) return;
    if (!w->arena) w->arena = arena_new();
    if (thread > 0 && w->cluster != x->space.cluster) {
        w->cluster = x->space.cluster;
        w->cost = cost_new(w->arena, c->profile, w->cluster);
    }
    struct space own = x->space;
    if (thread > 0) own.cost = w->cost; /* thread 0 owns the spaces */
    int64_t before = scorer_runs(w->scorer), work = scorer_work(w->scorer);
    const volatile sig_atomic_t *watched = stop_watch(c->t->o->stop);
    scorer_quick(w->scorer, x->quick);
    r->status = scorer_fit(w->scorer, &own, &x->plan, &x->ns, &r->why);
    stop_watch(watched);
    if (r->status != OK) x->ns = INT64_MAX;
    if (x->why && x->ns == INT64_MAX) x->missing = scorer_last_miss(w->scorer, &x->plan, x->why);
    scorer_take_miss(w->scorer, &r->miss);
    scorer_quick(w->scorer, false);
    if (thread > 0) { /* the search's scorer has counted its own */
        r->runs = scorer_runs(w->scorer) - before;
        r->work_ns = scorer_work(w->scorer) - work;
    }
    x->tried = true;
}

enum status parallel_score(struct search_context *t, const struct profile *p,
                           struct parallel_score_item *items, int32_t n, struct error *err)
{
    struct arena *a = arena_new();
    int32_t threads = t->o->threads > 1 && n > 1 ? t->o->threads : 1;
    struct parallel_score_pool c = {.t = t, .profile = p, .items = items};
    enum status st = OK;
    for (int32_t i = 0; i < n; i++) items[i].ns = INT64_MAX, items[i].tried = false;
    if (n > t->evaluations_left) n = t->evaluations_left > 0 ? (int32_t)t->evaluations_left : 0;
    c.results = ARENA_ARRAY(a, struct result, (size_t)n);
    c.workers = ARENA_ARRAY(a, struct worker, (size_t)threads);
    struct scorer_miss before;
    for (int32_t i = 0; i < threads; i++)
        c.workers[i].scorer = i ? scorer_helper(t->scorer, i) : t->scorer;
    scorer_take_miss(t->scorer, &before);
    if (n) parallel_each(n, threads, score, &c);
    scorer_note(t->scorer, &before, 0, 0);
    for (int32_t i = 0; i < n && st == OK; i++) {
        struct result *r = &c.results[i];
        if (!items[i].tried) continue;
        t->evaluations_left--, t->candidates++;
        scorer_note(t->scorer, &r->miss, r->runs, r->work_ns);
        if (r->status != OK && r->status != ERR_INPUT) {
            st = r->status;
            if (err) *err = r->why;
        }
    }
    for (int32_t i = 0; i < threads; i++)
        arena_free(c.workers[i].arena);
    arena_free(a);
    search_context_report(t);
    return st;
}
