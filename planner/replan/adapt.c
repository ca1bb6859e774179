#include "planner/replan/adapt.h"

#include "core/base/arena.h"
#include "core/plan/schedule.h"
#include "planner/candidate/group.h"
#include "planner/candidate/scorer.h"
#include "planner/exact/partition.h"
#include "planner/local_search/stage_moves.h"
#include "planner/replan/balance_layers.h"
#include "planner/schedule/refine.h"

#include <string.h>

struct adapting {
    struct arena *arena;
    const struct space *s; /* w->whole */
    const struct warm_prices *w;
    const struct plan *from;
    const int32_t *where;
    struct plan *p;
    bool *used;          /* (n_devices) whether it has a stage */
    bool *changed;       /* (replicas of p, and as many more as there are devices) */
    bool same;           /* the old plan's job and microbatch size */
    bool any_lost, done; /* the rule was applicable */
    bool keep, kept;     /* the rule for schedules, and whether it was applicable */
};

/* --- lost devices --- */

static bool same_type(const struct adapting *q, int32_t old, int32_t now)
{
    const struct cluster *c = &q->from->cluster, *d = q->s->cluster;
    return !strcmp(c->types[c->devices[old].type].name, d->types[d->devices[now].type].name);
}

/* A spare device to replace the old one: of its type, else the first; -1: none. */
static int32_t stand_in(const struct adapting *q, int32_t old)
{
    int32_t found = -1;
    for (int32_t d = 0; d < q->s->n_devices; d++) {
        if (q->used[d]) continue;
        if (same_type(q, old, d)) return d;
        if (found < 0) found = d;
    }
    return found;
}

/* Whether stage i of the old replica is the first of its device. */
static bool is_first_chunk(const struct plan_replica *r, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (r->stages[k].device == r->stages[i].device) return false;
    return true;
}

static bool is_whole(const struct adapting *q, const struct plan_replica *r)
{
    for (int32_t i = 0; i < r->n_stages; i++)
        for (int32_t k = 0; k < plan_stage_devices(&r->stages[i]); k++)
            if (q->where[plan_stage_device(&r->stages[i], k)] < 0) return false;
    return true;
}

/* The rules on n of their devices (kept: their positions), by the same ratios; NULL: they are for a mesh of two axes. */
static const struct sharding *of_devices(struct adapting *q, const struct sharding *s, const int32_t *kept,
                                         int32_t n)
{
    if (n == s->n_devices) return s;
    if (s->n_axes != 1) return NULL;
    struct sharding *out = arena_copy(q->arena, s, sizeof *s);
    double *ratios = ARENA_ARRAY(q->arena, double, (size_t)(s->n_ratios * n));
    for (int32_t k = 0; k < s->n_ratios * n; k++)
        ratios[k] = s->ratios[k / n * s->n_devices + kept[k % n]];
    out->n_devices = out->mesh[0] = n, out->ratios = ratios, out->n_algorithms = 0;
    return out;
}

/* The stage on n devices, with its rules if it shards operators. kept: their positions in the rules, NULL: all. */
static bool place(struct adapting *q, struct plan_stage *x, const int32_t *devices,
                  const int32_t *kept, int32_t n)
{
    if (!x->sharding || n < 2) return stage_moves_place(q->arena, q->s, x, devices, n);
    x->sharding = of_devices(q, x->sharding, kept, n);
    x->devices = arena_copy(q->arena, devices, (size_t)n * sizeof *devices);
    x->device = devices[0], x->n_shards = n, x->sequences = NULL;
    return x->sharding != NULL;
}

/* The stage on its remaining devices; false: none, or fewer sequences than devices. */
static bool carry_stage(struct adapting *q, const struct plan_stage *old, enum warm_lost lost,
                        struct plan_stage *x)
{
    int32_t n = 0, before = plan_stage_devices(old);
    int32_t now[STAGE_MOVES_DEVICES_MAX], kept[STAGE_MOVES_DEVICES_MAX];
    if (before > STAGE_MOVES_DEVICES_MAX) return false;
    for (int32_t k = 0; k < before; k++) {
        int32_t d = q->where[plan_stage_device(old, k)];
        if (d < 0 && lost == LOST_SPARES) {
            d = stand_in(q, plan_stage_device(old, k));
            q->done |= d >= 0;
            if (d >= 0) q->used[d] = true;
        }
        if (d >= 0) now[n] = d, kept[n++] = k;
    }
    if (n < before && lost == LOST_STAGE) return false;
    return place(q, x, now, kept, n);
}

/* Default orders; warm-up counts stay, because they were chosen by simulation. */
static void plain(struct plan_replica *r)
{
    r->schedule = NULL, r->orders = NULL, r->split = false;
    for (int32_t i = 0; i < r->n_stages; i++) {
        r->stages[i].order = NULL, r->stages[i].recompute = RECOMPUTE_NONE, r->stages[i].recompute_blocks = 0, r->stages[i].offload = false;
        r->stages[i].receive_ahead = 2;
    }
}

/* The named schedule of one chunk a device, for orders with separate weight gradients the zero-bubble one; NULL: none. */
static const char *schedule_of(const struct plan_replica *r)
{
    struct error none;
    enum schedule_kind kind;
    bool split = false;
    if (r->schedule) return schedule_kind_parse(r->schedule, &kind, &none) == OK && schedule_kind_chunks(kind) == 1 ? r->schedule : NULL;
    for (int32_t i = 0; i < r->n_stages; i++)
        split |= (r->orders && r->orders[i] && strchr(r->orders[i], 'W')) || (r->stages[i].order && strchr(r->stages[i].order, 'W'));
    return split ? schedule_name(SCHEDULE_ZB_H1) : NULL;
}

/* Default orders, or the schedule that is kept. */
static void order_anew(struct adapting *q, struct plan_replica *r)
{
    const char *schedule = q->keep ? schedule_of(r) : NULL;
    bool split = !r->schedule || r->split;
    plain(r);
    if (!schedule) return;
    q->kept = true;
    r->schedule = schedule, r->split = split;
    for (int32_t i = 0; i < r->n_stages; i++) r->stages[i].warmup = 0;
}

/* A layer each, and the rest to the last stage, until layers are rebalanced. */
static void any_cut(const struct adapting *q, struct plan_replica *r)
{
    for (int32_t i = 0; i < r->n_stages; i++) {
        r->stages[i].first_layer = i;
        r->stages[i].last_layer = i + 1 < r->n_stages ? i : q->s->n_layers - 1;
    }
}

/* A replica that lost devices, from now on with one chunk per device; false: no device remains. */
static bool repair(struct adapting *q, const struct plan_replica *old, enum warm_lost lost,
                   struct plan_replica *r)
{
    int32_t n = 0;
    order_anew(q, r);
    for (int32_t i = 0; i < old->n_stages; i++) {
        struct plan_stage x = r->stages[i];
        if (!is_first_chunk(old, i) || !carry_stage(q, &old->stages[i], lost, &x)) continue;
        r->stages[n++] = x;
    }
    r->n_stages = n;
    if (!n || n > q->s->n_layers) return false;
    any_cut(q, r);
    return true;
}

/* An unchanged replica. */
static void carry(struct adapting *q, const struct plan_replica *old, struct plan_replica *r)
{
    for (int32_t i = 0; i < old->n_stages; i++) {
        const struct plan_stage *x = &old->stages[i];
        int32_t n = plan_stage_devices(x), *own = ARENA_ARRAY(q->arena, int32_t, (size_t)n);
        for (int32_t k = 0; k < n; k++) own[k] = q->where[plan_stage_device(x, k)];
        r->stages[i].device = own[0];
        if (x->n_shards) r->stages[i].devices = own;
    }
}

static bool carry_all(struct adapting *q, enum warm_lost lost)
{
    struct plan *p = q->p;
    int32_t n = 0;
    for (int32_t r = 0; r < q->from->n_replicas; r++) {
        const struct plan_replica *old = &q->from->replicas[r];
        bool whole = is_whole(q, old);
        q->any_lost |= !whole;
        p->replicas[n] = p->replicas[r];
        q->changed[n] = !whole;
        if (!whole && (lost == LOST_REPLICA || !repair(q, old, lost, &p->replicas[n]))) continue;
        if (whole) carry(q, old, &p->replicas[n]);
        n++;
    }
    p->n_replicas = n;
    if (lost == LOST_SPARES) return n > 0 && q->done;
    return n > 0 && (q->any_lost || lost == LOST_LEVEL);
}

static void mark(struct adapting *q)
{
    memset(q->used, 0, (size_t)q->s->n_devices * sizeof *q->used);
    for (int32_t r = 0; r < q->p->n_replicas; r++)
        for (int32_t i = 0; i < q->p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &q->p->replicas[r].stages[i];
            for (int32_t k = 0; k < plan_stage_devices(x); k++)
                q->used[plan_stage_device(x, k)] = true;
        }
}

/* --- spare devices --- */

/* 2: a device of the stage is on the same node; 1: of the same type; 0: neither. */
static int nearness(const struct space *s, const struct plan_stage *x, int32_t device)
{
    int near = 0;
    const struct device *d = s->cluster->devices;
    for (int32_t k = 0; k < plan_stage_devices(x); k++) {
        const struct device *y = &d[plan_stage_device(x, k)];
        if (y->node == d[device].node) return 2;
        if (y->type == d[device].type) near = 1;
    }
    return near;
}

/* The stage for a spare device: the nearest ones, of these the one with most work; in a replica of distinct devices. */
static bool find_stage(const struct adapting *q, int32_t device, int32_t *replica, int32_t *stage)
{
    int best = -1;
    int64_t most = 0;
    for (int32_t r = 0; r < q->p->n_replicas; r++) {
        const struct plan_replica *x = &q->p->replicas[r];
        for (int32_t i = 0; i < x->n_stages; i++) {
            if (x->stages[i].sharding) continue;
            int near = nearness(q->s, &x->stages[i], device);
            int64_t work = x->microbatches * group_stage_ns(q->s, &x->stages[i]);
            if (near < best || (near == best && work <= most)) continue;
            best = near, most = work, *replica = r, *stage = i;
        }
    }
    return best >= 0;
}

/* Prepares a replica for changes: one chunk per device, default orders. */
static void simplify(struct adapting *q, int32_t r)
{
    struct plan_replica *x = &q->p->replicas[r];
    int32_t n = 0;
    if (q->changed[r]) return;
    q->changed[r] = true;
    order_anew(q, x);
    for (int32_t i = 0; i < x->n_stages; i++)
        if (is_first_chunk(x, i)) x->stages[n++] = x->stages[i];
    bool chunks = n < x->n_stages;
    x->n_stages = n;
    if (chunks) any_cut(q, x);
}

static bool join_each(struct adapting *q)
{
    bool any = false;
    int32_t r = 0, i = 0;
    for (int32_t d = 0; d < q->s->n_devices; d++) {
        if (q->used[d] || !find_stage(q, d, &r, &i)) continue;
        simplify(q, r);
        if (i >= q->p->replicas[r].n_stages) i = q->p->replicas[r].n_stages - 1;
        if (!stage_moves_add(q->arena, q->s, q->p, r, i, d)) continue;
        q->used[d] = any = true;
    }
    return any;
}

static int32_t devices_of(const struct plan_replica *x)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->n_stages; i++) n += plan_stage_devices(&x->stages[i]);
    return n;
}

/* Stages on n devices: the shape of `like` if it has n, else one each. */
static bool form(struct adapting *q, const struct plan_replica *like, const int32_t *devices,
                 int32_t n, struct plan_replica *x)
{
    bool alike = devices_of(like) == n;
    int32_t stages = alike ? like->n_stages : n;
    if (stages > q->s->n_layers) return false;
    *x = (struct plan_replica){.microbatches = 1, .n_stages = stages};
    x->stages = ARENA_ARRAY(q->arena, struct plan_stage, (size_t)stages);
    for (int32_t i = 0; i < stages; i++) {
        int32_t m = alike ? plan_stage_devices(&like->stages[i]) : 1;
        x->stages[i] = (struct plan_stage){.receive_ahead = 2,
                                           .bucket_bytes = like->stages[0].bucket_bytes,
                                           .zero = like->stages[0].zero,
                                           .hybrid_shard = like->stages[0].hybrid_shard,
                                           .sharding = alike ? like->stages[i].sharding : NULL};
        if (!place(q, &x->stages[i], devices, NULL, m)) return false;
        devices += m;
    }
    any_cut(q, x);
    return true;
}

static bool take_replicas(struct adapting *q)
{
    struct plan *p = q->p;
    const struct plan_replica *like = &p->replicas[0];
    int32_t n = 0, *spare = ARENA_ARRAY(q->arena, int32_t, (size_t)q->s->n_devices);
    for (int32_t r = 1; r < p->n_replicas; r++)
        if (devices_of(&p->replicas[r]) < devices_of(like)) like = &p->replicas[r];
    for (int32_t d = 0; d < q->s->n_devices; d++)
        if (!q->used[d]) spare[n++] = d;
    int32_t each = devices_of(like), before = p->n_replicas;
    for (int32_t at = 0; at < n; at += each) {
        int32_t taken = n - at < each ? n - at : each;
        if (!form(q, like, &spare[at], taken, &p->replicas[p->n_replicas])) continue;
        q->changed[p->n_replicas++] = true;
    }
    return p->n_replicas > before;
}

/* --- shares and warm-ups --- */

static bool has_orders(const struct plan_replica *r)
{
    bool any = r->orders != NULL;
    for (int32_t i = 0; i < r->n_stages; i++) any |= r->stages[i].order != NULL;
    return any;
}

/* Orders name microbatches, so they end with a change of the share. */
static void reshare(struct adapting *q, struct plan_replica *r, int32_t microbatches, bool *changed)
{
    if (r->microbatches == microbatches) return;
    r->microbatches = microbatches;
    for (int32_t i = 0; i < r->n_stages; i++)
        if (r->stages[i].warmup > microbatches) r->stages[i].warmup = microbatches;
    if (!has_orders(r)) return;
    *changed = true;
    order_anew(q, r);
}

static bool share_out(struct adapting *q)
{
    struct plan *p = q->p;
    int64_t *weight = ARENA_ARRAY(q->arena, int64_t, (size_t)p->n_replicas);
    int32_t *share = ARENA_ARRAY(q->arena, int32_t, (size_t)p->n_replicas);
    bool equal = true;
    if (p->n_replicas > q->s->microbatches) return false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        weight[r] = balance_layers_replica_ns(q->w, &p->replicas[r], NULL);
        if (weight[r] == INT64_MAX) return false;
    }
    partition_shares(weight, p->n_replicas, q->s->microbatches, share);
    for (int32_t r = 0; r < p->n_replicas; r++)
        reshare(q, &p->replicas[r], share[r], &q->changed[r]), equal &= share[r] == share[0];
    for (int32_t r = 0; r < p->n_replicas && !equal; r++) /* sharded gradients need equal shares */
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].zero > 1) p->replicas[r].stages[i].zero = 1;
    for (int32_t r = 0; r < p->n_replicas; r++) /* the others fit any number of devices */
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->n_replicas < 2 || p->replicas[r].stages[i].all_reduce == ALGORITHM_HIERARCHICAL)
                p->replicas[r].stages[i].all_reduce = ALGORITHM_RING;
    return true;
}

/* Warm-ups by the rule, at least those the stage had; the differences between stages are at least those of the rule. Searched orders have
 * more forwards in flight than 1F1B, and so do eager warm-ups: of GPT-2.6B on 64 GPUs less one, 1.46–1.53 s in place of 1.57–1.73 s. */
static void warm_up(struct adapting *q)
{
    enum { WARMUPS_UNEQUAL, WARMUPS_EAGER };
    bool ordered = has_orders(&q->from->replicas[0]);
    for (int32_t r = 0; r < q->p->n_replicas; r++) {
        struct plan_replica *x = &q->p->replicas[r];
        struct plan one = *q->p;
        if (!q->changed[r] || x->schedule) continue;
        int32_t *before = ARENA_ARRAY(q->arena, int32_t, (size_t)x->n_stages), w = 0, rule = 0;
        for (int32_t i = 0; i < x->n_stages; i++) before[i] = x->stages[i].warmup;
        one.n_replicas = 1, one.replicas = x;
        refine_warmups(q->s, &one, ordered ? WARMUPS_EAGER : WARMUPS_UNEQUAL);
        for (int32_t i = x->n_stages - 1; i >= 0; i--) {
            w += x->stages[i].warmup - rule, rule = x->stages[i].warmup;
            if (before[i] > w) w = before[i];
            x->stages[i].warmup = w < x->microbatches ? w : x->microbatches;
        }
    }
}

/* If the job or the microbatch size differs from the old plan's, nothing is kept. */
static bool renew(struct adapting *q)
{
    for (int32_t r = 0; r < q->p->n_replicas; r++) {
        struct plan_replica *x = &q->p->replicas[r];
        simplify(q, r);
        if (x->n_stages > q->s->n_layers) return false;
        for (int32_t i = 0; i < x->n_stages; i++) {
            int32_t n = plan_stage_devices(&x->stages[i]), d[STAGE_MOVES_DEVICES_MAX];
            for (int32_t k = 0; k < n; k++) d[k] = plan_stage_device(&x->stages[i], k);
            if (!stage_moves_place(q->arena, q->s, &x->stages[i], d, n)) return false;
        }
        any_cut(q, x);
    }
    return true;
}

static bool same_task(const struct adapting *q)
{
    const struct plan_replica *r = &q->from->replicas[0];
    int64_t batch = 0;
    for (int32_t i = 0; i < q->from->n_replicas; i++) batch += q->from->replicas[i].microbatches;
    return q->from->microbatch == q->s->microbatch && batch == q->s->microbatches &&
           r->stages[r->n_stages - 1].last_layer == q->s->n_layers - 1;
}

/* The old plan unchanged; for another task without layers, which `renew` sets. */
static void begin(struct adapting *q)
{
    struct plan *p = q->p;
    *p = scorer_copy_plan(q->arena, q->from);
    size_t n = (size_t)(p->n_replicas + q->s->n_devices);
    struct plan_replica *all = ARENA_ARRAY(q->arena, struct plan_replica, n);
    memcpy(all, p->replicas, (size_t)p->n_replicas * sizeof *all);
    p->replicas = all;
    p->name = "found", p->file = NULL, p->predicted_ns = 0;
    p->microbatch = q->s->microbatch;
    p->job = *q->s->job, p->cluster = *q->s->cluster, p->seed = p->job.seed;
    q->changed = ARENA_ARRAY(q->arena, bool, n);
    q->used = ARENA_ARRAY(q->arena, bool, (size_t)q->s->n_devices);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = 0; k < plan_stage_devices(x); k++) {
                int32_t now = q->where[plan_stage_device(x, k)];
                if (now >= 0) q->used[now] = true;
            }
            if (!q->same) x->first_layer = x->last_layer = 0;
        }
}

bool adapt_plan(struct arena *a, const struct warm_prices *w, const struct plan *from,
                const int32_t *where, enum warm_lost lost, enum warm_spare spare, enum warm_orders orders, struct plan *out)
{
    struct adapting q = {.arena = a, .s = w->whole, .w = w, .from = from, .where = where, .p = out, .keep = orders == ORDERS_KEPT};
    q.same = same_task(&q);
    bool any = !q.same;
    begin(&q);
    if (!carry_all(&q, lost) || (!q.same && !renew(&q))) return false;
    mark(&q);
    if (spare == SPARE_JOIN && (out->deterministic || !join_each(&q))) return false;
    if (spare == SPARE_REPLICAS && !take_replicas(&q)) return false;
    for (int32_t r = 0; r < out->n_replicas; r++) {
        any |= q.changed[r];
        if (q.changed[r] && !balance_layers(w, &out->replicas[r])) return false;
    }
    if ((any || q.any_lost) && !share_out(&q)) return false;
    warm_up(&q);
    return q.kept || !q.keep;
}
