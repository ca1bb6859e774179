#include "planner/regroup.h"

#include "core/arena.h"
#include "core/rng.h"
#include "planner/refine.h"
#include "planner/regroup_moves.h"
#include "planner/regroup_pipelines.h"

#include <string.h>

enum {
    SPACES_MOST = 16,
    STARTS_MOST = 3,
    PROMISING_MOST = 3,  /* large changes that are followed up */
    SMALL_MOST = 40,     /* simulations of small changes of one of them */
    PIPELINES_EACH = 12, /* of each microbatch size */
    SEEN_MOST = 1 << 13  /* plans remembered, a power of two */
};
/* A large change this much slower than the best may still win after small ones. */
#define PROMISING 1.2

struct climb {
    struct tries *t;
    struct arena *arena;
    int32_t n_spaces;
    struct space spaces[SPACES_MOST]; /* copies, which know the graphs of shares as well */
    int64_t left;
    uint64_t *seen; /* (SEEN_MOST) hashes; 0: free */
    int32_t n_seen;
};

/* A plan, its time and its space. */
struct point {
    struct search_plan x;
    int32_t space;
};

/* The best of the large changes of a point. */
struct promising {
    int32_t n;
    struct point at[PROMISING_MOST];
};

static bool over(const struct climb *c) { return c->left <= 0 || tries_over(c->t); }

static uint64_t hash_of(const struct plan *p)
{
    uint64_t h = hash_bytes((uint64_t)p->microbatch, &p->n_replicas, sizeof p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        h = hash_bytes(h, &x->microbatches, sizeof x->microbatches);
        for (int32_t i = 0; i < x->n_stages; i++) {
            const struct plan_stage *y = &x->stages[i];
            int32_t n = plan_stage_devices(y);
            int64_t stage[3] = {y->last_layer, n, y->bucket_bytes};
            h = hash_bytes(h, stage, sizeof stage);
            for (int32_t k = 0; k < n; k++) {
                int64_t part[2] = {plan_stage_device(y, k), y->n_shards ? y->sequences[k] : 0};
                h = hash_bytes(h, part, sizeof part);
            }
        }
    }
    return h ? h : 1;
}

/* Whether it was tried before; it is from now on. */
static bool is_seen(struct climb *c, const struct plan *p)
{
    uint64_t h = hash_of(p);
    size_t at = h % SEEN_MOST;
    for (; c->seen[at]; at = (at + 1) % SEEN_MOST)
        if (c->seen[at] == h) return true;
    if (c->n_seen < SEEN_MOST / 2) c->seen[at] = h, c->n_seen++;
    return false;
}

/* Some device alone computes as long as the best plan takes, or longer. */
static bool is_hopeless(const struct climb *c, const struct space *s, const struct plan *p,
                        const struct search_plan *best)
{
    if (c->t->o->objective == OBJECTIVE_COST || !kept_inside(&c->t->kept, best)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].microbatches * regroup_stage_ns(s, &p->replicas[r].stages[i]) >=
                best->iteration_ns)
                return true;
    return false;
}

enum status regroup_graphs(struct arena *a, const struct lower_options *o, struct space *s,
                           const struct plan *p, struct error *err)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = 0; k < x->n_shards; k++) {
                const struct device *d = &s->cluster->devices[x->devices[k]];
                const struct graph *g;
                bool positions;
                int32_t cards =
                    lower_cards(&s->job->model, &s->cluster->types[d->type], &positions);
                TRY(lower_graphs_need(a, &s->graphs, s->job, o, cards, positions, x->sequences[k],
                                      &g, err));
            }
        }
    return OK;
}

/* *y becomes p where that is worth a simulation; its time is INT64_MAX where it was not. */
static enum status try_plan(struct climb *c, struct plan *p, int32_t space,
                            const struct search_plan *best, struct point *y, struct error *err)
{
    struct space *s = &c->spaces[space];
    *y = (struct point){.x = {.iteration_ns = INT64_MAX}, .space = space};
    if (over(c) || is_hopeless(c, s, p, best) || is_seen(c, p)) return OK;
    TRY(regroup_graphs(c->arena, c->t->lower, s, p, err));
    c->left--;
    TRY(tries_score(c->t, s, p, &y->x.iteration_ns, err));
    y->x.plan = *p;
    if (y->x.iteration_ns < INT64_MAX) y->x.cost = plan_cost(p, y->x.iteration_ns);
    return OK;
}

static struct plan plain_copy(struct climb *c, const struct plan *p)
{
    struct plan copy = score_copy_plan(c->arena, p);
    regroup_plain(&copy);
    return copy;
}

/* --- small changes --- */

struct small {
    struct climb *c;
    struct point *at;
    int64_t left;
    bool better;
};

static enum status take_if_better(struct small *x, struct plan *p, struct error *err)
{
    struct point y;
    x->better = false;
    if (x->left <= 0) return OK;
    int64_t before = x->c->left;
    TRY(try_plan(x->c, p, x->at->space, &x->at->x, &y, err));
    x->left -= before - x->c->left;
    if (y.x.iteration_ns == INT64_MAX || !kept_better(&x->c->t->kept, &y.x, &x->at->x)) return OK;
    *x->at = y;
    x->better = true;
    return OK;
}

static enum status shift_layers(struct small *x, bool *any, struct error *err)
{
    static const int32_t steps[] = {1, -1, 3, -3};
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t i = 0; i + 1 < x->at->x.plan.replicas[r].n_stages; i++)
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
                struct plan p = plain_copy(x->c, &x->at->x.plan);
                if (!regroup_shift(&x->c->spaces[x->at->space], &p, r, i, steps[k])) continue;
                TRY(take_if_better(x, &p, err));
                if (x->better) *any = true, k--; /* the same again */
            }
    return OK;
}

static enum status pass_sequences(struct small *x, bool *any, struct error *err)
{
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t i = 0; i < x->at->x.plan.replicas[r].n_stages; i++)
            for (int32_t k = 0; k < x->at->x.plan.replicas[r].stages[i].n_shards; k++)
                for (int32_t l = 0; l < x->at->x.plan.replicas[r].stages[i].n_shards; l++) {
                    struct plan p = plain_copy(x->c, &x->at->x.plan);
                    if (!regroup_pass(&p, r, i, k, l)) continue;
                    TRY(take_if_better(x, &p, err));
                    if (x->better) *any = true, l--;
                }
    return OK;
}

static enum status share_microbatches(struct small *x, bool *any, struct error *err)
{
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t q = 0; q < x->at->x.plan.n_replicas; q++) {
            struct plan p = plain_copy(x->c, &x->at->x.plan);
            if (!regroup_share(&p, r, q)) continue;
            TRY(take_if_better(x, &p, err));
            if (x->better) *any = true, q--;
        }
    return OK;
}

static enum status climb_small(struct climb *c, struct point *at, int64_t most, struct error *err)
{
    struct small x = {c, at, most, false};
    bool any = true;
    while (any && x.left > 0 && !over(c)) {
        any = false;
        TRY(shift_layers(&x, &any, err));
        TRY(pass_sequences(&x, &any, err));
        TRY(share_microbatches(&x, &any, err));
    }
    return OK;
}

/* --- large changes --- */

static void note(struct climb *c, const struct point *best, const struct point *y,
                 struct promising *out)
{
    if (y->x.iteration_ns == INT64_MAX ||
        (double)y->x.iteration_ns > PROMISING * (double)best->x.iteration_ns)
        return;
    int32_t at = out->n;
    if (at == PROMISING_MOST) {
        if (!kept_better(&c->t->kept, &y->x, &out->at[at - 1].x)) return;
        at--;
    } else {
        out->n++;
    }
    for (; at > 0 && kept_better(&c->t->kept, &y->x, &out->at[at - 1].x); at--)
        out->at[at] = out->at[at - 1];
    out->at[at] = *y;
}

/* As it is, and with its layers levelled. */
static enum status consider(struct climb *c, const struct point *best, struct plan *p,
                            int32_t space, struct promising *out, struct error *err)
{
    struct point y;
    struct plan level = plain_copy(c, p);
    for (int32_t r = 0; r < level.n_replicas; r++) regroup_level(&c->spaces[space], &level, r);
    TRY(try_plan(c, p, space, &best->x, &y, err));
    note(c, best, &y, out);
    TRY(try_plan(c, &level, space, &best->x, &y, err));
    note(c, best, &y, out);
    return OK;
}

/* One kind of large change at the microbatch size of `space`: number k of it; *last true: there is none behind. */
struct change {
    int32_t r, i, k; /* replica, stage, device: of the stage, or one of the cluster */
    int32_t to_r, to_i;
    bool behind;
};
typedef bool make_change(struct climb *c, const struct space *s, struct plan *p,
                         const struct change *h);

static bool do_merge(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    return regroup_merge(c->arena, s, p, h->r, h->i);
}
static bool do_split(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    return regroup_split(c->arena, s, p, h->r, h->i, h->k, h->behind);
}
static bool do_add(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    return regroup_add(c->arena, s, p, h->r, h->i, h->k);
}
static bool do_drop(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    return regroup_drop(c->arena, s, p, h->r, h->i, h->k, h->behind);
}
static bool do_divide(struct climb *c, const struct space *s, struct plan *p,
                      const struct change *h)
{
    return regroup_divide(c->arena, s, p, h->r);
}
static bool do_resize(struct climb *c, const struct space *s, struct plan *p,
                      const struct change *h)
{
    (void)c, (void)s, (void)h;
    return p->n_replicas > 0;
}
/* r and to_r: two replicas; to_r -1: all like r. */
static bool do_join(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    bool *set = ARENA_ARRAY(c->arena, bool, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++)
        set[r] = h->to_r < 0 ? p->replicas[r].n_stages == p->replicas[h->r].n_stages
                             : r == h->r || r == h->to_r;
    return regroup_join(c->arena, s, p, set);
}
/* Added first, so that where it goes keeps its number. */
static bool do_move(struct climb *c, const struct space *s, struct plan *p, const struct change *h)
{
    int32_t device = plan_stage_device(&p->replicas[h->r].stages[h->i], h->k);
    return (h->r != h->to_r || h->i != h->to_i) &&
           regroup_add(c->arena, s, p, h->to_r, h->to_i, device) &&
           regroup_drop(c->arena, s, p, h->r, h->i, h->k, h->behind);
}

/* A change made at each microbatch size from the plan's and one below it to two above. */
static enum status change_sizes(struct climb *c, const struct point *best, make_change *make,
                                const struct change *h, struct promising *out, struct error *err)
{
    int32_t from = best->space > 0 ? best->space - 1 : 0;
    for (int32_t k = from; k < c->n_spaces && k <= best->space + 2 && !over(c); k++) {
        struct plan p = plain_copy(c, &best->x.plan);
        if (!make(c, &c->spaces[k], &p, h)) continue;
        if (k != best->space && !regroup_resize(c->arena, &c->spaces[k], &p)) continue;
        TRY(consider(c, best, &p, k, out, err));
    }
    return OK;
}

/* The same device as far as the space knows: an earlier one of the list stands for it. */
static bool stands_for(const struct space *s, int32_t d, int32_t e)
{
    const struct device *x = &s->cluster->devices[d], *y = &s->cluster->devices[e];
    if (s->n_devices <= SPACE_DEVICES_MAX) return s->class_of[d] == s->class_of[e];
    return x->type == y->type && x->node == y->node;
}

static void mark_used(const struct plan *p, bool *used)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
}

static enum status add_idle(struct climb *c, const struct point *best, const struct change *at,
                            struct promising *out, struct error *err)
{
    const struct space *s = &c->spaces[best->space];
    bool *used = ARENA_ARRAY(c->arena, bool, (size_t)s->n_devices);
    mark_used(&best->x.plan, used);
    for (int32_t d = 0; d < s->n_devices; d++) {
        struct change h = *at;
        int32_t e = 0;
        while (e < d && (used[e] || !stands_for(s, e, d))) e++;
        if (used[d] || e < d) continue;
        h.k = d;
        TRY(change_sizes(c, best, do_add, &h, out, err));
    }
    return OK;
}

static enum status move_device(struct climb *c, const struct point *best, const struct change *at,
                               struct promising *out, struct error *err)
{
    struct change h = *at;
    for (h.to_r = 0; h.to_r < best->x.plan.n_replicas; h.to_r++)
        for (h.to_i = 0; h.to_i < best->x.plan.replicas[h.to_r].n_stages; h.to_i++)
            TRY(change_sizes(c, best, do_move, &h, out, err));
    return OK;
}

/* All that begins with a device of a stage. */
static enum status change_devices(struct climb *c, const struct point *best, struct change h,
                                  struct promising *out, struct error *err)
{
    const struct space *s = &c->spaces[best->space];
    const struct plan_stage *x = &best->x.plan.replicas[h.r].stages[h.i];
    for (h.k = 0; h.k < plan_stage_devices(x); h.k++) {
        int32_t d = plan_stage_device(x, h.k), l = 0;
        while (l < h.k && !stands_for(s, plan_stage_device(x, l), d)) l++;
        for (int behind = 0; behind < 2; behind++) {
            h.behind = behind;
            if (h.k) TRY(change_sizes(c, best, do_split, &h, out, err));
            if (l < h.k) continue;
            TRY(change_sizes(c, best, do_drop, &h, out, err));
            if (!behind || plan_stage_devices(x) == 1) TRY(move_device(c, best, &h, out, err));
        }
    }
    return OK;
}

static enum status change_replicas(struct climb *c, const struct point *best, int32_t r,
                                   struct promising *out, struct error *err)
{
    struct change h = {.r = r};
    TRY(change_sizes(c, best, do_divide, &h, out, err));
    for (h.to_r = r ? r + 1 : -1; h.to_r < best->x.plan.n_replicas; h.to_r++)
        if (h.to_r != r) TRY(change_sizes(c, best, do_join, &h, out, err));
    return OK;
}

static enum status change_large(struct climb *c, const struct point *best, struct promising *out,
                                struct error *err)
{
    const struct plan *p = &best->x.plan;
    struct change h = {.r = 0};
    TRY(change_sizes(c, best, do_resize, &h, out, err));
    for (int32_t r = 0; r < p->n_replicas; r++) TRY(change_replicas(c, best, r, out, err));
    for (h.r = 0; h.r < p->n_replicas; h.r++)
        for (h.i = 0; h.i < p->replicas[h.r].n_stages; h.i++) {
            if (h.i + 1 < p->replicas[h.r].n_stages)
                TRY(change_sizes(c, best, do_merge, &h, out, err));
            TRY(add_idle(c, best, &h, out, err));
            TRY(change_devices(c, best, h, out, err));
        }
    return OK;
}

static enum status climb_from(struct climb *c, struct point *at, struct error *err)
{
    TRY(climb_small(c, at, SMALL_MOST, err));
    for (bool better = true; better && !over(c);) {
        struct promising found = {.n = 0};
        better = false;
        TRY(change_large(c, at, &found, err));
        for (int32_t i = 0; i < found.n; i++) {
            TRY(climb_small(c, &found.at[i], SMALL_MOST, err));
            if (!kept_better(&c->t->kept, &found.at[i].x, &at->x)) continue;
            *at = found.at[i];
            better = true;
        }
    }
    return OK;
}

/* --- starts --- */

static int32_t space_of(const struct climb *c, const struct plan *p)
{
    for (int32_t k = 0; k < c->n_spaces; k++)
        if (c->spaces[k].microbatch == p->microbatch &&
            c->spaces[k].cluster->devices == p->cluster.devices)
            return k;
    return -1;
}

static void keep_start(const struct climb *c, const struct point *y, struct point *starts,
                       int32_t *n)
{
    if (y->x.iteration_ns == INT64_MAX) return;
    int32_t at = *n;
    if (at == STARTS_MOST) {
        if (!kept_better(&c->t->kept, &y->x, &starts[--at].x)) return;
    } else {
        ++*n;
    }
    for (; at > 0 && kept_better(&c->t->kept, &y->x, &starts[at - 1].x); at--)
        starts[at] = starts[at - 1];
    starts[at] = *y;
}

static const struct search_plan unbeaten = {.iteration_ns = INT64_MAX};

/* Plans kept as they would be with default orders. */
static enum status start_from_kept(struct climb *c, struct point *starts, int32_t *n,
                                   struct error *err)
{
    int32_t looked = 0;
    for (int32_t i = 0; i < c->t->kept.n && looked < 2 * STARTS_MOST; i++) {
        const struct plan *from = &c->t->kept.plans[i].plan;
        int32_t space = space_of(c, from);
        if (space < 0 || !regroup_possible(from)) continue;
        struct plan p = plain_copy(c, from);
        struct point y;
        looked++;
        TRY(try_plan(c, &p, space, &unbeaten, &y, err));
        keep_start(c, &y, starts, n);
    }
    return OK;
}

static enum status start_from_pipelines(struct climb *c, struct point *starts, int32_t *n,
                                        struct error *err)
{
    struct plan plans[PIPELINES_EACH];
    int32_t few = 0;
    for (int32_t k = 1; k < c->n_spaces; k++)
        if (c->spaces[k].microbatch < c->spaces[few].microbatch) few = k;
    for (int32_t k = 0; k < c->n_spaces && !over(c); k++) {
        int32_t made =
            regroup_pipelines(c->arena, &c->spaces[k], &c->spaces[few], PIPELINES_EACH, plans);
        for (int32_t i = 0; i < made; i++) {
            struct point y;
            const struct search_plan *best = *n == STARTS_MOST ? &starts[*n - 1].x : &unbeaten;
            TRY(try_plan(c, &plans[i], k, best, &y, err));
            keep_start(c, &y, starts, n);
        }
    }
    return OK;
}

/* Kept as it is, and with other orders and buckets. */
static enum status finish(struct climb *c, struct point *at, struct error *err)
{
    struct tries *t = c->t;
    kept_add(&t->kept, &at->x.plan, at->x.iteration_ns);
    if (tries_over(t)) return OK;
    TRY(refine_plan(c->arena, t->scorer, &c->spaces[at->space], &at->x.plan, &at->x.iteration_ns,
                    &t->evaluations_left, t->o->stop, err));
    kept_add(&t->kept, &at->x.plan, at->x.iteration_ns);
    tries_report(t);
    return OK;
}

static enum status climb_all(struct climb *c, struct error *err)
{
    struct point starts[STARTS_MOST];
    int32_t n = 0;
    TRY(start_from_kept(c, starts, &n, err));
    TRY(start_from_pipelines(c, starts, &n, err));
    int64_t all = c->left;
    for (int32_t i = 0; i < n && !tries_over(c->t); i++) {
        int64_t mine = all / (n - i); /* what one leaves the next have */
        c->left = mine;
        TRY(climb_from(c, &starts[i], err));
        all -= mine - c->left;
        TRY(finish(c, &starts[i], err));
    }
    return OK;
}

enum status regroup_kept(struct tries *t, const struct space *spaces, int32_t n_spaces,
                         int64_t evaluations, struct error *err)
{
    if (!n_spaces || n_spaces > SPACES_MOST || spaces[0].job->model.measured ||
        spaces[0].n_devices < 2)
        return OK;
    struct climb c = {.t = t, .arena = arena_new(), .n_spaces = n_spaces, .left = evaluations};
    memcpy(c.spaces, spaces, (size_t)n_spaces * sizeof *spaces);
    c.seen = ARENA_ARRAY(c.arena, uint64_t, SEEN_MOST);
    enum status st = climb_all(&c, err);
    arena_free(c.arena);
    return st;
}
