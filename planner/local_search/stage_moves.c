#include "planner/local_search/stage_moves.h"

#include "core/base/arena.h"
#include "core/plan/plan.h"
#include "planner/candidate/group.h"

#include <string.h>

struct members {
    int32_t n;
    int32_t device[STAGE_MOVES_DEVICES_MAX];
};

static int64_t whole_ns(const struct space *s, int32_t device, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage(s, device, first, last);
    return c->forward_ns + c->input_ns + c->weight_ns;
}

void stage_moves_balance(const struct space *s, int32_t first_layer, int32_t last_layer,
                         const int32_t *devices, int32_t n, int64_t *sequences)
{
    int64_t each[STAGE_MOVES_DEVICES_MAX];
    for (int32_t k = 0; k < n; k++)
        sequences[k] = 1, each[k] = whole_ns(s, devices[k], first_layer, last_layer);
    for (int64_t left = s->microbatch - n; left > 0; left--) {
        int32_t best = 0;
        for (int32_t k = 1; k < n; k++)
            if ((sequences[k] + 1) * each[k] < (sequences[best] + 1) * each[best]) best = k;
        sequences[best]++;
    }
}

bool stage_moves_place(struct arena *a, const struct space *s, struct plan_stage *x,
                       const int32_t *devices, int32_t n)
{
    if (n < 1 || n > STAGE_MOVES_DEVICES_MAX || n > s->microbatch) return false;
    if (n > 1 && s->job->model.measured) return false; /* whose operators are not known */
    int32_t *own = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) {
        int32_t at = k;
        for (; at > 0 && own[at - 1] > devices[k]; at--) own[at] = own[at - 1];
        own[at] = devices[k];
    }
    x->device = own[0];
    x->n_shards = 0, x->devices = NULL, x->sequences = NULL, x->sharding = NULL;
    if (n == 1) return true;
    int64_t *sequences = ARENA_ARRAY(a, int64_t, (size_t)n);
    stage_moves_balance(s, x->first_layer, x->last_layer, own, n, sequences);
    x->n_shards = n, x->devices = own, x->sequences = sequences;
    return true;
}

static struct members members_of(const struct plan_stage *x)
{
    struct members m = {.n = plan_stage_devices(x)};
    for (int32_t k = 0; k < m.n; k++) m.device[k] = plan_stage_device(x, k);
    return m;
}

static bool take_all(struct members *m, const struct plan_stage *x)
{
    for (int32_t k = 0; k < plan_stage_devices(x); k++) {
        if (m->n == STAGE_MOVES_DEVICES_MAX) return false;
        m->device[m->n++] = plan_stage_device(x, k);
    }
    return true;
}

static void remove_stage(struct plan_replica *x, int32_t i)
{
    memmove(&x->stages[i], &x->stages[i + 1], (size_t)(x->n_stages - i - 1) * sizeof *x->stages);
    x->n_stages--;
}

/* After a change of its layers. */
static void balance_again(const struct space *s, struct plan_stage *x)
{
    if (!x->n_shards || !x->sequences) return;
    int64_t sequences[STAGE_MOVES_DEVICES_MAX];
    stage_moves_balance(s, x->first_layer, x->last_layer, x->devices, x->n_shards, sequences);
    /* the plan is a copy whose lists are its own */
    memcpy((int64_t *)(uintptr_t)x->sequences, sequences, (size_t)x->n_shards * sizeof *sequences);
}

bool stage_moves_merge(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i)
{
    struct plan_replica *x = &p->replicas[r];
    struct members m = members_of(&x->stages[i]);
    if (!take_all(&m, &x->stages[i + 1])) return false;
    x->stages[i].last_layer = x->stages[i + 1].last_layer;
    remove_stage(x, i + 1);
    return stage_moves_place(a, s, &x->stages[i], m.device, m.n);
}

/* Layer boundary of two stages on these devices. */
static bool halve(const struct space *s, struct plan_stage *one, struct plan_stage *two)
{
    int32_t first = one->first_layer, last = two->last_layer;
    int64_t least = INT64_MAX;
    int32_t best = first;
    if (first == last) return false;
    for (int32_t cut = first; cut < last; cut++) {
        one->last_layer = cut, two->first_layer = cut + 1;
        int64_t x = group_stage_ns(s, one), y = group_stage_ns(s, two);
        if ((x > y ? x : y) < least) least = x > y ? x : y, best = cut;
    }
    one->last_layer = best, two->first_layer = best + 1;
    return true;
}

/* A stage behind stage i, with no layers yet. */
static struct plan_stage *open_stage(struct arena *a, struct plan_replica *x, int32_t i)
{
    struct plan_stage *stages = ARENA_ARRAY(a, struct plan_stage, (size_t)x->n_stages + 1);
    memcpy(stages, x->stages, (size_t)(i + 1) * sizeof *stages);
    memcpy(&stages[i + 1], &x->stages[i], (size_t)(x->n_stages - i) * sizeof *stages);
    x->stages = stages, x->n_stages++;
    return &stages[i];
}

bool stage_moves_split(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t front, bool behind)
{
    struct members m = members_of(&p->replicas[r].stages[i]);
    if (front < 1 || front >= m.n) return false;
    struct plan_stage *x = open_stage(a, &p->replicas[r], i);
    return stage_moves_place(a, s, &x[behind], m.device, front) &&
           stage_moves_place(a, s, &x[!behind], &m.device[front], m.n - front) &&
           halve(s, &x[0], &x[1]);
}

bool stage_moves_insert(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i, int32_t device, bool behind)
{
    struct members m = members_of(&p->replicas[r].stages[i]);
    struct plan_stage *x = open_stage(a, &p->replicas[r], i);
    return stage_moves_place(a, s, &x[behind], &device, 1) &&
           stage_moves_place(a, s, &x[!behind], m.device, m.n) && halve(s, &x[0], &x[1]);
}

bool stage_moves_add(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                     int32_t device)
{
    struct members m = members_of(&p->replicas[r].stages[i]);
    if (m.n == STAGE_MOVES_DEVICES_MAX) return false;
    m.device[m.n++] = device;
    return stage_moves_place(a, s, &p->replicas[r].stages[i], m.device, m.n);
}

bool stage_moves_replace(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                         int32_t i, int32_t k, int32_t device)
{
    struct members m = members_of(&p->replicas[r].stages[i]);
    m.device[k] = device;
    return stage_moves_place(a, s, &p->replicas[r].stages[i], m.device, m.n);
}

static bool drop_replica(struct plan *p, int32_t r)
{
    int32_t left = p->replicas[r].microbatches;
    if (p->n_replicas < 2) return false;
    memmove(&p->replicas[r], &p->replicas[r + 1],
            (size_t)(p->n_replicas - r - 1) * sizeof *p->replicas);
    p->n_replicas--;
    for (int32_t q = 0; left > 0; q = (q + 1) % p->n_replicas)
        p->replicas[q].microbatches++, left--;
    return true;
}

bool stage_moves_drop(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                      int32_t k, bool behind)
{
    struct plan_replica *x = &p->replicas[r];
    struct members m = members_of(&x->stages[i]);
    if (m.n > 1) {
        memmove(&m.device[k], &m.device[k + 1], (size_t)(m.n - k - 1) * sizeof *m.device);
        return !behind && stage_moves_place(a, s, &x->stages[i], m.device, m.n - 1);
    }
    if (x->n_stages == 1) return !behind && drop_replica(p, r);
    if (behind ? i + 1 == x->n_stages : i == 0) return false;
    struct plan_stage *heir = &x->stages[behind ? i + 1 : i - 1];
    if (behind)
        heir->first_layer = x->stages[i].first_layer;
    else
        heir->last_layer = x->stages[i].last_layer;
    balance_again(s, heir);
    remove_stage(x, i);
    return true;
}

bool stage_moves_join(struct arena *a, const struct space *s, struct plan *p, const bool *set)
{
    int32_t first = 0, n = 0;
    while (first < p->n_replicas && !set[first]) first++;
    if (first == p->n_replicas) return false;
    struct plan_replica *x = &p->replicas[first];
    struct members *m = ARENA_ARRAY(a, struct members, (size_t)x->n_stages);
    for (int32_t r = first; r < p->n_replicas; r++) {
        const struct plan_replica *y = &p->replicas[r];
        if (!set[r]) continue;
        if (y->n_stages != x->n_stages) return false;
        for (int32_t i = 0; i < x->n_stages; i++)
            if (!take_all(&m[i], &y->stages[i])) return false;
        if (n++) x->microbatches += y->microbatches;
    }
    for (int32_t i = 0; i < x->n_stages; i++)
        if (!stage_moves_place(a, s, &x->stages[i], m[i].device, m[i].n)) return false;
    int32_t kept = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (!set[r] || r == first) p->replicas[kept++] = p->replicas[r];
    p->n_replicas = kept;
    return n > 1;
}

bool stage_moves_divide(struct arena *a, const struct space *s, struct plan *p, int32_t r)
{
    struct plan_replica *from = &p->replicas[r];
    if (from->microbatches < 2) return false;
    struct plan_replica *all = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas + 1);
    memcpy(all, p->replicas, (size_t)p->n_replicas * sizeof *all);
    struct plan_replica *one = &all[r], *two = &all[p->n_replicas];
    *two = *from;
    two->stages = ARENA_ARRAY(a, struct plan_stage, (size_t)from->n_stages);
    memcpy(two->stages, from->stages, (size_t)from->n_stages * sizeof *two->stages);
    for (int32_t i = 0; i < from->n_stages; i++) {
        struct members m = members_of(&from->stages[i]), half[2] = {{.n = 0}, {.n = 0}};
        if (m.n < 2) return false;
        for (int32_t k = 0; k < m.n; k++) half[k % 2].device[half[k % 2].n++] = m.device[k];
        if (!stage_moves_place(a, s, &one->stages[i], half[0].device, half[0].n) ||
            !stage_moves_place(a, s, &two->stages[i], half[1].device, half[1].n))
            return false;
    }
    two->microbatches = from->microbatches / 2, one->microbatches -= two->microbatches;
    p->replicas = all, p->n_replicas++;
    return true;
}

/* Fills every stage up to time `most`; false: layers remain. write: stores the boundaries in the plan. */
static bool level_within(const struct space *s, struct plan_replica *x, int64_t most, bool write)
{
    int32_t at = 0;
    for (int32_t i = 0; i < x->n_stages; i++) {
        struct plan_stage one = x->stages[i];
        int32_t end = s->n_layers - (x->n_stages - i); /* one layer for each other stage */
        one.first_layer = one.last_layer = at;
        if (group_stage_ns(s, &one) > most) return false;
        for (; one.last_layer < end; one.last_layer++) {
            struct plan_stage more = one;
            more.last_layer++;
            if (group_stage_ns(s, &more) > most) break;
        }
        if (write) x->stages[i].first_layer = at, x->stages[i].last_layer = one.last_layer;
        at = one.last_layer + 1;
    }
    return at == s->n_layers;
}

void stage_moves_balance_replica(const struct space *s, struct plan *p, int32_t r)
{
    struct plan_replica *x = &p->replicas[r];
    int64_t low = 0, high = 1;
    for (int32_t i = 0; i < x->n_stages; i++) {
        if (x->stages[i].sharding) return;
        int64_t ns = group_stage_ns(s, &x->stages[i]);
        if (ns > high) high = ns;
    }
    if (!level_within(s, x, high, false)) return;
    while (high - low > 1 + high / 1024) {
        int64_t middle = low + (high - low) / 2;
        *(level_within(s, x, middle, false) ? &high : &low) = middle;
    }
    level_within(s, x, high, true);
    for (int32_t i = 0; i < x->n_stages; i++) balance_again(s, &x->stages[i]);
}

bool stage_moves_swap(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                      int32_t k)
{
    struct plan_stage *x = &p->replicas[r].stages[i], *y = &p->replicas[r].stages[k];
    struct members m = members_of(x), n = members_of(y);
    if (!stage_moves_place(a, s, x, n.device, n.n) || !stage_moves_place(a, s, y, m.device, m.n))
        return false;
    stage_moves_balance_replica(s, p, r);
    return true;
}

bool stage_moves_pass(struct plan *p, int32_t r, int32_t i, int32_t k, int32_t l)
{
    const struct plan_stage *x = &p->replicas[r].stages[i];
    int64_t *sequences = (int64_t *)(uintptr_t)x->sequences;
    if (k == l || sequences[k] < 2) return false;
    sequences[k]--, sequences[l]++;
    return true;
}

/* One each, largest first; every further one to the largest deficit. */
static void share_out(struct plan *p, int32_t all)
{
    struct plan_replica *x = p->replicas;
    int64_t weight[STAGE_MOVES_DEVICES_MAX];
    for (int32_t r = 0; r < p->n_replicas; r++)
        weight[r] = x[r].microbatches, x[r].microbatches = 1;
    for (int32_t left = all - p->n_replicas; left > 0; left--) {
        int32_t best = 0;
        for (int32_t r = 1; r < p->n_replicas; r++)
            if (weight[r] * (x[best].microbatches + 1) > weight[best] * (x[r].microbatches + 1))
                best = r;
        x[best].microbatches++;
    }
}

bool stage_moves_resize(struct arena *a, const struct space *s, struct plan *p)
{
    if (p->n_replicas > s->microbatches || p->n_replicas > STAGE_MOVES_DEVICES_MAX) return false;
    p->microbatch = s->microbatch;
    share_out(p, s->microbatches);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct members m = members_of(&p->replicas[r].stages[i]);
            if (!p->replicas[r].stages[i].sharding &&
                !stage_moves_place(a, s, &p->replicas[r].stages[i], m.device, m.n))
                return false;
        }
    return true;
}
