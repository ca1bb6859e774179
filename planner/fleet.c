#include "planner/fleet.h"
#include "planner/schedule_plan.h"

#include "core/arena.h"
#include "planner/bound_cluster.h"
#include "planner/crew.h"
#include "planner/improve.h"
#include "planner/level.h"
#include "planner/menu.h"
#include "planner/offers.h"
#include "planner/place.h"
#include "planner/uniform.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUICK_LANES = 256,
    BATCH_MOST = 16, /* candidates simulated side by side */
    CANDIDATES_MOST = 2048,
    /* What simulations may cost where the user says nothing: microseconds at all, and more for each card. */
    BUDGET_US = 700000,
    BUDGET_CARD_US = 500,
    /* The first where estimates are good: nobody shares a link, layers are measured whole. */
    BUDGET_CLOSED_US = 440000,
    BUDGET_APART_US = 1300, /* for each card where nobody shares a link: more can be told apart */
    /* What one costs, as measured: to lower a stage, to simulate a call or a message of a ring, steps of a run. */
    LOWER_US = 300,
    LOWER_MEASURED_US = 20, /* of layers measured whole: few operators */
    MENU_DEVICES_MOST = 1024,
    MENU_MOST = 80, /* mixes of a menu, for each size */
    UNIFORM_MOST = 400,
    STEADY_STEPS = 4,
    IMPROVED_MOST = 3,
    SIZES_MOST = 4, /* microbatch sizes looked at closely */
    VARIANTS = 4,
    POOLS_TO_LEAVE = 8 /* of more pools none is left out on purpose */
};

struct candidate {
    int32_t size;
    struct placed placed;
    int64_t estimate_ns;
    int64_t cost_us, settle_us; /* of simulating it: for comparison, and to its steady step */
};

struct fleet {
    struct tries *t;
    const struct fleet_task *task;
    struct arena *arena; /* spaces, templates, placed mixes */
    struct offers offers;
    struct space *spaces;           /* (n_sizes) */
    struct template_maker **makers; /* (n_sizes) */
    int32_t n_candidates;
    struct candidate *candidates;
    int64_t left_us;    /* of the budget for simulations */
    int64_t best_ns;    /* least estimate of those looked at now */
    int64_t least_ns;   /* of all */
    int64_t *size_ns;   /* (n_sizes) the same of each size, stages as long as they want */
    struct mix *before; /* (n_sizes, VARIANTS) the last mix of each */
    bool apart;         /* every two devices have links of their own */
};

/* --- candidates --- */

static bool same_mix(const struct mix *a, const struct mix *b)
{
    if (a->n != b->n || a->t_ns != b->t_ns) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (a->count[i] != b->count[i] || a->templates[i].n_stages != b->templates[i].n_stages)
            return false;
    return true;
}

/* Calls of all stages, and messages of all rings. */
static int64_t work_of(const struct placed *x)
{
    const struct plan *p = &x->plan;
    int64_t calls = 0, most = 1;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        calls += 2 * (int64_t)p->replicas[r].microbatches * p->replicas[r].n_stages;
        if (p->replicas[r].n_stages > most) most = p->replicas[r].n_stages;
    }
    return calls + (p->n_replicas > 1 ? 2 * most * p->n_replicas * p->n_replicas : 0);
}

static void add_candidates(struct fleet *q, int32_t size, const struct mix *x)
{
    for (int how = 0; how < PLACEMENT_COUNT && q->n_candidates < CANDIDATES_MOST; how++) {
        struct candidate *c = &q->candidates[q->n_candidates];
        c->size = size;
        if (!place_mix(q->arena, q->makers[size], x, (enum placement)how, &c->placed)) continue;
        c->estimate_ns = place_estimate(q->arena, &c->placed, x);
        if (c->estimate_ns < q->least_ns) q->least_ns = c->estimate_ns;
        /* Where nobody shares a link estimates are good to some per cent. */
        if (q->apart && c->estimate_ns / 3 > q->least_ns / 2) continue;
        bool measured = q->task->job->model.measured != NULL;
        int64_t work = work_of(&c->placed),
                lower = (measured ? LOWER_MEASURED_US : LOWER_US) * (int64_t)c->placed.n_stages;
        /* Replicas that are alike fold into one. */
        if (q->apart && c->placed.plan.n_replicas > x->n)
            work = work * x->n / c->placed.plan.n_replicas;
        c->settle_us = lower + STEADY_STEPS * work;
        c->cost_us = c->placed.n_stages > QUICK_LANES ? lower + work : c->settle_us;
        if (c->estimate_ns < q->best_ns) q->best_ns = c->estimate_ns;
        q->n_candidates++;
    }
}

/* The mix of one size, of stages of at most so many layers. Placed where nothing much better is known. */
static void make_mix(struct fleet *q, int32_t size, int32_t variant, int32_t most_layers)
{
    static const struct mix_options variants[VARIANTS] = {
        {.one_kind = false}, {.widest = true}, {.one_kind = true}, {.one_zone = true}};
    struct template_maker *m = q->makers[size];
    struct mix x;
    int64_t relaxed;
    m->most_layers = most_layers;
    if (variants[variant].widest && m->n_kinds == m->n_pools) return;
    if (variants[variant].one_kind && m->n_kinds == 1) return;
    if (variants[variant].one_zone && m->g->n_zones == 1) return;
    if (!mix_solve(m, m->s->microbatches, &variants[variant], &x, &relaxed)) return;
    /* Wide devices may be slower and yet the only ones few enough to be simulated. */
    int64_t worse = variants[variant].widest ? q->best_ns : q->best_ns / 5;
    if (x.t_ns > q->best_ns && x.t_ns - q->best_ns > worse) return;
    if (same_mix(&x, &q->before[size * VARIANTS + variant])) return;
    q->before[size * VARIANTS + variant] = x;
    add_candidates(q, size, &x);
}

bool fleet_apart(const struct cluster *c)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (!link_of_every_pair(&c->links[i])) return false;
    return true;
}

/* Where kinds are few and plans are cheap to place. */
static void take_menu(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    struct mix *mixes;
    int32_t n;
    if (!q->apart || q->task->cluster->n_devices > MENU_DEVICES_MOST) return;
    m->most_layers = m->s->n_layers;
    menu_mixes(m, m->s->microbatches, MENU_MOST, &mixes, &n);
    for (int32_t i = 0; i < n && !tries_stopped(q->t); i++) add_candidates(q, size, &mixes[i]);
    uniform_mixes(m, m->s->microbatches, UNIFORM_MOST, &mixes, &n);
    for (int32_t i = 0; i < n && !tries_stopped(q->t); i++) add_candidates(q, size, &mixes[i]);
}

/* The pool whose leaving leaves the least estimate goes, as long as there is one: slow devices may cost their team more in
 * messages than they bring. Each step's estimates become candidates. */
static void leave_out(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    struct mix_options o = {0};
    m->most_layers = m->s->n_layers;
    for (int32_t left = m->n_pools; left > 1 && m->n_pools <= POOLS_TO_LEAVE; left--) {
        int64_t best = INT64_MAX, all = q->best_ns;
        int32_t leaves = -1;
        for (int32_t p = 0; p < m->n_pools && !tries_stopped(q->t); p++) {
            struct mix_options without = {.left_out = o.left_out | UINT64_C(1) << p};
            struct mix x;
            int64_t relaxed;
            if (o.left_out >> p & 1) continue;
            if (!mix_solve(m, m->s->microbatches, &without, &x, &relaxed)) continue;
            q->best_ns = INT64_MAX;
            add_candidates(q, size, &x);
            if (q->best_ns < best) best = q->best_ns, leaves = p;
        }
        q->best_ns = best < all ? best : all;
        if (leaves < 0) return;
        o.left_out |= UINT64_C(1) << leaves;
    }
}

/* One replica alone, of every template that was made: no sums at all. */
static void make_single(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    const struct template *best = NULL;
    int32_t one[3] = {1, 0, 0};
    for (int32_t i = 0; i < m->n_pool; i++)
        if (!best ||
            template_ns(&m->pool[i], m->s->microbatches) < template_ns(best, m->s->microbatches))
            best = &m->pool[i];
    if (!best) return;
    struct template copy = *best;
    struct mix x = {1, &copy, &one[0], &one[1], &one[2], 0};
    if (mix_share(&x, m->s->microbatches)) add_candidates(q, size, &x);
}

/* All sizes with stages as long as they want first; then, for the most promising ones, stages of ever fewer layers: longer
 * pipelines take longer to fill and have less to sum up. */
static enum status make_candidates(struct fleet *q, struct error *err)
{
    int32_t n = q->task->n_sizes;
    for (int32_t i = 0; i < n; i++) q->size_ns[i] = INT64_MAX;
    for (int32_t i = 0; i < n && !tries_stopped(q->t); i++) {
        TRY(offers_size(q->arena, &q->offers, q->task->sizes[i], q->t->lower, &q->spaces[i],
                        &q->makers[i], err));
        int64_t before = q->best_ns;
        q->best_ns = INT64_MAX;
        make_mix(q, i, 0, q->spaces[i].n_layers);
        make_single(q, i);
        q->size_ns[i] = q->best_ns;
        if (before < q->best_ns) q->best_ns = before;
    }
    for (int32_t round = 0; round < SIZES_MOST; round++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (q->size_ns[i] < INT64_MAX && (best < 0 || q->size_ns[i] < q->size_ns[best]))
                best = i;
        if (best < 0) break;
        q->size_ns[best] = INT64_MAX;
        take_menu(q, best);
        int32_t layers = q->spaces[best].n_layers;
        for (int32_t most = layers; most > 1; most /= 4)
            for (int32_t v = most == layers; v < VARIANTS && !tries_stopped(q->t); v++)
                if (v == 0 || 4 * most >= layers) make_mix(q, best, v, most);
        if (round == 0) leave_out(q, best);
    }
    return OK;
}

static int by_estimate(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    if (a->size != b->size) return a->size - b->size;
    return a->placed.n_stages - b->placed.n_stages;
}

/* --- simulations --- */

struct scored {
    struct plan plan;
    int64_t cost_us, settle_us;
    bool quick;
    int64_t ns;
    int64_t *worked; /* (replicas) when they ended */
    struct space space;
};

static void keep_best(struct fleet *q, const struct scored *x, struct scored *best, int32_t *n)
{
    int32_t at = *n < IMPROVED_MOST ? (*n)++ : IMPROVED_MOST;
    kept_add(&q->t->kept, &x->plan, x->ns);
    for (; at > 0 && best[at - 1].ns > x->ns; at--)
        if (at < IMPROVED_MOST) best[at] = best[at - 1];
    if (at < IMPROVED_MOST) best[at] = *x;
}

/* Simulates what was chosen. */
static enum status simulate_batch(struct fleet *q, struct scored *chosen, int32_t n,
                                  struct scored *best, int32_t *n_best, struct error *err)
{
    struct crew_item items[BATCH_MOST];
    for (int32_t i = 0; i < n; i++)
        items[i] = (struct crew_item){
            .plan = chosen[i].plan, .space = chosen[i].space, .quick = chosen[i].quick};
    TRY(crew_score(q->t, q->task->profile, items, n, err));
    for (int32_t i = 0; i < n; i++) {
        chosen[i].plan = items[i].plan, chosen[i].ns = items[i].ns;
        if (chosen[i].ns < INT64_MAX) keep_best(q, &chosen[i], best, n_best);
    }
    return OK;
}

/* Estimates of large plans are too short by a thirtieth, more often than not. */
static bool hopeless(int64_t estimate_ns, int64_t best_ns)
{
    return estimate_ns + estimate_ns / 32 >= best_ns;
}

/* Large plans with split backwards, as long as they fit: there is no budget for both. */
static enum status score_candidate(struct fleet *q, struct scored *x, struct error *err)
{
    struct plan whole = score_copy_plan(q->arena, &x->plan);
    if (x->quick && level_split(&x->space, &x->plan)) {
        TRY(tries_score(q->t, &x->space, &x->plan, &x->ns, err));
        if (x->ns < INT64_MAX) return OK;
        x->plan = score_copy_plan(q->t->arena, &whole);
    }
    return tries_score(q->t, &x->space, &x->plan, &x->ns, err);
}

static enum status simulate_large(struct fleet *q, struct scored *x, struct scored *best,
                                  int32_t *n_best, struct error *err)
{
    scorer_quick(q->t->scorer, true);
    TRY(score_candidate(q, x, err));
    if (x->ns == INT64_MAX) return OK;
    x->worked = ARENA_ARRAY(q->arena, int64_t, (size_t)x->plan.n_replicas);
    if (!scorer_worked(q->t->scorer, &x->plan, x->worked)) x->quick = false;
    keep_best(q, x, best, n_best);
    return OK;
}

/* The first candidate whatever it costs, if none is cheaper; others while there is budget. One by one until one fits, then in
 * batches, the same for any number of threads. */
static enum status simulate_candidates(struct fleet *q, struct scored *best, int32_t *n_best,
                                       struct error *err)
{
    struct scored chosen[BATCH_MOST];
    int64_t least = INT64_MAX, half = q->left_us / 2;
    int32_t n = 0;
    *n_best = 0;
    for (int32_t i = 0; i < q->n_candidates; i++)
        if (q->candidates[i].cost_us < least) least = q->candidates[i].cost_us;
    for (int32_t i = 0; i < q->n_candidates && !tries_over(q->t); i++) {
        const struct candidate *c = &q->candidates[i];
        if (i && c->estimate_ns == c[-1].estimate_ns && c->size == c[-1].size) continue;
        if (q->apart && *n_best == IMPROVED_MOST && q->t->kept.n == q->t->kept.most &&
            c->estimate_ns - best[0].ns > best[0].ns / 5)
            break; /* so far behind that no error of estimates brings it forward */
        bool quick = c->placed.n_stages > QUICK_LANES;
        if (quick && *n_best && hopeless(c->estimate_ns, best[0].ns)) continue;
        /* Half is kept for improvements, which the largest plans are too dear for. */
        int64_t spare = quick ? 0 : half;
        if (q->left_us - c->cost_us < spare && (*n_best || c->cost_us > least)) continue;
        struct scored *x = &chosen[n];
        *x = (struct scored){.cost_us = c->cost_us, .settle_us = c->settle_us, .quick = quick};
        /* The cluster of a plan outlives the tables. */
        TRY(place_plan(q->t->arena, &q->offers, &c->placed, &x->plan, &x->space, err));
        q->left_us -= c->cost_us;
        if (quick) {
            TRY(simulate_large(q, x, best, n_best, err));
            continue;
        }
        n++;
        if (*n_best && n < BATCH_MOST && n < q->t->evaluations_left) continue;
        TRY(simulate_batch(q, chosen, n, best, n_best, err));
        n = 0;
    }
    return n ? simulate_batch(q, chosen, n, best, n_best, err) : OK;
}

enum { LEVEL_ROUNDS = 2, LEVEL_CARD_US = 400 }; /* for each card, what candidates left added */

/* Large plans: shares by when replicas end, which a few simulations settle. */
static enum status level(struct fleet *q, struct scored *x, struct error *err)
{
    int64_t us = q->left_us + LEVEL_CARD_US * (int64_t)q->task->cluster->n_devices;
    int64_t rounds = us / x->cost_us;
    if (!x->quick || rounds < 1) return OK;
    scorer_quick(q->t->scorer, true);
    if (rounds > LEVEL_ROUNDS) rounds = LEVEL_ROUNDS;
    TRY(level_plan(q->t, &x->space, &x->plan, x->worked, &x->ns, (int32_t)rounds, err));
    q->left_us = us - rounds * x->cost_us;
    kept_add(&q->t->kept, &x->plan, x->ns);
    return OK;
}

/* The winner's steady step, where candidates were compared by their first. */
static enum status settle(struct fleet *q, struct scored *x, struct error *err)
{
    struct kept full;
    scorer_quick(q->t->scorer, false);
    TRY(tries_score(q->t, &x->space, &x->plan, &x->ns, err));
    kept_init(&full, q->t->arena, q->t->kept.most, q->t->o, q->task->cluster);
    kept_add(&full, &x->plan, x->ns);
    q->t->kept = full;
    return OK;
}

enum { ORDER_OPERATIONS = 1000000 }; /* for the orders of a replica: about 30 ms */

/* The winner's stages with searched orders, where that is quicker. */
static enum status order(struct fleet *q, struct scored *x, struct error *err)
{
    int64_t left = q->t->evaluations_left;
    TRY(schedule_plan(q->t->arena, q->t->scorer, &x->space, &x->plan, &x->ns, &left,
                      ORDER_OPERATIONS, q->t->o->stop, err));
    q->t->evaluations_left = left;
    kept_add(&q->t->kept, &x->plan, x->ns);
    return OK;
}

static enum status search(struct fleet *q, struct error *err)
{
    struct scored best[IMPROVED_MOST + 1];
    int32_t n_best = 0;
    const struct search_options *o = q->t->o;
    TRY(offers_make(q->t->arena, q->task->job, q->task->cluster, q->task->profile, o->tensor,
                    o->n_tensor, &q->offers, err));
    TRY(make_candidates(q, err));
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, by_estimate);
    if (!q->n_candidates) return OK;
    q->left_us = o->evaluations > 0
                     ? INT64_MAX / 2
                     : (q->apart && q->task->job->model.measured ? BUDGET_CLOSED_US : BUDGET_US) +
                           (q->apart ? BUDGET_APART_US : BUDGET_CARD_US) *
                               (int64_t)q->task->cluster->n_devices;
    TRY(simulate_candidates(q, best, &n_best, err));
    if (n_best) TRY(level(q, &best[0], err));
    for (int32_t i = 0; i < n_best && !tries_over(q->t); i++) {
        int64_t tries = (q->left_us / (n_best - i) - best[i].settle_us) / best[i].cost_us;
        if (o->evaluations > 0) tries = q->t->evaluations_left / (n_best - i);
        if (tries < 1) continue;
        scorer_quick(q->t->scorer, best[i].quick);
        TRY(improve_plan(q->t, &best[i].space, &best[i].plan, &best[i].ns, tries, err));
        q->left_us -= tries * best[i].cost_us;
        kept_add(&q->t->kept, &best[i].plan, best[i].ns);
    }
    int32_t first = 0;
    for (int32_t i = 1; i < n_best; i++)
        if (best[i].ns < best[first].ns) first = i;
    if (n_best && !best[first].quick) return order(q, &best[first], err);
    if (!n_best || best[first].settle_us > q->left_us) return OK;
    return settle(q, &best[first], err);
}

/* The certificate speaks of the devices that were offered: where cards must be shared by 4 or by 8, of such plans. */
static const char *class_of(struct fleet *q, const char *text)
{
    const struct search_options *o = q->t->o;
    for (int32_t i = 0; o->tensor && i < o->n_tensor; i++)
        text = arena_printf(q->t->arena, "%s%s%d", text,
                            i ? ", " : "; cards that share operators: ", (int)o->tensor[i]);
    return text;
}

/* presets: of what baselines were priced with as well, who may share operators in other ways. */
static enum status certify(struct fleet *q, bool presets, struct bound_certificate *bound,
                           struct error *err)
{
    const struct cluster *c = q->task->cluster, *priced = &q->offers.priced;
    if (!q->makers[0]) /* stopped before anything was tried but baselines */
        TRY(offers_size(q->arena, &q->offers, q->task->sizes[0], q->t->lower, &q->spaces[0],
                        &q->makers[0], err));
    int64_t *count = ARENA_ARRAY(q->arena, int64_t, (size_t)c->n_types);
    int32_t *cards = ARENA_ARRAY(q->arena, int32_t, (size_t)priced->n_types); /* 0: not offered */
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    for (int32_t k = 0; k < q->offers.n_kinds; k++)
        cards[q->offers.kinds[k].type] = q->offers.kinds[k].cards;
    struct bound_any *b = bound_any_new(q->t->arena, q->spaces[0].n_layers, c->n_types, count,
                                        q->task->job->global_batch);
    for (int32_t i = 0; i < q->task->n_sizes && q->makers[i]; i++)
        bound_cluster_offer(b, &q->spaces[i], cards, q->offers.base_type);
    for (int32_t i = 0; presets && i < q->t->n_presets; i++)
        bound_cluster_offer_grouped(b, c, q->t->preset[i]);
    TRY(bound_cluster_cuts(q->t->arena, b, c, q->offers.cost, err));
    TRY(bound_any_solve(b, bound, err));
    if (!presets) bound->class_text = class_of(q, bound->class_text);
    return OK;
}

enum status fleet_search(struct tries *t, const struct fleet_task *task,
                         struct bound_certificate bound[2], struct error *err)
{
    struct fleet q = {.t = t, .task = task, .arena = arena_new()};
    q.candidates = ARENA_ARRAY(q.arena, struct candidate, CANDIDATES_MOST);
    q.spaces = ARENA_ARRAY(q.arena, struct space, (size_t)task->n_sizes);
    q.best_ns = q.least_ns = INT64_MAX;
    q.apart = fleet_apart(task->cluster);
    q.size_ns = ARENA_ARRAY(q.arena, int64_t, (size_t)task->n_sizes);
    q.before = ARENA_ARRAY(q.arena, struct mix, VARIANTS * (size_t)task->n_sizes);
    q.makers = ARENA_ARRAY(q.arena, struct template_maker *, (size_t)task->n_sizes);
    enum status st = search(&q, err);
    if (st == OK && t->kept.n && bound) st = certify(&q, !t->o->tensor, &bound[0], err);
    if (st == OK && t->kept.n && bound) st = certify(&q, true, &bound[1], err);
    for (int32_t i = 0; i < t->kept.n && t->o->tensor; i++)
        place_tidy(t->arena, &t->kept.plans[i].plan.cluster);
    arena_free(q.arena);
    return st;
}
