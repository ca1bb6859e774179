/* core/lower_orders.c - who is called when on a stage, and how many buffers that asks for.
 *
 * From a warm-up count w: w-1 forwards, then forward and backward in turn, then w-1 backwards, then
 * the update. Or the order that the plan spells out. The number of buffers of a ring is the
 * smallest one for which no buffer is born while its last holder lives, over endlessly many steps:
 * positions of calls are periodic, so checking one step's microbatches suffices.
 * A ring that only holds a message until it has left has no such number (when it leaves is a
 * matter of time): it gets enough for the difference of the two stages' warm-ups, and the game
 * afterwards tells whether more are needed.
 */
#include "core/lower_internal.h"

#include <stdlib.h>
#include <string.h>

static void append(struct stage_build *b, char letter, int32_t microbatch)
{
    b->letter[b->n_calls] = letter;
    b->microbatch[b->n_calls++] = microbatch;
}

static void order_from_warmup(struct stage_build *b, int32_t stages_behind)
{
    int32_t m = b->s->microbatches, w = b->plan->warmup ? b->plan->warmup : stages_behind + 1;
    if (w > m) w = m;
    for (int32_t i = 0; i < w - 1; i++) append(b, 'F', i);
    for (int32_t i = w - 1; i < m; i++) append(b, 'F', i), append(b, 'B', i - (w - 1));
    for (int32_t i = m - (w - 1); i < m; i++) append(b, 'B', i);
}

/* "F0 F1 B0 …"; plan_check has seen that every call is there once and in its place. */
static void order_from_text(struct stage_build *b)
{
    for (const char *t = b->plan->order + strspn(b->plan->order, " \t\r\n"); *t;
         t += strspn(t, " \t\r\n")) {
        char *end;
        long m = strtol(t + 1, &end, 10);
        if (!strchr("FBIW", *t) || m < 0 || m >= b->s->microbatches ||
            b->n_calls == 3 * (int64_t)b->s->microbatches)
            BUG("order '%s' has not been checked", b->plan->order);
        if (*t == 'I' || *t == 'W') b->split = true;
        append(b, *t, (int32_t)m);
        t = end;
    }
}

static void note_positions(struct lowering *l, struct stage_build *b)
{
    for (int part = 0; part < PART_COUNT; part++)
        b->at[part] = ARENA_ARRAY(l->a, int32_t, (size_t)b->s->microbatches);
    for (int64_t i = 0; i < b->n_calls; i++) {
        char letter = b->letter[i];
        if (letter == 'F') b->at[PART_FORWARD][b->microbatch[i]] = (int32_t)i;
        if (letter == 'B' || letter == 'I') b->at[PART_BACK][b->microbatch[i]] = (int32_t)i;
        if (letter == 'B' || letter == 'W') b->at[PART_WEIGHT][b->microbatch[i]] = (int32_t)i;
    }
}

void lower_order(struct lowering *l, struct stage_build *b)
{
    size_t most = 3 * (size_t)b->s->microbatches + 1;
    b->letter = ARENA_ARRAY(l->a, char, most);
    b->microbatch = ARENA_ARRAY(l->a, int32_t, most);
    if (b->plan->order) {
        order_from_text(b);
    } else {
        order_from_warmup(b, l->plan->replicas[b->replica].n_stages - 1 - b->stage);
    }
    note_positions(l, b);
    for (b->in_flight = 0; b->in_flight < b->n_calls && b->letter[b->in_flight] == 'F';)
        b->in_flight++;
    b->ascending = true;
    for (int32_t i = 1; i < b->s->microbatches; i++)
        if (b->at[PART_WEIGHT][i] < b->at[PART_WEIGHT][i - 1]) b->ascending = false;
    b->apart = l->plan->deterministic && (b->replica > 0 || !b->ascending);
    append(b, 'U', -1);
}

/* --- rings --- */

/* Where in the endless list of calls the call of a letter for sequence number seq stands. */
static int64_t position(const struct stage_build *b, char letter, int64_t seq)
{
    int64_t m = b->s->microbatches, step = seq / m;
    if (letter == 'U') return (step + 1) * b->n_calls - 1;
    enum part part = letter == 'F' ? PART_FORWARD : letter == 'W' ? PART_WEIGHT : PART_BACK;
    return step * b->n_calls + b->at[part][seq % m];
}

/* Is the buffer of seq free again when that of seq + count is born, whatever seq? */
static bool enough(const struct lowering *l, const struct stage_build *b, const struct ring *r,
                   int64_t count)
{
    if (r->birth != 'R') {
        for (int64_t seq = 0; seq < b->s->microbatches; seq++)
            if (position(b, r->birth, seq + count) <= position(b, r->death, seq)) return false;
        return true;
    }
    const struct channel *c = &l->p->channels[r->received];
    if (count < c->receive_ahead) return false; /* the first ones are all posted from the start */
    char consumer = c->gradient ? part_letter(b, PART_BACK) : 'F';
    for (int64_t seq = 0; seq < b->s->microbatches; seq++)
        if (position(b, consumer, seq + count - c->receive_ahead) < position(b, r->death, seq))
            return false;
    return true;
}

static int32_t sent_count(const struct lowering *l, const struct channel *c)
{
    int32_t difference = abs(l->stages[c->from_stage].in_flight - l->stages[c->to_stage].in_flight);
    return difference + 1 > 2 ? difference + 1 : 2;
}

void lower_ring_counts(struct lowering *l, struct stage_build *b)
{
    for (int32_t i = 0; i < b->s->n_rings; i++) {
        struct ring *r = &b->s->rings[i];
        if (r->death == 'S') {
            r->count = sent_count(l, &l->p->channels[r->sent]);
            continue;
        }
        if (r->death == 'U') {
            r->count = b->s->microbatches;
            continue;
        }
        int64_t count = 1;
        while (!enough(l, b, r, count)) count++;
        r->count = (int32_t)count;
    }
}

/* --- from letters to coded, shared orders --- */

static int32_t procedure_of(const struct stage_build *b, char letter)
{
    return letter == 'F'   ? b->procedure_f
           : letter == 'U' ? b->procedure_u
           : letter == 'W' ? b->procedure_w
                           : b->procedure_back;
}

static struct call *stage_calls(struct arena *a, const struct stage_build *b)
{
    struct call *calls = ARENA_ARRAY(a, struct call, (size_t)b->n_calls);
    int64_t last = 0; /* call that completes the gradients of the step */
    for (int64_t i = 0; i < b->n_calls; i++) {
        calls[i] = (struct call){procedure_of(b, b->letter[i]), b->microbatch[i], 0};
        if (b->letter[i] == part_letter(b, PART_WEIGHT)) last = i;
    }
    if (b->procedure_last >= 0) calls[last].procedure = b->procedure_last;
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

void lower_share_orders(struct lowering *l)
{
    struct program *p = l->p;
    p->orders = ARENA_ARRAY(l->a, struct order, (size_t)p->n_stages);
    for (int32_t k = 0; k < p->n_stages; k++) {
        struct stage_build *b = &l->stages[k];
        struct order *fresh = &p->orders[p->n_orders];
        order_code(l->a, stage_calls(l->a, b), b->n_calls, fresh);
        int32_t same = 0;
        while (!same_order(&p->orders[same], fresh)) same++;
        if (same == p->n_orders) p->n_orders++;
        p->lanes[b->index] = (struct lane){same, 1, ARENA_ARRAY(l->a, int32_t, 1)};
        p->lanes[b->index].stages[0] = b->index;
    }
}
