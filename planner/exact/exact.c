#include "planner/exact/exact.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "planner/exact/bottleneck.h"
#include "planner/exact/candidate.h"
#include "planner/exact/partition.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 60000 }; /* pipelines of a set of devices, 72 bytes each; with more the class is not searched completely */
/* Counted ns of work that is not simulation, fitted like those of planner/candidate/scorer.c: a stage placed, a choice of shares, a
 * partition's bound (constant, and per replica and microbatch). */
enum { STEP_NS = 60, SHARES_NS = 300, NEIGHBOUR_NS = 100, SHARE_NS = 2 };

/* Pipelines of one set of devices and number of microbatches, enumerated up to limit_ns. */
struct exact_list {
    int64_t limit_ns;
    struct pipeline_list list;
};
/* The tables of one microbatch size. */
struct exact_size {
    const struct space *s;
    const struct bottleneck *b;
    struct partition_list parts;
    struct hash_map lists; /* of struct exact_list, by devices and microbatches */
};
struct exact_turn { /* of one partition */
    int32_t size;
    struct partition part;
    int64_t ns;  /* of its first plan; INT64_MAX: none */
    bool walked; /* its neighbours are turns too */
};

/* Pruning uses the worst incumbent, so that the number of requested plans does not change which plans are found. */
struct exact {
    struct search_context *t;
    struct arena *lists; /* owns pipeline lists */
    struct exact_size *sizes;
    int32_t n_sizes;
    struct exact_turn *turns;
    size_t n_turns, turns_room;
    struct hash_map memo; /* simulated ns of candidates */
};

struct combination {
    struct exact_size *size;
    const struct partition *part;
    const struct pipeline_list *list[SPACE_TABLES_MAX];
    const struct exact_pipeline *chosen[SPACE_TABLES_MAX];
    int32_t share[SPACE_TABLES_MAX];
    uint32_t like_before; /* bit r: replica r is interchangeable with r - 1 */
    bool first_only;
    int64_t ns; /* of the last plan scored */
};

static int64_t limit_of(const struct exact *q) { return search_context_limit(q->t); }

static int64_t steps_left(const struct exact *q)
{
    if (!q->t->work_end) return INT64_MAX;
    int64_t left = q->t->work_end - scorer_work(q->t->scorer);
    return left > STEP_NS ? left / STEP_NS : 1;
}

/* --- pipelines of one set of devices --- */

static void enumerate(struct exact *q, struct exact_size *z, uint32_t mask, int32_t m,
                      int64_t limit, size_t most, struct pipeline_list *out)
{
    bottleneck_enumerate(q->lists, z->s, z->b, mask, m, limit, most, steps_left(q), out);
    scorer_charge(q->t->scorer, STEP_NS * out->steps);
    q->t->candidates += out->seen;
}

/* A pipeline of least bound, under a rising limit; without a limit the depth-first search meets the worst splits first. A list of two holds the
 * best one and the next. */
static void find_best(struct exact *q, struct exact_size *z, uint32_t mask, int32_t m,
                          int64_t limit, struct pipeline_list *out)
{
    double least = (double)m * (double)bottleneck_ns(z->b, mask, 0);
    for (double factor = 1.05;; factor = 1 + 2 * (factor - 1)) {
        bool last = factor > 10 || factor * least >= (double)limit;
        enumerate(q, z, mask, m, last ? limit : (int64_t)(factor * least), 2, out);
        out->complete = false; /* up to `limit` */
        if (out->n || last || search_context_over(q->t)) return;
    }
}

static struct exact_list *list_of(struct exact *q, struct exact_size *z, uint32_t mask, int32_t m)
{
    struct hash_entry *e = hash_map_at(&z->lists, (uint64_t)mask << 32 | (uint32_t)m);
    if (!e->pointer) e->pointer = ARENA_ARRAY(q->lists, struct exact_list, 1);
    return e->pointer;
}

static const struct pipeline_list *pipelines(struct exact *q, struct combination *c, int32_t r)
{
    struct exact_size *z = c->size;
    int64_t limit = limit_of(q);
    struct exact_list *x = list_of(q, z, c->part->mask[r], c->share[r]);
    bool known = x->limit_ns && (x->list.n || x->limit_ns >= limit);
    if (known && (x->list.complete || c->first_only)) return &x->list;
    x->limit_ns = limit;
    if (c->first_only) {
        find_best(q, z, c->part->mask[r], c->share[r], limit, &x->list);
        return &x->list;
    }
    enumerate(q, z, c->part->mask[r], c->share[r], limit, LIST_MAX, &x->list);
    if (!x->list.complete) q->t->truncated = true;
    return &x->list;
}

/* --- plans --- */

static enum status score(struct exact *q, struct combination *c, struct error *err)
{
    struct candidate x = {.s = c->size->s, .n_replicas = c->part->n_replicas};
    for (int32_t r = 0; r < x.n_replicas; r++) {
        x.share[r] = c->share[r];
        x.n_stages[r] = c->chosen[r]->n_stages;
        memcpy(x.device[r], c->chosen[r]->device, sizeof x.device[r]);
        memcpy(x.last[r], c->chosen[r]->last, sizeof x.last[r]);
    }
    return candidate_score(&x, &q->memo, q->t, &c->ns, err);
}

/* Symmetry breaking: an interchangeable replica with the same share has no better pipeline than the one before. */
static bool out_of_turn(const struct combination *c, int32_t r, const struct exact_pipeline *p)
{
    return (c->like_before >> r & 1) && c->share[r] == c->share[r - 1] &&
           p->bound_ns < c->chosen[r - 1]->bound_ns;
}

static enum status combine(struct exact *q, struct combination *c, int32_t r, struct error *err)
{
    if (r == c->part->n_replicas) return score(q, c, err);
    for (size_t i = 0; i < c->list[r]->n && !search_context_over(q->t); i++) {
        const struct exact_pipeline *p = &c->list[r]->items[i];
        if (p->bound_ns >= limit_of(q)) break;
        if (out_of_turn(c, r, p)) continue;
        int64_t sum =
            candidate_reduce_ns(c->size->s, c->part->n_replicas, p->device[0], p->last[0]);
        if (p->path_ns + sum >= limit_of(q)) continue;
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

/* Upper bound of the microbatches of the replicas after r, each below the limit and none more than an interchangeable one
 * before it, if r takes m. */
static int64_t room_behind(const struct exact *q, const struct combination *c, int32_t r, int32_t m)
{
    int64_t room = 0, limit = limit_of(q), before = m;
    for (r++; r < c->part->n_replicas; r++) {
        int64_t weight = bottleneck_ns(c->size->b, c->part->mask[r], 0);
        int64_t most = weight > 0 ? (limit - 1) / weight : INT32_MAX;
        if ((c->like_before >> r & 1) && most > before) most = before;
        before = most < INT32_MAX ? most : INT32_MAX;
        room += before;
    }
    return room;
}

/* Enumerates the shares of `left` microbatches among replicas r … that may still beat the incumbent. Only shares of r for
 * which the other replicas have room are visited, so every visit leads to charged candidates. One more microbatch of r
 * allows at most one more for each later replica, so shares without room are skipped by steps. */
static enum status all_shares(struct exact *q, struct combination *c, int32_t r, int32_t left,
                              struct error *err)
{
    int32_t behind = c->part->n_replicas - r - 1, most = left - behind;
    int64_t weight = bottleneck_ns(c->size->b, c->part->mask[r], 0);
    if ((c->like_before >> r & 1) && c->share[r - 1] < most) most = c->share[r - 1];
    for (int32_t m = behind ? 1 : left; m <= most && !search_context_over(q->t); m++) {
        if (m * weight >= limit_of(q)) break;
        int64_t lacking = left - m - room_behind(q, c, r, m);
        if (behind && lacking > 0) {
            m += (int32_t)((lacking + behind) / (behind + 1)) - 1;
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

static struct combination begin(struct exact *q, const struct exact_turn *turn)
{
    struct exact_size *z = &q->sizes[turn->size];
    struct combination c = {.size = z, .part = &turn->part, .ns = INT64_MAX};
    for (int32_t r = 1; r < c.part->n_replicas; r++)
        if (interchangeable(z->s, c.part->mask[r - 1], c.part->mask[r])) c.like_before |= 1u << r;
    return c;
}

/* The plan of least bound of a partition, with greedy shares. */
static enum status try_first(struct exact *q, struct exact_turn *turn, struct error *err)
{
    struct combination c = begin(q, turn);
    int64_t weight[SPACE_TABLES_MAX];
    c.first_only = true;
    for (int32_t r = 0; r < c.part->n_replicas; r++)
        weight[r] = bottleneck_ns(c.size->b, c.part->mask[r], 0);
    partition_shares(weight, c.part->n_replicas, c.size->s->microbatches, c.share);
    TRY(try_shares(q, &c, err));
    turn->ns = c.ns;
    return OK;
}

static enum status first_round(struct exact *q, size_t from, struct error *err)
{
    for (size_t i = from; i < q->n_turns && !search_context_over(q->t); i++)
        if (q->turns[i].part.bound_ns < limit_of(q)) TRY(try_first(q, &q->turns[i], err));
    return OK;
}

static enum status last_round(struct exact *q, struct error *err)
{
    for (size_t i = 0; i < q->n_turns && !search_context_over(q->t); i++) {
        struct combination c = begin(q, &q->turns[i]);
        if (c.part->bound_ns < limit_of(q)) TRY(all_shares(q, &c, 0, c.size->s->microbatches, err));
    }
    return OK;
}

static int by_bound(const void *a, const void *b)
{
    const struct exact_turn *x = a, *y = b;
    if (x->size != y->size && x->part.bound_ns == y->part.bound_ns) return x->size - y->size;
    return partition_compare(&x->part, &y->part);
}

static int by_ns(const void *a, const void *b)
{
    const struct exact_turn *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? -1 : 1) : by_bound(a, b);
}

/* Turns of the size's partitions from the i-th on. */
static void add_turns(struct exact *q, int32_t size, size_t i)
{
    const struct partition_list *l = &q->sizes[size].parts;
    for (; i < l->n; i++) {
        q->turns = arena_grow(q->lists, q->turns, q->n_turns, &q->turns_room, sizeof *q->turns);
        q->turns[q->n_turns++] = (struct exact_turn){size, l->items[i], INT64_MAX, false};
    }
}

static void make_size(struct exact *q, int32_t size, const struct space *s)
{
    struct exact_size *z = &q->sizes[size];
    struct arena *a = q->lists;
    *z = (struct exact_size){.s = s, .b = bottleneck_make(a, s), .lists = {.arena = a}};
    z->parts = (struct partition_list){.arena = a, .s = s, .b = z->b, .known = {.arena = a}};
    scorer_charge(q->t->scorer, bottleneck_steps(s));
    if (s->n_devices > SEARCH_DEVICES_MAX)
        partition_even(&z->parts);
    else
        partition_all(&z->parts, limit_of(q));
    add_turns(q, size, 0);
}

/* --- the walk --- */

/* Adds the partitions that differ from a turn's in the place of one device (also a replica of its own, or idle) or by an exchange of two. */
static void add_neighbours(struct exact *q, const struct exact_turn *turn)
{
    struct partition_list *l = &q->sizes[turn->size].parts;
    int32_t n = turn->part.n_replicas, devices = l->s->n_devices;
    for (int32_t d = 0; d < devices; d++) {
        uint32_t mask[SPACE_TABLES_MAX + 1] = {0};
        for (int32_t r = 0; r < n; r++) mask[r] = turn->part.mask[r] & ~(1u << d);
        (void)partition_add(l, mask, n, limit_of(q));
        for (int32_t to = 0; to <= n; to++) {
            mask[to] |= 1u << d;
            (void)partition_add(l, mask, n + 1, limit_of(q));
            mask[to] &= ~(1u << d);
        }
        for (int32_t e = 0; e < d; e++) {
            uint32_t both = 1u << d | 1u << e;
            for (int32_t r = 0; r < n; r++) {
                uint32_t set = turn->part.mask[r];
                mask[r] = (set & both) && (set & both) != both ? set ^ both : set;
            }
            (void)partition_add(l, mask, n, limit_of(q));
        }
    }
    scorer_charge(q->t->scorer, (int64_t)devices * (n + 2 + devices / 2) *
                                    (NEIGHBOUR_NS + SHARE_NS * n * l->s->microbatches));
}

/* Best-first search over partitions that are too many to list: the neighbours of the fastest one whose neighbours are unknown. */
static enum status walk(struct exact *q, struct error *err)
{
    while (!search_context_over(q->t)) {
        struct exact_turn *best = NULL;
        for (size_t i = 0; i < q->n_turns; i++) {
            struct exact_turn *x = &q->turns[i];
            if (!x->walked && x->ns < (best ? best->ns : INT64_MAX)) best = x;
        }
        if (!best) return OK;
        size_t known = q->sizes[best->size].parts.n, turns = q->n_turns;
        best->walked = true;
        add_neighbours(q, best);
        add_turns(q, best->size, known);
        TRY(first_round(q, turns, err));
    }
    return OK;
}

enum status exact_search(struct search_context *t, struct arena *lists, const struct space *spaces,
                         int32_t n, struct error *err)
{
    struct exact q = {.t = t, .lists = lists, .n_sizes = n, .memo = {.arena = lists}};
    bool few = !n || spaces[0].n_devices <= SEARCH_DEVICES_MAX; /* their partitions are listed */
    int64_t start = scorer_work(t->scorer), end = t->work_end;
    q.sizes = ARENA_ARRAY(lists, struct exact_size, (size_t)n);
    for (int32_t i = 0; i < n; i++) make_size(&q, i, &spaces[i]);
    if (q.n_turns) qsort(q.turns, q.n_turns, sizeof *q.turns, by_bound);
    if (end) t->work_end = start + (end - start) / 2;
    TRY(first_round(&q, 0, err));
    if (!few) TRY(walk(&q, err));
    if (!few) qsort(q.turns, q.n_turns, sizeof *q.turns, by_ns);
    t->truncated |= !few;
    t->work_end = end;
    return last_round(&q, err);
}
