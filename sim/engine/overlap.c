/* Transports that slow down computing while they move data.
 *
 * A link's compute_slowdown s is the cost of a message on it for the operators at both of its ends: while messages are in flight,
 * an operator advances at 1 / (1 + sum of their s) of its speed, and not at all for a link that stops computing (messages
 * copied by the processor itself). A lane ahead of the queue cannot know which messages will be in flight. If any link has
 * a slowdown, lanes are therefore held at the queue's time, every wait and every operator ends by an event, and begin and
 * end of every occupancy are events too. Work is kept in whole nanoseconds of full speed, slowdowns in millionths.
 */
#include "sim/engine/engine.h"

#include "core/base/arena.h"

#include <math.h>

#define MILLION ((int64_t)1000000)

struct overlap_lane {
    bool computing;
    int64_t begin_ns, since_ns; /* of the operator; of the current speed */
    int64_t left_ns;            /* of its work at full speed, at since_ns */
    int64_t end_ns;             /* if nothing changes; -1: stopped */
    int64_t stamp;              /* outdated events carry an older one */
    int64_t slowdown_ppm;       /* total of the messages in flight */
    int32_t stopping;           /* messages in flight that stop it */
    int64_t waking_ns;          /* an event will wake the lane then; -1: none */
};

struct overlap {
    struct overlap_lane *lanes; /* (n_devices) */
};

static bool any_slowdown(const struct program *p)
{
    for (int32_t i = 0; i < p->n_links; i++)
        if (p->links[i].compute_slowdown > 0) return true;
    return false;
}

void overlap_new(struct engine *e)
{
    if (!any_slowdown(e->program)) return;
    e->overlap = ARENA_ARRAY(e->arena, struct overlap, 1);
    e->overlap->lanes = ARENA_ARRAY(e->arena, struct overlap_lane, (size_t)e->program->n_devices);
    for (int32_t i = 0; i < e->program->n_devices; i++) e->overlap->lanes[i].waking_ns = -1;
}

/* a · b / c rounded down, or up. */
static int64_t scaled(int64_t a, int64_t b, int64_t c, bool up)
{
    __extension__ typedef __int128 wide;
    wide x = (wide)a * b + (up ? c - 1 : 0);
    return (int64_t)(x / c);
}

static void foresee(struct engine *e, int32_t lane)
{
    struct overlap_lane *o = &e->overlap->lanes[lane];
    o->stamp++;
    o->end_ns = -1;
    if (o->stopping && o->left_ns) return;
    o->end_ns = e->now_ns + scaled(o->left_ns, MILLION + o->slowdown_ppm, MILLION, true);
    event_queue_push(e->queue, (struct event){.time_ns = o->end_ns,
                                              .kind = EVENT_COMPUTED,
                                              .index = lane,
                                              .stamp = o->stamp});
}

bool overlap_compute(struct engine *e, int32_t lane, int64_t work_ns, int64_t *begin_ns)
{
    struct overlap_lane *o = &e->overlap->lanes[lane];
    if (!o->computing) {
        o->computing = true;
        o->begin_ns = o->since_ns = e->now_ns;
        o->left_ns = work_ns;
        foresee(e, lane);
    }
    if (o->end_ns != e->now_ns) return false;
    o->computing = false;
    o->stamp++;
    *begin_ns = o->begin_ns;
    return true;
}

bool overlap_wait(struct engine *e, int32_t lane, int64_t when_ns)
{
    struct overlap_lane *o = &e->overlap->lanes[lane];
    if (when_ns <= e->now_ns) return true;
    if (o->waking_ns != when_ns)
        event_queue_push(e->queue,
                         (struct event){.time_ns = when_ns, .kind = EVENT_WAKE, .index = lane});
    o->waking_ns = when_ns;
    return false;
}

/* A message of this slowdown begins (1) or ends (-1) at a lane. */
static void change(struct engine *e, int32_t lane, double slowdown, int32_t sign)
{
    struct overlap_lane *o = &e->overlap->lanes[lane];
    if (o->computing) {
        int64_t passed = e->now_ns - o->since_ns, done = 0;
        if (!o->stopping) done = scaled(passed, MILLION, MILLION + o->slowdown_ppm, false);
        o->left_ns -= done < o->left_ns ? done : o->left_ns;
        o->since_ns = e->now_ns;
    }
    if (isinf(slowdown))
        o->stopping += sign;
    else
        o->slowdown_ppm += sign * (int64_t)llround(slowdown * (double)MILLION);
    if (o->computing) foresee(e, lane);
}

static void at(struct engine *e, int32_t lane, int32_t link, int64_t when_ns, int32_t sign)
{
    if (when_ns <= e->now_ns)
        change(e, lane, e->program->links[link].compute_slowdown, sign);
    else
        event_queue_push(e->queue, (struct event){.time_ns = when_ns,
                                                  .kind = EVENT_MOVING,
                                                  .index = lane,
                                                  .stamp = sign * ((int64_t)link + 1)});
}

void overlap_begins(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t start_ns)
{
    if (link < 0 || !(e->program->links[link].compute_slowdown > 0)) return;
    at(e, from, link, start_ns, 1);
    if (to != from) at(e, to, link, start_ns, 1);
}

void overlap_ends(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t left_ns)
{
    if (link < 0 || !(e->program->links[link].compute_slowdown > 0)) return;
    at(e, from, link, left_ns, -1);
    if (to != from) at(e, to, link, left_ns, -1);
}

void overlap_event(struct engine *e, const struct event *x)
{
    struct overlap_lane *o = &e->overlap->lanes[x->index];
    if (x->kind == EVENT_MOVING) {
        int64_t link = (x->stamp > 0 ? x->stamp : -x->stamp) - 1;
        change(e, x->index, e->program->links[link].compute_slowdown, x->stamp > 0 ? 1 : -1);
        return;
    }
    if (x->kind == EVENT_WAKE) o->waking_ns = -1;
    if (x->kind == EVENT_COMPUTED && x->stamp != o->stamp) return;
    engine_wake(e, x->index);
}
