#include "sim/memory.h"

#include "core/base/arena.h"

#include <stddef.h>

struct change {
    int64_t time_ns, bytes;
};

/* Pending changes: items[first … first + n - 1], sorted by time, releases first. */
struct waiting {
    size_t first, n, capacity;
    struct change *items;
};

struct memory_device {
    bool alone;
    int64_t live, peak, peak_ns;
    struct waiting lane, network;
};

struct memory {
    struct arena *arena;
    int64_t (*safe)(const void *owner, int32_t device);
    const void *owner;
    struct memory_device *devices;
};

struct memory *memory_new(struct arena *a, int32_t n_devices,
                          int64_t (*safe)(const void *owner, int32_t device), const void *owner)
{
    struct memory *m = ARENA_ARRAY(a, struct memory, 1);
    *m = (struct memory){.arena = a, .safe = safe, .owner = owner};
    m->devices = ARENA_ARRAY(a, struct memory_device, (size_t)n_devices);
    return m;
}

static void apply(struct memory_device *d, struct change c)
{
    d->live += c.bytes;
    if (d->live > d->peak) d->peak = d->live, d->peak_ns = c.time_ns;
}

void memory_always(struct memory *m, int32_t device, int64_t bytes, bool alone)
{
    m->devices[device].alone = alone;
    apply(&m->devices[device], (struct change){0, bytes});
}

static bool before(const struct change *a, const struct change *b)
{
    if (a->time_ns != b->time_ns) return a->time_ns < b->time_ns;
    return a->bytes < 0 && b->bytes >= 0;
}

static void settle(struct memory_device *d, int64_t safe_ns)
{
    for (;;) {
        const struct change *l = d->lane.n ? &d->lane.items[d->lane.first] : NULL;
        const struct change *w = d->network.n ? &d->network.items[d->network.first] : NULL;
        struct waiting *next = !w || (l && !before(w, l)) ? &d->lane : &d->network;
        if (!next->n || next->items[next->first].time_ns >= safe_ns) return;
        apply(d, next->items[next->first]);
        next->first = --next->n ? next->first + 1 : 0;
    }
}

/* Changes arrive nearly in order, so insertion from the back moves little. */
static void keep(struct memory *m, struct waiting *w, struct change c)
{
    if (w->first + w->n == w->capacity && w->first > w->capacity / 2) {
        for (size_t i = 0; i < w->n; i++) w->items[i] = w->items[w->first + i];
        w->first = 0;
    }
    w->items = arena_grow(m->arena, w->items, w->first + w->n, &w->capacity, sizeof *w->items);
    size_t i = w->first + w->n++;
    for (; i > w->first && before(&c, &w->items[i - 1]); i--) w->items[i] = w->items[i - 1];
    w->items[i] = c;
}

void memory_from_lane(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes)
{
    struct memory_device *d = &m->devices[device];
    if (d->alone) {
        apply(d, (struct change){time_ns, bytes});
        return;
    }
    if (d->lane.first + d->lane.n == d->lane.capacity) settle(d, m->safe(m->owner, device));
    keep(m, &d->lane, (struct change){time_ns, bytes});
}

void memory_from_network(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes)
{
    struct memory_device *d = &m->devices[device];
    if (d->network.first + d->network.n == d->network.capacity)
        settle(d, m->safe(m->owner, device));
    keep(m, &d->network, (struct change){time_ns, bytes});
}

int64_t memory_peak(struct memory *m, int32_t device, int64_t until_ns, int64_t *first_ns)
{
    settle(&m->devices[device], until_ns < INT64_MAX ? until_ns + 1 : INT64_MAX);
    *first_ns = m->devices[device].peak_ns;
    return m->devices[device].peak;
}
