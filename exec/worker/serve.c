#include "exec/worker/serve.h"

#include "core/base/log.h"
#include "exec/clock.h"
#include "exec/worker/internal.h"

#include <inttypes.h>

enum { LOOK_NS = 100000000 }; /* between two signs of life of a server without arrivals */

/* ---- before time 0 ---------------------------------------------------------------------------- */

static void find_messages(struct serve *s, struct rank *r, int32_t stage)
{
    const struct program *p = r->p;
    int32_t n = s->order.n;
    s->n_messages = ARENA_ARRAY(r->run, int32_t, (size_t)n);
    s->messages = ARENA_ARRAY(r->run, int32_t *, (size_t)n);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < n; i++) {
            if (pass) s->messages[i] = ARENA_ARRAY(r->run, int32_t, (size_t)s->n_messages[i]);
            s->n_messages[i] = 0;
        }
        for (int32_t i = 0; i < p->n_channels; i++) {
            if (p->channels[i].to_stage != stage) continue;
            int32_t worker = p->channels[i].from_stage;
            if (pass) s->messages[worker][s->n_messages[worker]] = i;
            s->n_messages[worker]++;
        }
    }
}

void serve_open(struct serve *s, struct rank *r, const struct chunks *c)
{
    const struct program *p = r->p;
    const struct program_stage *stage = c->at[0].stage;
    int32_t n = p->n_stages - p->server.n;
    struct cursor cursor;
    *s = (struct serve){.by_arrival = stage->server && parameter_server_by_arrival(&p->server), .noted = {.a = r->run}};
    if (!s->by_arrival) return;
    server_order_start(&s->order, r->run, &p->server, n);
    s->calls = ARENA_ARRAY(r->run, struct call, 2 * (size_t)n);
    cursor_start(&cursor, &p->orders[p->lanes[r->index].order]);
    for (int32_t i = 0; i < 2 * n && cursor_next(&cursor, &s->calls[i]);) i++;
    find_messages(s, r, c->at[0].index);
    s->state = ARENA_ARRAY(r->run, double, (size_t)n + 1);
}

enum status serve_follow(struct serve *s, struct rank *r, int64_t first_step, struct error *err)
{
    if (!r->o->replay) return OK;
    if (!parameter_server_by_arrival(&r->p->server))
        return error_set(err, ERR_INPUT, "--replay: this plan has no parameter server that handles gradients by arrival (mode: ssp or asp)");
    if (!s->by_arrival) return OK;
    int32_t server = r->p->stages[r->p->lanes[r->index].stages[0]].server - 1;
    return arrivals_read(r->run, r->o->replay, r->p->plan_hash, first_step, server, &s->replayed, err);
}

double *serve_state(struct serve *s, int64_t *n)
{
    if (!s->by_arrival) return NULL;
    s->state[0] = (double)s->order.version;
    for (int32_t i = 0; i < s->order.n; i++) s->state[1 + i] = (double)s->order.workers[i].pulled;
    *n = 1 + s->order.n;
    return s->state;
}

void serve_set_state(struct serve *s)
{
    s->order.version = (int64_t)s->state[0];
    for (int32_t i = 0; i < s->order.n; i++) s->order.workers[i].pulled = (int64_t)s->state[1 + i];
}

/* ---- arrivals --------------------------------------------------------------------------------- */

/* When the last message of a worker's next push arrived; false: some have not. */
static bool has_arrived(struct worker *w, int32_t worker, int64_t *at_ns)
{
    const struct serve *s = &w->serve;
    int64_t one_ns = 0;
    *at_ns = 0;
    for (int32_t i = 0; i < s->n_messages[worker]; i++) {
        if (!comm_thread_has_ended(&w->transports.comm_thread, s->messages[worker][i], s->order.workers[worker].steps, &one_ns)) return false;
        if (one_ns > *at_ns) *at_ns = one_ns;
    }
    return true;
}

/* The next worker of the log; -1: the run is not replayed. */
static enum status replayed(struct worker *w, int32_t *worker, struct error *err)
{
    struct serve *s = &w->serve;
    *worker = -1;
    if (!w->rank.o->replay) return OK;
    int64_t step = 0;
    if (s->next < s->replayed.n) {
        *worker = s->replayed.list[s->next].worker, step = s->replayed.list[s->next].step;
        if (*worker < s->order.n && server_order_expects(&s->order, *worker) &&
            step == w->progress.first_step + s->order.workers[*worker].steps + 1)
            return OK;
        return error_set(err, ERR_INPUT, "%s: arrival %" PRId64 " of this server is step %" PRId64 " of worker %" PRId32 ", which is not its turn",
                         w->rank.o->replay, s->next + 1, step, *worker);
    }
    return error_set(err, ERR_INPUT, "%s: has %" PRId64 " arrivals of this server, the run needs more", w->rank.o->replay, s->replayed.n);
}

/* The earliest push that has arrived, or that of the log; -1: none. */
static int32_t earliest(struct worker *w, int32_t wanted, int64_t *at_ns)
{
    int32_t found = -1;
    for (int32_t i = 0; i < w->serve.order.n; i++) {
        int64_t one_ns;
        if ((wanted >= 0 && i != wanted) || !server_order_expects(&w->serve.order, i) || !has_arrived(w, i, &one_ns)) continue;
        if (found >= 0 && one_ns >= *at_ns) continue;
        found = i, *at_ns = one_ns;
    }
    return found;
}

/* Workers that have ended without a further push. *left: those that have not. */
static bool find_gone(struct worker *w, int32_t *left)
{
    struct server_order *o = &w->serve.order;
    bool any = false;
    *left = 0;
    for (int32_t i = 0; i < o->n; i++) {
        int64_t at_ns;
        int32_t rank = w->rank.p->stages[i].device;
        *left += !o->workers[i].gone;
        if (o->workers[i].gone || !comm_gone(w->rank.comm, rank) || (server_order_expects(o, i) && has_arrived(w, i, &at_ns))) continue;
        if (w->chunks.at[0].stage->server == 1)
            log_warn("worker %" PRId32 " (rank %" PRId32 ", %s) has ended after step %" PRId64 ": the run goes on without it, and losses of all steps leave it out", i, rank,
                     program_device_label(w->rank.p, rank).text, w->progress.first_step + o->workers[i].steps);
        server_order_gone(o, i);
        any = true, --*left;
    }
    return any;
}

/* On emulated devices a message is known before it arrives, and another one may still arrive before it. */
static enum status await_arrival(struct worker *w, struct error *err)
{
    int64_t limit_ns = comm_limit_ns(), deadline_ns = clock_wall_ns() + limit_ns, at_ns = 0;
    int32_t wanted;
    TRY(replayed(w, &wanted, err));
    device_clock_wait(&w->clock);
    for (;;) {
        int64_t now_ns = clock_wall_ns(), until_ns = now_ns + LOOK_NS;
        int32_t worker = earliest(w, wanted, &at_ns), left;
        comm_alive(w->rank.comm);
        if (worker < 0 && find_gone(w, &left)) {
            device_clock_waited(&w->clock, 0);
            return left ? OK : error_set(err, ERR_RANK, "no worker is left");
        }
        if (worker >= 0 && now_ns >= w->clock.zero_ns + at_ns) {
            device_clock_waited(&w->clock, 0);
            server_order_arrived(&w->serve.order, worker);
            w->serve.next++;
            return OK;
        }
        if (worker < 0 && now_ns >= deadline_ns) break;
        if (worker >= 0 && w->clock.zero_ns + at_ns < until_ns) until_ns = w->clock.zero_ns + at_ns;
        comm_thread_wait_any(&w->transports.comm_thread, until_ns);
    }
    return error_set(err, ERR_RANK, "no gradient of a worker arrived for %.0f s", (double)limit_ns / 1e9);
}

/* ---- the loop --------------------------------------------------------------------------------- */

/* The logged staleness depends on the pulls before the push, which a log of another run does not fit. */
static enum status check_logged(const struct worker *w, const struct server_turn *t, struct error *err)
{
    const struct serve *s = &w->serve;
    if (s->noted.n >= s->replayed.n) return OK;
    const struct arrival *x = &s->replayed.list[s->noted.n];
    if (x->worker == t->worker && x->staleness == t->staleness && x->dropped == (t->action == SERVER_DROP)) return OK;
    return error_set(err, ERR_INPUT, "%s: arrival %" PRId64 " of this server, step %" PRId64 " of worker %" PRId32 ", has staleness %" PRId64 "%s in the log and %" PRId64 "%s in this run",
                     w->rank.o->replay, s->noted.n + 1, x->step, x->worker, x->staleness, x->dropped ? " (dropped)" : "", t->staleness,
                     t->action == SERVER_DROP ? " (dropped)" : "");
}

static enum status handle(struct worker *w, const struct server_turn *t, struct error *err)
{
    struct serve *s = &w->serve;
    const struct program *p = w->rank.p;
    bool pull = t->action == SERVER_REPLY;
    if (!pull) {
        TRY(check_logged(w, t, err));
        arrivals_add(&s->noted, (struct arrival){.server = w->chunks.at[0].stage->server - 1,
                                                 .worker = t->worker,
                                                 .dropped = t->action == SERVER_DROP,
                                                 .step = w->progress.first_step + t->step + 1,
                                                 .staleness = t->staleness});
        chunks_set_step(&w->chunks, s->order.version);
        w->chunks.optimizer.lr = lr_schedule_rate(&p->optimizer.schedule, p->optimizer.lr, w->progress.first_step + t->step + 1) * t->rate;
    }
    return worker_call(w, &s->calls[2 * t->worker + pull], t->step, t->action == SERVER_DROP, err);
}

enum status worker_serve(struct worker *w, int64_t steps, struct error *err)
{
    w->serve.order.end = steps;
    for (;;) {
        struct server_turn t = server_order_next(&w->serve.order);
        if (t.action == SERVER_DONE) return OK;
        TRY(t.action == SERVER_WAIT ? await_arrival(w, err) : handle(w, &t, err));
    }
}
