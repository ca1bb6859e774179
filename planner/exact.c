#include "planner/exact.h"

#include "core/arena.h"
#include "planner/climb.h"
#include "planner/partition.h"
#include "planner/pipeline.h"
#include "planner/trial.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIST_MOST = 60000,
    FIRST_MOST = 16,
    /* Where work is limited: how much of it the first round may take, and the climbs end at, in percent. */
    FIRST_PERCENT = 35,
    CLIMB_PERCENT = 70,
    CLIMBS_MOST = 6,
    /* What else costs time, for the account of the work: a stage placed, shares of microbatches chosen. */
    STEP_NS = 60,
    SHARES_NS = 300
};

/* The tables of one microbatch size. */
struct size {
    const struct space *s;
    const struct bottleneck *b;
    struct partition *parts;
    size_t n;
    struct pipeline_list *memo; /* (1 << n_devices, microbatches + 1) */
    int64_t *memo_limit;
};
struct turn { /* of one partition */
    int32_t size;
    size_t part;
    int64_t bound_ns;
};

/* What cannot beat the worst kept plan is pruned, so that how many plans are asked for does not change which are found. */
struct exact {
    struct tries *t;
    struct arena *lists; /* pipelines */
    struct size *sizes;
    struct turn *turns;
    size_t n_turns;
    struct trials trials;
};

struct combination {
    struct size *size;
    const struct partition *part;
    const struct pipeline_list *list[SPACE_DEVICES_MAX];
    const struct pipeline *chosen[SPACE_DEVICES_MAX];
    int32_t share[SPACE_DEVICES_MAX];
    uint32_t like_before; /* bit r: replica r is interchangeable with r - 1 */
    bool first_only;
};

static int64_t steps_left(const struct exact *q)
{
    if (!q->t->work_end) return INT64_MAX;
    int64_t left = q->t->work_end - scorer_work(q->t->scorer);
    return left > STEP_NS ? left / STEP_NS : 1;
}

/* --- pipelines of one set of devices --- */

static void enumerate(struct exact *q, struct size *z, uint32_t mask, int32_t m, int64_t limit,
                      size_t most, struct pipeline_list *out)
{
    pipeline_enumerate(q->lists, z->s, z->b, mask, m, limit, most, steps_left(q), out);
    scorer_charge(q->t->scorer, STEP_NS * out->steps);
    q->t->candidates += out->seen;
}

/* Few, by ever higher limits: without one the walk sees the worst splits first. */
static void enumerate_few(struct exact *q, struct size *z, uint32_t mask, int32_t m, int64_t limit,
                          struct pipeline_list *out)
{
    double least = (double)m * (double)bottleneck_ns(z->b, mask, 0);
    for (double factor = 1.05;; factor = 1 + 2 * (factor - 1)) {
        bool last = factor > 10 || factor * least >= (double)limit;
        enumerate(q, z, mask, m, last ? limit : (int64_t)(factor * least), FIRST_MOST, out);
        if (out->n || last || tries_over(q->t)) return;
    }
}

static const struct pipeline_list *pipelines(struct exact *q, struct combination *c, int32_t r)
{
    struct size *z = c->size;
    uint32_t mask = c->part->mask[r];
    int32_t m = c->share[r];
    size_t at = (size_t)mask * (size_t)(z->s->microbatches + 1) + (size_t)m;
    int64_t limit = tries_limit(q->t);
    struct pipeline_list *list = &z->memo[at];
    if (z->memo_limit[at] && (list->complete || c->first_only)) return list;
    z->memo_limit[at] = limit;
    if (c->first_only) {
        enumerate_few(q, z, mask, m, limit, list);
        return list;
    }
    enumerate(q, z, mask, m, limit, LIST_MOST, list);
    if (!list->complete) q->t->truncated = true;
    return list;
}

/* --- plans --- */

static enum status score(struct exact *q, const struct combination *c, struct error *err)
{
    struct trial x = {.s = c->size->s, .n_replicas = c->part->n_replicas};
    int64_t ns;
    for (int32_t r = 0; r < x.n_replicas; r++) {
        x.share[r] = c->share[r];
        x.n_stages[r] = c->chosen[r]->n_stages;
        memcpy(x.device[r], c->chosen[r]->device, sizeof x.device[r]);
        memcpy(x.last[r], c->chosen[r]->last, sizeof x.last[r]);
    }
    return trials_score(&q->trials, q->t, &x, &ns, err);
}

/* A replica that is interchangeable with the one before it and has the same share takes no better pipeline. */
static bool out_of_turn(const struct combination *c, int32_t r, const struct pipeline *p)
{
    return (c->like_before >> r & 1) && c->share[r] == c->share[r - 1] &&
           p->bound_ns < c->chosen[r - 1]->bound_ns;
}

static enum status combine(struct exact *q, struct combination *c, int32_t r, struct error *err)
{
    if (r == c->part->n_replicas) return score(q, c, err);
    for (size_t i = 0; i < c->list[r]->n && !tries_over(q->t); i++) {
        const struct pipeline *p = &c->list[r]->items[i];
        if (p->bound_ns >= tries_limit(q->t)) break;
        if (out_of_turn(c, r, p)) continue;
        int64_t sum = trial_reduce_ns(c->size->s, c->part->n_replicas, p->device[0], p->last[0]);
        if (p->path_ns + sum >= tries_limit(q->t)) continue;
        c->chosen[r] = p;
        TRY(combine(q, c, r + 1, err));
        if (c->first_only) break;
    }
    return OK;
}

static enum status try_shares(struct exact *q, struct combination *c, struct error *err)
{
    scorer_charge(q->t->scorer, SHARES_NS);
    for (int32_t r = 0; r < c->part->n_replicas; r++) {
        c->list[r] = pipelines(q, c, r);
        if (!c->list[r]->n) return OK;
    }
    return combine(q, c, 0, err);
}

/* Microbatches that replicas r … can take at most, each staying below the limit. */
static int64_t room_of(const struct exact *q, const struct combination *c, int32_t r)
{
    int64_t room = 0, limit = tries_limit(q->t);
    for (; r < c->part->n_replicas; r++) {
        int64_t weight = bottleneck_ns(c->size->b, c->part->mask[r], 0);
        int64_t most = weight > 0 ? (limit - 1) / weight : INT32_MAX;
        room += most < INT32_MAX ? most : INT32_MAX;
    }
    return room;
}

/* Every way to share `left` microbatches among replicas r … that could still beat the incumbent. */
static enum status all_shares(struct exact *q, struct combination *c, int32_t r, int32_t left,
                              struct error *err)
{
    int32_t behind = c->part->n_replicas - r - 1, most = left - behind;
    int64_t weight = bottleneck_ns(c->size->b, c->part->mask[r], 0);
    if ((c->like_before >> r & 1) && c->share[r - 1] < most) most = c->share[r - 1];
    for (int32_t m = behind ? 1 : left; m <= most && !tries_over(q->t); m++) {
        if (m * weight >= tries_limit(q->t)) break;
        int64_t lacking = left - m - room_of(q, c, r + 1);
        if (behind && lacking > 0) {
            if (lacking > 1) m += (int32_t)(lacking < most ? lacking : most) - 1;
            continue;
        }
        c->share[r] = m;
        if (behind)
            TRY(all_shares(q, c, r + 1, left - m, err));
        else
            TRY(try_shares(q, c, err));
    }
    return OK;
}

/* --- turns --- */

static int32_t devices_of_class(const struct space *s, uint32_t mask, int32_t class)
{
    int32_t n = 0;
    for (int32_t d = 0; d < s->n_devices; d++) n += (mask >> d & 1) && s->class_of[d] == class;
    return n;
}

static bool interchangeable(const struct space *s, uint32_t a, uint32_t b)
{
    for (int32_t k = 0; k < s->n_devices; k++)
        if (devices_of_class(s, a, k) != devices_of_class(s, b, k)) return false;
    return true;
}

static struct combination begin(struct exact *q, const struct turn *turn)
{
    struct size *z = &q->sizes[turn->size];
    struct combination c = {.size = z, .part = &z->parts[turn->part]};
    for (int32_t r = 1; r < c.part->n_replicas; r++)
        if (interchangeable(z->s, c.part->mask[r - 1], c.part->mask[r])) c.like_before |= 1u << r;
    return c;
}

static bool goes_on(struct exact *q, size_t i)
{
    return i < q->n_turns && !tries_over(q->t) && q->turns[i].bound_ns < tries_limit(q->t);
}

/* A good incumbent first: the best-bound plan of every promising partition, greedy shares. */
static enum status first_round(struct exact *q, struct error *err)
{
    for (size_t i = 0; goes_on(q, i); i++) {
        struct combination c = begin(q, &q->turns[i]);
        int64_t weight[SPACE_DEVICES_MAX];
        c.first_only = true;
        for (int32_t r = 0; r < c.part->n_replicas; r++)
            weight[r] = bottleneck_ns(c.size->b, c.part->mask[r], 0);
        partition_shares(weight, c.part->n_replicas, c.size->s->microbatches, c.share);
        TRY(try_shares(q, &c, err));
    }
    return OK;
}

static enum status score_step(void *user, const struct trial *x, int64_t best_ns, int64_t *ns,
                              struct error *err)
{
    struct exact *q = user;
    *ns = INT64_MAX;
    return trial_bound(x) < best_ns ? trials_score(&q->trials, q->t, x, ns, err) : OK;
}

static enum status climbs(struct exact *q, int32_t n_sizes, struct error *err)
{
    struct trial starts[CLIMBS_MOST];
    int64_t ns[CLIMBS_MOST];
    struct climb_way way = {q->t, q, score_step};
    int32_t n = 0;
    for (int32_t i = 0; i < q->t->spots.n && n < CLIMBS_MOST; i++)
        for (int32_t z = 0; z < n_sizes && n < CLIMBS_MOST; z++) {
            ns[n] = q->t->spots.plans[i].iteration_ns;
            if (trial_of(&q->t->spots.plans[i].plan, q->sizes[z].s, &starts[n])) {
                n++;
                break;
            }
        }
    for (int32_t i = 0; i < n; i++) TRY(climb(&way, &starts[i], &ns[i], err));
    return OK;
}

static enum status last_round(struct exact *q, struct error *err)
{
    for (size_t i = 0; goes_on(q, i); i++) {
        struct combination c = begin(q, &q->turns[i]);
        TRY(all_shares(q, &c, 0, c.size->s->microbatches, err));
    }
    return OK;
}

static void forget_lists(struct exact *q, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const struct space *s = q->sizes[i].s;
        size_t cells = ((size_t)1 << s->n_devices) * (size_t)(s->microbatches + 1);
        memset(q->sizes[i].memo_limit, 0, cells * sizeof *q->sizes[i].memo_limit);
    }
}

static int by_bound(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->size != y->size) return x->size - y->size;
    return x->part < y->part ? -1 : 1;
}

static void make_turns(struct exact *q, const struct space *spaces, int32_t n)
{
    q->sizes = ARENA_ARRAY(q->lists, struct size, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        struct size *z = &q->sizes[i];
        size_t cells = ((size_t)1 << spaces[i].n_devices) * (size_t)(spaces[i].microbatches + 1);
        z->s = &spaces[i];
        z->b = bottleneck_make(q->lists, z->s);
        partition_all(q->lists, z->s, z->b, &z->parts, &z->n);
        z->memo = ARENA_ARRAY(q->lists, struct pipeline_list, cells);
        z->memo_limit = ARENA_ARRAY(q->lists, int64_t, cells);
        q->n_turns += z->n;
    }
    q->turns = ARENA_ARRAY(q->lists, struct turn, q->n_turns + 1);
    q->n_turns = 0;
    for (int32_t i = 0; i < n; i++)
        for (size_t k = 0; k < q->sizes[i].n; k++)
            q->turns[q->n_turns++] = (struct turn){i, k, q->sizes[i].parts[k].bound_ns};
    qsort(q->turns, q->n_turns, sizeof *q->turns, by_bound);
}

/* A phase may go on until so much of the work is done. */
static void until_percent(struct tries *t, int64_t start, int64_t end, int32_t percent)
{
    if (end) t->work_end = start + (end - start) / 100 * percent;
}

enum status exact_search(struct tries *t, struct arena *lists, const struct space *spaces,
                         int32_t n, struct error *err)
{
    struct exact q = {.t = t, .lists = lists};
    int64_t start = scorer_work(t->scorer), end = t->work_end;
    make_turns(&q, spaces, n);
    trials_init(&q.trials, lists);
    until_percent(t, start, end, FIRST_PERCENT);
    TRY(first_round(&q, err));
    until_percent(t, start, end, CLIMB_PERCENT);
    if (!t->o->exhaustive) TRY(climbs(&q, n, err));
    t->work_end = end;
    forget_lists(&q, n);
    return last_round(&q, err);
}
