/* sim/engine/served.c - lanes of parameter servers that handle pushes in the order of their arrival.
 *
 * A push has arrived with the last of its messages, which is an event, because a lane may be ahead of the queue's time but a later event
 * may bring an earlier arrival. Pushes of one instant are handled in the order of the workers. */
#include "core/base/arena.h"
#include "core/program/server_order.h"
#include "sim/engine/engine.h"

#include <math.h>

struct served {
    struct server_order order;
    struct call *calls;                       /* (2 n_workers) push and pull of each */
    int32_t *n_messages, *n_arrived;          /* (n_workers) of a push: all, and so far */
    int64_t applied, dropped;                 /* microbatches */
};

static void open_lane(struct engine *e, int32_t lane, int32_t n_workers)
{
    const struct program *p = e->program;
    struct served *s = e->served[lane] = ARENA_ARRAY(e->arena, struct served, 1);
    struct cursor cursor;
    server_order_start(&s->order, e->arena, &p->server, n_workers);
    s->order.end = e->steps;
    s->calls = ARENA_ARRAY(e->arena, struct call, 2 * (size_t)n_workers);
    s->n_messages = ARENA_ARRAY(e->arena, int32_t, (size_t)n_workers);
    s->n_arrived = ARENA_ARRAY(e->arena, int32_t, (size_t)n_workers);
    cursor_start(&cursor, &p->orders[p->lanes[lane].order]);
    for (int32_t i = 0; i < 2 * n_workers && cursor_next(&cursor, &s->calls[i]);) i++;
    for (int32_t i = 0; i < p->n_channels; i++)
        if (e->channels[i].to_lane == lane) s->n_messages[p->channels[i].from_stage]++;
}

void served_new(struct engine *e)
{
    const struct program *p = e->program;
    int32_t n_workers = p->n_stages - p->server.n;
    if (!parameter_server_by_arrival(&p->server)) return;
    e->served = ARENA_ARRAY(e->arena, struct served *, (size_t)p->n_devices);
    e->ends_ns = ARENA_ARRAY(e->arena, int64_t, (size_t)n_workers * (size_t)e->steps);
    for (int32_t i = n_workers; i < p->n_stages; i++) open_lane(e, p->stages[i].device, n_workers);
}

void served_message(struct engine *e, int32_t channel, int64_t arrival_ns)
{
    if (!e->served[e->channels[channel].to_lane]) return;
    int32_t worker = e->program->channels[channel].from_stage;
    event_queue_push(e->queue, (struct event){.time_ns = arrival_ns,
                                              .kind = EVENT_ARRIVED,
                                              .index = channel,
                                              .seq = (uint64_t)worker % EVENT_ORDERS});
}

void served_event(struct engine *e, int32_t channel)
{
    int32_t lane = e->channels[channel].to_lane, worker = e->program->channels[channel].from_stage;
    struct served *s = e->served[lane];
    if (++s->n_arrived[worker] < s->n_messages[worker]) return;
    s->n_arrived[worker] = 0;
    server_order_arrived(&s->order, worker);
    engine_wake(e, lane);
}

bool served_next(struct engine *e, int32_t lane, struct server_turn *out)
{
    struct served *s = e->served[lane];
    struct lane_state *l = &e->lanes[lane];
    *out = server_order_next(&s->order);
    if (out->action == SERVER_WAIT || out->action == SERVER_DONE) return false;
    int64_t microbatches = e->program->stages[out->worker].microbatches;
    if (out->action == SERVER_APPLY) s->applied += microbatches;
    if (out->action == SERVER_DROP) s->dropped += microbatches;
    l->call = s->calls[2 * out->worker + (out->action == SERVER_REPLY)];
    return true;
}

/* Of a whole run, in the time of an iteration. */
struct lane_use served_use(const struct engine *e, int32_t lane, int64_t iteration_ns)
{
    const struct lane_state *l = &e->lanes[lane];
    struct lane_use use = l->period[0];
    if (l->now_ns <= 0) return (struct lane_use){0};
    double part = (double)iteration_ns / (double)l->now_ns;
    use.busy_ns = llround((double)use.busy_ns * part), use.carried_ns = llround((double)use.carried_ns * part);
    for (int w = 0; w < SIM_WAIT_COUNT; w++) use.wait_ns[w] = llround((double)use.wait_ns[w] * part);
    return use;
}

int64_t served_iteration_ns(struct engine *e)
{
    int32_t n_workers = e->program->n_stages - e->program->server.n;
    int32_t *microbatches = ARENA_ARRAY(e->arena, int32_t, (size_t)n_workers);
    for (int32_t i = 0; i < n_workers; i++) microbatches[i] = e->program->stages[i].microbatches;
    return server_order_iteration_ns(e->ends_ns, microbatches, n_workers, e->steps);
}

struct server_counts served_counts(const struct engine *e)
{
    struct server_counts all = {0};
    for (int32_t i = 0; e->served && i < e->program->n_devices; i++) {
        if (!e->served[i]) continue;
        const struct server_counts *x = &e->served[i]->order.counts;
        all.pushes += x->pushes, all.dropped += x->dropped, all.slowed += x->slowed, all.staleness += x->staleness;
        if (x->most > all.most) all.most = x->most;
    }
    return all;
}

double served_applied(const struct engine *e)
{
    int64_t applied = 0, all = 0;
    for (int32_t i = 0; e->served && i < e->program->n_devices; i++)
        if (e->served[i]) applied += e->served[i]->applied, all += e->served[i]->applied + e->served[i]->dropped;
    return all ? (double)applied / (double)all : 1;
}
