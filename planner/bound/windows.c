#include "planner/bound/windows.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/bound/pipeline_bound.h"

#include <string.h>

/* A point (c, y, x): c W done, y with I but not W done, x with F but not I done. Points of one c are contiguous by y, then
 * x. */
struct walk {
    int32_t n_waiting;  /* values of y */
    int32_t *at, *wide; /* (n_waiting) of y: first point of its row, values of x */
    int32_t layer;      /* points of one c */
};
struct bound_walker {
    const struct bound_line *line;
    struct walk *walks;    /* (n) */
    int64_t *early, *late; /* (m + 1, widest layer) of the current stage */
    int64_t *from, *until; /* (3, m) windows under construction */
    bool *stale;           /* (n) */
};

/* Largest x for y: take x + (take - back) y <= room. -1: y alone does not fit. */
static int64_t wide_at(const struct bound_part *p, int32_t m, int64_t y)
{
    if (p->room == INT64_MAX || p->take <= 0) return m - y;
    int64_t left = p->room - (p->take - p->back) * y;
    return left < 0 ? -1 : units_min(left / p->take, m - y);
}

int64_t bound_points(const struct bound_part *p, int32_t m)
{
    int64_t layer = 0;
    for (int32_t y = 0; y <= p->waiting && y <= m && wide_at(p, m, y) >= 0; y++)
        layer += wide_at(p, m, y) + 1;
    return layer * (m + 1);
}

struct bound_walker *bound_walker_new(struct arena *a, const struct bound_line *line)
{
    struct bound_walker *k = ARENA_ARRAY(a, struct bound_walker, 1);
    size_t n = (size_t)line->n, m = (size_t)line->m;
    int32_t widest = 0;
    k->line = line;
    k->walks = ARENA_ARRAY(a, struct walk, n);
    for (int32_t s = 0; s < line->n; s++) {
        const struct bound_part *p = &line->parts[s];
        struct walk *w = &k->walks[s];
        w->at = ARENA_ARRAY(a, int32_t, m + 2), w->wide = ARENA_ARRAY(a, int32_t, m + 2);
        for (int32_t y = 0; y <= p->waiting && y <= line->m && wide_at(p, line->m, y) >= 0; y++) {
            w->at[y] = w->layer;
            w->wide[y] = (int32_t)wide_at(p, line->m, y) + 1;
            w->layer += w->wide[y];
            w->n_waiting++;
        }
        if (w->layer > widest) widest = w->layer;
    }
    k->early = ARENA_ARRAY(a, int64_t, (m + 1) * (size_t)widest);
    k->late = ARENA_ARRAY(a, int64_t, (m + 1) * (size_t)widest);
    k->from = ARENA_ARRAY(a, int64_t, BOUND_KINDS * m);
    k->until = ARENA_ARRAY(a, int64_t, BOUND_KINDS * m);
    k->stale = ARENA_ARRAY(a, bool, n);
    return k;
}

void bound_windows_open(const struct bound_line *line, int64_t makespan, struct bound_windows *w)
{
    size_t n = (size_t)line->n * BOUND_KINDS * (size_t)line->m;
    for (size_t i = 0; i < n; i++) w->from[i] = 0, w->until[i] = makespan;
}

#define NEVER INT64_MAX

/* One lattice step: the k-th operation of a type. */
struct step {
    int64_t ns, from, until;
};
static struct step step_of(const struct bound_part *p, const int64_t *from, const int64_t *until,
                           enum bound_kind kind, int32_t m, int32_t k)
{
    size_t i = (size_t)kind * (size_t)m + (size_t)k;
    return (struct step){p->ns[kind], from[i], until[i]};
}

static int64_t ahead(int64_t before, struct step s)
{
    if (before == NEVER) return NEVER;
    int64_t end = units_max(before, s.from) + s.ns;
    return end <= s.until ? end : NEVER;
}

/* Earliest time at every point; NEVER: unreachable. */
static int64_t walk_forward(struct bound_walker *k, int32_t stage, const int64_t *from,
                            const int64_t *until)
{
    const struct walk *w = &k->walks[stage];
    const struct bound_part *p = &k->line->parts[stage];
    int32_t m = k->line->m;
    int64_t visited = 0;
    for (int32_t c = 0; c <= m; c++) {
        int64_t *layer = k->early + (int64_t)c * w->layer, *below = layer - w->layer;
        for (int32_t y = 0; y < w->n_waiting && y + c <= m; y++) {
            int32_t wide = w->wide[y] < m - c - y + 1 ? w->wide[y] : m - c - y + 1;
            bool waited = c > 0 && y + 1 < w->n_waiting;
            struct step weight = {0, 0, 0}, input = {0, 0, 0};
            if (waited) weight = step_of(p, from, until, BOUND_W, m, c - 1);
            if (y > 0) input = step_of(p, from, until, BOUND_I, m, y + c - 1);
            int64_t *row = layer + w->at[y];
            for (int32_t x = 0; x < wide; x++) {
                int64_t t = x + y + c ? NEVER : 0;
                if (x > 0)
                    t = ahead(row[x - 1], step_of(p, from, until, BOUND_F, m, x + y + c - 1));
                if (y > 0 && x + 1 < w->wide[y - 1])
                    t = units_min(t, ahead(layer[w->at[y - 1] + x + 1], input));
                if (waited && x < w->wide[y + 1])
                    t = units_min(t, ahead(below[w->at[y + 1] + x], weight));
                row[x] = t;
            }
            visited += wide;
        }
    }
    return visited;
}

/* Backward over a step to a point with latest time `next`: the resulting window; returns whether the step is possible. */
static bool back(int64_t early, int64_t next, struct step s, int64_t *late, int64_t *from,
                 int64_t *until)
{
    if (early == NEVER || next < 0) return false;
    int64_t start = units_max(early, s.from), end = units_min(next, s.until);
    if (start + s.ns > end) return false;
    *late = units_max(*late, end - s.ns);
    *from = units_min(*from, start);
    *until = units_max(*until, end);
    return true;
}

/* Latest time at every point (-1: none), and the windows of all operations from the possible steps. */
static void walk_back(struct bound_walker *k, int32_t stage, const int64_t *from,
                      const int64_t *until)
{
    const struct walk *w = &k->walks[stage];
    const struct bound_part *p = &k->line->parts[stage];
    int32_t m = k->line->m;
    for (int32_t c = m; c >= 0; c--) {
        int64_t *layer = k->late + (int64_t)c * w->layer, *above = layer + w->layer;
        const int64_t *early = k->early + (int64_t)c * w->layer;
        for (int32_t y = (m - c < w->n_waiting - 1 ? m - c : w->n_waiting - 1); y >= 0; y--) {
            int32_t wide = w->wide[y] < m - c - y + 1 ? w->wide[y] : m - c - y + 1;
            size_t iw = (size_t)(BOUND_W * m + c), ii = (size_t)(BOUND_I * m + y + c);
            for (int32_t x = wide - 1; x >= 0; x--) {
                int32_t here = w->at[y] + x;
                int64_t late = c == m ? BOUND_FAR : -1, e = early[here];
                if (x + 1 < wide) {
                    size_t f = (size_t)(x + y + c);
                    back(e, layer[here + 1], (struct step){p->ns[BOUND_F], from[f], until[f]},
                         &late, &k->from[f], &k->until[f]);
                }
                if (x > 0 && y + 1 < w->n_waiting)
                    back(e, layer[w->at[y + 1] + x - 1],
                         (struct step){p->ns[BOUND_I], from[ii], until[ii]}, &late, &k->from[ii],
                         &k->until[ii]);
                if (y > 0)
                    back(e, above[w->at[y - 1] + x],
                         (struct step){p->ns[BOUND_W], from[iw], until[iw]}, &late, &k->from[iw],
                         &k->until[iw]);
                layer[here] = late;
            }
        }
    }
}

/* One pass over a stage. false: a window is empty. *moved: a window became narrower. */
static bool walk_stage(struct bound_walker *k, struct bound_windows *w, int32_t stage,
                       int64_t *steps, bool *moved)
{
    size_t n = BOUND_KINDS * (size_t)k->line->m;
    int64_t *from = w->from + (size_t)stage * n, *until = w->until + (size_t)stage * n;
    for (size_t i = 0; i < n; i++) k->from[i] = NEVER, k->until[i] = -1;
    *steps -= 2 * walk_forward(k, stage, from, until);
    walk_back(k, stage, from, until);
    for (size_t i = 0; i < n; i++) {
        if (k->from[i] == NEVER) return false;
        if (k->from[i] > from[i] || k->until[i] < until[i]) *moved = true;
        from[i] = k->from[i], until[i] = k->until[i];
    }
    return true;
}

/* Messages between two stages: narrows the receiver's starts and the sender's ends. */
struct passage {
    int64_t *send_from, *send_until, *take_from, *take_until; /* (m) */
    int64_t send_ns, take_ns, occupancy_ns, latency_ns;
    int32_t sender, taker;
};
static struct passage passage_of(const struct bound_walker *k, struct bound_windows *w, int32_t link,
                                 int up)
{
    const struct bound_line *l = k->line;
    enum bound_kind kind = up ? BOUND_I : BOUND_F;
    int32_t sender = link + up, taker = link + !up;
    size_t m = (size_t)l->m, a = ((size_t)sender * BOUND_KINDS + kind) * m,
           b = ((size_t)taker * BOUND_KINDS + kind) * m;
    return (struct passage){w->from + a,
                            w->until + a,
                            w->from + b,
                            w->until + b,
                            l->parts[sender].ns[kind],
                            l->parts[taker].ns[kind],
                            l->links[link].occupancy_ns[up],
                            l->links[link].latency_ns[up],
                            sender,
                            taker};
}

static void pass_link(struct bound_walker *k, const struct passage *p)
{
    int64_t sent = 0, due = BOUND_FAR;
    for (int32_t i = 0; i < k->line->m; i++) {
        sent = units_max(sent, p->send_from[i] + p->send_ns) + p->occupancy_ns;
        if (sent + p->latency_ns <= p->take_from[i]) continue;
        p->take_from[i] = sent + p->latency_ns;
        k->stale[p->taker] = true;
    }
    for (int32_t i = k->line->m - 1; i >= 0; i--) {
        due = units_min(due, p->take_until[i] - p->take_ns - p->latency_ns) - p->occupancy_ns;
        if (due >= p->send_until[i]) continue;
        p->send_until[i] = due;
        k->stale[p->sender] = true;
    }
}

enum bound_outcome bound_windows_narrow(struct bound_walker *k, struct bound_windows *w,
                                        int32_t moved_stage, int64_t *steps, int32_t *stage)
{
    const struct bound_line *l = k->line;
    bool moving = true;
    for (int32_t s = 0; s < l->n; s++) k->stale[s] = moved_stage < 0 || s == moved_stage;
    for (int down = 1; moving; down = !down) {
        moving = false;
        for (int32_t i = 0; i < l->n; i++) {
            int32_t s = down ? i : l->n - 1 - i;
            if (k->stale[s]) {
                if (*steps <= 0) return BOUND_CUT;
                k->stale[s] = false;
                moving = true;
                *stage = s;
                bool moved = false;
                if (!walk_stage(k, w, s, steps, &moved)) return BOUND_EMPTY;
                if (!moved) continue;
            }
            for (int up = 0; up < 2; up++) {
                if (s > 0) {
                    struct passage p = passage_of(k, w, s - 1, up);
                    pass_link(k, &p);
                }
                if (s + 1 < l->n) {
                    struct passage p = passage_of(k, w, s, up);
                    pass_link(k, &p);
                }
            }
        }
    }
    return BOUND_STILL;
}
