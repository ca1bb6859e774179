/* sim/pipeline/static_report.c - report of a timed schedule: idle times, memory, updates. */
#include "sim/pipeline/static_internal.h"

#include "core/base/arena.h"

/* --- memory --- */

/* Memory along a lane; *peak_op is the operation at whose start (F) or end the peak is first reached, -1: before the first. */
static int64_t lane_peak(const struct schedule *s, int32_t d, const struct pipeline *p,
                         int64_t *peak_op)
{
    int64_t now = p->devices ? p->devices[d].resident_bytes : 0, most = now;
    *peak_op = -1;
    for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
        const struct schedule_op *o = &s->lanes[d].ops[i];
        const struct pipeline_stage *x = &p->stages[s->stage[d * s->n_chunks + o->chunk]];
        if (o->phase == PHASE_F) now += x->forward_bytes;
        if (o->phase == PHASE_I || o->phase == PHASE_B) now += x->input_bytes;
        if (o->phase == PHASE_W || o->phase == PHASE_B) now += x->weight_bytes;
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
            l->ops[peak_op].phase == PHASE_F ? spans[peak_op].begin_ns : spans[peak_op].end_ns;
    x->fits = fits(p, d, x->peak_bytes);
}

/* Free memory as a share of the limit. */
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
