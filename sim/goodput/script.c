/* Events of a script: at a time or when work is first reached. */
#include "sim/goodput/internal.h"

#include "core/base/arena.h"

#include <math.h>

void script_open(struct walk *w)
{
    const struct goodput_job *j = w->job;
    w->slowed = 1;
    w->script = ARENA_ARRAY(w->arena, struct script_state, j->n_events + 1);
    w->out->event_ns = ARENA_ARRAY(w->arena, double, j->n_events + 1);
    for (size_t i = 0; i < j->n_events; i++) w->out->event_ns[i] = -1;
}

static bool trains(const struct walk *w) { return w->state == RUN || w->state == WRITE || w->state == MEMORY; }

/* When the job reaches this work, if it goes on as now. */
static int64_t reached_ns(const struct walk *w, double work)
{
    if (w->state != RUN) return NEVER;
    double wait = ceil((work - w->work) / goodput_work_pace(w));
    return wait < (double)(NEVER / 8) ? w->now_ns + (wait > 0 ? (int64_t)wait : 0) : NEVER;
}

/* Whether all devices of the event are lost: nothing is left that could fail. */
static bool away(const struct walk *w, const struct goodput_event *e)
{
    for (int32_t t = 0; e->devices && t < w->job->n_types; t++)
        if (e->devices[t] && !w->broken[t]) return false;
    return e->devices != NULL;
}

static int64_t happens_ns(const struct walk *w, const struct goodput_event *e)
{
    if (away(w, e)) return NEVER;
    if (e->at_work_ns >= 0) return reached_ns(w, (double)e->at_work_ns);
    return !trains(w) ? NEVER : e->time_ns > w->now_ns ? e->time_ns : w->now_ns;
}

static int64_t returns_ns(const struct walk *w, const struct goodput_event *e, const struct script_state *s)
{
    if (e->kind != GOODPUT_EVENT_FAILURE || !e->devices || s->back) return NEVER;
    if (e->back_ns) return s->at_ns + e->back_ns > w->now_ns ? s->at_ns + e->back_ns : w->now_ns;
    return e->back_work_ns ? reached_ns(w, (double)e->back_work_ns) : NEVER;
}

static int64_t due_ns(const struct walk *w, size_t i)
{
    const struct goodput_event *e = &w->job->events[i];
    const struct script_state *s = &w->script[i];
    if (!s->happened) return happens_ns(w, e);
    return e->lasts_ns && s->left > 0 ? reached_ns(w, w->work + s->left) : returns_ns(w, e, s);
}

int64_t script_next_ns(const struct walk *w)
{
    int64_t next = NEVER;
    for (size_t i = 0; i < w->job->n_events; i++) {
        int64_t at = due_ns(w, i);
        if (at < next) next = at;
    }
    return next;
}

static void set_speed(struct walk *w)
{
    w->slowed = 1;
    for (size_t i = 0; i < w->job->n_events; i++)
        if (w->job->events[i].kind == GOODPUT_EVENT_SLOW && w->script[i].happened && w->script[i].left > 0) w->slowed *= w->job->events[i].speed;
}

static void fail(struct walk *w, const struct goodput_event *e)
{
    for (int32_t t = 0; e->devices && t < w->job->n_types; t++) w->broken[t] += e->devices[t];
    if (++w->out->event_failures > (double)w->job->failures_max) w->out->ended_early = true;
    goodput_stop(w, e->detect_ns, e->node);
}

void script_happen(struct walk *w)
{
    size_t i = 0;
    while (i < w->job->n_events && due_ns(w, i) > w->now_ns) i++;
    if (i == w->job->n_events) return;
    const struct goodput_event *e = &w->job->events[i];
    struct script_state *s = &w->script[i];
    if (s->happened && e->kind == GOODPUT_EVENT_FAILURE) {
        s->back = true;
        for (int32_t t = 0; t < w->job->n_types; t++) w->broken[t] -= e->devices[t];
        goodput_maybe_grow(w);
    } else if (s->happened) {
        s->left = 0;
    } else {
        s->happened = true;
        s->at_ns = w->now_ns;
        s->left = e->lasts_ns ? (double)e->lasts_ns : 1;
        w->out->event_ns[i] = (double)w->now_ns;
        if (e->kind == GOODPUT_EVENT_FAILURE) fail(w, e);
    }
    set_speed(w);
}

void script_worked(struct walk *w, double work)
{
    bool over = false;
    for (size_t i = 0; i < w->job->n_events; i++) {
        struct script_state *s = &w->script[i];
        if (!s->happened || !w->job->events[i].lasts_ns || !(s->left > 0)) continue;
        s->left = fmax(0, s->left - work);
        over |= !(s->left > 0);
    }
    if (over) set_speed(w);
}

bool script_writes(struct walk *w)
{
    bool full = false;
    for (size_t i = 0; i < w->job->n_events; i++) {
        const struct goodput_event *e = &w->job->events[i];
        if (e->kind != GOODPUT_EVENT_DISK_FULL || !w->script[i].happened || !(w->script[i].left > 0)) continue;
        full = true;
        if (!e->lasts_ns) w->script[i].left = 0;
    }
    if (full && w->job->work_ns && w->work >= (double)w->job->work_ns - 0.5) w->out->ended_early = true;
    return !full;
}
