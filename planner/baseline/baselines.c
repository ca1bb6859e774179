#include "planner/baseline/baselines.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "planner/baseline/baselines_internal.h"
#include "planner/baseline/harp.h"
#include "planner/candidate/parallel_score.h"
#include "planner/coarse/internal.h"
#include "planner/coarse/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- results of a family --- */

bool baselines_plain(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        if (p->replicas[r].schedule || p->replicas[r].orders) return false;
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            int32_t warmup = p->replicas[r].n_stages - s; /* 1F1B's warm-ups */
            if (warmup > p->replicas[r].microbatches) warmup = p->replicas[r].microbatches;
            if (x->n_shards || x->order || x->zero || x->bucket_bytes || x->warmup > warmup)
                return false;
        }
    }
    return true;
}

static bool has_plan(const struct scoring *x) { return x->b->iteration_ns < INT64_MAX; }

void scoring_note(struct scoring *x, const char *why, int64_t miss)
{
    if (has_plan(x) || (*x->why && miss >= x->miss)) return;
    snprintf(x->why, sizeof x->why, "%s", why);
    x->miss = miss;
}

/* Plans of the exact search's class become incumbents there. */
void scoring_keep(struct scoring *x, const struct plan *p, int64_t ns, bool whole)
{
    if (whole && baselines_plain(p)) incumbents_add(&x->k->t->incumbents, p, ns);
    if (ns >= x->b->iteration_ns) return;
    x->b->plan = scorer_copy_plan(x->k->t->arena, p);
    x->b->iteration_ns = ns, x->b->sampled = !whole;
}

bool scoring_spent(const struct scoring *x)
{
    const struct search_context *t = x->k->t;
    return search_context_stopped(x->k->t) || (x->k->idle && t->evaluations_left <= 0) ||
           (t->work_end && scorer_work(t->scorer) >= t->work_end);
}

/* --- settings in order --- */

static int by_estimate(const void *x, const void *y)
{
    const struct baseline_setting *a = x, *b = y;
    if (a->fits != b->fits) return b->fits - a->fits;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    return a->number - b->number;
}

static enum status find_settings(struct scoring *x, baseline_family *family, struct error *err)
{
    struct baseline_task *k = x->k;
    k->n_settings = 0, k->capacity = 0, k->settings = NULL;
    *k->why = 0;
    TRY(family(k, err));
    x->settings = k->settings, x->n = k->n_settings;
    if (*k->why) scoring_note(x, k->why, k->miss);
    if (x->n) qsort(x->settings, (size_t)x->n, sizeof *x->settings, by_estimate);
    return OK;
}

static int by_closed_form(const void *x, const void *y)
{
    const struct harp_plan *a = x, *b = y;
    if (a->fits != b->fits) return b->fits - a->fits;
    if (a->closed_ns != b->closed_ns) return a->closed_ns < b->closed_ns ? -1 : 1;
    return a->size - b->size;
}

static enum status find_harp(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    x->plans = ARENA_ARRAY(k->arena, struct harp_plan, (size_t)k->n_sizes);
    for (int32_t i = 0; i < k->n_sizes && !(i && scoring_spent(x)); i++) {
        struct harp_plan *p = &x->plans[x->n];
        TRY(harp_plan_make(k, i, p, err));
        if (p->closed_ns == INT64_MAX || !p->fits) scoring_note(x, k->why, k->miss);
        x->n += p->closed_ns != INT64_MAX;
    }
    qsort(x->plans, (size_t)x->n, sizeof *x->plans, by_closed_form);
    return OK;
}

/* Whether a setting that lacked memory has no more on its devices than y: the same GPUs together, sequences and warm-ups, and no
 * more layers or copies of the state on a device. */
static bool lacks_memory_too(const struct scoring *x, const struct baseline_setting *y)
{
    for (int32_t i = 0; i < x->at; i++) {
        const struct baseline_setting *m = &x->settings[i];
        if (m->too_large && m->degree == y->degree && m->size == y->size && m->gpipe == y->gpipe &&
            m->cut == y->cut && m->strided == y->strided && m->stages >= y->stages &&
            m->chunks <= y->chunks && m->zero >= y->zero)
            return true;
    }
    return false;
}

static int64_t estimate_of(const struct scoring *x, int32_t i)
{
    return x->settings ? x->settings[i].estimate_ns : x->plans[i].closed_ns;
}

static bool fits(const struct scoring *x, int32_t i)
{
    return x->settings ? x->settings[i].fits : x->plans[i].fits;
}

/* The next setting to simulate; n: none may be faster than the family's best and, once the family has a time, than the limit. Settings that
 * lack memory by estimate are tried only if a baseline is requested alone. */
static int32_t next_of(struct scoring *x, int64_t limit_ns)
{
    for (; x->at < x->n; x->at++) {
        int64_t least = estimate_of(x, x->at) / SEARCH_BEYOND * 100;
        if (!fits(x, x->at) && (has_plan(x) || !x->k->t->o->baseline)) return x->n;
        if (x->k->idle ? least > x->k->limit_ns : has_plan(x) && least >= limit_ns)
            return x->n;
        if (x->settings && lacks_memory_too(x, &x->settings[x->at])) continue;
        if (least < x->b->iteration_ns) return x->at;
    }
    return x->n;
}

/* --- simulation --- */

struct trial {
    struct scoring *x;
    int32_t setting;
    struct plan plan;
    struct space *space;
    struct coarse_sample sample;
};

static enum status make_plan(struct trial *y, struct arena *a, struct error *err)
{
    struct scoring *x = y->x;
    struct baseline_task *k = x->k;
    int32_t size = x->settings ? x->settings[y->setting].size : x->plans[y->setting].size;
    TRY(baseline_space(k, size, &y->space, err));
    if (!x->settings) return harp_plan_fill(k, &x->plans[y->setting], a, &y->plan, err);
    return baseline_make(k, &x->settings[y->setting], x->b->name, a, &y->plan, err);
}

static int32_t sample_of(struct trial *y, struct arena *a, struct parallel_score_item *items)
{
    int32_t n = coarse_sample_make(a, y->space, &y->plan, false, y->x->k->coarse->all_replicas,
                                   items, &y->sample);
    bool all = y->sample.whole && (!coarse_sample_thins(&y->plan) || y->x->k->coarse->all_replicas);
    for (int32_t i = 0; i < n; i++) {
        items[i].why = ARENA_ARRAY(a, char, ERROR_TEXT);
        items[i].quick &= !all;
    }
    return n;
}

static void take(struct arena *a, struct trial *y)
{
    struct scoring *x = y->x;
    int64_t ns = coarse_sample_ns(&y->sample);
    const struct parallel_score_item *item = y->sample.item;
    if (ns == INT64_MAX && !y->sample.whole && item->ns < INT64_MAX) item++;
    if (ns == INT64_MAX) {
        if (x->settings) x->settings[y->setting].too_large = item->missing < INT64_MAX;
        if (item->tried && *item->why) scoring_note(x, item->why, item->missing);
        return;
    }
    /* An earlier one of the same chunk may have shown that this one is not needed: the result does not depend on the chunks. */
    if (estimate_of(x, y->setting) / SEARCH_BEYOND * 100 >= x->b->iteration_ns) return;
    coarse_sample_adopt(a, &y->sample, &y->plan);
    scoring_keep(x, &y->plan, ns, !item->quick);
}

/* Baselines have their own budget of evaluations, except on subsets of the devices. */
static enum status simulate(struct baseline_task *k, struct parallel_score_item *items, int32_t n,
                            struct error *err)
{
    struct search_context *t = k->t;
    int64_t left = t->evaluations_left;
    if (!k->idle) t->evaluations_left = INT64_MAX;
    enum status st = parallel_score(t, k->profile, items, n, err);
    if (!k->idle) t->evaluations_left = left;
    return st;
}

static enum status try_all(struct baseline_task *k, struct trial *y, int32_t n, struct error *err)
{
    struct arena *a = arena_new();
    struct parallel_score_item *items = ARENA_ARRAY(a, struct parallel_score_item, 2 * (size_t)n);
    int32_t used = 0;
    enum status st = OK;
    for (int32_t i = 0; i < n && st == OK; i++) {
        st = make_plan(&y[i], a, err);
        if (st == OK) used += sample_of(&y[i], a, &items[used]);
    }
    if (st == OK) st = simulate(k, items, used, err);
    for (int32_t i = 0; i < n && st == OK; i++) take(a, &y[i]);
    arena_free(a);
    return st;
}

/* Settings that the rest of the work allows, by the mean of the trials so far. */
static int32_t affordable(const struct scoring *x, int64_t each_ns)
{
    const struct search_context *t = x->k->t;
    if (scoring_spent(x)) return 0;
    if (!t->work_end) return PARALLEL_SCORE_BATCH;
    return (int32_t)units_min(PARALLEL_SCORE_BATCH,
                              (t->work_end - scorer_work(t->scorer)) / units_max(each_ns, 1));
}

/* The next settings of the families in turn, from *at on. Returns their number. */
static int32_t fill(struct scoring *all, int32_t n, int64_t fastest_ns, int32_t most, int32_t *at,
                    struct trial *out)
{
    int32_t filled = 0;
    for (int32_t without = 0; filled < most && without < n; *at = (*at + 1) % n) {
        struct scoring *x = &all[*at];
        int32_t i = next_of(x, fastest_ns);
        without = i < x->n ? 0 : without + 1;
        if (i == x->n) continue;
        out[filled++] = (struct trial){.x = x, .setting = i};
        x->at++;
    }
    return filled;
}

static int64_t fastest_whole(const struct scoring *all, int32_t n, int64_t ns)
{
    for (int32_t i = 0; i < n; i++)
        if (!all[i].b->sampled) ns = units_min(ns, all[i].b->iteration_ns);
    return ns;
}

static int by_first(const void *x, const void *y)
{
    const struct scoring *a = x, *b = y;
    int64_t p = a->n ? estimate_of(a, 0) : INT64_MAX, q = b->n ? estimate_of(b, 0) : INT64_MAX;
    return p != q ? (p > q) - (p < q) : (a->b > b->b) - (a->b < b->b);
}

/* The next setting of every family in turn, until none is left or the work is spent. The first one comes alone if it may exceed the work, because
 * a setting takes many times a trial of the coarse search where its replicas are not equal. */
static enum status try_rounds(struct baseline_task *k, struct scoring *all, int32_t n,
                              int64_t fastest_ns, struct error *err)
{
    int64_t each = k->coarse->trial_ns, begun = scorer_work(k->t->scorer);
    for (int32_t at = 0, tried = 0;;) {
        struct trial chunk[PARALLEL_SCORE_BATCH];
        int32_t most = (int32_t)units_min(affordable(all, each),
                                          !k->t->work_end || tried ? PARALLEL_SCORE_BATCH : 1);
        int32_t filled = fill(all, n, fastest_ns, most, &at, chunk);
        if (!filled) return OK;
        TRY(try_all(k, chunk, filled, err));
        tried += filled;
        each = (scorer_work(k->t->scorer) - begun) / tried;
        fastest_ns = fastest_whole(all, n, fastest_ns);
    }
}

/* --- plans simulated whole --- */

static const struct space *space_of(const struct baseline_task *k, const struct plan *p)
{
    int32_t i = 0;
    while (!k->spaces[i].arena || k->spaces[i].microbatch != p->microbatch) i++;
    return &k->spaces[i];
}

/* The plan of a sample. */
static enum status simulate_whole(struct scoring *x, struct error *err)
{
    struct search_baseline *b = x->b;
    struct parallel_score_item item = {.plan = b->plan, .space = *space_of(x->k, &b->plan)};
    TRY(simulate(x->k, &item, 1, err));
    if (item.ns == INT64_MAX)
        return OK; /* stopped, or it lacks a few bytes: the sample's time remains */
    b->iteration_ns = INT64_MAX;
    scoring_keep(x, &item.plan, item.ns, true);
    return OK;
}

/* A family whose settings were not simulated within the work has the time of its estimate. */
static enum status keep_estimate(struct scoring *x, struct error *err)
{
    struct trial y = {.x = x, .setting = x->at};
    if (has_plan(x) || x->at == x->n || !fits(x, x->at)) return OK;
    TRY(make_plan(&y, x->k->t->arena, err));
    scoring_keep(x, &y.plan, estimate_of(x, x->at), false);
    x->b->estimated = x->passed_over = true;
    return OK;
}

/* A sample's plan is simulated whole if the baseline was requested alone, or if it is faster than the fastest plan. */
static enum status settle(struct scoring *x, int64_t fastest_ns, struct error *err)
{
    struct search_baseline *b = x->b;
    TRY(keep_estimate(x, err));
    if (b->sampled && !b->estimated && (x->k->t->o->baseline || b->iteration_ns < fastest_ns))
        TRY(simulate_whole(x, err));
    b->quick = x->passed_over || (x->at < x->n && next_of(x, INT64_MAX) < x->n);
    if (has_plan(x)) b->plan.predicted_ns = b->iteration_ns;
    return OK;
}

/* --- all families --- */

static const char *why_of(const struct scoring *x)
{
    bool left = x->at < x->n && fits(x, x->at);
    const char *more = "";
    if (!*x->why && search_context_stopped(x->k->t))
        return "the search was stopped before this baseline";
    if (left && !*x->why)
        return "not tried within its share of the search's work; --baseline tries it";
    if (left) more = " (not all settings tried; --baseline tries more)";
    return arena_printf(x->k->t->arena, "%s%s", x->why, more);
}

/* Settings that may be faster than the fastest plan, then those that only may be faster than the best of their family. */
static enum status score_all(struct scoring *all, int32_t n, int64_t known_ns, struct error *err)
{
    int64_t fastest = known_ns ? known_ns : INT64_MAX;
    qsort(all, (size_t)n, sizeof *all, by_first);
    if (n) TRY(try_rounds(all->k, all, n, fastest, err));
    if (n && !all->k->idle) TRY(try_rounds(all->k, all, n, INT64_MAX, err));
    for (int32_t i = 0; i < n; i++) {
        TRY(settle(&all[i], fastest, err));
        if (all[i].b->iteration_ns == INT64_MAX) all[i].b->why = why_of(&all[i]);
        if (!all[i].b->sampled) fastest = units_min(fastest, all[i].b->iteration_ns);
    }
    return OK;
}

/* HAP's plans come last, because their search is the longest, with the work that remains. */
static enum status score_hap(struct scoring *x, int64_t fastest_ns, struct error *err)
{
    x->k->known_ns = fastest_ns < INT64_MAX ? fastest_ns : 0;
    TRY(scoring_hap(x, err));
    TRY(settle(x, INT64_MAX, err));
    if (x->b->iteration_ns == INT64_MAX) x->b->why = why_of(x);
    return OK;
}

static struct baseline_task task_of(struct search_context *q, const struct baselines_request *r,
                                    struct arena *a)
{
    const struct search_task *t = r->task;
    return (struct baseline_task){.arena = a,
                                  .t = q,
                                  .coarse = r->coarse,
                                  .job = t->job,
                                  .cluster = t->cluster,
                                  .idle = t->idle,
                                  .profile = t->profile,
                                  .sizes = t->sizes,
                                  .n_sizes = t->n_sizes,
                                  .n_grouped = r->n_grouped,
                                  .known_ns = r->known_ns};
}

enum status baselines_score(struct search_context *q, const struct baselines_request *r,
                            struct search_result *out, struct error *err)
{
    struct baseline_task k = task_of(q, r, q->arena);
    struct scoring *all = ARENA_ARRAY(q->arena, struct scoring, (size_t)baseline_count()), hap;
    int32_t n = 0, at_hap = -1;
    int64_t fastest = r->known_ns ? r->known_ns : INT64_MAX;
    if (baseline_apart(q->arena, k.cluster, out)) return OK;
    TRY(baseline_degrees(&k, err));
    for (int32_t i = 0; i < baseline_count() && !search_context_stopped(q); i++) {
        if (q->o->baseline && strcmp(q->o->baseline, baseline_name(i)) != 0) continue;
        if (!strcmp(baseline_name(i), "hap")) at_hap = i;
        if (i == at_hap) continue;
        struct scoring *x = &all[n++];
        *x = (struct scoring){.k = &k, .b = &out->baselines[i]};
        k.why[0] = 0;
        TRY(baseline_settings(i) ? find_settings(x, baseline_settings(i), err) : find_harp(x, err));
    }
    TRY(score_all(all, n, r->known_ns, err));
    for (int32_t i = 0; i < n; i++) fastest = units_min(fastest, all[i].b->iteration_ns);
    if (at_hap < 0) return OK;
    hap = (struct scoring){.k = &k, .b = &out->baselines[at_hap]};
    return score_hap(&hap, fastest, err);
}

static enum status score_part(struct baseline_task *k, double price_per_h, struct error *err)
{
    for (int32_t i = 0; i < baseline_count() && !search_context_over(k->t); i++) {
        struct search_baseline b = {.name = baseline_name(i), .iteration_ns = INT64_MAX};
        struct scoring x = {.k = k, .b = &b};
        if (!baseline_settings(i)) continue;
        k->limit_ns = incumbents_reach_ns(&k->t->incumbents, price_per_h);
        TRY(find_settings(&x, baseline_settings(i), err));
        TRY(score_all(&x, 1, k->limit_ns, err));
        if (b.iteration_ns != INT64_MAX && !b.sampled)
            incumbents_add(&k->t->incumbents, &b.plan, b.iteration_ns);
    }
    return OK;
}

enum status baselines_on(struct search_context *q, const struct baselines_request *r,
                         double price_per_h, struct error *err)
{
    struct arena *scratch = arena_new();
    struct baseline_task k = task_of(q, r, scratch);
    enum status st = baseline_degrees(&k, err);
    if (st == OK) st = score_part(&k, price_per_h, err);
    arena_free(scratch);
    return st;
}

void baselines_keep(struct search_context *q, const struct search_result *out)
{
    for (int32_t i = 0; i < out->n_baselines; i++)
        if (out->baselines[i].iteration_ns != INT64_MAX && !out->baselines[i].sampled)
            incumbents_add(&q->incumbents, &out->baselines[i].plan, out->baselines[i].iteration_ns);
}

enum status baselines_pick(struct search_context *q, struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count(); i++) {
        if (strcmp(baseline_name(i), q->o->baseline) != 0) continue;
        struct search_baseline *b = &out->baselines[i];
        if (b->iteration_ns == INT64_MAX && q->interrupted) return search_context_unfound(err);
        if (b->iteration_ns == INT64_MAX)
            return error_set(err, ERR_INFEASIBLE, "baseline %s: %s", b->name,
                             b->why ? b->why : "does not fit");
        q->incumbents.n = 0;
        incumbents_add(&q->incumbents, &b->plan, b->iteration_ns);
        out->baselines = b, out->n_baselines = 1; /* the others were not tried */
        return OK;
    }
    char known[300] = "", hint[NEAREST_HINT];
    struct nearest near = nearest_to(q->o->baseline);
    for (int32_t i = 0; i < baseline_count(); i++) {
        size_t used = strlen(known);
        nearest_try(&near, baseline_name(i));
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", baseline_name(i));
    }
    return error_set(err, ERR_USAGE, "unknown baseline '%s'; known: %s%s", q->o->baseline, known,
                     nearest_hint(&near, hint));
}
