/* core/plan/orders.c - validation of a replica's orders and schedule.
 *
 * An order is a text of calls, "F0 F1 B0 …"; on a device with several stages each call names the chunk first, "0F0
 * 1F0 …". Every call must occur once and after its predecessors on the same stage; deadlocks between devices
 * are found by the token game. A schedule names all orders of a replica: stage i of the list is
 * the schedule's virtual stage i, so the devices must be listed as the schedule places them.
 */
#include "core/plan/internal.h"

#include "core/base/arena.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char separators[] = " \t\r\n,";

/* Pipelines are short; a table over the cluster for each of thousands of replicas would cost more than it finds. */
int32_t plan_lanes(struct arena *a, const struct plan_replica *r, struct plan_lane **out)
{
    int32_t n = 0, *lane = ARENA_ARRAY(a, int32_t, (size_t)r->n_stages);
    *out = ARENA_ARRAY(a, struct plan_lane, (size_t)r->n_stages);
    for (int32_t i = 0; i < r->n_stages; i++) {
        while (lane[i] < n && (*out)[lane[i]].device != r->stages[i].device) lane[i]++;
        if (lane[i] == n) (*out)[n++].device = r->stages[i].device;
        (*out)[lane[i]].n_stages++;
    }
    for (int32_t k = 0; k < n; k++) {
        (*out)[k].stages = ARENA_ARRAY(a, int32_t, (size_t)(*out)[k].n_stages);
        (*out)[k].n_stages = 0;
    }
    for (int32_t i = 0; i < r->n_stages; i++) {
        struct plan_lane *l = &(*out)[lane[i]];
        l->stages[l->n_stages++] = i;
    }
    return n;
}

/* A whole number, *t behind it; what int32 does not hold is its largest, which no plan has so many of. */
static bool take_number(const char **t, int32_t *out)
{
    char *end = NULL;
    long x = isdigit((unsigned char)**t) ? strtol(*t, &end, 10) : -1;
    if (x < 0) return false;
    *t = end;
    *out = x > INT32_MAX ? INT32_MAX : (int32_t)x;
    return true;
}

enum plan_word plan_next_call(const char **text, struct schedule_op *out)
{
    const char *t = *text += strspn(*text, separators);
    if (!*t) return PLAN_WORD_END;
    *out = (struct schedule_op){.chunk = -1};
    if (isdigit((unsigned char)*t) && !take_number(&t, &out->chunk)) return PLAN_WORD_BAD;
    if (!*t || !strchr("FBIW", *t)) return PLAN_WORD_BAD;
    out->phase = (enum phase) * t++;
    if (!take_number(&t, &out->microbatch) || (*t && !strchr(separators, *t))) return PLAN_WORD_BAD;
    *text = t;
    return PLAN_WORD_CALL;
}

/* --- one device's order --- */

/* Letters as bits: what has been called for a microbatch. */
enum { CALL_F = 1, CALL_B = 2, CALL_I = 4, CALL_W = 8 };

struct order_check {
    const struct plan_place *at;
    const char *key; /* of the text, for messages */
    int32_t n_chunks, microbatches;
    uint8_t *called; /* (n_chunks, microbatches) */
    char *backward;  /* (n_chunks): B, I or W, whichever came first; 0 none yet */
};

/* "1F3", or "F3" where there is one chunk. */
static const char *call_text(const struct order_check *c, enum phase phase, int32_t chunk,
                             int32_t m, char text[32])
{
    if (c->n_chunks > 1)
        snprintf(text, 32, "%" PRId32 "%c%" PRId32, chunk, phase, m);
    else
        snprintf(text, 32, "%c%" PRId32, phase, m);
    return text;
}

static enum status note_call(const struct order_check *c, const struct schedule_op *x)
{
    int bit = x->phase == PHASE_F   ? CALL_F
              : x->phase == PHASE_B ? CALL_B
              : x->phase == PHASE_I ? CALL_I
                                    : CALL_W;
    char needs = x->phase == PHASE_W ? 'I' : 'F', this[32], that[32];
    uint8_t *called =
        &c->called[(size_t)x->chunk * (size_t)c->microbatches + (size_t)x->microbatch];
    char *backward = &c->backward[x->chunk];
    bool twice = *called & bit, early = !(*called & (needs == 'F' ? CALL_F : CALL_I));
    if (x->phase != PHASE_F && !*backward) *backward = x->phase;
    bool mixed = x->phase != PHASE_F && (x->phase == PHASE_B) != (*backward == 'B');
    if (!twice && !mixed && (x->phase == PHASE_F || !early)) {
        *called |= (uint8_t)bit;
        return OK;
    }
    call_text(c, x->phase, x->chunk, x->microbatch, this);
    call_text(c, needs, x->chunk, x->microbatch, that);
    if (twice) return plan_complain(c->at, "%s: %s occurs twice", c->key, this);
    if (mixed)
        return plan_complain(c->at, "%s: %s in an order with %c: a stage has either B or I and W",
                             c->key, this, *backward);
    return plan_complain(c->at, "%s: %s comes before %s; it needs %s before %s", c->key, this,
                         that, that, this);
}

/* Checks chunk and microbatch; the chunk is required if there are several. */
static enum status check_call(const struct order_check *c, struct schedule_op *x, const char *word,
                              const char *next)
{
    int length = next - word > 20 ? 20 : (int)(next - word);
    if (c->n_chunks == 1 && x->chunk >= 0)
        return plan_complain(c->at, "%s: '%.*s': the device has one stage, so calls have no chunk",
                             c->key, length, word);
    if (c->n_chunks > 1 && (x->chunk < 0 || x->chunk >= c->n_chunks))
        return plan_complain(c->at,
                             "%s: '%.*s': the device has %" PRId32
                             " stages, so a chunk from 0 to %" PRId32 " must precede the letter",
                             c->key, length, word, c->n_chunks, c->n_chunks - 1);
    if (x->microbatch >= c->microbatches)
        return plan_complain(c->at, "%s: '%.*s': this replica has microbatches 0 to %" PRId32,
                             c->key, length, word, c->microbatches - 1);
    if (x->chunk < 0) x->chunk = 0;
    return OK;
}

static enum status check_missing(const struct order_check *c)
{
    char text[32];
    for (int32_t k = 0; k < c->n_chunks; k++) {
        bool split = c->backward[k] == 'I' || c->backward[k] == 'W';
        for (int32_t m = 0; m < c->microbatches; m++) {
            uint8_t called = c->called[(size_t)k * (size_t)c->microbatches + (size_t)m];
            enum phase phase = !(called & CALL_F)             ? 'F'
                               : !split && !(called & CALL_B) ? 'B'
                               : split && !(called & CALL_I)  ? 'I'
                               : split && !(called & CALL_W)  ? 'W'
                                                              : 0;
            if (phase)
                return plan_complain(c->at, "%s: %s is missing", c->key,
                                     call_text(c, phase, k, m, text));
        }
    }
    return OK;
}

static enum status check_order(struct arena *a, const struct plan_place *at, const char *key,
                               const char *order, int32_t n_chunks, int32_t microbatches)
{
    size_t n = (size_t)n_chunks;
    struct order_check c = {at, key, n_chunks, microbatches, NULL, ARENA_ARRAY(a, char, n)};
    c.called = ARENA_ARRAY(a, uint8_t, n * (size_t)microbatches);
    struct schedule_op x;
    for (;;) {
        const char *word = order + strspn(order, separators);
        size_t length = strcspn(word, separators);
        enum plan_word w = plan_next_call(&order, &x);
        if (w == PLAN_WORD_END) return check_missing(&c);
        if (w == PLAN_WORD_BAD)
            return plan_complain(
                at, "%s: '%.*s' is not %sF, B, I or W and the number of a microbatch", key,
                (int)(length > 20 ? 20 : length), word, n_chunks > 1 ? "a chunk, " : "");
        TRY(check_call(&c, &x, word, order));
        TRY(note_call(&c, &x));
    }
}

/* --- a replica's --- */

static enum status check_stage(struct arena *a, const struct plan_place *at,
                               const struct plan_replica *r, const struct plan_stage *s)
{
    if (s->warmup < 0 || s->warmup > r->microbatches)
        return plan_complain(at,
                             "warmup: %" PRId32 ", but the replica has %" PRId32 " microbatches",
                             s->warmup, r->microbatches);
    if ((r->schedule || r->orders) && (s->warmup || s->order))
        return plan_complain(at, "%s: excluded by the replica's %s", s->order ? "order" : "warmup",
                             r->schedule ? "schedule" : "orders");
    return s->order ? check_order(a, at, "order", s->order, 1, r->microbatches) : OK;
}

static enum status check_devices_orders(struct arena *a, const struct plan_place *at,
                                        const struct plan_replica *r)
{
    struct plan_lane *lanes;
    int32_t n = plan_lanes(a, r, &lanes);
    for (int32_t i = 0; i < n; i++) {
        const char *name = at->p->cluster.devices[lanes[i].device].name;
        const char *order = r->orders[lanes[i].stages[0]];
        if (!order) return plan_complain(at, "orders: that of %s is missing", name);
        TRY(check_order(a, at, arena_printf(a, "orders.%s", name), order, lanes[i].n_stages,
                        r->microbatches));
    }
    return OK;
}

/* "a.0 b.0 b.0 a.0": the devices of the stages as the schedule requires. */
static const char *wanted_text(struct arena *a, const struct plan *p, const struct schedule *s,
                               const struct plan_lane *lanes)
{
    int32_t n = s->n_devices * s->n_chunks, *device = ARENA_ARRAY(a, int32_t, (size_t)n);
    const char *text = "";
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t c = 0; c < s->n_chunks; c++)
            device[s->stage[d * s->n_chunks + c]] = lanes[d].device;
    for (int32_t i = 0; i < n && strlen(text) < 200; i++)
        text = arena_printf(a, "%s%s%s", text, i ? " " : "", p->cluster.devices[device[i]].name);
    return text;
}

enum status plan_schedule(struct arena *a, const struct plan_place *at, struct schedule *out)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    struct plan_lane *lanes;
    struct error why = {0};
    struct schedule_spec spec = {.n_devices = plan_lanes(a, r, &lanes),
                                 .n_microbatches = r->microbatches,
                                 .split = r->split};
    spec.n_chunks = lanes[0].n_stages;
    for (int32_t d = 1; d < spec.n_devices; d++)
        if (lanes[d].n_stages != spec.n_chunks)
            return plan_complain(at,
                                 "schedule: %s has %" PRId32 " stages, %s has %" PRId32
                                 "; a schedule needs equally many on each device",
                                 at->p->cluster.devices[lanes[0].device].name, spec.n_chunks,
                                 at->p->cluster.devices[lanes[d].device].name, lanes[d].n_stages);
    if (schedule_kind_parse(r->schedule, &spec.kind, &why) != OK ||
        schedule_make(a, &spec, out, &why) != OK)
        return plan_complain(at, "schedule: %s", why.text);
    for (int32_t d = 0; d < spec.n_devices; d++)
        for (int32_t c = 0; c < spec.n_chunks; c++)
            if (out->stage[d * spec.n_chunks + c] != lanes[d].stages[c])
                return plan_complain(at, "schedule: %s needs the stages on %s", r->schedule,
                                     wanted_text(a, at->p, out, lanes));
    return OK;
}

enum status plan_check_orders(struct arena *a, struct plan_place *at)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    struct schedule ignored;
    for (int32_t i = 0; i < r->n_stages; i++) {
        at->stage = i;
        TRY(check_stage(a, at, r, &r->stages[i]));
    }
    at->stage = -1;
    if (r->schedule && r->orders)
        return plan_complain(at, "schedule: a replica has either `schedule` or `orders`, not both");
    if (r->split && !r->schedule)
        return plan_complain(at, "split: needs a schedule");
    if (r->schedule) return plan_schedule(a, at, &ignored);
    return r->orders ? check_devices_orders(a, at, r) : OK;
}
