#include "sim/explain/live.h"

#include "core/base/arena.h"
#include "core/base/sorted.h"
#include "core/program/offload.h"

#include <stdlib.h>
#include <string.h>

const char *live_class_name(enum live_class c)
{
    static const char *const names[] = {
#define X(name, text) text,
        LIVE_CLASSES(X)
#undef X
    };
    return names[c];
}

struct change {
    int64_t at_ns, bytes;
    bool message;
};
struct changes {
    struct arena *arena;
    size_t n, capacity;
    struct change *items;
};

static void add(struct changes *c, int64_t at_ns, int64_t bytes, bool message)
{
    if (!bytes) return;
    c->items = arena_grow(c->arena, c->items, c->n, &c->capacity, sizeof *c->items);
    c->items[c->n++] = (struct change){at_ns, bytes, message};
}

/* Ascending numbers that occur: stages or channels of one device, as the trace numbers them. */
struct numbers {
    int32_t n;
    size_t capacity;
    int32_t *items;
};

static int32_t place(const struct numbers *x, int32_t number)
{
    return sorted_place(x->items, x->n, number);
}

static void note(struct arena *a, struct numbers *x, int32_t number)
{
    int32_t at = place(x, number);
    if (at < x->n && x->items[at] == number) return;
    x->items = arena_grow(a, x->items, (size_t)x->n, &x->capacity, sizeof *x->items);
    memmove(&x->items[at + 1], &x->items[at], (size_t)(x->n - at) * sizeof *x->items);
    x->items[at] = number;
    x->n++;
}

/* One device of the trace and its lane in the program. */
struct view {
    const struct program *program;
    const struct lane *lane;
    const struct span *spans;
    size_t n;
    struct numbers stages, sent, received; /* in the trace */
    struct numbers sends, receives;        /* channels of the program's lane */
    struct numbers inside;                 /* those from one of its stages to another */
};

static enum status look(struct arena *a, const struct program *p, const struct trace *t,
                        int32_t device, struct view *v, struct error *err)
{
    const char *name = t->devices[device].name;
    int32_t lane = 0;
    *v = (struct view){.program = p};
    while (lane < p->n_devices && strcmp(p->devices[lane].name, name) != 0) lane++;
    if (lane == p->n_devices)
        return error_set(err, ERR_INPUT, "the trace's device %.80s is not in its plan", name);
    v->lane = &p->lanes[lane];
    size_t low = 0, high = t->n_spans;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->spans[middle].device < device)
            low = middle + 1;
        else
            high = middle;
    }
    v->spans = t->spans + low;
    while (low + v->n < t->n_spans && v->spans[v->n].device == device) v->n++;
    for (size_t i = 0; i < v->n; i++) {
        const struct span *s = &v->spans[i];
        if (s->kind == SPAN_COMPUTE) note(a, &v->stages, s->stage);
        if (s->kind == SPAN_SEND) note(a, &v->sent, s->op);
        if (s->kind == SPAN_RECEIVE) note(a, &v->received, s->op);
    }
    if (v->stages.n > v->lane->n_stages)
        return error_set(err, ERR_INPUT,
                         "device %.80s has %d stages in the trace and %d in its plan", name,
                         (int)v->stages.n, (int)v->lane->n_stages);
    for (int32_t i = 0; i < p->n_channels; i++)
        for (int32_t k = 0; k < v->lane->n_stages; k++) {
            const struct channel *x = &p->channels[i];
            if (x->from_stage == v->lane->stages[k])
                note(a, x->link >= 0 ? &v->sends : &v->inside, i);
            if (x->to_stage == v->lane->stages[k] && x->link >= 0) note(a, &v->receives, i);
        }
    return OK;
}

static const struct program_stage *stage_of(const struct view *v, int32_t stage)
{
    return &v->program->stages[v->lane->stages[place(&v->stages, stage)]];
}

/* The program's channel of a message's span; -1: not the device's. */
static int32_t channel_of(const struct numbers *seen, const struct numbers *own, int32_t channel)
{
    return seen->n == own->n ? own->items[place(seen, channel)] : -1;
}

static bool is_message(const struct buffer_ring *r) { return r->sent >= 0 || r->received >= 0; }

static bool sends(const struct program_stage *s, enum phase phase, int32_t channel)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; s->procedures[i].phase == phase && k < s->procedures[i].n_instrs; k++) {
            const struct instr *x = &s->procedures[i].instrs[k];
            if (x->kind == INSTR_SEND && x->arg == channel) return true;
        }
    return false;
}

/* Messages inside the device have no spans: they pass when the sender's call ends. */
static void add_inside(struct changes *c, const struct view *v, const struct program_stage *from,
                       enum phase phase, int64_t end_ns)
{
    for (int32_t i = 0; i < v->inside.n; i++) {
        const struct channel *x = &v->program->channels[v->inside.items[i]];
        const struct program_stage *to = &v->program->stages[x->to_stage];
        if (&v->program->stages[x->from_stage] != from || !sends(from, phase, v->inside.items[i]))
            continue;
        for (int32_t r = 0; r < from->n_buffer_rings; r++)
            if (from->buffer_rings[r].death == PHASE_SEND &&
                from->buffer_rings[r].sent == v->inside.items[i])
                add(c, end_ns, -from->buffer_rings[r].stride_bytes, true);
        for (int32_t r = 0; r < to->n_buffer_rings; r++)
            if (to->buffer_rings[r].birth == PHASE_RECEIVE &&
                to->buffer_rings[r].received == v->inside.items[i])
                add(c, end_ns, to->buffer_rings[r].stride_bytes, true);
    }
}

static void add_call(struct changes *c, const struct view *v, const struct span *s, int64_t end_ns)
{
    const struct program_stage *stage = stage_of(v, s->stage);
    for (int32_t i = 0; i < stage->n_buffer_rings; i++) {
        const struct buffer_ring *r = &stage->buffer_rings[i];
        if (r->birth == s->phase) add(c, s->begin_ns, r->stride_bytes, is_message(r));
        if (r->death == s->phase)
            add(c, end_ns, -r->stride_bytes * (s->phase == PHASE_U ? stage->microbatches : 1),
                is_message(r));
    }
    add_inside(c, v, stage, s->phase, end_ns);
}

static void add_message(struct changes *c, const struct view *v, const struct span *s)
{
    bool sent = s->kind == SPAN_SEND;
    int32_t channel = sent ? channel_of(&v->sent, &v->sends, s->op)
                           : channel_of(&v->received, &v->receives, s->op);
    if (channel < 0) return;
    const struct channel *x = &v->program->channels[channel];
    const struct program_stage *stage = &v->program->stages[sent ? x->from_stage : x->to_stage];
    for (int32_t i = 0; i < stage->n_buffer_rings; i++) {
        const struct buffer_ring *r = &stage->buffer_rings[i];
        if (sent && r->death == PHASE_SEND && r->sent == channel)
            add(c, s->end_ns, -r->stride_bytes, true);
        if (!sent && r->birth == PHASE_RECEIVE && r->received == channel)
            add(c, s->begin_ns, r->stride_bytes, true);
    }
}

static bool same_call(const struct span *x, const struct span *y)
{
    return x->stage == y->stage && x->phase == y->phase && x->step == y->step &&
           x->microbatch == y->microbatch;
}

static void add_step(struct changes *c, const struct view *v, int32_t step)
{
    const struct span *open = NULL;
    int64_t end_ns = 0;
    for (size_t i = 0; i < v->n; i++) {
        const struct span *s = &v->spans[i];
        if (s->step != step) continue;
        if (s->kind == SPAN_SEND || s->kind == SPAN_RECEIVE) add_message(c, v, s);
        if (s->kind != SPAN_COMPUTE) continue;
        if (open && !same_call(open, s)) add_call(c, v, open, end_ns);
        if (!open || !same_call(open, s)) open = s;
        end_ns = s->end_ns;
    }
    if (open) add_call(c, v, open, end_ns);
}

/* Releases first, as buffers are reused at one instant. */
static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
    if ((x->bytes < 0) != (y->bytes < 0)) return x->bytes < 0 ? -1 : 1;
    return 0;
}

/* Repeats the changes with the period of the step. A change at q periods and r has happened -q times more often at 0 than one at r;
 * what a step allocates it releases, so these counts add up to the level. */
static void wrap(struct arena *a, struct changes *c, int64_t begin_ns, int64_t period_ns,
                 struct live *out)
{
    struct live_point now = {0};
    for (size_t i = 0; i < c->n; i++) {
        struct change *x = &c->items[i];
        int64_t at = x->at_ns - begin_ns, periods = at / period_ns;
        if (at % period_ns < 0) periods--;
        x->at_ns = at - periods * period_ns;
        *(x->message ? &now.messages : &now.activations) -= periods * x->bytes;
    }
    /* a change at r has not happened at 0 */
    if (c->n) qsort(c->items, c->n, sizeof *c->items, by_time);
    out->points = ARENA_ARRAY(a, struct live_point, c->n + 1);
    out->points[out->n++] = now;
    for (size_t i = 0; i < c->n; i++) {
        const struct change *x = &c->items[i];
        *(x->message ? &now.messages : &now.activations) += x->bytes;
        now.at_ns = x->at_ns;
        if (out->points[out->n - 1].at_ns == now.at_ns)
            out->points[out->n - 1] = now;
        else
            out->points[out->n++] = now;
    }
}

static void add_resident(const struct view *v, struct live *out)
{
    static const enum live_class of[SLOT_CLASS_COUNT] = {[SLOT_PARAMETER] = LIVE_parameters,
                                                         [SLOT_GRADIENT] = LIVE_gradients,
                                                         [SLOT_STATE] = LIVE_state,
                                                         [SLOT_FEEDBACK] = LIVE_feedback,
                                                         [SLOT_SCRATCH] = LIVE_scratch};
    int64_t known = 0, rings = 0;
    for (int32_t k = 0; k < v->lane->n_stages; k++) {
        const struct program_stage *s = &v->program->stages[v->lane->stages[k]];
        for (int32_t c = 0; c < SLOT_CLASS_COUNT; c++)
            if (c != SLOT_BUFFER_RING) out->bytes[of[c]] += program_class_bytes(s, c);
        out->bytes[LIVE_staging] += program_class_bytes(s, SLOT_CLASS_COUNT);
        rings += program_class_bytes(s, SLOT_BUFFER_RING);
    }
    for (int c = 0; c < LIVE_CLASS_COUNT; c++) known += out->bytes[c];
    int32_t lane = (int32_t)(v->lane - v->program->lanes);
    out->bytes[LIVE_reserve] = program_lane_bytes(v->program, lane) - rings - known;
    out->memory_bytes = v->program->devices[lane].memory_bytes;
}

enum status live_memory(struct arena *a, const struct program *p, const struct trace *t,
                        int32_t device, int32_t step, int64_t begin_ns, int64_t end_ns,
                        struct live *out, struct error *err)
{
    struct view v;
    struct changes c = {.arena = a};
    int64_t resident = 0;
    *out = (struct live){0};
    TRY(look(a, p, t, device, &v, err));
    add_resident(&v, out);
    add_step(&c, &v, step);
    wrap(a, &c, begin_ns, end_ns > begin_ns ? end_ns - begin_ns : 1, out);
    for (int32_t k = 0; k < v.lane->n_stages; k++)
        for (size_t i = 0; i < out->n; i++) out->points[i].activations += offload_ring_bytes(&p->stages[v.lane->stages[k]]);
    for (int k = 0; k < LIVE_CLASS_COUNT; k++) resident += out->bytes[k];
    for (size_t i = 0; i < out->n; i++) {
        int64_t bytes = resident + out->points[i].messages + out->points[i].activations;
        if (bytes > out->peak_bytes) out->peak_bytes = bytes;
    }
    return OK;
}

void live_thin(struct live *x, size_t most)
{
    size_t kept = 0, n = x->n, bins = most / 2;
    if (n <= most || !bins) return;
    const int64_t end_ns = x->points[n - 1].at_ns + 1;
    for (size_t i = 0; i < n;) {
        /* the interval of equal length that the point is in, up to `until` */
        int64_t bin = (int64_t)((double)x->points[i].at_ns / (double)end_ns * (double)bins);
        int64_t until = (int64_t)((double)(bin + 1) * (double)end_ns / (double)bins);
        struct live_point first = x->points[i], last = first;
        for (i++; i < n && x->points[i].at_ns < until; i++) {
            last = x->points[i];
            if (last.messages + last.activations <= first.messages + first.activations) continue;
            first.messages = last.messages, first.activations = last.activations;
        }
        x->points[kept++] = first;
        if (last.at_ns > first.at_ns) x->points[kept++] = last;
    }
    x->n = kept;
}
