/* planner/multi_device/large.c - stages merged and split, devices added, moved and dropped, replicas joined and divided. */
#include "core/base/arena.h"
#include "planner/multi_device/internal.h"
#include "planner/multi_device/moves.h"

enum { PROMISING_MAX = 3 }; /* large moves followed by small ones */
/* Relative excess over the best at which a large move is still followed by small ones. */
#define PROMISING 1.2

/* The best large moves from a point. */
struct promising {
    int32_t n;
    struct multi_device_point at[PROMISING_MAX];
};

static void note(struct multi_device *c, const struct multi_device_point *best,
                 const struct multi_device_point *y, struct promising *out)
{
    if (y->x.iteration_ns == INT64_MAX ||
        (double)y->x.iteration_ns > PROMISING * (double)best->x.iteration_ns)
        return;
    int32_t at = out->n;
    if (at == PROMISING_MAX) {
        if (!incumbents_better(&c->t->incumbents, &y->x, &out->at[at - 1].x)) return;
        at--;
    } else {
        out->n++;
    }
    for (; at > 0 && incumbents_better(&c->t->incumbents, &y->x, &out->at[at - 1].x); at--)
        out->at[at] = out->at[at - 1];
    out->at[at] = *y;
}

/* Tries the plan unchanged and with rebalanced layers. */
static enum status consider(struct multi_device *c, const struct multi_device_point *best,
                            struct plan *p, int32_t space, struct promising *out, struct error *err)
{
    struct multi_device_point y;
    struct plan level = multi_device_copy(c, p);
    for (int32_t r = 0; r < level.n_replicas; r++)
        multi_device_balance_replica(&c->spaces[space], &level, r);
    TRY(multi_device_try(c, p, space, &best->x, &y, err));
    note(c, best, &y, out);
    TRY(multi_device_try(c, &level, space, &best->x, &y, err));
    note(c, best, &y, out);
    return OK;
}

/* Move k of one type at the microbatch size of `space`; *last: no further move. */
struct change {
    int32_t r, i, k; /* replica, stage, device: of the stage, or one of the cluster */
    int32_t to_r, to_i;
    bool behind;
};
typedef bool make_change(struct multi_device *c, const struct space *s, struct plan *p,
                         const struct change *h);

static bool do_merge(struct multi_device *c, const struct space *s, struct plan *p,
                     const struct change *h)
{
    return multi_device_merge(c->arena, s, p, h->r, h->i);
}
static bool do_split(struct multi_device *c, const struct space *s, struct plan *p,
                     const struct change *h)
{
    return multi_device_split(c->arena, s, p, h->r, h->i, h->k, h->behind);
}
static bool do_add(struct multi_device *c, const struct space *s, struct plan *p,
                   const struct change *h)
{
    return multi_device_add(c->arena, s, p, h->r, h->i, h->k);
}
static bool do_drop(struct multi_device *c, const struct space *s, struct plan *p,
                    const struct change *h)
{
    return multi_device_drop(c->arena, s, p, h->r, h->i, h->k, h->behind);
}
static bool do_swap(struct multi_device *c, const struct space *s, struct plan *p,
                    const struct change *h)
{
    return multi_device_swap(c->arena, s, p, h->r, h->i, h->to_i);
}
static bool do_divide(struct multi_device *c, const struct space *s, struct plan *p,
                      const struct change *h)
{
    return multi_device_divide(c->arena, s, p, h->r);
}
static bool do_resize(struct multi_device *c, const struct space *s, struct plan *p,
                      const struct change *h)
{
    (void)c, (void)s, (void)h;
    return p->n_replicas > 0;
}
/* r and to_r: two replicas; to_r -1: all equal to r. */
static bool do_join(struct multi_device *c, const struct space *s, struct plan *p,
                    const struct change *h)
{
    bool *set = ARENA_ARRAY(c->arena, bool, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++)
        set[r] = h->to_r < 0 ? p->replicas[r].n_stages == p->replicas[h->r].n_stages
                             : r == h->r || r == h->to_r;
    return multi_device_join(c->arena, s, p, set);
}
/* Added before the removal, so that the target's index stays valid. */
static bool do_move(struct multi_device *c, const struct space *s, struct plan *p,
                    const struct change *h)
{
    int32_t device = plan_stage_device(&p->replicas[h->r].stages[h->i], h->k);
    return (h->r != h->to_r || h->i != h->to_i) &&
           multi_device_add(c->arena, s, p, h->to_r, h->to_i, device) &&
           multi_device_drop(c->arena, s, p, h->r, h->i, h->k, h->behind);
}

/* A move at each microbatch size from one below the plan's to two above. */
static enum status change_sizes(struct multi_device *c, const struct multi_device_point *best,
                                make_change *make, const struct change *h, struct promising *out,
                                struct error *err)
{
    int32_t from = best->space > 0 ? best->space - 1 : 0;
    for (int32_t k = from; k < c->n_spaces && k <= best->space + 2 && !multi_device_over(c); k++) {
        struct plan p = multi_device_copy(c, &best->x.plan);
        if (!make(c, &c->spaces[k], &p, h)) continue;
        if (k != best->space && !multi_device_resize(c->arena, &c->spaces[k], &p)) continue;
        TRY(consider(c, best, &p, k, out, err));
    }
    return OK;
}

/* Symmetry breaking: an earlier interchangeable device of the list represents it. */
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

static enum status add_idle(struct multi_device *c, const struct multi_device_point *best,
                            const struct change *at, struct promising *out, struct error *err)
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

static enum status move_device(struct multi_device *c, const struct multi_device_point *best,
                               const struct change *at, struct promising *out, struct error *err)
{
    struct change h = *at;
    bool many = multi_device_many(c); /* then only to adjacent stages */
    for (h.to_r = 0; h.to_r < best->x.plan.n_replicas; h.to_r++)
        for (h.to_i = 0; h.to_i < best->x.plan.replicas[h.to_r].n_stages; h.to_i++) {
            if (many && (h.to_r != h.r || h.to_i > h.i + 1 || h.to_i + 1 < h.i)) continue;
            TRY(change_sizes(c, best, do_move, &h, out, err));
        }
    return OK;
}

/* All moves of a device of a stage. */
static enum status change_devices(struct multi_device *c, const struct multi_device_point *best,
                                  struct change h, struct promising *out, struct error *err)
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

static enum status change_replicas(struct multi_device *c, const struct multi_device_point *best,
                                   int32_t r, struct promising *out, struct error *err)
{
    struct change h = {.r = r};
    TRY(change_sizes(c, best, do_divide, &h, out, err));
    for (h.to_r = r ? r + 1 : -1; h.to_r < best->x.plan.n_replicas; h.to_r++)
        if (h.to_r != r) TRY(change_sizes(c, best, do_join, &h, out, err));
    return OK;
}

/* Whether the two stages have devices of other types, or other numbers of them. */
static bool unlike(const struct plan *p, const struct change *h)
{
    const struct plan_stage *x = &p->replicas[h->r].stages[h->i],
                            *y = &p->replicas[h->r].stages[h->to_i];
    bool unlike = plan_stage_devices(x) != plan_stage_devices(y);
    for (int32_t k = 0; !unlike && k < plan_stage_devices(x); k++)
        unlike = p->cluster.devices[plan_stage_device(x, k)].type !=
                 p->cluster.devices[plan_stage_device(y, k)].type;
    return unlike;
}

static enum status change_large(struct multi_device *c, const struct multi_device_point *best,
                                struct promising *out, struct error *err)
{
    const struct plan *p = &best->x.plan;
    struct change h = {.r = 0};
    TRY(change_sizes(c, best, do_resize, &h, out, err));
    for (int32_t r = 0; r < p->n_replicas; r++) TRY(change_replicas(c, best, r, out, err));
    for (h.r = 0; h.r < p->n_replicas; h.r++)
        for (h.i = 0; h.i < p->replicas[h.r].n_stages; h.i++) {
            if (h.i + 1 < p->replicas[h.r].n_stages)
                TRY(change_sizes(c, best, do_merge, &h, out, err));
            for (h.to_i = h.i + 1; h.to_i < p->replicas[h.r].n_stages; h.to_i++)
                if (unlike(p, &h)) TRY(change_sizes(c, best, do_swap, &h, out, err));
            TRY(add_idle(c, best, &h, out, err));
            TRY(change_devices(c, best, h, out, err));
        }
    return OK;
}

enum status multi_device_local_search(struct multi_device *c, struct multi_device_point *at,
                                      struct error *err)
{
    if (!multi_device_many(c))
        TRY(multi_device_local_search_small(c, at, MULTI_DEVICE_SMALL_MAX, err));
    for (bool better = true; better && !multi_device_over(c);) {
        struct promising found = {.n = 0};
        better = false;
        TRY(change_large(c, at, &found, err));
        for (int32_t i = 0; i < found.n; i++) {
            TRY(multi_device_local_search_small(c, &found.at[i], MULTI_DEVICE_SMALL_MAX, err));
            if (!incumbents_better(&c->t->incumbents, &found.at[i].x, &at->x)) continue;
            *at = found.at[i];
            better = true;
        }
    }
    return OK;
}
