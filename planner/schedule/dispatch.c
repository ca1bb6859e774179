/* planner/schedule/dispatch.c - the list scheduler: an event simulation of the shop, one operation at a time.
 *
 * The next device is the one whose shortest ready operation ends first. No event that is still unknown can then add an earlier
 * alternative for that device, so the dispatching rule chooses among all of them.
 */
#include "planner/schedule/shop.h"

#include "core/base/arena.h"

#include <string.h>

#define NEVER INT64_MAX

struct shop_list {
    const struct shop *s;
    int32_t *done;   /* (n_devices, n_types) */
    int64_t *at;     /* (n_devices) length of the word so far */
    int64_t *free;   /* (n_devices) */
    int64_t *held;   /* (n_devices) bytes */
    int64_t (*most)[SHOP_LIVES]; /* (n_devices) peaks of rings, at least one buffer each */
    int64_t *first;  /* (n_devices) end of its shortest alternative; NEVER: none */
    int32_t *choice; /* (n_devices) type of that alternative */
    /* (2 · leaves) tournament tree of devices by `first`: entry i is the winner of 2i and 2i+1 */
    int32_t *winner;
    int32_t leaves;   /* a power of two */
    int64_t *arrival; /* (n_nodes) */
};

struct shop_list *shop_list_new(struct arena *a, const struct shop *s)
{
    struct shop_list *l = ARENA_ARRAY(a, struct shop_list, 1);
    size_t p = (size_t)s->n_devices;
    l->s = s;
    l->done = ARENA_ARRAY(a, int32_t, p * (size_t)s->n_types);
    l->at = ARENA_ARRAY(a, int64_t, p), l->free = ARENA_ARRAY(a, int64_t, p);
    l->most = arena_alloc(a, p * sizeof *l->most, sizeof(int64_t));
    l->held = ARENA_ARRAY(a, int64_t, p), l->first = ARENA_ARRAY(a, int64_t, p);
    l->choice = ARENA_ARRAY(a, int32_t, p);
    for (l->leaves = 1; l->leaves < s->n_devices;) l->leaves *= 2;
    l->winner = ARENA_ARRAY(a, int32_t, 2 * (size_t)l->leaves);
    l->arrival = ARENA_ARRAY(a, int64_t, (size_t)s->n_nodes);
    return l;
}

/* Whether the rings have room for it. One buffer in each suffices to finish the microbatches that have begun, one after the other. */
static bool rings_allow(struct shop_list *l, int32_t d, int32_t k)
{
    const struct shop *s = l->s;
    int32_t *done = &l->done[d * s->n_types];
    int64_t most[SHOP_LIVES];
    memcpy(most, l->most[d], sizeof most);
    done[k]++;
    shop_rings_raise(most, s->turned, done, k);
    done[k]--;
    return s->held[d] + shop_rings_bytes(&s->rings[d], most) <= s->limit[d];
}

/* Whether the device may run this type next. A type that frees memory never makes a state worse. */
static bool allowed(struct shop_list *l, const struct shop_rule *r, int32_t d, int32_t k)
{
    const struct shop *s = l->s;
    int32_t *done = &l->done[d * s->n_types];
    const uint8_t *order = &s->chain[d * s->n_types];
    int64_t bytes = s->type[d * s->n_types + k].bytes;
    if (r->flight && k == order[0] && done[k] - done[order[s->n_types - 2]] >= r->flight[d])
        return false;
    if (s->rings) return rings_allow(l, d, k);
    if (bytes <= 0) return true;
    done[k]++;
    bool safe = shop_safe(s, d, done, l->held[d] + bytes);
    done[k]--;
    return safe;
}

/* Arrival of its input; NEVER: unknown yet, or memory does not allow it. */
static int64_t ready(struct shop_list *l, const struct shop_rule *r, int32_t d, int32_t k)
{
    const struct shop *s = l->s;
    int32_t g = d * s->n_types + k, j = l->done[g];
    const struct shop_type *x = &s->type[g];
    if (j >= s->microbatches || (x->own_before >= 0 && l->done[x->own_before] <= j)) return NEVER;
    if (x->before >= 0 && l->done[x->before] <= j) return NEVER;
    if (!allowed(l, r, d, k)) return NEVER;
    int64_t at = x->before >= 0 ? l->arrival[(int64_t)x->before * s->microbatches + j] : 0;
    return at > l->free[d] ? at : l->free[d];
}

static void choose(struct shop_list *l, const struct shop_rule *r, int32_t d)
{
    const struct shop *s = l->s;
    int64_t start[SHOP_TYPES_MAX], soonest = NEVER, first = NEVER;
    for (int32_t k = 0; k < s->n_types; k++) {
        start[k] = ready(l, r, d, k);
        if (start[k] == NEVER) continue;
        int64_t end = start[k] + s->type[d * s->n_types + k].ns;
        if (start[k] < soonest) soonest = start[k];
        if (end < first) first = end;
    }
    l->first[d] = first;
    if (first == NEVER) return;
    int64_t until = soonest + (first - soonest) * r->patience / 1024, best = 0;
    int32_t chosen = -1;
    for (int32_t k = 0; k < s->n_types; k++) {
        if (start[k] > until || start[k] == NEVER) continue;
        int32_t g = d * s->n_types + k;
        int64_t key = r->priority[(int64_t)g * s->microbatches + l->done[g]];
        if (chosen < 0 || key < best || (key == best && start[k] < start[chosen]))
            chosen = k, best = key;
    }
    l->choice[d] = chosen;
}

/* The earlier of two devices, ties to the lower index; -1: no device. */
static int32_t earlier(const struct shop_list *l, int32_t x, int32_t y)
{
    if (x < 0 || y < 0) return x < 0 ? y : x;
    return l->first[y] < l->first[x] ? y : x;
}

static void replay(struct shop_list *l, int32_t d)
{
    for (int32_t i = (l->leaves + d) / 2; i; i /= 2)
        l->winner[i] = earlier(l, l->winner[2 * i], l->winner[2 * i + 1]);
}

static void begin(struct shop_list *l, const struct shop_rule *r)
{
    size_t p = (size_t)l->s->n_devices;
    memset(l->done, 0, sizeof *l->done * p * (size_t)l->s->n_types);
    memset(l->at, 0, sizeof *l->at * p);
    memset(l->free, 0, sizeof *l->free * p);
    memcpy(l->held, l->s->held, sizeof *l->held * p);
    for (int32_t d = 0; d < l->leaves; d++) {
        bool is = d < l->s->n_devices;
        l->winner[l->leaves + d] = is ? d : -1;
        for (int k = 0; is && k < SHOP_LIVES; k++) l->most[d][k] = 1;
        if (is) choose(l, r, d);
    }
    for (int32_t i = l->leaves - 1; i; i--)
        l->winner[i] = earlier(l, l->winner[2 * i], l->winner[2 * i + 1]);
}

static void take(struct shop_list *l, int32_t d, uint8_t *word)
{
    const struct shop *s = l->s;
    int32_t k = l->choice[d], g = d * s->n_types + k, j = l->done[g]++;
    const struct shop_type *x = &s->type[g];
    int64_t node = (int64_t)g * s->microbatches + j, start = l->free[d];
    if (x->before >= 0) {
        int64_t input = l->arrival[(int64_t)x->before * s->microbatches + j];
        if (input > start) start = input;
    }
    int64_t end = start + x->ns, leave = end;
    if (x->occupancy_ns && j) {
        int64_t last = l->arrival[node - 1] - x->latency_ns;
        if (last > leave) leave = last;
    }
    l->free[d] = end, l->held[d] += x->bytes;
    l->arrival[node] = leave + x->occupancy_ns + x->latency_ns;
    if (s->rings) shop_rings_raise(l->most[d], s->turned, &l->done[d * s->n_types], k);
    word[d * s->length + l->at[d]++] = (uint8_t)k;
}

bool shop_dispatch(struct shop_list *l, const struct shop_rule *r, uint8_t *word)
{
    const struct shop *s = l->s;
    begin(l, r);
    for (int64_t n = 0; n < s->n_nodes; n++) {
        int32_t d = l->winner[1];
        if (l->first[d] == NEVER) return false;
        take(l, d, word);
        int32_t after = s->type[d * s->n_types + l->choice[d]].after;
        choose(l, r, d), replay(l, d);
        if (after >= 0 && after / s->n_types != d)
            choose(l, r, after / s->n_types), replay(l, after / s->n_types);
    }
    return true;
}
