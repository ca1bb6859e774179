/* A device's compute stream, executed instruction by instruction, call by call, step by step. */
#include "core/base/units.h"
#include "core/program/ahead.h"
#include "core/program/server_order.h"
#include "sim/engine/engine.h"

#include <inttypes.h>

static bool is_backward(enum phase p) { return p == PHASE_B || p == PHASE_I; }

static void add_use(struct lane_use *to, const struct lane_use *from, int64_t times)
{
    to->busy_ns += times * from->busy_ns, to->carried_ns += times * from->carried_ns;
    for (int w = 0; w < SIM_WAIT_COUNT; w++) to->wait_ns[w] += times * from->wait_ns[w];
}

struct lane_use lane_period_use(const struct engine *e, int32_t lane)
{
    const struct lane_state *l = &e->lanes[lane];
    int32_t every = e->program->outer.every;
    struct lane_use use = l->period[1];
    use.busy_ns /= every, use.carried_ns /= every;
    for (int w = 0; w < SIM_WAIT_COUNT; w++) use.wait_ns[w] /= every;
    return use;
}

static void step_ended(struct engine *e, struct lane_state *l)
{
    int32_t s = l->step;
    if (s < 0) { /* in front of the first step, whose time it is */
        l->forwards_left = l->forwards, l->backwards = 0, l->step++;
        return;
    }
    int64_t end = l->update_ns >= 0 ? l->update_ns : l->now_ns, shift = end - l->last_end_ns;
    int32_t lane = (int32_t)(l - e->lanes);
    if (end > e->step_end_ns[s] ||
        (end == e->step_end_ns[s] && (!e->step_lanes[s] || lane < e->step_last[s])))
        e->step_end_ns[s] = end, e->step_last[s] = lane;
    if (!e->step_lanes[s])
        e->step_shift_ns[s] = shift;
    else if (e->step_shift_ns[s] != shift)
        e->step_shift_ns[s] = -1;
    l->last_end_ns = end;
    l->ended[s & 1] = l->use;
    if (e->served) e->ends_ns[l->stage * e->steps + s] = end, add_use(&l->period[0], &l->use, 1);
    int32_t period = e->period.n;
    if (period) add_use(&l->period[0], &l->use, e->period.times[s % period]);
    if (period && (s + 1) % period == 0)
        l->period[1] = l->period[0], l->period[0] = (struct lane_use){0};
    bool all = ++e->step_lanes[s] == e->program->n_devices;
    /* With jitter no step repeats another, even if a single lane has no other lane to differ from. */
    if (all && s > 0 && s + 1 < e->steps && e->step_shift_ns[s] >= 0 && !e->steady_step &&
        !e->jitter && !period && !e->unflushed) {
        e->steady_step = s;
        for (int32_t i = 0; i < e->program->n_devices; i++)
            e->lanes[i].steady = e->lanes[i].ended[s & 1];
        if (!e->trace && e->stop == STOP_NOT) e->until_ns = e->step_end_ns[s];
        if (!e->trace && e->stop == STOP_NOT && !shift) e->stop = STOP_STEADY;
    }
    l->use = (struct lane_use){0};
    l->forwards_left = l->forwards, l->backwards = 0;
    l->update_ns = -1;
    l->step++;
}

static const struct procedure *procedure_of(const struct engine *e, const struct lane_state *l)
{
    const struct program_stage *s = program_called(e->program, (int32_t)(l - e->lanes), &l->call);
    return &s->procedures[l->call.procedure];
}

static bool is_left_out(const struct engine *e, const struct lane_state *l)
{
    if (!e->period.n && !l->runs_ahead) return false;
    const struct procedure *f = procedure_of(e, l);
    return !ahead_executes(f, l->step, e->steps) || (e->period.n && !procedure_runs(f, period_step(&e->period, l->step)));
}

static void begin_call(struct engine *e, struct lane_state *l, int32_t lane)
{
    l->stage = e->program->lanes[lane].stages[l->call.chunk];
    l->microbatches = e->program->stages[l->stage].microbatches;
    l->procedure = &l->procedures[l->call.chunk][l->call.procedure];
    l->code = l->procedure->code;
}

/* Of a server: NULL until something has arrived. The step is the worker's. */
static void fetch_served(struct engine *e, struct lane_state *l, int32_t lane)
{
    struct server_turn turn;
    l->procedure = NULL;
    if (!served_next(e, lane, &turn)) return;
    begin_call(e, l, lane);
    l->seq = turn.step, l->step = (int32_t)turn.step;
    l->dropped = turn.action == SERVER_DROP;
}

/* Fetches the next call; procedure is NULL if there is none left. false: it does nothing in this step. */
static bool fetch_call(struct engine *e, struct lane_state *l)
{
    while (!cursor_next(&l->cursor, &l->call)) {
        step_ended(e, l);
        if (l->step == e->steps) {
            l->procedure = NULL;
            return true;
        }
        cursor_start(&l->cursor, l->cursor.order);
    }
    int32_t lane = (int32_t)(l - e->lanes);
    if (is_left_out(e, l)) return false;
    l->ahead = ahead_steps(procedure_of(e, l));
    if (l->step < 0) l->call.procedure = program_procedure(program_called(e->program, lane, &l->call), PHASE_F, "");
    begin_call(e, l, lane);
    l->backwards += is_backward(l->procedure->phase);
    l->seq = l->call.microbatch < 0 ? l->step : (int64_t)(l->step + l->ahead) * l->microbatches + l->call.microbatch;
    if (l->procedure->messages && ((l->call.microbatch < 0 && !e->program->server.n) || l->call.microbatch >= l->microbatches))
        engine_fail(e, ERR_INPUT,
                    "stage %" PRId32 " calls %c with microbatch %" PRId32 " of %" PRId32, l->stage,
                    l->procedure->phase, l->call.microbatch, l->microbatches);
    return true;
}

static void next_call(struct engine *e, struct lane_state *l)
{
    int32_t lane = (int32_t)(l - e->lanes);
    if (e->served && e->served[lane]) {
        fetch_served(e, l, lane);
        return;
    }
    while (!fetch_call(e, l)) {}
}

static int64_t forwards_of(const struct order *o, const struct lane_state *l)
{
    int64_t n = 0;
    for (int32_t r = 0; r < o->n_runs; r++)
        for (int32_t i = 0; i < o->runs[r].n_calls; i++) {
            const struct call *c = &o->runs[r].calls[i];
            if (l->procedures[c->chunk][c->procedure].phase == PHASE_F) n += o->runs[r].repeat;
        }
    return n;
}

void lane_start(struct engine *e, int32_t lane)
{
    struct lane_state *l = &e->lanes[lane];
    l->update_ns = l->collective = -1;
    l->forwards = forwards_of(&e->program->orders[e->program->lanes[lane].order], l);
    l->forwards_left = l->forwards;
    l->runs_ahead = ahead_on_lane(e->program, lane), l->unflushed = e->unflushed;
    l->step = l->runs_ahead ? -1 : 0;
    cursor_start(&l->cursor, &e->program->orders[e->program->lanes[lane].order]);
    next_call(e, l);
}

static void end_of_use(struct lane_state *l)
{
    const struct code_procedure *f = l->procedure;
    l->use.busy_ns += f->busy_ns;
    l->use.carried_ns += f->message_ns;
    l->use.wait_ns[SIM_WAIT_messages] += f->message_ns;
    l->forwards_left -= f->phase == PHASE_F;
}

static void end_call(struct engine *e, struct lane_state *l)
{
    if (!l->dropped) e->operators += l->procedure->n_operators;
    end_of_use(l);
    if (e->served && e->served[l - e->lanes])
        add_use(&l->period[0], &l->use, 1), l->use = (struct lane_use){0};
    else if (l->procedure->phase == PHASE_U)
        l->update_ns = l->now_ns;
    else if (l->step <= 0)
        l->worked_ns = l->now_ns;
    if (l->now_ns > e->limit_ns && e->stop == STOP_NOT && !e->steady_step) e->stop = STOP_LIMIT;
    if (l->now_ns > ENGINE_MAX_NS) engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
    next_call(e, l);
}

/* Until the first backward has its gradient, and after the last forward: not in the full pipeline. */
static bool in_bubble(const struct lane_state *l)
{
    if (l->unflushed && l->step >= 0) return false;
    return !l->forwards_left || l->backwards < 1 ||
           (l->backwards == 1 && is_backward(l->procedure->phase));
}

/* Whether the instant is known (not -1), and may be waited for. */
static bool may_wait(struct engine *e, int32_t lane, int64_t when_ns)
{
    if (when_ns < 0 || (e->overlap && !overlap_wait(e, lane, when_ns))) return false;
    if (when_ns > ENGINE_MAX_NS) engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
    return true;
}

/* Until an instant behind the lane's time. What it waits for has been under way since issued_ns. */
static void pass_time(struct lane_state *l, int64_t when_ns, enum sim_wait moving, int64_t issued_ns)
{
    bool bubble = moving == SIM_WAIT_messages && l->call.microbatch >= 0 && in_bubble(l);
    int64_t since = units_min(units_max(issued_ns, l->now_ns), when_ns);
    l->use.wait_ns[bubble ? SIM_WAIT_bubble : SIM_WAIT_imbalance] += since - l->now_ns;
    l->use.wait_ns[moving] += when_ns - since;
    l->now_ns = when_ns;
}

static bool wait_until(struct engine *e, int32_t lane, struct lane_state *l, int64_t when_ns,
                       enum sim_wait moving, int64_t issued_ns)
{
    if (!may_wait(e, lane, when_ns)) return false;
    if (when_ns > l->now_ns) pass_time(l, when_ns, moving, issued_ns);
    return true;
}

/* When a message was handed over, or a collective launched, is looked up only where the lane waits for it. */
static bool wait_message(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    int64_t when_ns = messages_arrival(e, c->arg, l->seq);
    if (!may_wait(e, lane, when_ns)) return false;
    if (when_ns > l->now_ns) pass_time(l, when_ns, SIM_WAIT_messages, messages_handed(e, c->arg, l->seq));
    return true;
}

static bool wait_collective(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    int64_t when_ns = collective_end(e, c->arg, l->step);
    if (!may_wait(e, lane, when_ns)) return false;
    if (when_ns > l->now_ns) pass_time(l, when_ns, SIM_WAIT_collectives, collective_launched(e, c->arg));
    return true;
}

static bool compute(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    int64_t ns = c->amount, begin = l->now_ns;
    if (l->dropped) {
        l->use.busy_ns -= c->amount; /* end_call adds the price */
        return true;
    }
    if (e->jitter)
        ns = jitter_op_ns(e->jitter, lane, l->step + l->ahead, l->call.chunk, l->call.procedure,
                          l->call.microbatch, c->arg, ns);
    if (e->overlap && !overlap_compute(e, lane, ns, &begin)) return false;
    int64_t end = e->overlap ? e->now_ns : begin + ns;
    l->use.busy_ns += end - begin - c->amount; /* end_call adds the price */
    if (e->trace) report_operator(e, lane, c, begin, end);
    l->now_ns = end;
    return true;
}

/* Copies of activations to host memory and back: when each ends is known at once. */
static void report_back(struct engine *e, int32_t lane, const struct offload_copies *back)
{
    for (int32_t i = 0; i < back->n; i++) report_copy(e, lane, SPAN_FETCH, &back->at[i]);
}

static void offload(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    struct offload_copies back;
    struct offload_copy out = offload_out(&e->offloads[l->stage], &l->copies, l->seq, c->arg, l->now_ns, c->amount, &back);
    report_copy(e, lane, SPAN_OFFLOAD, &out);
    report_back(e, lane, &back);
}

static bool fetch(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    int64_t when_ns = offload_arrival(&e->offloads[l->stage], l->seq, c->arg);
    if (when_ns < 0)
        engine_fail(e, ERR_INPUT, "stage %" PRId32 " waits for activations of microbatch %" PRId32 ", of which no copy is under way", l->stage,
                    l->call.microbatch);
    if (!wait_until(e, lane, l, when_ns, SIM_WAIT_messages, 0)) return false;
    struct offload_copies back = offload_fetched(&e->offloads[l->stage], &l->copies, l->seq, c->arg, l->now_ns, c->amount);
    report_back(e, lane, &back);
    return true;
}

static void offloaded(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    struct offload_copies back = offload_consumed(&e->offloads[l->stage], &l->copies, l->seq, l->now_ns, c->amount);
    report_back(e, lane, &back);
}

/* false: it waits, and executes the same instruction again after a wake-up. */
static bool take(struct engine *e, int32_t lane, struct lane_state *l, const struct code *c)
{
    int64_t end_ns;
    switch (c->kind) {
    case CODE_ROOM:
        end_ns = l->seq < c->amount ? 0 : messages_left(e, c->arg, l->seq - c->amount);
        return wait_until(e, lane, l, end_ns, SIM_WAIT_messages, 0);
    case CODE_RECEIVE:
        return wait_message(e, lane, l, c);
    case CODE_COLLECTIVE_WAIT:
        return wait_collective(e, lane, l, c);
    case CODE_BORN:
        memory_from_lane(e->memory, lane, l->now_ns, c->amount);
        return true;
    case CODE_DEAD:
        memory_from_lane(e->memory, lane, l->now_ns, -c->amount);
        return true;
    case CODE_COMPUTE:
        return compute(e, lane, l, c);
    case CODE_SEND:
        messages_hand_over(e, c->arg, l->seq, l->now_ns);
        return true;
    case CODE_COLLECTIVE_START:
        collective_hand_over(e, c->arg, lane, l->now_ns);
        return true;
    case CODE_COLLECTIVE:
        if (!l->met) {
            /* jitter already makes some member late */
            int64_t when_ns = l->now_ns + (e->jitter ? 0 : c->amount);
            if (!e->overlap) l->use.wait_ns[SIM_WAIT_imbalance] += when_ns - l->now_ns, l->now_ns = when_ns;
            collective_hand_over(e, c->arg, lane, when_ns);
        }
        l->met = true;
        l->met = !wait_collective(e, lane, l, c);
        return !l->met;
    case CODE_FOLDED_COLLECTIVE:
        end_ns = collect_end(e, lane, c);
        return wait_until(e, lane, l, end_ns, SIM_WAIT_collectives, end_ns - c->amount);
    case CODE_OFFLOAD_ROOM:
        return wait_until(e, lane, l, offload_room(&e->offloads[l->stage], l->seq, c->arg), SIM_WAIT_messages, 0);
    case CODE_OFFLOAD:
        offload(e, lane, l, c);
        return true;
    case CODE_FETCH:
        return fetch(e, lane, l, c);
    case CODE_OFFLOADED:
        offloaded(e, lane, l, c);
        return true;
    case CODE_CONSUMED:
        messages_consumed(e, c->arg, l->seq, l->now_ns);
        return true;
    case CODE_END:
        break;
    }
    return true;
}

void lane_run(struct engine *e, int32_t lane)
{
    struct lane_state *l = &e->lanes[lane];
    if (!l->procedure && e->served && e->served[lane]) next_call(e, l);
    while (l->procedure && e->stop == STOP_NOT && l->now_ns <= e->until_ns) {
        if (l->code->kind == CODE_END)
            end_call(e, l);
        else if (take(e, lane, l, l->code))
            l->code++;
        else
            return;
    }
}
