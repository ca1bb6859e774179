#include "planner/fleet.h"

#include "core/arena.h"
#include "planner/bound_cluster.h"
#include "planner/improve.h"
#include "planner/offers.h"
#include "planner/place.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUICK_LANES = 256,
    OFFERS_MOST = 64,
    CANDIDATES_MOST = 512,
    LANES_A_SEARCH = 1024, /* simulated in all where the user says nothing, but ... */
    TRIES_LEAST = 4,
    IMPROVED_MOST = 3
};

struct candidate {
    int32_t offer, size;
    enum placement how;
    struct mix mix;
    int64_t estimate_ns;
};

struct fleet {
    struct tries *t;
    const struct fleet_task *task;
    struct arena *arena; /* offers, spaces, templates */
    int32_t n_offers, n_candidates;
    struct offer offers[OFFERS_MOST];
    struct candidate *candidates;
    int64_t *best_ns; /* (OFFERS_MOST, n_sizes) least estimate */
};

/* --- candidates --- */

static void add_candidate(struct fleet *q, int32_t offer, int32_t size, const struct mix *x)
{
    const struct template_maker *m = q->offers[offer].makers[size];
    int64_t *best = &q->best_ns[offer * q->task->n_sizes + size];
    for (int how = 0; how < PLACEMENT_COUNT && q->n_candidates < CANDIDATES_MOST; how++) {
        int64_t estimate = place_estimate(m, x, (enum placement)how);
        q->candidates[q->n_candidates++] =
            (struct candidate){offer, size, (enum placement)how, *x, estimate};
        if (estimate < *best) *best = estimate;
    }
}

static enum status make_candidates(struct fleet *q, int32_t offer, int32_t size, struct error *err)
{
    static const struct mix_options variants[] = {
        {false, false}, {.one_kind = true}, {.one_zone = true}};
    struct offer *o = &q->offers[offer];
    TRY(offer_size(q->arena, o, size, q->task->sizes[size], q->t->lower, err));
    int32_t microbatches = o->spaces[size].microbatches;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct mix x;
        int64_t relaxed;
        if (i == 1 && o->graph->n_kinds == 1) continue;
        if (i == 2 && o->graph->n_zones == 1) continue;
        if (mix_solve(o->makers[size], microbatches, &variants[i], &x, &relaxed))
            add_candidate(q, offer, size, &x);
    }
    return OK;
}

/* A way of sharing, once; -1 where there is no room, or it was there. */
static enum status add_offer(struct fleet *q, const int32_t *cards, int32_t *index,
                             struct error *err)
{
    const struct fleet_task *k = q->task;
    *index = -1;
    if (q->n_offers == OFFERS_MOST) return OK;
    for (int32_t i = 0; i < q->n_offers; i++)
        if (!memcmp(q->offers[i].cards, cards, (size_t)k->cluster->n_types * sizeof *cards))
            return OK;
    /* Plans point to its cluster, and outlive the tables. */
    TRY(offer_make(q->t->arena, k->job, k->cluster, k->profile, cards, k->n_sizes,
                   &q->offers[q->n_offers], err));
    *index = q->n_offers++;
    return OK;
}

static enum status all_sizes(struct fleet *q, int32_t offer, struct error *err)
{
    for (int32_t i = 0; i < q->task->n_sizes && !tries_stopped(q->t); i++)
        TRY(make_candidates(q, offer, i, err));
    return OK;
}

/* The offer and size of the least estimate. */
static void best_of(const struct fleet *q, int32_t *offer, int32_t *size)
{
    int64_t best = INT64_MAX;
    *offer = *size = 0;
    for (int32_t o = 0; o < q->n_offers; o++)
        for (int32_t i = 0; i < q->task->n_sizes; i++)
            if (q->best_ns[o * q->task->n_sizes + i] < best) {
                best = q->best_ns[o * q->task->n_sizes + i];
                *offer = o, *size = i;
            }
}

/* The same number of cards for all types first; then, from the best, another number for one type at a time. */
static enum status make_offers(struct fleet *q, struct error *err)
{
    const struct cluster *c = q->task->cluster;
    const struct search_options *o = q->t->o;
    int32_t *cards = ARENA_ARRAY(q->arena, int32_t, (size_t)c->n_types), index;
    static const int32_t one = 1;
    const int32_t *numbers = o->tensor ? o->tensor : &one;
    int32_t n = o->tensor ? o->n_tensor : 1;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t t = 0; t < c->n_types; t++)
            cards[t] = offer_possible(c, t, numbers[i]) ? numbers[i] : 1;
        TRY(add_offer(q, cards, &index, err));
        if (index >= 0) TRY(all_sizes(q, index, err));
    }
    for (int32_t t = 0; n > 1 && t < c->n_types; t++)
        for (int32_t i = 0; i < n && !tries_stopped(q->t); i++) {
            int32_t offer, size;
            best_of(q, &offer, &size);
            memcpy(cards, q->offers[offer].cards, (size_t)c->n_types * sizeof *cards);
            if (!offer_possible(c, t, numbers[i])) continue;
            cards[t] = numbers[i];
            TRY(add_offer(q, cards, &index, err));
            if (index >= 0) TRY(make_candidates(q, index, size, err));
        }
    return OK;
}

static int by_estimate(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    if (a->offer != b->offer) return a->offer - b->offer;
    if (a->size != b->size) return a->size - b->size;
    return (int)a->how - (int)b->how;
}

/* --- simulations --- */

struct scored {
    struct plan plan;
    int64_t ns;
    const struct space *s;
};

static enum status simulate_candidates(struct fleet *q, int64_t most, struct scored *best,
                                       int32_t *n_best, struct error *err)
{
    *n_best = 0;
    for (int32_t i = 0; i < q->n_candidates && most > 0 && !tries_over(q->t); i++, most--) {
        const struct candidate *c = &q->candidates[i];
        const struct template_maker *m = q->offers[c->offer].makers[c->size];
        struct scored x = {.s = m->s};
        struct arena *a = scorer_arena(q->t->scorer);
        struct plan p;
        place_plan(a, m, &c->mix, c->how, &p);
        TRY(tries_score(q->t, m->s, &p, &x.ns, err));
        if (x.ns == INT64_MAX) continue;
        kept_add(&q->t->kept, &p, x.ns);
        x.plan = score_copy_plan(q->arena, &p);
        int32_t at = *n_best < IMPROVED_MOST ? (*n_best)++ : IMPROVED_MOST;
        for (; at > 0 && best[at - 1].ns > x.ns; at--)
            if (at < IMPROVED_MOST) best[at] = best[at - 1];
        if (at < IMPROVED_MOST) best[at] = x;
    }
    return OK;
}

/* The winner's steady step, where candidates were compared by their first. */
static enum status settle(struct fleet *q, struct scored *x, struct error *err)
{
    struct kept full;
    scorer_quick(q->t->scorer, false);
    TRY(tries_score(q->t, x->s, &x->plan, &x->ns, err));
    kept_init(&full, q->t->arena, q->t->kept.most, q->t->o, x->s->cluster);
    kept_add(&full, &x->plan, x->ns);
    q->t->kept = full;
    return OK;
}

static enum status search(struct fleet *q, struct error *err)
{
    struct scored best[IMPROVED_MOST + 1];
    int32_t n_best = 0;
    TRY(make_offers(q, err));
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, by_estimate);
    if (!q->n_candidates) return OK;
    int32_t lanes = q->offers[q->candidates[0].offer].cluster.n_devices;
    int64_t most = LANES_A_SEARCH / lanes > TRIES_LEAST ? LANES_A_SEARCH / lanes : TRIES_LEAST;
    if (q->t->o->evaluations > 0 || most > q->t->evaluations_left) most = q->t->evaluations_left;
    scorer_quick(q->t->scorer, lanes > QUICK_LANES);
    TRY(simulate_candidates(q, (most + 1) / 2, best, &n_best, err));
    for (int32_t i = 0; i < n_best && !tries_over(q->t); i++) {
        TRY(improve_plan(q->t, best[i].s, &best[i].plan, &best[i].ns, most / 2 / n_best, err));
        kept_add(&q->t->kept, &best[i].plan, best[i].ns);
    }
    int32_t first = 0;
    for (int32_t i = 1; i < n_best; i++)
        if (best[i].ns < best[first].ns) first = i;
    return n_best && lanes > QUICK_LANES ? settle(q, &best[first], err) : OK;
}

static int32_t cards_of(const struct device_type *t)
{
    return t->tensor_parallel > 1 ? t->tensor_parallel : 1;
}

static enum status certify(struct fleet *q, struct bound_certificate *bound, struct error *err)
{
    const struct cluster *c = q->task->cluster;
    const struct space *any = NULL;
    for (int32_t i = 0; i < q->n_offers && !any; i++)
        for (int32_t k = 0; k < q->task->n_sizes && !any; k++)
            if (q->offers[i].makers[k]) any = &q->offers[i].spaces[k];
    if (!any) return OK;
    int64_t *count = ARENA_ARRAY(q->arena, int64_t, (size_t)c->n_types);
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    struct bound_any *b =
        bound_any_new(q->t->arena, any->n_layers, c->n_types, count, q->task->job->global_batch);
    for (int32_t i = 0; i < q->n_offers; i++) {
        const struct offer *o = &q->offers[i];
        int32_t *cards = ARENA_ARRAY(q->arena, int32_t, (size_t)o->cluster.n_types);
        for (int32_t t = 0; t < o->cluster.n_types; t++) {
            int32_t base = o->base_type[t], n = cards_of(&o->cluster.types[t]);
            if (base < 0 || (o->cards[base] > 1 && n != o->cards[base])) continue; /* left over */
            cards[t] = n / cards_of(&c->types[base]); /* one of the file may be several already */
        }
        for (int32_t k = 0; k < q->task->n_sizes; k++)
            if (o->makers[k]) bound_cluster_offer(b, &o->spaces[k], cards, o->base_type);
    }
    struct cost *cost = cost_new(q->arena, q->task->profile, c);
    TRY(bound_cluster_cuts(q->t->arena, b, c, cost, err));
    return bound_any_solve(b, bound, err);
}

enum status fleet_search(struct tries *t, const struct fleet_task *task,
                         struct bound_certificate *bound, struct error *err)
{
    struct fleet q = {.t = t, .task = task, .arena = arena_new()};
    q.candidates = ARENA_ARRAY(q.arena, struct candidate, CANDIDATES_MOST);
    q.best_ns = ARENA_ARRAY(q.arena, int64_t, OFFERS_MOST * (size_t)task->n_sizes);
    for (int32_t i = 0; i < OFFERS_MOST * task->n_sizes; i++) q.best_ns[i] = INT64_MAX;
    enum status st = search(&q, err);
    if (st == OK && t->kept.n) st = certify(&q, bound, err);
    arena_free(q.arena);
    return st;
}
