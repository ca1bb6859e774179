#include "planner/multi_device/pipelines.h"

#include "core/base/arena.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/multi_device/moves.h"

#include <math.h>
#include <string.h>

enum { MASKS_EACH = 3, MANY_UNITS = 7 };
#define PERIOD_STEP 0.85

/* Unit: indivisible set of devices of a stage; one device, or on many devices those of one type on one node. */
struct unit {
    int32_t n, device[MULTI_DEVICE_MEMBERS_MAX];
};

/* A set of units, with the device of each type with most sequences of a microbatch. */
struct set {
    bool possible;       /* valid as a stage: linked, at least one sequence per device */
    bool taken_in_order; /* contains the first of equal units */
    int32_t n, n_types;
    int32_t device[SPACE_DEVICES_MAX];
    int64_t sequences[SPACE_DEVICES_MAX];
    double link_Bps; /* slowest route between two of its units, or within one */
};

struct table {
    struct arena *arena;
    const struct space *s, *few;
    int32_t n_units;
    struct unit unit[SPACE_DEVICES_MAX];
    int32_t cuts;                     /* pieces of the model */
    int32_t first[PIPELINE_CUTS + 1]; /* first layer of each; the last: n_layers */
    uint32_t n_sets;
    struct set *set;
    double *best;    /* (sets, cuts + 1) f */
    uint32_t *stage; /* its last stage */
    int32_t *from;
};

/* A candidate: last cell and its estimate. */
struct pipeline_choice {
    double ns;
    int32_t n_stages;
    uint32_t stage[SPACE_DEVICES_MAX];
    int32_t first[SPACE_DEVICES_MAX];
};

static int32_t members_of(const struct table *t, uint32_t mask, int32_t *devices)
{
    int32_t n = 0;
    for (int32_t u = 0; u < t->n_units; u++)
        for (int32_t k = 0; (mask >> u & 1) && k < t->unit[u].n; k++)
            devices[n++] = t->unit[u].device[k];
    return n;
}

/* false: there are too many. */
static bool find_units(struct table *t)
{
    const struct cluster *c = t->s->cluster;
    bool single = c->n_devices <= SPACE_DEVICES_MAX;
    if (c->n_devices > MULTI_DEVICE_MEMBERS_MAX) return false;
    for (int32_t d = 0; d < c->n_devices; d++) {
        const struct device *x = &c->devices[d];
        int32_t u = 0;
        for (; u < t->n_units; u++) {
            const struct device *y = &c->devices[t->unit[u].device[0]];
            if (!single && x->type == y->type && x->node == y->node) break;
        }
        if (u == SPACE_DEVICES_MAX) return false;
        if (u == t->n_units) t->n_units++;
        t->unit[u].device[t->unit[u].n++] = d;
    }
    return true;
}

static double whole_ns(const struct space *s, int32_t device, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage(s, device, first, last);
    return (double)(c->forward_ns + c->input_ns + c->weight_ns);
}

/* Time of n sequences, interpolated linearly between few and all of a microbatch. */
static double part_ns(const struct table *t, int32_t device, int64_t n, int32_t first, int32_t last)
{
    double all = whole_ns(t->s, device, first, last), of = (double)t->s->microbatch;
    if (t->few->microbatch == t->s->microbatch) return all * (double)n / of;
    double few = whole_ns(t->few, device, first, last), from = (double)t->few->microbatch;
    return few + (all - few) * ((double)n - from) / (of - from);
}

/* Pieces of about equal work on the first device. */
static void find_cuts(struct table *t)
{
    int32_t layers = t->s->n_layers,
            most = t->n_units < MANY_UNITS ? PIPELINE_CUTS : PIPELINE_CUTS_MANY;
    double all = whole_ns(t->s, 0, 0, layers - 1);
    t->cuts = layers < most ? layers : most;
    for (int32_t k = 1; k < t->cuts; k++) {
        int32_t l = t->first[k - 1] + 1, room = layers - (t->cuts - k);
        if (t->cuts < layers)
            while (l < room && whole_ns(t->s, 0, 0, l - 1) * t->cuts < all * k) l++;
        t->first[k] = l;
    }
    t->first[t->cuts] = layers;
}

/* Slowest route between two units' first devices, and between two devices of a unit. */
static double slowest_Bps(const struct table *t, uint32_t mask)
{
    double slowest = INFINITY;
    for (int32_t u = 0; u < t->n_units; u++)
        for (int32_t v = 0; v < t->n_units; v++) {
            const struct unit *x = &t->unit[u], *y = &t->unit[v];
            if (!(mask >> u & 1) || !(mask >> v & 1) || (u == v && x->n == 1)) continue;
            const struct cost_link *l =
                space_link(t->s, x->device[0], u == v ? x->device[x->n - 1] : y->device[0]);
            slowest = fmin(slowest, l ? l->bandwidth_Bps : 0);
        }
    return slowest;
}

static bool taken_in_order(const struct table *t, uint32_t mask)
{
    const struct space *s = t->s;
    if (s->n_devices > SPACE_DEVICES_MAX) return true;
    for (int32_t d = 0; d < t->n_units; d++)
        for (int32_t e = 0; e < d; e++)
            if (s->class_of[e] == s->class_of[d] && (mask >> d & 1) && !(mask >> e & 1))
                return false;
    return true;
}

static void describe_set(struct table *t, uint32_t mask, struct set *x)
{
    int32_t d[MULTI_DEVICE_MEMBERS_MAX];
    int64_t n[MULTI_DEVICE_MEMBERS_MAX];
    x->taken_in_order = taken_in_order(t, mask);
    x->n = members_of(t, mask, d);
    x->link_Bps = slowest_Bps(t, mask);
    x->possible = x->n && x->n <= t->s->microbatch && x->link_Bps > 0;
    if (!x->possible) return;
    multi_device_balance(t->s, 0, t->s->n_layers - 1, d, x->n, n);
    for (int32_t k = 0; k < x->n; k++) {
        const struct device *all = t->s->cluster->devices;
        int32_t i = 0;
        while (i < x->n_types && all[x->device[i]].type != all[d[k]].type) i++;
        if (i == x->n_types) x->n_types++, x->sequences[i] = 0;
        if (n[k] > x->sequences[i]) x->device[i] = d[k], x->sequences[i] = n[k];
    }
}

struct stage_ns {
    double call, step; /* per microbatch; per step */
};

static struct stage_ns price(const struct table *t, uint32_t mask, int32_t i, int32_t j)
{
    struct stage_ns out = {0, 0};
    const struct set *x = &t->set[mask];
    int32_t first = t->first[i], last = t->first[j] - 1;
    for (int32_t k = 0; k < x->n_types; k++) {
        const struct stage_cost *c = space_stage(t->s, x->device[k], first, last);
        double sum =
            x->n > 1 ? 2e9 * (x->n - 1) / x->n * (double)c->parameter_bytes / x->link_Bps : 0;
        out.call = fmax(out.call, part_ns(t, x->device[k], x->sequences[k], first, last));
        out.step = fmax(out.step, (double)c->update_ns + sum);
    }
    return out;
}

/* The fastest message of the cut between the first devices of two units, divided among more devices. */
static double set_transfer_ns(const struct table *t, uint32_t from, uint32_t to, int32_t layer)
{
    double least = INFINITY;
    for (int32_t u = 0; u < t->n_units; u++)
        for (int32_t v = 0; (from >> u & 1) && v < t->n_units; v++) {
            int32_t a = t->unit[u].device[0], b = t->unit[v].device[0];
            if ((to >> v & 1) && space_linked(t->s, a, b))
                least = fmin(least, (double)space_transfer_ns(t->s, a, b, layer));
        }
    int32_t n = t->set[from].n, m = t->set[to].n;
    return least / (double)(n > m ? n : m);
}

/* Extends all pipelines `before` by stage `set`, with periods of at most `most`. */
static void extend(struct table *t, uint32_t before, uint32_t set, double most)
{
    int32_t wide = t->cuts + 1;
    for (int32_t i = 0; i < t->cuts; i++) {
        double f = t->best[before * (uint32_t)wide + (uint32_t)i];
        if (isinf(f)) continue;
        if (i) f += 2 * set_transfer_ns(t, before, set, t->first[i] - 1);
        for (int32_t j = i + 1; j <= t->cuts; j++) {
            struct stage_ns x = price(t, set, i, j);
            if (x.call + x.step / t->s->microbatches > most) break;
            size_t at = (before | set) * (size_t)wide + (size_t)j;
            if (f + x.call + x.step >= t->best[at]) continue;
            t->best[at] = f + x.call + x.step, t->stage[at] = set, t->from[at] = i;
        }
    }
}

static void fill(struct table *t, double most)
{
    size_t wide = (size_t)t->cuts + 1;
    for (size_t at = 0; at < t->n_sets * wide; at++) t->best[at] = INFINITY;
    t->best[0] = 0;
    for (uint32_t m = 1; m < t->n_sets; m++) {
        if (!t->set[m].taken_in_order) continue;
        for (uint32_t set = m; set; set = (set - 1) & m)
            if (t->set[m ^ set].taken_in_order && t->set[set].possible)
                extend(t, m ^ set, set, most);
    }
}

static void read_candidate(const struct table *t, uint32_t mask, double most,
                           struct pipeline_choice *out)
{
    size_t wide = (size_t)t->cuts + 1;
    int32_t at = t->cuts;
    out->ns = t->best[mask * wide + (size_t)at] + (t->s->microbatches - 1) * most;
    out->n_stages = 0;
    while (mask) {
        size_t cell = mask * wide + (size_t)at;
        out->stage[out->n_stages] = t->stage[cell];
        out->first[out->n_stages++] = at = t->from[cell];
        mask ^= t->stage[cell];
    }
}

static void insert_choice(struct pipeline_choice *list, int32_t *n, int32_t most,
                          const struct pipeline_choice *x)
{
    for (int32_t i = 0; i < *n; i++) { /* the same with another T */
        if (list[i].n_stages != x->n_stages) continue;
        size_t k = (size_t)x->n_stages;
        if (!memcmp(list[i].stage, x->stage, k * sizeof *x->stage) &&
            !memcmp(list[i].first, x->first, k * sizeof *x->first))
            return;
    }
    int32_t at = *n;
    if (at == most) {
        if (x->ns >= list[--at].ns) return;
    } else {
        ++*n;
    }
    for (; at > 0 && x->ns < list[at - 1].ns; at--) list[at] = list[at - 1];
    list[at] = *x;
}

static bool make(struct table *t, struct arena *a, const struct pipeline_choice *x,
                 struct plan *out)
{
    plan_skeleton(a, t->s, "found", 1, &x->n_stages, out);
    out->replicas[0].microbatches = t->s->microbatches;
    for (int32_t i = 0; i < x->n_stages; i++) { /* the candidate's stages are in reverse order */
        struct plan_stage *y = &out->replicas[0].stages[i];
        int32_t k = x->n_stages - 1 - i, d[MULTI_DEVICE_MEMBERS_MAX],
                n = members_of(t, x->stage[k], d);
        y->first_layer = t->first[x->first[k]];
        y->last_layer = k ? t->first[x->first[k - 1]] - 1 : t->s->n_layers - 1;
        if (!multi_device_place(a, t->s, y, d, n)) return false;
    }
    return true;
}

/* The least period of a single stage with all layers. */
static double alone(const struct table *t)
{
    double least = INFINITY;
    for (uint32_t m = 1; m < t->n_sets; m++) {
        if (!t->set[m].taken_in_order || !t->set[m].possible) continue;
        struct stage_ns x = price(t, m, 0, t->cuts);
        least = fmin(least, x.call + x.step / t->s->microbatches);
    }
    return least;
}

/* Adds the best few sets for this T as candidates; false: none is feasible. */
static bool collect(const struct table *t, double most, struct pipeline_choice *list, int32_t *n,
                    int32_t room)
{
    struct pipeline_choice best[MASKS_EACH];
    int32_t n_best = 0;
    for (uint32_t m = 1; m < t->n_sets; m++) {
        struct pipeline_choice x;
        if (isinf(t->best[m * (size_t)(t->cuts + 1) + (size_t)t->cuts])) continue;
        read_candidate(t, m, most, &x);
        insert_choice(best, &n_best, MASKS_EACH, &x);
    }
    for (int32_t i = 0; i < n_best; i++) insert_choice(list, n, room, &best[i]);
    return n_best > 0;
}

int32_t multi_device_pipelines(struct arena *a, const struct space *s, const struct space *few,
                               int32_t most, struct plan *plans)
{
    struct table t = {.arena = arena_new(), .s = s, .few = few};
    int32_t n = 0, made = 0;
    if (most > 0 && find_units(&t)) {
        find_cuts(&t);
        t.n_sets = 1u << t.n_units;
        size_t cells = t.n_sets * (size_t)(t.cuts + 1);
        t.set = ARENA_ARRAY(t.arena, struct set, t.n_sets);
        t.best = ARENA_ARRAY(t.arena, double, cells);
        t.stage = ARENA_ARRAY(t.arena, uint32_t, cells);
        t.from = ARENA_ARRAY(t.arena, int32_t, cells);
        struct pipeline_choice *list = ARENA_ARRAY(t.arena, struct pipeline_choice, (size_t)most);
        for (uint32_t m = 0; m < t.n_sets; m++) describe_set(&t, m, &t.set[m]);
        double period = alone(&t);
        for (int k = 0; k < PIPELINE_PERIODS && period < INFINITY; k++, period *= PERIOD_STEP) {
            fill(&t, period * 1.000001);
            if (!collect(&t, period, list, &n, most)) break;
        }
        for (int32_t i = 0; i < n; i++) made += make(&t, a, &list[i], &plans[made]);
    }
    arena_free(t.arena);
    return made;
}
