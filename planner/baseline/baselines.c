#include "planner/baseline/baselines.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "planner/baseline/baseline.h"
#include "planner/baseline/baselines_internal.h"
#include "planner/baseline/harp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of layers lowered: in all simulations of one family (about 0.25 s), in one plan (3 s), and beside a large search in
 * the first plans of all families (0.5 s) and in all simulations of families tried as if alone (1 s). */
enum {
    LAYERS_A_FAMILY = 6000,
    LAYERS_A_PLAN = 60000,
    LAYERS_BESIDE = 10000,
    LAYERS_WHOLE = 40000,
    TRIES_MAX = 10,
    TRIES_TO_FIT = 40, /* while no setting fits: Megatron's of a 70B model with four degrees on 128 GPUs of 80 GB need 16 */
    WHOLE_LANES = 32, /* largest cluster on which families are scored as if requested alone */
    REST_LANES = 64,  /* largest cluster on which every family is tried, then settings that may beat the fastest */
    REST_MS = 1800,   /* limit of scorer_work for that */
    LANES_A_FAMILY = 4000,
    LANES_BESIDE = 512,
    LANES_A_PLAN = 2560,
    CALLS_MAX =
        20000000 /* stage calls of all families together after the first plan (about 4 s) */
};
#define HOPELESS 1.5 /* settings above this multiple of the best estimate are skipped */
#define SURE 0.95    /* least observed ratio of simulated time to estimate, see score_rest */

/* --- scoring --- */

/* Layers that lowering writes out for a plan. */
int64_t scoring_layers(const struct plan *p)
{
    int64_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            n += (int64_t)(x->last_layer - x->first_layer + 1) * plan_stage_devices(x);
        }
    return n;
}

static int64_t calls_of(const struct plan *p)
{
    int64_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            n += 2 * (int64_t)p->replicas[r].microbatches *
                 plan_stage_devices(&p->replicas[r].stages[s]);
    return n;
}

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

void scoring_note(struct scoring *x, const char *why, int64_t miss)
{
    if (x->b->iteration_ns != INT64_MAX || (*x->why && miss >= x->miss)) return;
    snprintf(x->why, sizeof x->why, "%s", why);
    x->miss = miss;
}

int64_t scoring_find_why(struct scoring *x, const struct plan *p)
{
    char why[ERROR_TEXT];
    int64_t miss = scorer_last_miss(x->k->t->scorer, p, why);
    if (*why) scoring_note(x, why, miss);
    return miss;
}

/* Plans of the exact search's class become incumbents there; the best represents the family. */
void scoring_keep(struct scoring *x, const struct space *s, const struct plan *p, int64_t ns)
{
    struct search_context *t = x->k->t;
    if (s->n_devices <= QUICK_LANES && baselines_plain(p))
        incumbents_add(&t->incumbents, p, ns);
    if (ns >= x->b->iteration_ns) return;
    x->b->iteration_ns = ns;
    x->b->plan = scorer_copy_plan(t->arena, p);
}

/* *too_large: the plan lacks memory. */
static enum status score(struct scoring *x, const struct space *s, struct plan *p, bool *too_large,
                         struct error *err)
{
    int64_t ns, layers = scoring_layers(p);
    struct search_context *t = x->k->t;
    if (layers > LAYERS_A_PLAN) {
        char text[160];
        snprintf(text, sizeof text,
                 "%d replicas of %d layers are too many to simulate for a baseline",
                 (int)p->n_replicas, (int)s->n_layers);
        scoring_note(x, text, INT64_MAX);
        return OK;
    }
    if (s->n_devices > LANES_A_PLAN) {
        char text[160];
        snprintf(text, sizeof text,
                 "%d devices take minutes to simulate", (int)s->n_devices);
        scoring_note(x, text, INT64_MAX);
        return OK;
    }
    int64_t calls = calls_of(p);
    if (x->k->calls && x->k->calls + calls > CALLS_MAX) {
        char text[160];
        snprintf(text, sizeof text,
                 "%" PRId64 " stage calls per step are too many to simulate for another baseline; "
                 "larger microbatches need fewer",
                 calls);
        scoring_note(x, text, INT64_MAX);
        return OK;
    }
    int64_t before = scorer_calls(t->scorer), left = t->evaluations_left;
    x->tries++, x->layers += layers;
    scorer_quick(t->scorer, s->n_devices > QUICK_LANES);
    TRY(search_context_score(t, s, p, &ns, err));
    scorer_quick(t->scorer, false);
    x->k->calls +=
        scorer_calls(t->scorer) - before; /* several times, if the plan was repaired */
    /* baselines have their own budget, except on subsets of the devices */
    if (!x->k->part) t->evaluations_left = left;
    if (ns == INT64_MAX) {
        if (!x->k->part) *too_large = scoring_find_why(x, p) < INT64_MAX;
        return OK;
    }
    scoring_keep(x, s, p, ns);
    return OK;
}

static bool enough(const struct scoring *x)
{
    int64_t lanes = (int64_t)x->tries * x->k->cluster->n_devices;
    return (x->k->part ? search_context_over(x->k->t) : search_context_stopped(x->k->t)) ||
           (x->tries >= x->k->max_tries &&
            (x->b->iteration_ns != INT64_MAX || x->k->max_tries < TRIES_MAX ||
             x->tries >= TRIES_TO_FIT || x->layers > LAYERS_A_PLAN)) ||
           ((x->layers > LAYERS_A_FAMILY || lanes > LANES_A_FAMILY) &&
            x->b->iteration_ns != INT64_MAX);
}

static int by_estimate(const void *x, const void *y)
{
    const struct baseline_setting *a = x, *b = y;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    return a->number - b->number;
}

/* The best setting of each number of chunks comes first, because estimates are least accurate between orders. */
static void lead(struct baseline_setting *x, int32_t n)
{
    int32_t leaders = 0;
    for (int32_t i = 0; i < n; i++) {
        bool known = false;
        for (int32_t k = 0; k < leaders; k++) known |= x[k].chunks == x[i].chunks;
        if (known) continue;
        struct baseline_setting leader = x[i];
        memmove(&x[leaders + 1], &x[leaders], (size_t)(i - leaders) * sizeof *x);
        x[leaders++] = leader;
    }
}

static enum status find_settings(struct scoring *x, baseline_family *family, struct error *err)
{
    struct baseline_task *k = x->k;
    struct space *s;
    k->n_settings = 0, k->capacity = 0, k->settings = NULL;
    *k->why = 0;
    TRY(family(k, err));
    x->settings = k->settings, x->n = k->n_settings;
    if (!x->n) return OK;
    qsort(x->settings, (size_t)x->n, sizeof *x->settings, by_estimate), lead(x->settings, x->n);
    TRY(baseline_space(k, x->settings[0].size, &s, err));
    x->least = (int64_t)x->settings[0].replicas * s->n_layers;
    return OK;
}

/* Whether a setting with this estimate is pruned. */
static bool hopeless(struct scoring *x, int64_t estimate_ns)
{
    double ns = (double)estimate_ns;
    if (x->beyond_ns && x->tries && SURE * ns > (double)x->beyond_ns) return x->passed_over = true;
    return x->settings && x->b->iteration_ns != INT64_MAX &&
           ns > HOPELESS * (double)x->settings[0].estimate_ns;
}

/* Whether a setting that lacked memory has no more on its devices than y: the same GPUs together, sequences and warm-ups, and no
 * more layers or copies of the state on a device. */
static bool lacks_memory_too(const struct scoring *x, const struct baseline_setting *y)
{
    for (int32_t i = 0; i < x->at; i++) {
        const struct baseline_setting *m = &x->settings[i];
        if (m->too_large && m->degree == y->degree && m->size == y->size &&
            m->gpipe == y->gpipe && m->cut == y->cut && m->strided == y->strided &&
            m->stages >= y->stages && m->chunks <= y->chunks && m->zero >= y->zero)
            return true;
    }
    return false;
}

static enum status score_grids(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    for (; x->at < x->n && !enough(x); x->at++) {
        struct baseline_setting *y = &x->settings[x->at];
        if (hopeless(x, y->estimate_ns) || lacks_memory_too(x, y)) continue;
        if (k->part && (double)y->estimate_ns > HOPELESS * (double)k->limit_ns) break;
        struct plan p;
        struct space *s;
        TRY(baseline_space(k, y->size, &s, err));
        struct arena *a = scorer_arena(k->t->scorer);
        TRY(baseline_make(k, y, x->b->name, a, &p, err));
        TRY(score(x, s, &p, &y->too_large, err));
    }
    return OK;
}

static int by_closed_form(const void *x, const void *y)
{
    const struct harp_plan *a = x, *b = y;
    if (a->closed_ns != b->closed_ns) return a->closed_ns < b->closed_ns ? -1 : 1;
    return a->size - b->size;
}

static enum status find_harp(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    struct space *s;
    x->plans = ARENA_ARRAY(k->arena, struct harp_plan, (size_t)k->n_sizes);
    for (int32_t i = 0; i < k->n_sizes && !search_context_stopped(k->t); i++) {
        TRY(harp_plan_make(k, i, &x->plans[x->n], err));
        x->n += x->plans[x->n].closed_ns != INT64_MAX;
    }
    if (x->n) TRY(baseline_space(k, x->plans[0].size, &s, err));
    if (x->n) x->least = s->n_layers; /* one device per replica, or a few */
    qsort(x->plans, (size_t)x->n, sizeof *x->plans, by_closed_form);
    return OK;
}

static enum status score_harp(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    for (; x->at < x->n && !enough(x); x->at++) {
        struct plan p;
        struct space *s;
        bool too_large;
        if (hopeless(x, x->plans[x->at].closed_ns)) continue;
        TRY(baseline_space(k, x->plans[x->at].size, &s, err));
        TRY(harp_plan_fill(k, &x->plans[x->at], scorer_arena(k->t->scorer), &p, err));
        TRY(score(x, s, &p, &too_large, err));
    }
    return OK;
}

/* After a comparison by first steps: simulates the winner to its steady step. */
static enum status settle(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    struct search_baseline *b = x->b;
    /* of very many devices the first step is used */
    if (x->settled_ns == b->iteration_ns || k->cluster->n_devices > LANES_A_FAMILY) return OK;
    for (int32_t size = 0; size < k->n_sizes; size++) {
        const struct space *s = k->spaces[size];
        if (s && s->microbatch == b->plan.microbatch && s->n_devices > QUICK_LANES)
            return scorer_run(k->t->scorer, s, &b->plan, &b->iteration_ns, err);
    }
    return OK;
}

static enum status score_family(struct scoring *x, struct error *err)
{
    struct search_baseline *b = x->b;
    TRY(x->last ? scoring_hap(x, err) : x->settings ? score_grids(x, err) : score_harp(x, err));
    if (b->iteration_ns == INT64_MAX) return OK;
    TRY(settle(x, err));
    x->settled_ns = b->iteration_ns;
    b->plan.predicted_ns = b->iteration_ns;
    return OK;
}

static int by_layers(const void *x, const void *y)
{
    const struct scoring *a = x, *b = y;
    if (a->last != b->last) return a->last - b->last;
    if (a->least != b->least) return a->least < b->least ? -1 : 1;
    return (a->b > b->b) - (a->b < b->b);
}

/* Upper bound of the layers lowered by all simulations of a family requested alone. */
static int64_t whole_of(const struct scoring *x)
{
    int64_t tries = x->n < TRIES_MAX ? x->n : TRIES_MAX, all = tries * x->least;
    return all < LAYERS_A_FAMILY + x->least ? all : LAYERS_A_FAMILY + x->least;
}

static const char *why_of(const struct scoring *x)
{
    if (!*x->why) return "the search was stopped before this baseline";
    return arena_printf(x->k->t->arena, "%s%s", x->why,
                        x->b->quick && x->tries ? " (not all settings tried; --baseline tries more)"
                                                : "");
}

/* Up to LANES_BESIDE devices: the settings that a family would try alone after its first, except those with estimates above
 * the fastest plan, so that no baseline requested alone beats the search. Estimates ignore contention, so simulated times
 * are 1.25 to 8 times longer on 64 devices, and never below 0.95 of the estimate. */
static enum status score_rest(struct baseline_task *k, struct scoring *all, int32_t n,
                              int64_t *fastest, struct error *err)
{
    int64_t end = scorer_work(k->t->scorer) + REST_MS * INT64_C(1000000);
    k->max_tries = TRIES_MAX;
    for (int32_t i = 0; i < n && scorer_work(k->t->scorer) < end; i++) {
        struct scoring *x = &all[i];
        if (x->last || !x->b->quick || x->at == x->n || search_context_stopped(k->t)) continue;
        x->beyond_ns = *fastest < INT64_MAX ? *fastest : 0;
        TRY(score_family(x, err));
        x->b->quick = x->passed_over || (x->at < x->n && !enough(x));
        if (x->b->iteration_ns < *fastest) *fastest = x->b->iteration_ns;
    }
    return OK;
}

/* Cheapest families first, within the search's share of work: all settings of a family as if requested alone, else one. */
static enum status score_all(struct baseline_task *k, struct scoring *all, int32_t n, int64_t share,
                             struct error *err)
{
    int32_t lanes = k->t->o->baseline ? 0 : k->cluster->n_devices;
    bool beside = share < INT64_MAX, rest = beside && lanes <= REST_LANES;
    int64_t fastest = k->known_ns ? k->known_ns : INT64_MAX, whole = k->cluster->n_devices <= WHOLE_LANES ? LAYERS_WHOLE : 0;
    qsort(all, (size_t)n, sizeof *all, by_layers);
    for (int32_t i = 0; i < n && !search_context_stopped(k->t); i++) {
        struct scoring *x = &all[i];
        if (x->last && rest) TRY(score_rest(k, all, i, &fastest, err));
        x->rival_ns = fastest;
        x->beyond_ns = k->known_ns;
        x->b->quick |= beside && x->n > 1 && whole_of(x) > whole;
        k->max_tries = x->b->quick ? 1 : TRIES_MAX;
        if (x->n && (x->least > share || lanes > LANES_BESIDE))
            scoring_note(x, "not tried beside a search of many devices; --baseline tries it",
                         INT64_MAX);
        else if (x->n || x->last)
            TRY(score_family(x, err));
        share -= x->n ? x->least : 0;
        if (beside && !x->b->quick) whole -= x->layers;
        if (x->b->iteration_ns < fastest) fastest = x->b->iteration_ns;
        if (x->passed_over) x->b->quick = true;
        if (x->b->iteration_ns == INT64_MAX) x->b->why = why_of(x);
    }
    return OK;
}

enum status baselines_score(struct search_context *q, const struct baselines_request *r,
                            struct search_result *out, struct error *err)
{
    bool beside = !q->o->baseline && r->cluster->n_devices > SEARCH_DEVICES_MAX;
    struct baseline_task k = {.arena = q->arena,
                              .t = q,
                              .job = r->job,
                              .cluster = r->cluster,
                              .profile = r->profile,
                              .sizes = r->sizes,
                              .n_sizes = r->n_sizes,
                              .known_ns = r->known_ns};
    struct scoring *all = ARENA_ARRAY(q->arena, struct scoring, (size_t)baseline_count());
    int32_t n = 0;
    TRY(baseline_degrees(&k, err));
    for (int32_t i = 0; i < baseline_count() && !search_context_stopped(q); i++) {
        if (q->o->baseline && strcmp(q->o->baseline, baseline_name(i)) != 0) continue;
        struct scoring *x = &all[n++];
        *x = (struct scoring){.k = &k, .b = &out->baselines[i]};
        k.why[0] = 0;
        x->last = strcmp(baseline_name(i), "hap") == 0;
        if (x->last) continue;
        TRY(baseline_settings(i) ? find_settings(x, baseline_settings(i), err) : find_harp(x, err));
        if (!x->n) scoring_note(x, k.why, INT64_MAX);
    }
    return score_all(&k, all, n, beside ? LAYERS_BESIDE : INT64_MAX, err);
}

static enum status score_team(struct baseline_task *k, struct error *err)
{
    for (int32_t i = 0; i < baseline_count() && !search_context_over(k->t); i++) {
        struct search_baseline b = {.name = baseline_name(i), .iteration_ns = INT64_MAX};
        struct scoring x = {.k = k, .b = &b};
        if (!baseline_settings(i)) continue;
        TRY(find_settings(&x, baseline_settings(i), err));
        if (x.n) TRY(score_family(&x, err));
        if (b.iteration_ns != INT64_MAX) incumbents_add(&k->t->incumbents, &b.plan, b.iteration_ns);
    }
    return OK;
}

enum status baselines_on(struct search_context *q, struct space *spaces, int32_t n,
                         const int32_t *team, int32_t n_team, struct error *err)
{
    struct arena *scratch = arena_new();
    const struct baseline_degree single = {1, n_team, team};
    struct space **own = ARENA_ARRAY(scratch, struct space *, (size_t)n);
    int64_t *sizes = ARENA_ARRAY(scratch, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) own[i] = &spaces[i], sizes[i] = spaces[i].microbatch;
    struct baseline_task k = {.arena = scratch,
                              .t = q,
                              .job = spaces->job,
                              .cluster = spaces->cluster,
                              .sizes = sizes,
                              .n_sizes = n,
                              .n_degrees = 1,
                              .degrees = &single,
                              .spaces = own,
                              .part = true,
                              .limit_ns = search_context_limit(q),
                              .max_tries = TRIES_MAX};
    if (q->incumbents.n) k.limit_ns = q->incumbents.plans[0].iteration_ns;
    enum status st = score_team(&k, err);
    arena_free(scratch);
    return st;
}

void baselines_keep(struct search_context *q, const struct search_result *out)
{
    for (int32_t i = 0; i < out->n_baselines; i++)
        if (out->baselines[i].iteration_ns != INT64_MAX)
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
