#include "planner/spmd_stage/groups.h"

#include "core/base/arena.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/schedule/refine.h"
#include "planner/spmd_stage/groups_internal.h"

#include <string.h>

enum {
    SIZES_MAX = 2,    /* microbatch sizes */
    THOROUGH_MAX = 3, /* plans with optimised ratios */
    LEVEL_ROUNDS = 2,
    BUCKETS = 4, /* buckets of a stage's gradients over several replicas */
    BUCKET_MIN = 65536
};

/* A constructed layout. */
struct made {
    struct layout *x;
    struct plan plan;
    int64_t ns;
    int32_t n_diverse_starts;
    struct spmd_stage_spot *diverse_starts;
};

/* --- from a layout to a plan --- */

static int32_t replicas_of(const struct layout *x)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->n; i++) n += x->part[i].device_line->copies;
    return n;
}

/* Share of each replica: as estimated, reduced if the sum exceeds the batch. */
static void deal(const struct layout *x, struct arena *a, int32_t *share)
{
    int32_t n = replicas_of(x), at = 0;
    int64_t *end = ARENA_ARRAY(a, int64_t, (size_t)n), *slow = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->part[i].device_line->copies; c++, at++) {
            const struct spmd_stage_cut *cut = &x->part[i].line_cut->cut;
            share[at] = 1, end[at] = cut->sum_ns, slow[at] = cut->slowest_ns ? cut->slowest_ns : 1;
        }
    groups_deal(n, end, slow, share, x->s->microbatches, 1);
}

/* Stage k of a copy of a part; sharded stages are solved with the part's share, so that copies share an answer. */
static enum status fill_stage(struct groups *g, const struct line_part *p, int32_t copy, int32_t k,
                              struct made *m, int32_t replica, bool *possible, struct error *err)
{
    const struct line_cut *line_cut = p->line_cut;
    struct plan_stage *stage = &m->plan.replicas[replica].stages[k];
    int32_t behind = line_cut->n - k;
    struct spmd_stage_spot spot = {.replica = replica, .stage = k};
    struct spmd_stage_team *t = &spot.team;
    *t = (struct spmd_stage_team){.s = m->x->s,
                                  .first_layer = k ? line_cut->cut.last[k - 1] + 1 : 0,
                                  .last_layer = line_cut->cut.last[k],
                                  .microbatches = p->share,
                                  .in_flight = behind < p->share ? behind : p->share,
                                  .together = p->device_line->together};
    t->device =
        groups_devices(g, p->device_line, line_cut->first[k], line_cut->last[k], copy, &t->n);
    stage->first_layer = t->first_layer, stage->last_layer = t->last_layer;
    stage->device = t->device[0];
    if (t->n == 1) return OK;
    t->memory = spmd_stage_memory(g->arena, t);
    t->beside = spmd_stage_beside(t->n, groups_size(p->device_line, line_cut, k - 1)) +
                spmd_stage_beside(t->n, groups_size(p->device_line, line_cut, k + 1));
    TRY(spmd_stage_solve(g->t->spmd_stage, g->t->scorer, t, false, &spot.answer, err));
    *possible = spot.answer.ns < INT64_MAX;
    if (!*possible) return OK;
    spmd_stage_put(g->arena, t, &spot.answer, stage);
    m->diverse_starts[m->n_diverse_starts++] = spot;
    return OK;
}

static enum status make(struct groups *g, struct layout *x, struct made *m, bool *possible,
                        struct error *err)
{
    int32_t n = replicas_of(x), at = 0, stages = 0;
    int32_t *n_stages = ARENA_ARRAY(g->arena, int32_t, (size_t)n),
            *share = ARENA_ARRAY(g->arena, int32_t, (size_t)n);
    *m = (struct made){.x = x, .ns = INT64_MAX};
    *possible = true;
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->part[i].device_line->copies; c++)
            stages += n_stages[at++] = x->part[i].line_cut->n;
    plan_skeleton(g->arena, x->s, "found", n, n_stages, &m->plan);
    m->diverse_starts = ARENA_ARRAY(g->arena, struct spmd_stage_spot, (size_t)stages);
    deal(x, g->arena, share);
    at = 0;
    for (int32_t i = 0; i < x->n; i++)
        for (int32_t c = 0; c < x->part[i].device_line->copies; c++, at++) {
            m->plan.replicas[at].microbatches = share[at];
            for (int32_t k = 0; k < n_stages[at] && *possible; k++)
                TRY(fill_stage(g, &x->part[i], c, k, m, at, possible, err));
        }
    return OK;
}

/* Rebalances shares by end times while the iteration gets shorter. */
static enum status level(struct groups *g, struct made *m, struct error *err)
{
    int32_t n = m->plan.n_replicas, at;
    int64_t *end = ARENA_ARRAY(g->arena, int64_t, (size_t)n),
            *slow = ARENA_ARRAY(g->arena, int64_t, (size_t)n);
    int32_t *share = ARENA_ARRAY(g->arena, int32_t, (size_t)n);
    for (int round = 0; round < LEVEL_ROUNDS && n > 1 && !search_context_over(g->t); round++) {
        if (!scorer_worked(g->t->scorer, &m->plan, end)) return OK;
        at = 0;
        for (int32_t i = 0; i < m->x->n; i++)
            for (int32_t c = 0; c < m->x->part[i].device_line->copies; c++, at++)
                slow[at] = m->x->part[i].line_cut->cut.slowest_ns + 1;
        for (at = 0; at < n; at++) share[at] = m->plan.replicas[at].microbatches;
        groups_deal(n, end, slow, share, m->x->s->microbatches, 1);
        struct plan p = scorer_copy_plan(g->arena, &m->plan);
        bool same = true;
        for (at = 0; at < n; at++) {
            same &= p.replicas[at].microbatches == share[at];
            p.replicas[at].microbatches = share[at];
            for (int32_t i = 0; i < p.replicas[at].n_stages; i++)
                if (p.replicas[at].stages[i].warmup > share[at])
                    p.replicas[at].stages[i].warmup = share[at];
        }
        if (same) return OK;
        int64_t ns;
        TRY(search_context_score(g->t, m->x->s, &p, &ns, err));
        if (ns >= m->ns) return OK;
        m->plan = p, m->ns = ns;
    }
    return OK;
}

/* Warm-ups that hide the messages: the rule of planner/schedule/refine.h with the line's estimates. */
static void follow_costs(struct made *m, struct plan *p)
{
    int32_t at = 0;
    for (int32_t i = 0; i < m->x->n; i++)
        for (int32_t c = 0; c < m->x->part[i].device_line->copies; c++, at++) {
            const struct line_cut *line_cut = m->x->part[i].line_cut;
            struct plan_replica *r = &p->replicas[at];
            int64_t slowest = line_cut->cut.slowest_ns + 1, w = 1;
            for (int32_t k = r->n_stages - 1; k >= 0; k--) {
                r->stages[k].warmup = (int32_t)(w < r->microbatches ? w : r->microbatches);
                if (!k) break;
                int64_t cross = line_cut->cross_ns[k - 1][line_cut->cut.last[k - 1]];
                w += 1 + (2 * cross + slowest / 2) / slowest;
            }
        }
}

/* Tries a variant of the plan and keeps it if faster. */
static enum status score_variant_of(struct groups *g, struct made *m, struct plan *variant,
                                    struct error *err)
{
    int64_t ns;
    if (search_context_over(g->t)) return OK;
    TRY(search_context_score(g->t, m->x->s, variant, &ns, err));
    if (ns >= m->ns) return OK;
    m->plan = *variant, m->ns = ns;
    return OK;
}

/* Other warm-ups, and gradient all-reduces in buckets. */
static enum status refine(struct groups *g, struct made *m, struct error *err)
{
    bool long_ones = false;
    for (int32_t r = 0; r < m->plan.n_replicas; r++) long_ones |= m->plan.replicas[r].n_stages > 1;
    for (int rule = 0; long_ones && rule < REFINE_WARMUPS; rule++) {
        struct plan p = scorer_copy_plan(g->arena, &m->plan);
        if (rule)
            refine_warmups(m->x->s, &p, rule); /* eager, GPipe */
        else
            follow_costs(m, &p);
        TRY(score_variant_of(g, m, &p, err));
    }
    if (m->plan.n_replicas < 2) return OK;
    struct plan p = scorer_copy_plan(g->arena, &m->plan);
    for (int32_t r = 0; r < p.n_replicas; r++)
        for (int32_t i = 0; i < p.replicas[r].n_stages; i++) {
            struct plan_stage *x = &p.replicas[r].stages[i];
            int64_t bytes =
                g->parameter_bytes[x->last_layer + 1] - g->parameter_bytes[x->first_layer];
            x->bucket_bytes = bytes / BUCKETS > BUCKET_MIN ? bytes / BUCKETS : BUCKET_MIN;
        }
    return score_variant_of(g, m, &p, err);
}

static enum status fit(struct groups *g, struct made *m, bool thorough, struct error *err)
{
    TRY(spmd_stage_fit(g->t, g->arena, m->x->s, m->diverse_starts, m->n_diverse_starts, thorough,
                       &m->plan, &m->ns, err));
    if (m->ns == INT64_MAX) return OK;
    TRY(level(g, m, err));
    if (!g->t->incumbents.n || m->ns / 2 < g->t->incumbents.plans[0].iteration_ns)
        TRY(refine(g, m, err));
    incumbents_add(&g->t->incumbents, &m->plan, m->ns);
    return OK;
}

/* The same with optimised ratios of all stages. */
static enum status try_ratios(struct groups *g, const struct made *m, struct error *err)
{
    struct made better = *m;
    better.plan = scorer_copy_plan(g->arena, &m->plan);
    for (int32_t k = 0; k < m->n_diverse_starts && !search_context_over(g->t); k++) {
        struct spmd_stage_spot *x = &better.diverse_starts[k];
        TRY(spmd_stage_solve(g->t->spmd_stage, g->t->scorer, &x->team, true, &x->answer, err));
        if (x->answer.ns == INT64_MAX) return OK;
        spmd_stage_put(g->arena, &x->team, &x->answer,
                       &better.plan.replicas[x->replica].stages[x->stage]);
    }
    if (search_context_over(g->t)) return OK;
    return fit(g, &better, true, err);
}

/* Constructs the best layouts by estimate; optimises the ratios of the best of them by simulation. */
static enum status try_layouts(struct groups *g, int64_t end, struct error *err)
{
    struct made best[THOROUGH_MAX];
    int32_t n = 0;
    int64_t start = scorer_work(g->t->scorer);
    g->t->work_end = start + (end - start) / 3 * 2;
    for (int32_t i = 0; i < g->n_layouts && !search_context_over(g->t); i++) {
        struct made m;
        bool possible;
        TRY(make(g, &g->layouts[i], &m, &possible, err));
        if (!possible) continue;
        TRY(fit(g, &m, false, err));
        if (m.ns == INT64_MAX || !m.n_diverse_starts) continue;
        int32_t at = n;
        if (n < THOROUGH_MAX)
            n++;
        else if (m.ns < best[--at].ns)
            ;
        else
            continue;
        for (; at > 0 && best[at - 1].ns > m.ns; at--) best[at] = best[at - 1];
        best[at] = m;
    }
    g->t->work_end = end;
    for (int32_t i = 0; i < n && !search_context_over(g->t); i++) TRY(try_ratios(g, &best[i], err));
    return OK;
}

/* --- microbatch sizes --- */

void groups_begin(struct groups *g, const struct space *s)
{
    int32_t layers = s->n_layers;
    g->s = s, g->known = NULL, g->all = 0;
    g->device_line = ARENA_ARRAY(g->arena, struct device_line, DEVICE_LINES_MAX);
    g->partition = ARENA_ARRAY(g->arena, struct line_partition, DEVICE_LINES_MAX);
    g->power = ARENA_ARRAY(g->arena, double, (size_t)s->n_devices);
    g->parameter_bytes = ARENA_ARRAY(g->arena, int64_t, (size_t)layers + 1);
    for (int32_t d = 0; d < s->n_devices; d++) {
        const struct stage_cost *x = space_stage(s, d, 0, layers - 1);
        g->power[d] = 1e9 / (double)(x->forward_ns + x->input_ns + x->weight_ns + 1);
        g->all += g->power[d];
    }
    for (int32_t l = 0; l < layers; l++)
        g->parameter_bytes[l + 1] =
            g->parameter_bytes[l] + space_stage(s, 0, l, l)->parameter_bytes;
}

static const struct space *space_of(const struct groups *g, const struct space *const *spaces,
                                    int32_t n, int64_t microbatch)
{
    for (int32_t k = 0; k < n; k++)
        if (spaces[k]->microbatch == microbatch &&
            spaces[k]->cluster->devices == g->cluster->devices)
            return spaces[k];
    return NULL;
}

/* Of the best plans with and without sharded stages, alternating. */
static int32_t choose_sizes(const struct groups *g, const struct space *const *spaces, int32_t n,
                            const struct space **out)
{
    int32_t found = 0, at[2] = {0, 0};
    const struct incumbents *k = &g->t->incumbents;
    for (int turn = 0; found < SIZES_MAX && (at[0] < k->n || at[1] < k->n); turn = !turn) {
        while (at[turn] < k->n && spmd_stage_in_plan(&k->plans[at[turn]].plan) != turn) at[turn]++;
        if (at[turn] >= k->n) continue;
        const struct space *s = space_of(g, spaces, n, k->plans[at[turn]++].plan.microbatch);
        bool known = !s;
        for (int32_t i = 0; i < found; i++) known |= out[i] == s;
        if (!known) out[found++] = s;
    }
    for (int32_t i = 0; i < n && found == 1; i++) { /* and the next larger one */
        const struct space *s = spaces[i];
        if (s->cluster->devices != g->cluster->devices || s->microbatch <= out[0]->microbatch)
            continue;
        if (!out[1] || s->microbatch < out[1]->microbatch) out[1] = s;
    }
    return found == 1 && out[1] ? 2 : found;
}

static bool possible(const struct cluster *c, const struct space *s)
{
    return c->n_devices > 1 && !s->job->model.measured;
}

static enum status search_groups(struct groups *g, const struct space *const *spaces, int32_t n,
                                 int64_t work_ns, struct error *err)
{
    const struct space *size[SIZES_MAX] = {NULL, NULL};
    int64_t start = scorer_work(g->t->scorer);
    int32_t sizes = choose_sizes(g, spaces, n, size);
    if (!sizes || !possible(g->cluster, size[0])) return OK;
    g->layouts = ARENA_ARRAY(g->arena, struct layout, LAYOUTS_MAX + 1);
    for (int32_t i = 0; i < sizes && !search_context_stopped(g->t); i++) {
        g->begin = scorer_work(g->t->scorer);
        g->mine = (start + work_ns / 2 - g->begin) / (sizes - i);
        g->t->work_end = g->begin + g->mine;
        groups_begin(g, size[i]);
        TRY(groups_layouts(g, err));
    }
    return try_layouts(g, start + work_ns, err);
}

enum status spmd_stage_groups(struct search_context *t, const struct cluster *cluster,
                              const struct space *const *spaces, int32_t n_spaces, int64_t work_ns,
                              struct error *err)
{
    struct groups g = {.t = t, .arena = arena_new(), .cluster = cluster};
    int64_t end = t->work_end;
    t->work_end = scorer_work(t->scorer) + work_ns;
    enum status st = search_groups(&g, spaces, n_spaces, work_ns, err);
    t->work_end = end;
    arena_free(g.arena);
    return st;
}
