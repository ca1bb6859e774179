/* core/lower/orders.c - the calls of each device in order, and the numbers of buffers that they need.
 *
 * From a warm-up count w: w-1 forwards, then forward and backward alternate, then w-1 backwards (1F1B). Or the
 * order that the plan spells out, or names as a schedule. Without a flush (weight_versions: 2) the step's first w-1 forwards are called
 * between the last backwards of the step before. Then the updates, last layers first, because their gradient all-reduces
 * were launched first. A stage has the calls of its device's order that are its own. The number of buffers of a buffer ring is the
 * smallest one with which no buffer is reused while its previous content is live, over infinitely many steps:
 * positions of calls are periodic, so checking one step's microbatches suffices.
 * A ring that only holds a message until it has left has no such number, because the time of departure is
 * unknown: it gets enough for the difference of the two stages' warm-up counts, and the token game
 * determines whether more are needed.
 */
#include "core/lower/orders.h"

#include "core/lower/outer.h"
#include "core/lower/procedures.h"
#include "core/lower/scale.h"
#include "core/plan/internal.h"
#include "core/program/offload.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- calls --- */

struct stage_calls {         /* of a stage in one step */
    int64_t n;               /* the update (last) included */
    enum phase *phase;            /* (n) */
    int32_t *microbatch;     /* (n) */
    int32_t *at[PHASE_INDICES]; /* (microbatches): position of the call of each phase */
    int32_t in_flight;       /* forwards before the first backward, those ahead included */
    int32_t ahead;           /* stage_order.ahead */
    bool split, ascending;   /* separate I and W; weight gradients in the order of microbatches */
    int64_t last_weight;     /* stage_order.last_weight */
};

/* A device's calls of one step in turn, without the updates. The devices of a stage have one, and so have those of equal stages of
 * consecutive replicas. */
struct lane_order {
    int32_t n_chunks, microbatches, warmup; /* warmup 0: of a text or a schedule */
    int32_t ahead;                          /* F of microbatches below it are of the next step */
    const char *text;                       /* NULL: of a warm-up count or a schedule */
    int64_t n_calls;
    struct schedule_op *calls;  /* (n_calls) */
    struct stage_calls *chunks; /* (n_chunks) */
    int32_t coded;              /* the latest lane whose program order is coded, -1 */
};

static void append(struct lane_order *o, enum phase phase, int32_t chunk, int32_t microbatch)
{
    o->calls[o->n_calls++] = (struct schedule_op){phase, chunk, microbatch};
}

/* 1F1B without a flush: from one update to the next, behind w-1 forwards that the step before has executed. */
static void order_without_flush(struct lane_order *o)
{
    int32_t m = o->microbatches, w = o->warmup;
    for (int32_t i = w - 1; i < m; i++) append(o, PHASE_F, 0, i), append(o, PHASE_B, 0, i - (w - 1));
    for (int32_t i = 0; i < w - 1; i++) append(o, PHASE_F, 0, i), append(o, PHASE_B, 0, m - (w - 1) + i);
}

static void order_from_warmup(struct lane_order *o)
{
    int32_t m = o->microbatches, w = o->warmup;
    for (int32_t i = 0; i < w - 1; i++) append(o, PHASE_F, 0, i);
    for (int32_t i = w - 1; i < m; i++)
        append(o, PHASE_F, 0, i), append(o, PHASE_B, 0, i - (w - 1));
    for (int32_t i = m - (w - 1); i < m; i++) append(o, PHASE_B, 0, i);
}

/* "F0 F1 B0 …"; plan_check has verified completeness and order. */
static void order_from_text(struct lane_order *o, int64_t most)
{
    struct schedule_op x;
    enum plan_word w;
    for (const char *t = o->text; (w = plan_next_call(&t, &x)) != PLAN_WORD_END;) {
        if (w == PLAN_WORD_BAD || x.chunk >= o->n_chunks || o->n_calls == most)
            BUG("order '%s' has not been checked", o->text);
        append(o, x.phase, x.chunk < 0 ? 0 : x.chunk, x.microbatch);
    }
}

/* What determines the calls; those of a schedule, which are there. */
static struct lane_order order_of(const struct lowering *l, const struct lane_build *lane,
                                  const struct schedule *schedule)
{
    const struct plan_replica *r = &l->plan->replicas[lane->replica];
    const struct stage_build *first = &l->stages[lane->stages[0]];
    struct lane_order o = {
        .n_chunks = lane->n_stages, .microbatches = r->microbatches, .coded = -1};
    if (schedule) {
        o.n_calls = schedule->lanes[lane->turn].n_ops, o.calls = schedule->lanes[lane->turn].ops;
        return o;
    }
    o.text = r->orders ? r->orders[first->stage] : first->plan->order;
    if (o.text) return o;
    o.warmup = first->plan->warmup ? first->plan->warmup : r->n_stages - first->stage;
    if (o.warmup > o.microbatches) o.warmup = o.microbatches;
    if (plan_delays_gradients(l->plan)) o.ahead = o.warmup - 1;
    return o;
}

static bool same_text(const char *x, const char *y) { return x == y || (x && y && !strcmp(x, y)); }

static bool same_calls(const struct lane_order *known, const struct lane_order *o)
{
    return known->n_chunks == o->n_chunks && known->microbatches == o->microbatches &&
           known->warmup == o->warmup && known->ahead == o->ahead && same_text(known->text, o->text) &&
           (o->text || o->warmup || known->calls == o->calls);
}

static void list_calls(struct arena *a, struct lane_order *o)
{
    int64_t most = 3 * (int64_t)o->microbatches * o->n_chunks;
    if (!o->text && !o->warmup) return;
    o->calls = ARENA_ARRAY(a, struct schedule_op, (size_t)most);
    if (o->text)
        order_from_text(o, most);
    else if (o->ahead)
        order_without_flush(o);
    else
        order_from_warmup(o);
}

/* --- a stage's calls --- */

static void note_positions(struct arena *a, struct stage_calls *c, int32_t microbatches)
{
    for (int p = 0; p < PHASE_INDICES; p++)
        c->at[p] = ARENA_ARRAY(a, int32_t, (size_t)microbatches);
    for (int64_t i = 0; i < c->n; i++) {
        enum phase phase = c->phase[i];
        if (phase == PHASE_F) c->at[phase_index(PHASE_F)][c->microbatch[i]] = (int32_t)i;
        if (phase == PHASE_B || phase == PHASE_I) c->at[phase_index(PHASE_I)][c->microbatch[i]] = (int32_t)i;
        if (phase == PHASE_B || phase == PHASE_W) c->at[phase_index(PHASE_W)][c->microbatch[i]] = (int32_t)i;
    }
}

static bool is_ascending(const int32_t *at, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (at[i] < at[i - 1]) return false;
    return true;
}

static void list_chunk(struct arena *a, const struct lane_order *o, int32_t chunk)
{
    struct stage_calls *c = &o->chunks[chunk];
    size_t most = 3 * (size_t)o->microbatches + 1;
    c->phase = ARENA_ARRAY(a, enum phase, most);
    c->microbatch = ARENA_ARRAY(a, int32_t, most);
    for (int64_t i = 0; i < o->n_calls; i++) {
        const struct schedule_op *x = &o->calls[i];
        if (x->chunk != chunk) continue;
        c->phase[c->n] = x->phase;
        c->microbatch[c->n++] = x->microbatch;
        if (x->phase == PHASE_I || x->phase == PHASE_W) c->split = true;
        if (x->phase == PHASE_B || x->phase == PHASE_W) c->last_weight = i;
    }
    note_positions(a, c, o->microbatches);
    for (c->in_flight = 0; c->in_flight < c->n && c->phase[c->in_flight] == PHASE_F;) c->in_flight++;
    c->ahead = o->ahead, c->in_flight += o->ahead;
    c->ascending = is_ascending(c->at[phase_index(PHASE_W)], o->microbatches);
    c->phase[c->n] = PHASE_U;
    c->microbatch[c->n++] = -1;
}

static void set_order(const struct lowering *l, struct stage_build *b, struct stage_calls *c)
{
    *b->order =
        (struct stage_order){.split = c->split,
                             .ascending = c->ascending,
                             .apart = l->plan->deterministic && (b->replica > 0 || !c->ascending),
                             .ahead = c->ahead,
                             .last_weight = c->last_weight,
                             .calls = c};
}

/* All calls are listed before orders are coded, some 50 bytes each. */
static enum status count_calls(const struct lowering *l, struct error *err)
{
    int64_t calls = 0;
    for (int32_t i = 0; i < l->p->n_stages; i++) calls += 2 * (int64_t)l->p->stages[i].microbatches;
    if (calls <= SCHEDULE_MAX_OPS) return OK;
    return error_set(err, ERR_RESOURCE,
                     "the plan calls its stages %" PRId64 " times a step (two calls a microbatch "
                     "and stage), of which at most %" PRId64
                     " fit in memory: fewer, larger microbatches are needed",
                     calls, SCHEDULE_MAX_OPS);
}

/* The schedule of a replica. That of the replica before is kept if it has the same settings: plan_check has found that each fits
 * its devices. */
struct scheduled {
    const struct plan_replica *of;
    int32_t n_lanes, n_chunks;
    struct schedule schedule;
};

static bool same_schedule(const struct scheduled *known, const struct plan_replica *r,
                          const struct scheduled *now)
{
    return known->of && !strcmp(known->of->schedule, r->schedule) && known->of->split == r->split &&
           known->of->microbatches == r->microbatches && known->n_lanes == now->n_lanes &&
           known->n_chunks == now->n_chunks;
}

/* first: the replica's first lane. */
static enum status find_schedule(struct lowering *l, int32_t first, struct scheduled *known,
                                 struct error *err)
{
    int32_t replica = l->lanes[first].replica, last = first;
    const struct plan_replica *r = &l->plan->replicas[replica];
    struct plan_place at = {l->plan, replica, -1, err};
    if (!r->schedule) return OK;
    while (last + 1 < l->p->n_devices && l->lanes[last + 1].replica == replica) last++;
    struct scheduled now = {r, l->lanes[last].turn + 1, l->lanes[first].n_stages, {0}};
    if (same_schedule(known, r, &now)) return OK;
    TRY(plan_schedule(l->tables, &at, &now.schedule));
    *known = now;
    return OK;
}

enum status lower_orders(struct lowering *l, struct error *err)
{
    struct scheduled scheduled = {0};
    struct lane_order **latest = /* by turn */
        ARENA_ARRAY(l->tables, struct lane_order *, (size_t)l->p->n_devices);
    struct stage_order *stages = ARENA_ARRAY(l->tables, struct stage_order, (size_t)l->p->n_stages);
    TRY(count_calls(l, err));
    for (int32_t i = 0; i < l->p->n_stages; i++) l->stages[i].order = &stages[i];
    for (int32_t i = 0; i < l->p->n_devices; i++) {
        struct lane_build *lane = &l->lanes[i];
        if (!i || lane->replica != l->lanes[i - 1].replica)
            TRY(find_schedule(l, i, &scheduled, err));
        bool named = l->plan->replicas[lane->replica].schedule;
        struct lane_order o = order_of(l, lane, named ? &scheduled.schedule : NULL);
        lane->order = latest[lane->turn];
        if (!lane->order || !same_calls(lane->order, &o)) {
            list_calls(l->tables, &o);
            o.chunks = ARENA_ARRAY(l->tables, struct stage_calls, (size_t)o.n_chunks);
            for (int32_t c = 0; c < o.n_chunks; c++) list_chunk(l->tables, &o, c);
            lane->order = latest[lane->turn] = arena_copy(l->tables, &o, sizeof o);
        }
        for (int32_t c = 0; c < lane->n_stages; c++)
            set_order(l, &l->stages[lane->stages[c]], &lane->order->chunks[c]);
    }
    return OK;
}


/* --- buffer rings --- */

/* Position, in the infinite list of calls, of the call of a phase for sequence number seq. */
static int64_t position(const struct stage_build *b, enum phase phase, int64_t seq)
{
    const struct stage_calls *c = b->order->calls;
    int64_t m = b->s->microbatches, step = seq / m - (phase == PHASE_F && seq % m < c->ahead);
    if (phase == PHASE_U) return (step + 1) * c->n - 1;
    return step * c->n + c->at[phase_index(phase)][seq % m];
}

/* Whether the buffer of seq is free before seq + count needs it, for every seq. */
static bool enough(const struct lowering *l, const struct stage_build *b, const struct buffer_ring *r,
                   int64_t count)
{
    if (r->birth != PHASE_RECEIVE) {
        for (int64_t seq = 0; seq < b->s->microbatches; seq++)
            if (position(b, r->birth, seq + count) <= position(b, r->death, seq)) return false;
        return true;
    }
    const struct channel *c = &l->p->channels[r->received];
    if (count < c->receive_ahead) return false; /* the first ones are all posted from the start */
    enum phase consumer = c->gradient ? orders_stage_phase(b, PHASE_I) : 'F';
    for (int64_t seq = 0; seq < b->s->microbatches; seq++)
        if (position(b, consumer, seq + count - c->receive_ahead) < position(b, r->death, seq))
            return false;
    return true;
}

static int32_t sent_count(const struct lowering *l, const struct channel *c)
{
    int32_t difference = abs(l->stages[c->from_stage].order->calls->in_flight -
                             l->stages[c->to_stage].order->calls->in_flight);
    return difference + 1 > 2 ? difference + 1 : 2;
}

void lower_sent_ring_counts(struct lowering *l, struct stage_build *b)
{
    for (int32_t i = 0; i < b->s->n_buffer_rings; i++) {
        struct buffer_ring *r = &b->s->buffer_rings[i];
        if (r->death == PHASE_SEND) r->count = sent_count(l, &l->p->channels[r->sent]);
    }
}

/* In host memory a buffer for each microbatch in flight. On the device, if a microbatch is one part, two a ring, so that one is copied while the other is used; more of
 * those for the backward where W is late, or microbatches come in another order: I of seq must follow W of seq − count, whose buffer it
 * takes. */
static void count_offload(const struct lowering *l, struct stage_build *b)
{
    struct program_stage *s = b->s;
    const struct buffer_ring waits = {.birth = PHASE_F, .death = orders_stage_phase(b, PHASE_W), .sent = -1, .received = -1};
    int64_t count = 1, in = 1;
    while (!enough(l, b, &waits, count)) count++;
    for (bool follows = false; !follows;) {
        in++, follows = true;
        for (int64_t seq = 0; follows && seq < s->microbatches; seq++) follows = position(b, PHASE_W, seq) < position(b, PHASE_I, seq + in);
    }
    s->offload.count = (int32_t)count;
    if (offload_parts(s) > 1) return; /* two halves of one buffer */
    s->buffer_rings[s->offload.out].count = count < 2 ? 1 : 2;
    s->buffer_rings[s->offload.in].count = (int32_t)(count < in ? count : in);
}

void lower_buffer_ring_counts(struct lowering *l, struct stage_build *b)
{
    lower_sent_ring_counts(l, b);
    for (int32_t i = 0; i < b->s->n_buffer_rings; i++) {
        struct buffer_ring *r = &b->s->buffer_rings[i];
        if (r->death == PHASE_SEND || r->death == PHASE_HOST) continue;
        if (r->death == PHASE_U) {
            r->count = b->s->microbatches;
            continue;
        }
        int64_t count = 1;
        while (!enough(l, b, r, count)) count++;
        r->count = (int32_t)count;
    }
    if (b->s->offload.count) count_offload(l, b);
}

/* --- from listed to coded, shared orders --- */

static int32_t procedure_of(const struct stage_build *b, enum phase phase)
{
    return phase == PHASE_F   ? b->procedures->f
           : phase == PHASE_U ? b->procedures->u
           : phase == PHASE_W ? b->procedures->w
                           : b->procedures->back;
}

/* n: their number */
static struct call *coded_calls(struct arena *scratch, const struct lowering *l,
                                const struct lane_build *lane, int64_t *n_calls)
{
    struct call *calls = ARENA_ARRAY(scratch, struct call,
                                     (size_t)lane->order->n_calls +
                                         (size_t)(3 + lower_outer_calls(l)) * (size_t)lane->n_stages);
    int64_t n = 0;
    for (int64_t i = 0; i < lane->order->n_calls; i++) {
        const struct schedule_op *x = &lane->order->calls[i];
        const struct stage_build *b = &l->stages[lane->stages[x->chunk]];
        bool last = i == b->order->last_weight, ahead = x->phase == PHASE_F && x->microbatch < b->order->ahead;
        int32_t procedure = ahead                                ? b->procedures->ahead
                            : last && b->procedures->last >= 0 ? b->procedures->last
                                                               : procedure_of(b, x->phase);
        calls[n++] = (struct call){procedure, x->microbatch, x->chunk};
        if (last && b->procedures->reduce >= 0) calls[n++] = (struct call){b->procedures->reduce, -1, x->chunk};
    }
    for (int32_t c = lane->n_stages - 1; c >= 0 && lower_checks_separately(l, lane); c--)
        calls[n++] = (struct call){l->stages[lane->stages[c]].procedures->check, -1, c};
    for (int32_t c = lane->n_stages - 1; c >= 0; c--)
        calls[n++] = (struct call){l->stages[lane->stages[c]].procedures->u, -1, c};
    for (int32_t k = 0; k < lower_outer_calls(l); k++)
        for (int32_t c = lane->n_stages - 1; c >= 0; c--)
            calls[n++] = (struct call){l->stages[lane->stages[c]].procedures->exchange + lower_outer_call(l, k), -1, c};
    *n_calls = n;
    return calls;
}

static bool same_order(const struct order *a, const struct order *b)
{
    if (a->n_calls != b->n_calls || a->n_runs != b->n_runs) return false;
    for (int32_t i = 0; i < a->n_runs; i++) {
        const struct order_run *x = &a->runs[i], *y = &b->runs[i];
        if (x->repeat != y->repeat || x->n_calls != y->n_calls) return false;
        if (memcmp(x->calls, y->calls, (size_t)x->n_calls * sizeof *x->calls) != 0) return false;
    }
    return true;
}

/* Whether two lanes of one order call procedures of the same numbers. */
static bool same_procedures(const struct lowering *l, const struct lane_build *a,
                            const struct lane_build *b)
{
    bool same = true;
    for (int32_t c = 0; same && c < a->n_stages; c++) {
        const struct stage_procedures *x = l->stages[a->stages[c]].procedures,
                                      *y = l->stages[b->stages[c]].procedures;
        same = x->f == y->f && x->ahead == y->ahead && x->back == y->back && x->w == y->w && x->last == y->last && x->reduce == y->reduce &&
               x->check == y->check && x->u == y->u && x->exchange == y->exchange;
    }
    return same;
}

void lower_share_orders(struct lowering *l)
{
    struct program *p = l->p;
    p->orders = ARENA_ARRAY(l->a, struct order, (size_t)p->n_devices);
    p->lanes = ARENA_ARRAY(l->a, struct lane, (size_t)p->n_devices);
    struct arena *scratch = arena_new();
    for (int32_t k = 0; k < p->n_devices; k++) {
        const struct lane_build *lane = &l->lanes[k];
        int32_t known = lane->order->coded;
        lane->order->coded = k;
        if (known >= 0 && same_procedures(l, lane, &l->lanes[known])) {
            p->lanes[k] = (struct lane){p->lanes[known].order, lane->n_stages, lane->stages};
            continue;
        }
        struct order *fresh = &p->orders[p->n_orders];
        int64_t n;
        const struct call *calls = coded_calls(scratch, l, lane, &n);
        order_code(l->a, calls, n, fresh);
        arena_reset(scratch);
        int32_t same = 0;
        while (!same_order(&p->orders[same], fresh)) same++;
        if (same == p->n_orders) p->n_orders++;
        p->lanes[k] = (struct lane){same, lane->n_stages, lane->stages};
    }
    arena_free(scratch);
}
