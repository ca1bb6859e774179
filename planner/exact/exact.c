#include "planner/exact/exact.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/exact/exact_internal.h"
#include "planner/exact/local_search.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIST_MAX = 60000,
    FIRST_MAX = 16,
    /* With limited work: percent of it at which the first round and the local searches end. */
    FIRST_PERCENT = 35,
    CLIMB_PERCENT = 70,
    CLIMBS_MAX = 6,
    WALK_PERCENT = 90, /* end of the local searches if the rest cannot be completed anyway */
    WALK_CLIMBS_MAX = 16,
    LAST_PERCENT = 85,
    HELD_PART = 6, /* of the evaluations */
    KICKS_MAX = 1000,
    KICK_SEED = 12,
    /* Other work charged, in ns: a stage placed, a choice of shares. */
    STEP_NS = 60,
    SHARES_NS = 300
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

static int64_t limit_of(const struct exact *q)
{
    int64_t limit = search_context_limit(q->t);
    return q->walk_ns > limit ? q->walk_ns : limit;
}

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

/* A few pipelines under a rising limit; without a limit the depth-first search meets the worst splits first. */
static void enumerate_few(struct exact *q, struct exact_size *z, uint32_t mask, int32_t m,
                          int64_t limit, struct pipeline_list *out)
{
    double least = (double)m * (double)bottleneck_ns(z->b, mask, 0);
    for (double factor = 1.05;; factor = 1 + 2 * (factor - 1)) {
        bool last = factor > 10 || factor * least >= (double)limit;
        enumerate(q, z, mask, m, last ? limit : (int64_t)(factor * least), FIRST_MAX, out);
        if (out->n || last || search_context_over(q->t)) return;
    }
}

/* Slot of the list of a set of devices and number of microbatches. */
static struct exact_list **place_of(const struct exact_size *z, uint64_t key)
{
    size_t at = (size_t)rng_hash_bytes(0, &key, sizeof key) & (z->capacity - 1);
    while (z->lists[at] && z->lists[at]->key != key) at = (at + 1) & (z->capacity - 1);
    return &z->lists[at];
}

static struct exact_list *list_of(struct exact *q, struct exact_size *z, uint32_t mask, int32_t m)
{
    uint64_t key = (uint64_t)mask << 32 | (uint32_t)m;
    if (2 * (z->n_lists + 1) > z->capacity) {
        struct exact_size old = *z;
        z->capacity = old.capacity ? 2 * old.capacity : 256;
        z->lists = ARENA_ARRAY(q->lists, struct exact_list *, z->capacity);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.lists[i]) *place_of(z, old.lists[i]->key) = old.lists[i];
    }
    struct exact_list **at = place_of(z, key);
    if (!*at) {
        *at = ARENA_ARRAY(q->lists, struct exact_list, 1);
        (*at)->key = key;
        z->n_lists++;
    }
    return *at;
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
        enumerate_few(q, z, c->part->mask[r], c->share[r], limit, &x->list);
        return &x->list;
    }
    enumerate(q, z, c->part->mask[r], c->share[r], limit, LIST_MAX, &x->list);
    if (!x->list.complete) q->t->truncated = true;
    return &x->list;
}

/* --- plans --- */

static void note_shape(struct exact *q, const struct candidate *x, int64_t ns)
{
    int64_t *best = &q->shape_ns[x->n_replicas];
    if (ns == INT64_MAX || (*best && *best <= ns)) return;
    *best = ns;
    q->shape[x->n_replicas] = *x;
}

static enum status score(struct exact *q, struct combination *c, struct error *err)
{
    struct candidate x = {.s = c->size->s, .n_replicas = c->part->n_replicas};
    for (int32_t r = 0; r < x.n_replicas; r++) {
        x.share[r] = c->share[r];
        x.n_stages[r] = c->chosen[r]->n_stages;
        memcpy(x.device[r], c->chosen[r]->device, sizeof x.device[r]);
        memcpy(x.last[r], c->chosen[r]->last, sizeof x.last[r]);
    }
    TRY(candidates_score(&q->trials, q->t, &x, &c->ns, err));
    note_shape(q, &x, c->ns);
    return OK;
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
    struct combination c = {.size = z, .part = &z->parts[turn->part], .ns = INT64_MAX};
    for (int32_t r = 1; r < c.part->n_replicas; r++)
        if (interchangeable(z->s, c.part->mask[r - 1], c.part->mask[r])) c.like_before |= 1u << r;
    return c;
}

static bool goes_on(struct exact *q, size_t i)
{
    return i < q->n_turns && !search_context_over(q->t) && q->turns[i].bound_ns < limit_of(q);
}

enum status exact_first(struct exact *q, const struct exact_turn *turn, int64_t *ns,
                        struct error *err)
{
    struct combination c = begin(q, turn);
    int64_t weight[SPACE_TABLES_MAX];
    c.first_only = true;
    for (int32_t r = 0; r < c.part->n_replicas; r++)
        weight[r] = bottleneck_ns(c.size->b, c.part->mask[r], 0);
    partition_shares(weight, c.part->n_replicas, c.size->s->microbatches, c.share);
    TRY(try_shares(q, &c, err));
    *ns = c.ns;
    return OK;
}

/* First the plan of least bound of every promising partition, with greedy shares, for a good incumbent. */
static enum status first_round(struct exact *q, struct error *err)
{
    int64_t ns;
    for (size_t i = 0; goes_on(q, i); i++) TRY(exact_first(q, &q->turns[i], &ns, err));
    return OK;
}

static enum status score_step(void *user, const struct candidate *x, int64_t best_ns, int64_t *ns,
                              struct error *err)
{
    struct exact *q = user;
    *ns = INT64_MAX;
    return candidate_bound(x) < best_ns ? candidates_score(&q->trials, q->t, x, ns, err) : OK;
}

/* Iterated local search: random exchanges of devices in the best plan, then a local search, until the work is spent. */
static enum status kicks(struct exact *q, const struct local_search_hooks *hooks,
                         struct candidate *best, int64_t best_ns, struct error *err)
{
    uint64_t n = (uint64_t)best->s->n_devices, at = 0;
    for (int32_t i = 0; i < KICKS_MAX && !search_context_over(q->t); i++) {
        struct candidate x = *best;
        int64_t ns = INT64_MAX;
        for (int32_t k = 0; k < 2 + i % 3; k++, at += 2)
            local_search_exchange(&x, (int32_t)rng_below(KICK_SEED, 0, at, n),
                                  (int32_t)rng_below(KICK_SEED, 0, at + 1, n));
        TRY(score_step(q, &x, INT64_MAX, &ns, err));
        if (ns < INT64_MAX) TRY(local_search(hooks, &x, &ns, err));
        if (ns < best_ns) *best = x, best_ns = ns;
    }
    return OK;
}

static enum status climbs(struct exact *q, struct error *err)
{
    struct candidate starts[WALK_CLIMBS_MAX + SPACE_TABLES_MAX];
    int64_t ns[WALK_CLIMBS_MAX + SPACE_TABLES_MAX];
    struct local_search_hooks hooks = {q->t, q, score_step, q->walked};
    int32_t n = 0, most = q->walked ? WALK_CLIMBS_MAX : CLIMBS_MAX;
    for (int32_t i = 0; i < q->t->diverse_starts.n && n < most; i++)
        for (int32_t z = 0; z < q->n_sizes && n < most; z++) {
            ns[n] = q->t->diverse_starts.plans[i].iteration_ns;
            if (candidate_of(&q->t->diverse_starts.plans[i].plan, q->sizes[z].s, &starts[n])) {
                n++;
                break;
            }
        }
    for (int32_t r = 1; r <= SPACE_TABLES_MAX; r++)
        if (q->shape_ns[r]) starts[n] = q->shape[r], ns[n++] = q->shape_ns[r];
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        TRY(local_search(&hooks, &starts[i], &ns[i], err));
        if (ns[i] < ns[best]) best = i;
    }
    return n && q->walked ? kicks(q, &hooks, &starts[best], ns[best], err) : OK;
}

static enum status last_round(struct exact *q, struct error *err)
{
    for (size_t i = 0; goes_on(q, i); i++) {
        struct combination c = begin(q, &q->turns[i]);
        TRY(all_shares(q, &c, 0, c.size->s->microbatches, err));
    }
    return OK;
}

static void forget_lists(struct exact *q)
{
    for (int32_t i = 0; i < q->n_sizes; i++)
        for (size_t k = 0; k < q->sizes[i].capacity; k++)
            if (q->sizes[i].lists[k]) q->sizes[i].lists[k]->limit_ns = 0;
}

static int by_bound(const void *a, const void *b)
{
    const struct exact_turn *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->size != y->size) return x->size - y->size;
    return x->part < y->part ? -1 : 1;
}

void exact_add_turn(struct exact *q, int32_t size, const struct partition *p, int64_t bound_ns)
{
    struct exact_size *z = &q->sizes[size];
    z->parts = arena_grow(q->lists, z->parts, z->n, &z->n_room, sizeof *z->parts);
    z->parts[z->n++] = *p;
    q->turns = arena_grow(q->lists, q->turns, q->n_turns, &q->turns_room, sizeof *q->turns);
    q->turns[q->n_turns++] = (struct exact_turn){size, z->n - 1, bound_ns};
}

/* All partitions, if they can be listed. */
static void list_turns(struct exact *q)
{
    q->n_turns = 0;
    for (int32_t i = 0; i < q->n_sizes; i++) {
        struct partition *parts;
        size_t n;
        q->sizes[i].n = 0;
        partition_all(q->lists, q->sizes[i].s, q->sizes[i].b, limit_of(q), &parts, &n);
        for (size_t k = 0; k < n; k++) exact_add_turn(q, i, &parts[k], parts[k].bound_ns);
    }
}

static void make_tables(struct exact *q, const struct space *spaces)
{
    q->sizes = ARENA_ARRAY(q->lists, struct exact_size, (size_t)q->n_sizes);
    for (int32_t i = 0; i < q->n_sizes; i++) {
        q->sizes[i].s = &spaces[i];
        q->sizes[i].b = bottleneck_make(q->lists, &spaces[i]);
        scorer_charge(q->t->scorer, bottleneck_steps(&spaces[i]));
    }
}

/* Limit of work of a phase. */
static void until_percent(struct search_context *t, int64_t start, int64_t end, int32_t percent)
{
    if (end) t->work_end = start + (end - start) / 100 * percent;
}

/* All remaining partitions; if they exceed the budget, its reserve goes to local searches that exchange any devices. */
static enum status finish(struct exact *q, int64_t start, int64_t end, struct error *err)
{
    struct search_context *t = q->t;
    int64_t held = t->o->exhaustive || q->walked ? 0 : t->evaluations_left / HELD_PART;
    t->work_end = end;
    if (held > 0) until_percent(t, start, end, LAST_PERCENT);
    t->evaluations_left -= held;
    TRY(last_round(q, err));
    t->work_end = end;
    bool cut = search_context_over(t) || t->evaluations_left <= 0;
    if (held > 0 && end)
        cut |= scorer_work(t->scorer) >= start + (end - start) / 100 * LAST_PERCENT;
    t->evaluations_left += held;
    if (!cut || !held || search_context_over(t)) return OK;
    q->walked = true;
    TRY(climbs(q, err));
    if (end)
        t->work_end = 1; /* the budget ended before the enumeration */
    else
        t->evaluations_left = 0;
    return OK;
}

enum status exact_search(struct search_context *t, struct arena *lists, const struct space *spaces,
                         int32_t n, struct error *err)
{
    struct exact q = {.t = t, .lists = lists, .n_sizes = n};
    int64_t start = scorer_work(t->scorer), end = t->work_end;
    bool few = !n || spaces[0].n_devices <= SPACE_DEVICES_MAX; /* their partitions are listed */
    make_tables(&q, spaces);
    candidates_init(&q.trials, lists);
    until_percent(t, start, end, FIRST_PERCENT);
    q.walked = !few;
    if (q.walked) TRY(exact_walk(&q, err));
    if (few) list_turns(&q);
    t->truncated |= !few;
    if (q.n_turns) qsort(q.turns, q.n_turns, sizeof *q.turns, by_bound);
    if (few) TRY(first_round(&q, err));
    until_percent(t, start, end, few ? CLIMB_PERCENT : WALK_PERCENT);
    if (!t->o->exhaustive) TRY(climbs(&q, err));
    forget_lists(&q);
    return finish(&q, start, end, err);
}
