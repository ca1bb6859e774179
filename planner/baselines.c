#include "planner/baselines.h"

#include "core/arena.h"
#include "planner/baseline.h"
#include "planner/baseline_harp.h"
#include "planner/offers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layers lowered in all simulations of one family, and in one of them: what a second or so pays for. */
enum { LAYERS_A_FAMILY = 6000, LAYERS_A_PLAN = 60000, TRIES_MOST = 8, QUICK_LANES = 64 };

/* --- beds and spaces --- */

enum status baseline_space(struct baseline_task *k, int32_t bed, int32_t size, struct space **out,
                           struct error *err)
{
    struct bed *b = &k->beds[bed];
    if (!b->spaces[size]) {
        const struct offer *o = b->offer;
        struct space *s = ARENA_ARRAY(k->arena, struct space, 1);
        TRY(space_make_on(k->arena, &o->job, &o->cluster, o->cost, o->graph, k->sizes[size],
                          k->t->lower, s, err));
        b->spaces[size] = s;
    }
    *out = b->spaces[size];
    return OK;
}

/* Every node's cards taken together so many at a time, none left over. */
static bool divides_nodes(const struct cluster *c, int32_t cards)
{
    for (int32_t n = 0; n < c->n_nodes; n++)
        if (c->nodes[n].n_devices % cards) return false;
    return c->n_nodes > 0;
}

static enum status make_bed(struct baseline_task *k, struct bed *b, int32_t cards,
                            struct error *err)
{
    int32_t *all = ARENA_ARRAY(k->arena, int32_t, (size_t)k->cluster->n_types);
    *b = (struct bed){.cards = cards, .possible = cards == 1 || divides_nodes(k->cluster, cards)};
    b->spaces = ARENA_ARRAY(k->arena, struct space *, (size_t)k->n_sizes);
    b->offer = ARENA_ARRAY(k->arena, struct offer, 1);
    for (int32_t t = 0; t < k->cluster->n_types; t++) {
        all[t] = cards;
        b->possible &= cards == 1 || (k->cluster->types[t].tensor_parallel <= 1 &&
                                      offer_possible(k->cluster, t, cards));
    }
    if (!b->possible) return OK;
    struct error why = {0};
    enum status st = offer_make(k->arena, k->job, k->cluster, k->profile, all, k->n_sizes, b->offer,
                                &why);
    if (st == OK || cards == 1) {
        if (st != OK && err) *err = why;
        return st;
    }
    b->possible = false; /* cards of other types on a node, for example */
    return OK;
}

static enum status make_beds(struct baseline_task *k, struct error *err)
{
    const struct search_options *o = k->t->o;
    k->beds = ARENA_ARRAY(k->arena, struct bed, (size_t)o->n_tensor + 1);
    TRY(make_bed(k, &k->beds[k->n_beds++], 1, err));
    for (int32_t i = 0; o->tensor && i < o->n_tensor; i++)
        if (o->tensor[i] > 1) TRY(make_bed(k, &k->beds[k->n_beds++], o->tensor[i], err));
    return OK;
}

/* --- scoring --- */

/* What a plan has lowering write down. */
static int64_t layers_of(const struct plan *p)
{
    int64_t n = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            n += (int64_t)(x->last_layer - x->first_layer + 1) * plan_stage_devices(x);
        }
    return n;
}

/* Plans of the class that the exact search knows: contiguous layers a device, 1F1B, nothing else. */
static bool is_plain(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        if (p->replicas[r].schedule || p->replicas[r].orders) return false;
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            if (x->n_shards || x->order || x->zero || x->bucket_bytes) return false;
        }
    }
    return true;
}

struct scoring { /* of one family */
    struct baseline_task *k;
    struct search_baseline *b;
    int64_t layers; /* lowered so far */
    int32_t tries;
    char why[256];
};

static void note_why(struct scoring *x, const char *why)
{
    if (x->b->iteration_ns == INT64_MAX) snprintf(x->why, sizeof x->why, "%s", why);
}

/* Why a plan that can be cut so does not run. */
static void find_why(struct scoring *x, const struct space *s, const struct plan *p)
{
    struct arena *scratch = arena_new();
    struct program program;
    struct error why = {0};
    struct lower_options o = *x->k->t->lower;
    o.check_memory = true;
    if (lower_plan_graphs(scratch, p, &s->graphs, &o, &program, &why) != OK) note_why(x, why.text);
    arena_free(scratch);
}

static enum status score(struct scoring *x, const struct space *s, struct plan *p,
                         struct error *err)
{
    int64_t ns, layers = layers_of(p);
    struct tries *t = x->k->t;
    if (layers > LAYERS_A_PLAN) {
        char text[160];
        snprintf(text, sizeof text,
                 "%d replicas of %d layers are more than a baseline is worth simulating",
                 (int)p->n_replicas, (int)s->n_layers);
        note_why(x, text);
        return OK;
    }
    x->tries++, x->layers += layers;
    int64_t left = t->evaluations_left;
    scorer_quick(t->scorer, s->n_devices > QUICK_LANES);
    TRY(tries_score(t, s, p, &ns, err));
    scorer_quick(t->scorer, false);
    t->evaluations_left = left; /* baselines have a budget of their own */
    if (ns == INT64_MAX) {
        find_why(x, s, p);
        return OK;
    }
    if (s->n_devices <= QUICK_LANES && s->cluster->n_devices == x->k->cluster->n_devices &&
        is_plain(p))
        kept_add(&t->kept, p, ns);
    if (ns >= x->b->iteration_ns) return OK;
    x->b->iteration_ns = ns;
    x->b->plan = score_copy_plan(t->arena, p);
    return OK;
}

static bool enough(const struct scoring *x)
{
    return tries_stopped(x->k->t) || x->tries >= TRIES_MOST ||
           (x->layers > LAYERS_A_FAMILY && x->b->iteration_ns != INT64_MAX);
}

static int by_estimate(const void *x, const void *y)
{
    const struct setting *a = x, *b = y;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    return a->number - b->number;
}

static enum status score_grids(struct scoring *x, baseline_family *family, struct error *err)
{
    struct baseline_task *k = x->k;
    k->n_settings = 0, k->why[0] = 0;
    TRY(family(k, err));
    qsort(k->settings, (size_t)k->n_settings, sizeof *k->settings, by_estimate);
    note_why(x, k->n_settings ? "" : k->why);
    for (int32_t i = 0; i < k->n_settings && !enough(x); i++) {
        struct plan p;
        struct space *s;
        TRY(baseline_space(k, k->settings[i].bed, k->settings[i].size, &s, err));
        TRY(baseline_make(k, &k->settings[i], x->b->name, scorer_arena(k->t->scorer), &p, err));
        TRY(score(x, s, &p, err));
    }
    return OK;
}

static int by_closed_form(const void *x, const void *y)
{
    const struct harp_plan *a = x, *b = y;
    if (a->closed_ns != b->closed_ns) return a->closed_ns < b->closed_ns ? -1 : 1;
    return a->size - b->size;
}

static enum status score_harp(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    struct harp_plan *all = ARENA_ARRAY(k->arena, struct harp_plan, (size_t)k->n_sizes);
    int32_t n = 0;
    k->why[0] = 0;
    for (int32_t i = 0; i < k->n_sizes && !tries_stopped(k->t); i++) {
        TRY(harp_plan_make(k, i, &all[n], err));
        n += all[n].closed_ns != INT64_MAX;
    }
    qsort(all, (size_t)n, sizeof *all, by_closed_form);
    note_why(x, k->why);
    for (int32_t i = 0; i < n && !enough(x); i++) {
        struct plan p;
        struct space *s;
        TRY(baseline_space(k, 0, all[i].size, &s, err));
        TRY(harp_plan_fill(k, &all[i], scorer_arena(k->t->scorer), &p, err));
        TRY(score(x, s, &p, err));
    }
    return OK;
}

/* Where candidates were compared by their first step: the winner's steady one. */
static enum status settle(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    struct search_baseline *b = x->b;
    for (int32_t i = 0; i < k->n_beds; i++)
        for (int32_t size = 0; k->beds[i].possible && size < k->n_sizes; size++) {
            const struct space *s = k->beds[i].spaces[size];
            if (!s || s->microbatch != b->plan.microbatch || s->n_devices <= QUICK_LANES ||
                s->cluster->n_devices != b->plan.cluster.n_devices)
                continue;
            return scorer_run(k->t->scorer, s, &b->plan, &b->iteration_ns, err);
        }
    return OK;
}

static enum status score_family(struct baseline_task *k, int32_t i, struct search_baseline *b,
                                struct error *err)
{
    struct scoring x = {.k = k, .b = b};
    if (baseline_settings(i))
        TRY(score_grids(&x, baseline_settings(i), err));
    else
        TRY(score_harp(&x, err));
    if (b->iteration_ns == INT64_MAX) {
        b->why = arena_strdup(k->t->arena, *x.why ? x.why : "stopped before it was tried");
        return OK;
    }
    TRY(settle(&x, err));
    b->plan.predicted_ns = b->iteration_ns;
    return OK;
}

enum status baselines_score(struct tries *q, const struct baselines_request *r,
                            struct search_result *out, struct error *err)
{
    struct baseline_task k = {.arena = q->arena,
                              .t = q,
                              .job = r->job,
                              .cluster = r->cluster,
                              .profile = r->profile,
                              .sizes = r->sizes,
                              .n_sizes = r->n_sizes};
    TRY(make_beds(&k, err));
    for (int32_t i = 0; i < baseline_count() && !tries_stopped(q); i++) {
        if (q->o->baseline && strcmp(q->o->baseline, baseline_name(i)) != 0) continue;
        TRY(score_family(&k, i, &out->baselines[i], err));
    }
    return OK;
}

void baselines_keep(struct tries *q, const struct search_result *out)
{
    for (int32_t i = 0; i < out->n_baselines; i++)
        if (out->baselines[i].iteration_ns != INT64_MAX)
            kept_add(&q->kept, &out->baselines[i].plan, out->baselines[i].iteration_ns);
}

enum status baselines_pick(struct tries *q, struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count(); i++) {
        if (strcmp(baseline_name(i), q->o->baseline) != 0) continue;
        struct search_baseline *b = &out->baselines[i];
        if (b->iteration_ns == INT64_MAX)
            return error_set(err, ERR_INFEASIBLE, "baseline %s: %s", b->name,
                             b->why ? b->why : "does not fit");
        q->kept.n = 0;
        kept_add(&q->kept, &b->plan, b->iteration_ns);
        return OK;
    }
    char known[300] = "";
    for (int32_t i = 0; i < baseline_count(); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", baseline_name(i));
    }
    return error_set(err, ERR_USAGE, "unknown baseline '%s'; known: %s", q->o->baseline, known);
}
