/* planner/coarse/coarse.c - the coarse search: for each microbatch size and each number of GPUs of a stage, candidates by estimate; then trials.
 *
 * Microbatch sizes rise until none brings a better estimate. Where no candidate of the first size fits, the memory that estimates leave free is
 * lowered a percent at a time, because lowering repairs plans that lack little. Cost: as coarse.h; the trials are most of it.
 */
#include "planner/coarse/coarse.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "core/base/units.h"
#include "planner/coarse/internal.h"
#include "planner/coarse/sample.h"
#include "planner/spmd_stage/spmd_stage.h"

enum {
    /* percent of the memory: with less to spare, recomputing for a few bytes costs a third of the pace; eight GPUs of 22 and of 24 GiB that hold
     * Llama-8B by hand lack 1 to 3 % by estimate (2026-11-26) */
    SPARE_USUAL = 2,
    SPARE_LEAST = -5,
    /* counted work of estimates of a part of the cluster, ns: a stage whose layers are sought, and a set of teams. Fitted to 3 to 16 million stages
     * and 0.7 to 5.1 million sets of three clusters of 44 to 84 GPUs (2026-11-27) */
    LAID_NS = 500,
    SET_NS = 300
};

static void add_offer(struct coarse *q, struct coarse *of, int32_t n)
{
    if (of && q->n_offers < COARSE_OFFERS)
        q->offers[q->n_offers++] = (struct coarse_offer){.n = n, .of = of};
}

/* Any number of GPUs a stage that nodes allow, each number by itself if there are several, and any number on divided nodes. */
static void list_offers(struct coarse *q)
{
    add_offer(q, q, 0);
    for (int32_t k = 0; k < q->n_classes; k++)
        for (int32_t d = 0; d < q->classes[k].n_degrees; d++) {
            int32_t n = q->classes[k].degree[d].n, at = 1;
            if (d == 0 && !q->classes[k].degree[d].usable) continue;
            while (at < q->n_offers && q->offers[at].n != n) at++;
            if (at == q->n_offers) add_offer(q, q, n);
        }
    if (q->n_offers == 2) q->n_offers = 1;
    for (int how = 0; how < COARSE_HALVINGS; how++)
        add_offer(q, coarse_divided(q, (enum coarse_halving)how), 0);
}

static bool found_any(const struct coarse *q)
{
    bool any = false;
    for (int32_t k = 0; k < q->n_offers; k++) any |= q->offers[k].n_kept > 0;
    return any;
}

/* Whether an offer without a candidate may have one at the next size: none within the limit, and priced for the whole cluster. */
static bool goes_on(const struct coarse *q)
{
    int32_t next = q->size + 1;
    return q->most_ns && q->whole && next < q->task->n_sizes && q->whole->at_size[next];
}

/* Candidates of the current size, for the offers whose best estimate fell with every size so far. Whether there still are such offers. */
static bool combine_offers(struct coarse *q)
{
    bool more = false;
    for (int32_t k = 0; k < q->n_offers; k++) {
        struct coarse_offer *o = &q->offers[k];
        if (o->ended) continue;
        int64_t best = o->n_kept ? o->kept[0].estimate_ns : INT64_MAX;
        if (o->of->divided) coarse_divided_take(o->of, q);
        o->of->offer = o;
        coarse_combine(o->of);
        o->ended = o->n_kept ? o->kept[0].estimate_ns >= best : !goes_on(q);
        more |= !o->ended;
    }
    return more;
}

/* Sizes from the smallest on, as long as the best estimate of an offer falls. If not even the smallest fits, less and less memory is spared. */
static enum status estimate(struct coarse *q, struct error *err)
{
    bool more = true;
    list_offers(q);
    for (int32_t i = 0; i < q->task->n_sizes && more && !search_context_stopped(q->t); i++) {
        TRY(coarse_space(q, i, err));
        q->n_tried = i + 1;
        more = combine_offers(q);
        while (i == 0 && !found_any(q) && q->spare_percent > SPARE_LEAST) {
            q->spare_percent--;
            for (int32_t k = 0; k < q->n_offers; k++) q->offers[k].ended = false;
            more = combine_offers(q);
        }
    }
    return OK;
}

static enum status find_candidates(struct coarse *q, struct error *err)
{
    if (q->n_offers) return OK;
    q->templates = arena_new();
    enum status st = q->whole ? OK : coarse_classes(q, err);
    if (st == OK) st = estimate(q, err);
    arena_free(q->templates);
    q->templates = NULL;
    return st;
}

static enum status search(struct coarse *q, struct error *err)
{
    TRY(find_candidates(q, err));
    return coarse_trials(q, err);
}

/* A trial by the search's own scorer, whether the search is stopped or not. */
static enum status sample_now(struct coarse *q, const struct space *s, struct plan *p, int64_t *ns,
                              struct error *err)
{
    struct parallel_score_item items[2];
    struct coarse_sample x;
    int32_t n = coarse_sample_make(q->arena, s, p, false, false, items, &x);
    for (int32_t i = 0; i < n; i++)
        TRY(scorer_fit(q->t->scorer, &items[i].space, &items[i].plan, &items[i].ns, err));
    *ns = coarse_sample_ns(&x);
    coarse_sample_adopt(q->t->arena, &x, p);
    return OK;
}

void coarse_keep_sample(struct coarse *q, const struct plan *p, int64_t ns)
{
    q->t->sampled_ns = ns;
    incumbents_add(&q->t->incumbents, p, ns);
}

/* A search that ended without a plan, because it was stopped or its evaluations were spent: the best candidate that fits is tried after all, the
 * one of a stopped search by a sample. */
static enum status rescue(struct coarse *q, struct error *err)
{
    bool stopped = search_context_stopped(q->t);
    const volatile sig_atomic_t *watched = stop_watch(NULL);
    enum status st = OK;
    const struct coarse_offer *o = &q->offers[0];
    int32_t n = stopped ? (int32_t)units_min(o->n_kept, PARALLEL_SCORE_BATCH) : o->n_kept;
    for (int32_t i = 0; i < n && !q->t->incumbents.n && st == OK; i++) {
        struct space s = q->spaces[o->kept[i].size];
        struct plan p;
        int64_t ns = INT64_MAX;
        struct error why;
        s.cluster = q->task->cluster;
        if (!coarse_place(o->of, &o->kept[i], q->t->arena, &p)) continue;
        st = stopped ? sample_now(q, &s, &p, &ns, &why)
                     : scorer_fit(q->t->scorer, &s, &p, &ns, &why);
        if (st == ERR_INPUT) st = OK; /* no such stage */
        if (st != OK && err) *err = why;
        if (st != OK || ns == INT64_MAX) continue;
        if (stopped)
            coarse_keep_sample(q, &p, ns);
        else
            incumbents_add(&q->t->incumbents, &p, ns);
    }
    stop_watch(watched);
    return st;
}

struct coarse *coarse_new(struct search_context *t, const struct search_task *task,
                          bool parameters_only)
{
    struct arena *a = arena_new();
    struct coarse *q = ARENA_ARRAY(a, struct coarse, 1);
    *q = (struct coarse){.t = t,
                         .task = task,
                         .spare_percent = SPARE_USUAL,
                         .ordered = {.known = {.arena = a}},
                         .simulated = {.known = {.arena = a}},
                         .arena = a,
                         .spaces = ARENA_ARRAY(a, struct space, (size_t)task->n_sizes),
                         .at_size = ARENA_ARRAY(a, struct coarse_class *, (size_t)task->n_sizes),
                         .parameters_only = parameters_only};
    return q;
}

void coarse_free(struct coarse *q)
{
    if (!q) return;
    arena_free(q->arena);
}

enum status coarse_search(struct coarse *q, int32_t *n_tried, struct error *err)
{
    enum status st = search(q, err);
    bool unfound = !q->t->incumbents.n &&
                   (search_context_stopped(q->t) || q->t->evaluations_left <= 0);
    if ((st == OK || st == ERR_INTERRUPTED) && unfound) {
        enum status rescued = rescue(q, err);
        if (rescued != OK) st = rescued;
    }
    *n_tried = q->t->incumbents.n ? q->n_tried : 0;
    return st;
}

enum status coarse_estimate(struct coarse *q, int64_t most_ns, int64_t *ns, struct error *err)
{
    q->most_ns = most_ns;
    enum status st = find_candidates(q, err);
    for (int32_t k = 0; k < q->n_offers; k++) { /* offers on undivided nodes share their counts */
        struct coarse *of = q->offers[k].of;
        scorer_charge(q->t->scorer, LAID_NS * of->stages_laid + SET_NS * of->sets_made);
        of->stages_laid = of->sets_made = 0;
    }
    *ns = INT64_MAX;
    for (int32_t k = 0; k < q->n_offers && st == OK; k++)
        if (q->offers[k].n_kept) *ns = units_min(*ns, q->offers[k].kept[0].estimate_ns);
    return st;
}

uint32_t coarse_leading(const struct coarse *q)
{
    const struct coarse_offer *best = NULL;
    uint32_t classes = 0, own = 0;
    for (int32_t k = 0; k < q->n_offers; k++) {
        const struct coarse_offer *o = &q->offers[k];
        if (o->n_kept && (!best || o->kept[0].estimate_ns < best->kept[0].estimate_ns)) best = o;
    }
    for (int32_t i = 0; best && i < best->kept[0].n_teams; i++) own |= best->kept[0].team[i]->classes;
    for (int32_t k = 0; own; k++, own >>= 1)
        if (own & 1) classes |= 1U << (best->of->divided ? best->of->of_whole[k] : k);
    return classes;
}

enum status coarse_search_apart(struct coarse *q, int32_t *n_tried, struct incumbents *out,
                                struct error *err)
{
    struct search_context *t = q->t;
    struct incumbents before = t->incumbents;
    incumbents_init(&t->incumbents, t->arena, before.most, t->o, q->task->cluster);
    t->incumbents.also = before.also;
    enum status st = coarse_search(q, n_tried, err);
    *out = t->incumbents;
    t->incumbents = before;
    if (st != OK) incumbents_add_all(&t->incumbents, out); /* stopped: no search follows */
    return st;
}
