/* core/lower/launches.c - the gradient groups that a stage's last weight gradients launch, and the instruction that precedes each. */
#include "core/lower/launches.h"

#include "core/lower/groups.h"
#include "core/lower/orders.h"
#include "core/lower/stage_scratch.h"
#include "core/lower/zero.h"

#include <stdlib.h>

struct launch { /* a group, its member's chunk and lane */
    int32_t group, chunk, lane;
};

static int by_number(const void *x, const void *y)
{
    const struct launch *a = x, *b = y;
    return a->group != b->group ? (a->group > b->group) - (a->group < b->group)
                                : (a->lane > b->lane) - (a->lane < b->lane);
}

/* Gradient all-reduces whose inputs the step's last weight gradients complete. */
static bool launched_last(const struct lowering *l, int32_t group)
{
    const struct group_plan *g = lower_group_plan(l, group);
    return !g->tied && !g->agrees && !g->outer && !lower_group_late(g) && g->zero < 2 && (!g->divided || g->divided->gathered < 0);
}

/* The lanes whose devices share their stages, and thus have the same calls, are consecutive: (n) from this one on. */
static int32_t lanes_together(const struct lowering *l, int32_t first)
{
    return l->stages[l->lanes[first].stages[0]].n_shards;
}

static void add_launches(const struct lowering *l, int32_t k, struct launch *out, size_t *n)
{
    for (int32_t c = 0; c < l->lanes[k].n_stages; c++) {
        const struct stage_build *b = &l->stages[l->lanes[k].stages[c]];
        for (int32_t i = 0; i < b->groups->n; i++) {
            if (!launched_last(l, b->groups->group[i])) continue;
            if (out) out[*n] = (struct launch){b->groups->group[i], c, k};
            ++*n;
        }
    }
}

/* The groups of devices that share their stages, by ascending number. */
static struct launch *all_launches(const struct lowering *l, int32_t first, int32_t n_lanes, size_t *n)
{
    struct launch *out = NULL;
    for (int round = 0; round < 2; round++) {
        *n = 0;
        for (int32_t k = first; k < first + n_lanes; k++) add_launches(l, k, out, n);
        if (!out) out = ARENA_ARRAY(l->tables, struct launch, *n + 1);
    }
    qsort(out, *n, sizeof *out, by_number);
    return out;
}

/* Whether this device is in a group of every bucket in which a device sharing its stages is. */
static bool has_all(const struct lowering *l, int32_t k, const struct launch *x, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        bool own = false;
        const int32_t *uses = lower_group_plan(l, x[i].group)->uses;
        for (end = i; end < n && lower_group_plan(l, x[end].group)->uses == uses; end++)
            own |= x[end].lane == k;
        if (!own) return false;
    }
    return true;
}

static void set_launches(struct lowering *l, int32_t k, const struct launch *launches, size_t n,
                         bool late)
{
    const struct lane_build *lane = &l->lanes[k];
    struct stage_build *at = NULL;
    for (size_t i = 0; i < n; i++) {
        struct stage_build *b = &l->stages[lane->stages[launches[i].chunk]];
        if (!at || b->order->last_weight > at->order->last_weight) at = b;
        at->launches->late = late;
        if (launches[i].lane != k) continue;
        struct stage_launches *own = at->launches;
        own->group = arena_grow(l->tables, own->group, (size_t)own->n, &own->capacity, sizeof *own->group);
        own->group[own->n++] = launches[i].group;
    }
}

/* Each chunk's last weight gradients may launch its groups, but never before a group of lower number: a chunk that
 * is ready too early leaves its launch to the next ready chunk. Devices that share their stages do this alike, also for groups
 * of only some of them, because collectives of tensors lie between their launches and need one order on all. If one device is in
 * fewer groups than another, no launch is early. */
void lower_launches(struct lowering *l)
{
    struct stage_launches *all = ARENA_ARRAY(l->tables, struct stage_launches, (size_t)l->p->n_stages);
    for (int32_t i = 0; i < l->p->n_stages; i++) l->stages[i].launches = &all[i];
    for (int32_t first = 0, n_lanes; first < l->p->n_devices; first += n_lanes) {
        size_t n;
        n_lanes = lanes_together(l, first);
        struct launch *launches = all_launches(l, first, n_lanes, &n);
        bool late = false;
        for (int32_t k = first; k < first + n_lanes; k++) late |= !has_all(l, k, launches, n);
        for (int32_t k = first; k < first + n_lanes; k++) set_launches(l, k, launches, n, late);
    }
}

int32_t lower_complete_at(const struct stage_scratch *h, int32_t group, int32_t end)
{
    const struct stage_build *b = h->b;
    const struct group_plan *g = lower_group_plan(h->l, group);
    bool own = false;
    for (int32_t i = 0; i < b->groups->n; i++) own |= b->groups->group[i] == group;
    if (b->launches->late) return end;
    if (!own) return 0;
    if (!g->bucketed) return end;
    int32_t at = 0;
    for (int32_t i = 0; i < g->n_uses; i++)
        if (h->done_at[g->uses[i]] > at) at = h->done_at[g->uses[i]];
    return at;
}
