/* sim/static_report.c - what is known of a timed schedule besides its makespan: idle times, memory, updates. */
#include "sim/static_internal.h"

#include "core/arena.h"

/* --- memory --- */

/* Runs along a lane; *peak_op is the operation at whose start (F) or end the most is first alive, -1: before the first. */
static int64_t lane_peak(const struct schedule *s, int32_t d, const struct pipeline *p,
                         int64_t *peak_op)
{
    int64_t now = p->devices ? p->devices[d].resident_bytes : 0, most = now;
    *peak_op = -1;
    for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
        const struct schedule_op *o = &s->lanes[d].ops[i];
        const struct pipeline_stage *x = &p->stages[s->stage[d * s->n_chunks + o->chunk]];
        if (o->letter == 'F') now += x->forward_bytes;
        if (o->letter == 'I' || o->letter == 'B') now += x->input_bytes;
        if (o->letter == 'W' || o->letter == 'B') now += x->weight_bytes;
        if (now > most) most = now, *peak_op = i;
    }
    return most;
}

static bool fits(const struct pipeline *p, int32_t d, int64_t peak)
{
    return !p->devices || peak <= p->devices[d].limit_bytes;
}

bool static_memory(const struct static_timer *t, const struct pipeline *p, int64_t *peak_bytes)
{
    bool all = true;
    int64_t op;
    for (int32_t d = 0; d < t->s->n_devices; d++) {
        peak_bytes[d] = lane_peak(t->s, d, p, &op);
        all = fits(p, d, peak_bytes[d]) && all;
    }
    return all;
}

/* --- times --- */

static void fill_spans(const struct static_timer *t, struct static_span *spans)
{
    for (uint32_t k = 0; k < t->n_ops; k++) {
        uint32_t at = t->place_of[k];
        int64_t end = t->end[at];
        spans[k] = (struct static_span){end - t->cost[t->ops[at].class].ns, end};
    }
}

static void fill_device(const struct static_timer *t, const struct pipeline *p, int32_t d,
                        const struct static_span *spans, int64_t makespan_ns,
                        struct static_device *x)
{
    const struct schedule_lane *l = &t->s->lanes[d];
    int64_t peak_op;
    x->begin_ns = spans[0].begin_ns, x->end_ns = spans[l->n_ops - 1].end_ns;
    for (int64_t i = 0; i < l->n_ops; i++) x->busy_ns += spans[i].end_ns - spans[i].begin_ns;
    x->idle_ns = makespan_ns - x->busy_ns;
    x->bubble_rate = makespan_ns ? (double)x->idle_ns / (double)makespan_ns : 0;
    x->peak_bytes = lane_peak(t->s, d, p, &peak_op);
    if (peak_op >= 0)
        x->peak_ns =
            l->ops[peak_op].letter == 'F' ? spans[peak_op].begin_ns : spans[peak_op].end_ns;
    x->fits = fits(p, d, x->peak_bytes);
}

/* What is left under the limit, as a part of it. */
static double room(const struct pipeline_device *x, int64_t peak)
{
    double limit = (double)x->limit_bytes;
    return limit > 0 ? (limit - (double)peak) / limit : limit - (double)peak;
}

void static_summarize(const struct static_timer *t, const struct pipeline *p, struct arena *a,
                      int64_t makespan_ns, struct static_span *spans, struct static_report *out)
{
    const struct schedule *s = t->s;
    struct static_report r = {
        .makespan_ns = makespan_ns, .fits = true, .tightest = -1, .spans = spans};
    r.devices = ARENA_ARRAY(a, struct static_device, (size_t)s->n_devices);
    double idle = 0, least = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        struct static_device *x = &r.devices[d];
        fill_device(t, p, d, spans, makespan_ns, x);
        spans += s->lanes[d].n_ops;
        int64_t inside = x->end_ns - x->begin_ns - x->busy_ns;
        if (inside > r.bubble_ns) r.bubble_ns = inside;
        idle += (double)x->idle_ns;
        r.fits = r.fits && x->fits;
        if (!p->devices || p->devices[d].limit_bytes == PIPELINE_NO_LIMIT) continue;
        double left = room(&p->devices[d], x->peak_bytes);
        if (r.tightest < 0 || left < least) r.tightest = d, least = left;
    }
    if (makespan_ns) r.bubble_rate = idle / s->n_devices / (double)makespan_ns;
    *out = r;
}

bool static_report(struct static_timer *t, const struct pipeline *p, struct arena *a,
                   struct static_report *out)
{
    int64_t makespan_ns;
    if (!static_time(t, p, &makespan_ns)) return false;
    struct static_span *spans = ARENA_ARRAY(a, struct static_span, t->n_ops);
    fill_spans(t, spans);
    static_summarize(t, p, a, makespan_ns, spans, out);
    return true;
}

/* --- data parallel replicas --- */

/* Updates of a device whose last operation ended at free_ns: sums in the order in which they are ready, ties by chunk. */
static int64_t updates_end(const struct static_timer *t, int32_t d, int64_t free_ns,
                           const int64_t *ready, const int64_t *update_ns)
{
    const struct schedule *s = t->s;
    int64_t before = -1;
    int32_t before_chunk = -1;
    for (int32_t done = 0; done < s->n_chunks; done++) {
        int32_t best = -1;
        for (int32_t c = 0; c < s->n_chunks; c++) {
            int64_t at = ready[s->stage[d * s->n_chunks + c]];
            bool past = at < before || (at == before && c <= before_chunk);
            if (!past && (best < 0 || at < ready[s->stage[d * s->n_chunks + best]])) best = c;
        }
        int32_t v = s->stage[d * s->n_chunks + best];
        before = ready[v], before_chunk = best;
        free_ns = (ready[v] > free_ns ? ready[v] : free_ns) + (update_ns ? update_ns[v] : 0);
    }
    return free_ns;
}

bool static_iteration(struct static_timer *t, const struct pipeline *pipelines, int32_t n,
                      const int64_t *sync_ns, const int64_t *update_ns, int64_t *iteration_ns)
{
    size_t stages = (size_t)t->n_stages, p = (size_t)t->s->n_devices;
    struct arena *a = arena_new();
    int64_t *ready = ARENA_ARRAY(a, int64_t, stages), *last = ARENA_ARRAY(a, int64_t, p), makespan;
    bool answered = true;
    for (int32_t r = 0; r < n && answered; r++) {
        answered = static_time(t, &pipelines[r], &makespan);
        for (size_t v = 0; v < stages; v++)
            if (t->end[t->last[v]] > ready[v]) ready[v] = t->end[t->last[v]];
        for (size_t d = 0; d < p; d++)
            if (t->free[d] > last[d]) last[d] = t->free[d];
    }
    *iteration_ns = 0;
    for (size_t v = 0; v < stages; v++) ready[v] += sync_ns ? sync_ns[v] : 0;
    for (size_t d = 0; d < p && answered; d++) {
        int64_t end = updates_end(t, (int32_t)d, last[d], ready, update_ns);
        if (end > *iteration_ns) *iteration_ns = end;
    }
    arena_free(a);
    return answered;
}
