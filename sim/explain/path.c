/* The critical path, backwards. A place on it is an instant and the activity that ended there. One step emits the piece of time
 * before that instant and finds the activity that had to end first. Every step goes back in time or, at one
 * instant, back in causal order, so the walk ends at instant 0. */
#include "core/base/units.h"
#include "sim/explain/internal.h"

#include "core/base/arena.h"

#include <inttypes.h>

enum place_kind {
    PLACE_LANE,    /* all records of a lane before `index` have ended */
    PLACE_ARRIVED, /* a message arrived */
    PLACE_LEFT,    /* a message left */
    PLACE_PART,    /* a member's part of a collective has ended */
    PLACE_CAME,    /* a member has reached a part */
    PLACE_BEGUN,   /* a lane's collective stream has begun a collective */
    PLACE_START,   /* the run's beginning */
};
struct place {
    enum place_kind kind;
    int32_t lane;    /* LANE; BEGUN */
    size_t index;    /* LANE: one past the record; BEGUN: run */
    int32_t channel; /* messages */
    int32_t group, member, launch, part;
    int64_t seq;
};

struct path {
    const struct explanation *t;
    struct explain *x;
    struct explain_presence *all;
    struct place at;
    int64_t now_ns;
    /* link time after this instant is contention, because a message of the path was ready then */
    int64_t queue_since_ns;
    size_t capacity;
};

/* --- pieces --- */

static void keep(struct path *w, struct explain_piece c)
{
    struct explain *x = w->x;
    if (w->all && c.device >= 0 && c.kind <= EXPLAIN_update)
        w->all->device[c.device] += c.end_ns - c.begin_ns;
    if (w->all && c.link >= 0) w->all->link[c.link] += c.end_ns - c.begin_ns;
    if (w->all && c.op >= 0) w->all->kind[c.op] += c.end_ns - c.begin_ns;
    if (c.begin_ns < x->begin_ns) c.begin_ns = x->begin_ns;
    if (c.end_ns > x->end_ns) c.end_ns = x->end_ns;
    if (c.begin_ns >= c.end_ns) return;
    x->pieces = arena_grow(w->t->arena, x->pieces, x->n_pieces, &w->capacity, sizeof *x->pieces);
    x->pieces[x->n_pieces++] = c;
}

/* Assigns everything from begin_ns to now to this piece. */
static void passed(struct path *w, enum explain_kind kind, int32_t device, int32_t link,
                   int64_t begin_ns)
{
    if (begin_ns > w->now_ns) BUG("the critical path moves forward in time");
    keep(w, (struct explain_piece){kind, 'S', -1, device, link, begin_ns, w->now_ns});
    w->now_ns = begin_ns;
}

static void computed(struct path *w, int32_t lane, const struct record *r)
{
    const struct program_op *op = &w->t->program->stages[r->stage].ops[r->arg];
    keep(w, (struct explain_piece){r->phase == PHASE_U ? EXPLAIN_update : EXPLAIN_compute, r->phase,
                                   (int32_t)op->kind, lane, -1, r->begin_ns, r->end_ns});
    w->now_ns = r->begin_ns;
}

/* --- messages --- */

static struct explained_message *message_of(const struct path *w)
{
    return &w->t->channels[w->at.channel].messages[w->at.seq];
}

static void at_record(struct path *w, int32_t lane, size_t record)
{
    w->at = (struct place){.kind = PLACE_LANE, .lane = lane, .index = record};
}

/* The message whose end freed the link for one that starts at start_ns; NULL: none with a span. Messages of zero duration are
 * skipped, because their order is unknown. */
static const struct on_resource *blocker(const struct explanation *t, int32_t resource,
                                         int64_t start_ns)
{
    const struct on_resource *line = t->line[resource];
    size_t low = 0, high = t->n_line[resource]; /* the first that starts at or after start_ns */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (line[middle].start_ns < start_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && line[low - 1].left_ns == start_ns ? &line[low - 1] : NULL;
}

/* The message has just started: when did it become ready, and what was the cause? A wait for the previous message of its channel
 * counts as queueing, like a wait for any other. */
static void message_started(struct path *w)
{
    const struct explanation *t = w->t;
    const struct explained_channel *c = &t->channels[w->at.channel];
    const struct explained_message *m = message_of(w);
    int64_t posted = w->at.seq < c->ahead ? 0 : c->messages[w->at.seq - c->ahead].consumed_ns;
    int64_t ready = units_max(m->handed_ns, posted);
    int32_t link = c->resource < 0 ? -1 : c->resource / 2;
    if (m->start_ns > ready) {
        if (ready < w->queue_since_ns) w->queue_since_ns = ready;
        const struct on_resource *b = NULL;
        if (m->before >= 0 && c->messages[m->before].left_ns == m->start_ns) {
            w->at = (struct place){PLACE_LEFT, .channel = w->at.channel, .seq = m->before};
            return;
        }
        if (c->resource >= 0) b = blocker(t, c->resource, m->start_ns);
        if (b) {
            w->at = (struct place){PLACE_LEFT, .channel = b->channel, .seq = b->seq};
            return;
        }
        passed(w, EXPLAIN_contention, c->to_lane, link, ready);
    }
    w->queue_since_ns = INT64_MAX;
    if (m->handed_ns >= posted) {
        at_record(w, c->from_lane, m->handed_record);
    } else {
        w->x->unposted += w->now_ns > w->x->begin_ns && w->now_ns <= w->x->end_ns;
        at_record(w, c->to_lane, c->messages[w->at.seq - c->ahead].consumed_record);
    }
}

static void message_left(struct path *w)
{
    const struct explanation *t = w->t;
    const struct explained_channel *c = &t->channels[w->at.channel];
    const struct explained_message *m = message_of(w);
    if (c->resource >= 0) {
        int32_t link = c->resource / 2;
        /* time beyond this message alone was used by other messages */
        int64_t since = w->queue_since_ns,
                shared = units_max(m->left_ns - m->start_ns - c->alone_ns, 0);
        if (since < w->now_ns)
            passed(w, EXPLAIN_contention, c->to_lane, link, units_max(since, m->start_ns));
        if (w->now_ns > m->start_ns + shared)
            passed(w, EXPLAIN_transfer, c->to_lane, link, m->start_ns + shared);
        passed(w, EXPLAIN_contention, c->to_lane, link, m->start_ns);
    }
    message_started(w);
}

static void message_arrived(struct path *w)
{
    const struct explained_channel *c = &w->t->channels[w->at.channel];
    const struct explained_message *m = message_of(w);
    if (c->resource >= 0) passed(w, EXPLAIN_latency, c->to_lane, c->resource / 2, m->left_ns);
    w->at.kind = PLACE_LEFT;
}

/* --- collectives --- */

struct hop { /* one message of a part; sender and receiver as parts */
    bool is;
    int32_t sender, sender_part, receiver, receiver_part, link;
};

static struct hop collective_hop_of(const struct collective *g, int32_t m, int32_t part, bool sends)
{
    if (part >= collective_steps(g)) return (struct hop){0};
    struct collective_round s = collective_round(g, m, part);
    if ((sends ? s.to : s.from) < 0) return (struct hop){0};
    /* In a folded collective it is the message of the member that represents the sender. */
    int32_t sender = collective_like(g, sends ? m : s.from), direction;
    int32_t receiver = collective_round(g, sender, part).to;
    struct hop h = {true, sender, part, sends ? collective_like(g, receiver) : m, part, -1};
    program_collective_link(g, sender, receiver, &h.link, &direction);
    return h;
}

static struct hop send_hop(const struct collective *g, int32_t m, int32_t part)
{
    int32_t n = g->n_members;
    if (program_collective_in_rounds(g)) return collective_hop_of(g, m, part, true);
    if (program_collective_rings(g))
        return (struct hop){true, m, part, (m + 1) % n, part, g->link[m]};
    if (part == 1 && m + 1 < n) return (struct hop){true, m, 1, m + 1, 0, g->link[m]};
    if (part == 3 && m > 0) return (struct hop){true, m, 3, m - 1, 2, g->back_link[m]};
    return (struct hop){0};
}

static struct hop receive_hop(const struct collective *g, int32_t m, int32_t part)
{
    int32_t n = g->n_members;
    if (program_collective_in_rounds(g)) return collective_hop_of(g, m, part, false);
    if (program_collective_rings(g)) return send_hop(g, (m + n - 1) % n, part);
    if (part == 0 && m > 0) return send_hop(g, m - 1, 1);
    if (part == 2 && m + 1 < n) return send_hop(g, m + 1, 3);
    return (struct hop){0};
}

struct bound { /* earliest end of a part, given one of its hops */
    struct hop hop;
    int64_t ready_ns, end_ns;
};

static int64_t hop_ns(const struct explanation *t, int32_t link, int64_t bytes, bool arrival)
{
    if (link < 0) return 0;
    return cost_occupancy_ns(&t->links[link], bytes) + (arrival ? t->links[link].latency_ns : 0);
}

static struct bound bound_of(const struct path *w, struct hop h, bool arrival)
{
    const struct explanation *t = w->t;
    int32_t n = t->groups[w->at.group].n_parts;
    struct bound b = {.hop = h, .end_ns = -1};
    if (!h.is || h.sender_part >= n || h.receiver_part >= n) return b;
    const struct explained_part *s =
        explain_part_at(t, w->at.group, w->at.launch, h.sender, h.sender_part);
    const struct explained_part *r =
        explain_part_at(t, w->at.group, w->at.launch, h.receiver, h.receiver_part);
    if (s->begin_ns < 0 || r->begin_ns < 0 || !s->bytes) return b;
    b.ready_ns = units_max(s->begin_ns, r->begin_ns);
    b.end_ns = b.ready_ns + hop_ns(t, h.link, s->bytes, arrival);
    return b;
}

/* A priced collective began for all members when the last one arrived. */
static void priced_ended(struct path *w)
{
    const struct explanation *t = w->t;
    const struct collective *g = &t->program->collectives[w->at.group];
    int32_t lane = t->lane_of_stage[g->members[w->at.member].stage], last = w->at.member;
    for (int32_t m = 0; m < g->n_members; m++)
        if (explain_part_at(t, w->at.group, w->at.launch, m, 0)->begin_ns >
            explain_part_at(t, w->at.group, w->at.launch, last, 0)->begin_ns)
            last = m;
    passed(w, EXPLAIN_collective, lane, -1,
           explain_part_at(t, w->at.group, w->at.launch, last, 0)->begin_ns);
    w->at.kind = PLACE_CAME, w->at.member = last;
}

/* The part ended with the later of its messages; that message began when the later of its two ends was ready. */
static void part_ended(struct path *w)
{
    const struct explanation *t = w->t;
    const struct collective *g = &t->program->collectives[w->at.group];
    bool flow = program_collective_rings(g) && t->groups[w->at.group].n_parts == 1 &&
                (g->stands_for ? g->stands_for : g->n_members) > 2; /* sim/engine/ring_flow.h */
    if (t->groups[w->at.group].price != COLLECTIVE_PRICE_LINKS || flow) {
        priced_ended(w);
        return;
    }
    const struct explained_part *mine =
        explain_part_at(t, w->at.group, w->at.launch, w->at.member, w->at.part);
    int32_t lane = t->lane_of_stage[g->members[w->at.member].stage];
    struct bound s = bound_of(w, send_hop(g, w->at.member, w->at.part), false),
                 r = bound_of(w, receive_hop(g, w->at.member, w->at.part), true);
    struct bound b = r.end_ns >= s.end_ns ? r : s;
    int64_t before = mine->begin_ns;
    int32_t partner = -1, partner_part = -1;
    if (b.end_ns >= 0 && b.ready_ns > mine->begin_ns && b.ready_ns <= w->now_ns) {
        before = b.ready_ns;
        partner = b.hop.sender == w->at.member ? b.hop.receiver : b.hop.sender;
        partner_part = b.hop.sender == w->at.member ? b.hop.receiver_part : b.hop.sender_part;
    }
    int32_t link = b.end_ns >= 0 ? b.hop.link : -1;
    int64_t alone = b.end_ns - b.ready_ns;
    if (b.end_ns >= 0 && w->now_ns - alone > before) {
        passed(w, EXPLAIN_collective, lane, link, w->now_ns - alone);
        passed(w, EXPLAIN_contention, lane, link, before);
    } else {
        passed(w, EXPLAIN_collective, lane, link, before);
    }
    w->at.kind = PLACE_CAME;
    if (partner >= 0) w->at.member = partner, w->at.part = partner_part;
}

static void run_ended(struct path *w, int32_t lane, size_t index)
{
    const struct explanation *t = w->t;
    const struct collective_run *r = &t->lanes[lane].runs[index];
    for (int32_t k = t->groups[r->group].n_parts - 1; k >= 0; k--) {
        if (explain_part_at(t, r->group, r->launch, r->member, k)->begin_ns < 0) continue;
        w->at = (struct place){PLACE_PART, .group = r->group, .member = r->member,
                               .launch = r->launch, .part = k};
        return;
    }
    w->at = (struct place){PLACE_BEGUN, .lane = lane, .index = index};
}

/* A member begins a part when its previous part has ended, and its first part when its stream begins the collective. */
static void part_came(struct path *w)
{
    const struct explanation *t = w->t;
    int32_t group = w->at.group, member = w->at.member;
    for (int32_t k = w->at.part - 1; k >= 0; k--)
        if (explain_part_at(t, group, w->at.launch, member, k)->begin_ns >= 0) {
            w->at.kind = PLACE_PART, w->at.part = k;
            return;
        }
    w->at = (struct place){
        PLACE_BEGUN, .lane = t->lane_of_stage[t->program->collectives[group].members[member].stage],
        .index = *explain_run_at(t, group, w->at.launch, member)};
}

static void run_begun(struct path *w)
{
    const struct explained_lane *l = &w->t->lanes[w->at.lane];
    const struct collective_run *r = &l->runs[w->at.index];
    if (l->records[r->record].end_ns == r->begin_ns || !w->at.index)
        at_record(w, w->at.lane, r->record);
    else
        run_ended(w, w->at.lane, w->at.index - 1);
}

/* --- lanes --- */

static void lane_back(struct path *w)
{
    const struct explained_lane *l = &w->t->lanes[w->at.lane];
    if (!w->at.index) {
        w->at.kind = PLACE_START;
        return;
    }
    const struct record *r = &l->records[--w->at.index];
    int32_t lane = w->at.lane;
    bool inside = w->now_ns > w->x->begin_ns && w->now_ns <= w->x->end_ns;
    switch (r->kind) {
    case RECORD_COMPUTE:
        computed(w, lane, r);
        break;
    case RECORD_RECEIVE:
        w->at = (struct place){PLACE_ARRIVED, .channel = r->arg, .seq = r->seq};
        break;
    case RECORD_ROOM:
        w->x->rooms += inside;
        w->at = (struct place){PLACE_LEFT, .channel = r->arg, .seq = r->seq};
        break;
    case RECORD_COLLECTIVE_WAIT:
        run_ended(
            w, lane,
            *explain_run_at(w->t, r->arg, (int32_t)r->seq, explain_member(w->t, r->arg, lane)));
        break;
    case RECORD_COPY:
        passed(w, EXPLAIN_offload, lane, -1, r->begin_ns);
        break;
    case RECORD_LATE:
        passed(w, EXPLAIN_skew, lane, -1, r->begin_ns);
        break;
    case RECORD_SEND:
    case RECORD_COLLECTIVE_START:
    case RECORD_END:
        break;
    }
}

static void back(struct path *w)
{
    switch (w->at.kind) {
    case PLACE_LANE:
        lane_back(w);
        break;
    case PLACE_ARRIVED:
        message_arrived(w);
        break;
    case PLACE_LEFT:
        message_left(w);
        break;
    case PLACE_PART:
        part_ended(w);
        break;
    case PLACE_CAME:
        part_came(w);
        break;
    case PLACE_BEGUN:
        run_begun(w);
        break;
    case PLACE_START:
        break;
    }
}

/* Upper bound of the places of a path: a longer walk is a cycle. */
static int64_t places(const struct explanation *t)
{
    int64_t n = 16;
    for (int32_t i = 0; i < t->program->n_devices; i++)
        n += 4 * (int64_t)(t->lanes[i].n_records + t->lanes[i].n_runs);
    for (int32_t i = 0; i < t->program->n_channels; i++) n += 4 * t->channels[i].n_messages;
    for (int32_t i = 0; i < t->program->n_collectives; i++)
        n += 4 * (int64_t)t->steps * t->groups[i].times * t->program->collectives[i].n_members *
             t->groups[i].n_parts;
    return n;
}

static void reverse(struct explain *x)
{
    for (size_t i = 0; i < x->n_pieces / 2; i++) {
        struct explain_piece other = x->pieces[i];
        x->pieces[i] = x->pieces[x->n_pieces - 1 - i];
        x->pieces[x->n_pieces - 1 - i] = other;
    }
}

/* After the last update of the step on this lane, or after its last call. */
static size_t end_of_step(const struct explained_lane *l, int32_t step, int64_t end_ns)
{
    size_t last = 0;
    for (size_t i = 0; i < l->n_records; i++) {
        const struct record *r = &l->records[i];
        if (r->step == step && r->kind == RECORD_END && r->end_ns == end_ns) last = i;
    }
    return last;
}

enum status explain_path(const struct explanation *t, struct explain *x,
                         struct explain_presence *all, struct error *err)
{
    int32_t lane = 0;
    for (size_t i = 0; i < t->trace->n_spans; i++)
        if (t->trace->spans[i].kind == SPAN_STEP && t->trace->spans[i].step == x->step)
            lane = t->trace->spans[i].device;
    struct path w = {.t = t, .x = x, .all = all, .now_ns = x->end_ns, .queue_since_ns = INT64_MAX};
    at_record(&w, lane, end_of_step(&t->lanes[lane], x->step, x->end_ns));
    for (int64_t left = places(t); w.at.kind != PLACE_START; left--) {
        if (!left) return error_set(err, ERR_INTERNAL, "the critical path has a cycle");
        back(&w);
    }
    reverse(x);
    if (!w.now_ns) return OK;
    return error_set(err, ERR_INTERNAL, "the critical path ends at %" PRId64 " ns of its run",
                     w.now_ns);
}
