/* sim/pipeline/zero_bubble.c - eight greedy orders for each of four views of the durations; the shortest is kept. */
#include "sim/pipeline/zero_bubble.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, INPUT, WEIGHT, PARTS };
static const enum phase phase[PARTS] = {'F', 'I', 'W'};

/* Durations in the greedy simulation: may be medians and means, hence doubles. */
struct view {
    double *ns[PARTS]; /* (p) */
    double transfer_ns;
};
struct device {
    double now_ns, idle_ns;
    int64_t held_bytes;
    int32_t done[PARTS];
};
struct play {
    const struct pipeline *p;
    const struct view *view;
    int32_t n, m;
    bool spill, gradients_first, greedy;
    struct device *devices;
    double *end[2]; /* FORWARD, INPUT: (n, m) end of an operation, negative: not yet */
    double max_idle_ns;
    struct schedule *s;
    bool failed; /* out of memory, or an input without producer */
};

static int64_t change(const struct play *g, int32_t d, int part)
{
    const struct pipeline_stage *x = &g->p->stages[d];
    return part == FORWARD ? x->forward_bytes : part == INPUT ? x->input_bytes : x->weight_bytes;
}

static bool has_room(const struct play *g, int32_t d, int64_t bytes)
{
    int64_t limit = g->p->devices ? g->p->devices[d].limit_bytes : PIPELINE_NO_LIMIT;
    return limit == PIPELINE_NO_LIMIT || bytes <= limit;
}

/* Arrival of the input of the device's next F or I; 0 if it needs none. */
static double arrival(struct play *g, int32_t d, int part)
{
    int32_t from = part == FORWARD ? d - 1 : part == INPUT ? d + 1 : -1;
    if (from < 0 || from >= g->n) return 0;
    double end = g->end[part][(int64_t)from * g->m + g->devices[d].done[part]];
    if (end < 0) g->failed = true;
    return end + g->view->transfer_ns;
}

static void take(struct play *g, int32_t d, int part)
{
    struct device *x = &g->devices[d];
    double start = x->now_ns, input = arrival(g, d, part);
    if (g->failed) return;
    if (input > start) start = input;
    if (x->done[FORWARD]) x->idle_ns += start - x->now_ns;
    if (x->idle_ns > g->max_idle_ns) g->max_idle_ns = x->idle_ns;
    x->now_ns = start + g->view->ns[part][d];
    if (part != WEIGHT) g->end[part][(int64_t)d * g->m + x->done[part]] = x->now_ns;
    x->held_bytes += change(g, d, part);
    struct schedule_lane *l = &g->s->lanes[d];
    l->ops[l->n_ops++] = (struct schedule_op){phase[part], 0, x->done[part]++};
}

static bool weights_due(const struct device *x) { return x->done[WEIGHT] < x->done[INPUT]; }

/* --- filling --- */

/* Additional forwards of a device before its first gradient, which arrives at first_ns. */
static int32_t more_forwards(const struct play *g, int32_t d, double first_ns, double *free_ns)
{
    const struct device *x = &g->devices[d];
    double now = x->now_ns, took = g->view->ns[FORWARD][d];
    int64_t held = x->held_bytes;
    int32_t more = 0;
    while (x->done[FORWARD] + more < g->m && has_room(g, d, held + change(g, d, FORWARD)) &&
           (g->spill ? now < first_ns : now + took <= first_ns)) {
        now += took, held += change(g, d, FORWARD);
        more++;
    }
    *free_ns = now;
    return more;
}

static void fill(struct play *g, int32_t *wanted)
{
    double end = 0;
    for (int32_t d = 0; d < g->n; d++) take(g, d, FORWARD);
    for (int32_t d = g->n - 1; d >= 0; d--) {
        double free = g->devices[d].now_ns, first = end + g->view->transfer_ns;
        wanted[d] = d + 1 < g->n ? more_forwards(g, d, first, &free) : 0;
        end = (d + 1 < g->n && first > free ? first : free) + g->view->ns[INPUT][d];
    }
    for (int32_t d = 1; d < g->n; d++)
        while (wanted[d] > 0 && wanted[d] >= wanted[d - 1] && 1 + wanted[d] < g->m) wanted[d]--;
    for (int32_t d = 0; d < g->n; d++)
        for (int32_t i = 0; i < wanted[d]; i++) take(g, d, FORWARD);
    for (int32_t d = g->n - 1; d >= 0; d--) take(g, d, INPUT);
}

/* --- rounds --- */

/* Whether a forward now would delay the next gradient of the following device. */
static bool leave_out(const struct play *g, int32_t d)
{
    const struct device *x = &g->devices[d], *after = x + 1;
    if (!g->gradients_first || d + 1 == g->n || x->done[FORWARD] < after->done[FORWARD] + 2)
        return false;
    double next = after->now_ns + g->view->ns[FORWARD][d + 1] + g->view->ns[INPUT][d + 1] +
                  g->view->transfer_ns;
    if (x->now_ns >= next) return true;
    int64_t held = x->held_bytes + change(g, d, FORWARD);
    double ready = x->now_ns + g->view->ns[FORWARD][d];
    for (int32_t w = x->done[WEIGHT]; !has_room(g, d, held) && w < x->done[INPUT]; w++) {
        ready += g->view->ns[WEIGHT][d];
        held += change(g, d, WEIGHT);
    }
    return ready > next && next - x->now_ns <= g->max_idle_ns - x->idle_ns;
}

/* W before an F or an I: first to free memory, then while its input is in flight. */
static void prepare(struct play *g, int32_t d, int part)
{
    struct device *x = &g->devices[d];
    while (!g->failed && !has_room(g, d, x->held_bytes + change(g, d, part))) {
        if (!weights_due(x)) g->failed = true;
        if (!g->failed) take(g, d, WEIGHT);
    }
    double input = arrival(g, d, part);
    if (g->failed) return;
    while (weights_due(x) && x->now_ns + g->view->ns[WEIGHT][d] <= input) take(g, d, WEIGHT);
    if (!weights_due(x) || x->now_ns >= input) return;
    if (g->greedy || input - x->now_ns > g->max_idle_ns - x->idle_ns) take(g, d, WEIGHT);
}

static void play_round(struct play *g, int32_t *wanted)
{
    for (int32_t d = 0; d < g->n; d++)
        wanted[d] = g->devices[d].done[FORWARD] < g->m && !leave_out(g, d);
    for (int32_t d = g->n - 2; d >= 0; d--)
        if (!wanted[d + 1]) wanted[d] = 0;
    for (int32_t d = 0; d < g->n && !g->failed; d++) {
        if (!wanted[d]) continue;
        prepare(g, d, FORWARD);
        if (!g->failed) take(g, d, FORWARD);
    }
    for (int32_t d = g->n - 1; d >= 0 && !g->failed; d--) {
        prepare(g, d, INPUT);
        if (d == 0 && g->devices[0].done[FORWARD] == g->m)
            while (!g->failed && weights_due(&g->devices[0])) take(g, 0, WEIGHT);
        if (!g->failed) take(g, d, INPUT);
    }
}

/* The longest time from a device's first to its last operation in the greedy simulation; negative: it failed. */
static double play(struct play *g, struct arena *scratch)
{
    size_t n = (size_t)g->n, cells = n * (size_t)g->m;
    int32_t *wanted = ARENA_ARRAY(scratch, int32_t, n);
    g->devices = ARENA_ARRAY(scratch, struct device, n);
    for (int k = 0; k < 2; k++) {
        g->end[k] = ARENA_ARRAY(scratch, double, cells);
        for (size_t i = 0; i < cells; i++) g->end[k][i] = -1;
    }
    for (int32_t d = 0; d < g->n; d++) {
        g->s->lanes[d].n_ops = 0;
        if (g->p->devices) g->devices[d].held_bytes = g->p->devices[d].resident_bytes;
    }
    fill(g, wanted);
    for (int32_t i = 1; i < g->m && !g->failed; i++) play_round(g, wanted);
    double longest = 0;
    for (int32_t d = 0; d < g->n && !g->failed; d++) {
        struct device *x = &g->devices[d];
        while (x->done[WEIGHT] < g->m) take(g, d, WEIGHT);
        if (x->done[FORWARD] < g->m) g->failed = true;
        double begin = g->end[FORWARD][(int64_t)d * g->m] - g->view->ns[FORWARD][d];
        if (x->now_ns - begin > longest) longest = x->now_ns - begin;
    }
    return g->failed ? -1 : longest;
}

/* --- views of the prices --- */

static int compare_ns(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void flatten(double *ns, size_t n, struct arena *scratch)
{
    double *sorted = ARENA_ARRAY(scratch, double, n);
    memcpy(sorted, ns, n * sizeof *ns);
    qsort(sorted, n, sizeof *sorted, compare_ns);
    double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    for (size_t d = 0; d < n; d++) ns[d] = median;
}

static struct view view_of(const struct pipeline *p, bool medians, bool largest,
                           struct arena *scratch)
{
    struct view v = {.transfer_ns = 0};
    size_t n = (size_t)p->n_devices;
    for (int part = 0; part < PARTS; part++) {
        v.ns[part] = ARENA_ARRAY(scratch, double, n);
        for (size_t d = 0; d < n; d++) {
            const struct pipeline_stage *x = &p->stages[d];
            v.ns[part][d] = (double)(part == FORWARD ? x->forward_ns
                                     : part == INPUT ? x->input_ns
                                                     : x->weight_ns);
        }
        if (medians) flatten(v.ns[part], n, scratch);
    }
    double sum = 0;
    for (size_t l = 0; p->links && l + 1 < n; l++) {
        const struct pipeline_link *x = &p->links[l];
        int64_t hop_ns[2] = {x->occupancy_ns[0] + x->latency_ns[0],
                          x->occupancy_ns[1] + x->latency_ns[1]};
        double ns = (double)(hop_ns[0] > hop_ns[1] ? hop_ns[0] : hop_ns[1]);
        sum += ns;
        if (ns > v.transfer_ns) v.transfer_ns = ns;
    }
    if (!largest && n > 1) v.transfer_ns = sum / (double)(n - 1);
    return v;
}

/* --- the best --- */

struct best {
    const struct pipeline *p;
    struct schedule *out, trial; /* the shortest order so far, and a candidate */
    int64_t makespan_ns;         /* of out; -1: none yet */
};

static struct schedule empty(struct arena *a, int32_t n, int32_t m)
{
    struct schedule s = {.name = "zero-bubble", .n_devices = n, .n_chunks = 1, .n_microbatches = m};
    s.stage = ARENA_ARRAY(a, int32_t, (size_t)n);
    s.lanes = ARENA_ARRAY(a, struct schedule_lane, (size_t)n);
    for (int32_t d = 0; d < n; d++) {
        s.stage[d] = d;
        s.lanes[d].ops = ARENA_ARRAY(a, struct schedule_op, 3 * (size_t)m);
    }
    return s;
}

static void swap(struct schedule *x, struct schedule *y)
{
    struct schedule z = *x;
    *x = *y, *y = z;
}

static enum status time_trial(struct best *b, struct arena *scratch, struct error *err)
{
    struct static_timer *t;
    int64_t ns, *peak = ARENA_ARRAY(scratch, int64_t, (size_t)b->p->n_devices);
    TRY(static_new(scratch, &b->trial, &t, err));
    if (!static_memory(t, b->p, peak)) return OK;
    if (!static_time(t, b->p, &ns)) BUG("one chunk per device contends");
    if (b->makespan_ns >= 0 && ns >= b->makespan_ns) return OK;
    b->makespan_ns = ns;
    swap(b->out, &b->trial);
    return OK;
}

/* The eight orders of one view: all timed exactly, or only the one that is shortest in the greedy simulation. */
static enum status play_view(struct best *b, const struct view *v, bool thorough,
                             struct arena *scratch, struct error *err)
{
    int chosen = -1;
    double least = 0;
    for (int k = 0; k < 9; k++) {
        int variant = k < 8 ? k : chosen;
        if (variant < 0 || (k == 8 && thorough)) break;
        struct play g = {.p = b->p,
                         .view = v,
                         .n = b->p->n_devices,
                         .m = b->trial.n_microbatches,
                         .spill = variant & 4,
                         .gradients_first = !(variant & 2),
                         .greedy = !(variant & 1),
                         .s = &b->trial};
        double longest = play(&g, scratch);
        if (longest < 0) continue;
        if (k == 8 || thorough) TRY(time_trial(b, scratch, err));
        if (chosen < 0 || longest < least) chosen = variant, least = longest;
    }
    return OK;
}

enum status zero_bubble_make(struct arena *a, const struct pipeline *p, int32_t microbatches,
                             bool thorough, struct schedule *out, int64_t *makespan_ns,
                             struct error *err)
{
    struct schedule_spec spec = {
        .kind = SCHEDULE_ZB_H1, .n_devices = p->n_devices, .n_microbatches = microbatches};
    struct schedule check;
    struct arena *scratch = arena_new(), *keep = arena_new();
    enum status st = schedule_make(scratch, &spec, &check, err); /* counts */
    if (st == OK) st = pipeline_check(p, &check, err);
    struct best b = {.p = p, .out = out, .makespan_ns = -1};
    if (st == OK) {
        *out = empty(a, p->n_devices, microbatches);
        b.trial = empty(a, p->n_devices, microbatches);
    }
    for (int k = 0; k < 4 && st == OK; k++) {
        arena_reset(keep);
        struct view v = view_of(p, k & 2, k & 1, keep);
        st = play_view(&b, &v, thorough, scratch, err);
        arena_reset(scratch);
    }
    arena_free(scratch), arena_free(keep);
    if (st == OK && b.makespan_ns < 0)
        st = error_set(err, ERR_INFEASIBLE,
                       "no zero-bubble order of %" PRId32 " stages and %" PRId32
                       " microbatches fits in memory",
                       p->n_devices, microbatches);
    if (st == OK) *makespan_ns = b.makespan_ns;
    return st;
}
