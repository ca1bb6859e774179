/* Memory of the fullest device at its peak: resident memory, and the live buffers of each buffer ring.
 * Live buffers are counted as in sim/engine/code.c: allocations minus releases until the peak's instant. */
#include "sim/explain/internal.h"

#include "core/base/arena.h"
#include "core/program/offload.h"

#include <stdlib.h>
#include <string.h>

/* Bytes allocated (or released) by one call of this phase. */
static int64_t call_bytes(const struct program_stage *s, enum phase phase, bool deaths)
{
    int64_t bytes = 0;
    for (int32_t r = 0; r < s->n_buffer_rings; r++)
        if ((deaths ? s->buffer_rings[r].death : s->buffer_rings[r].birth) == phase)
            bytes += s->buffer_rings[r].stride_bytes *
                     (deaths && phase == PHASE_U ? s->microbatches : 1);
    return bytes;
}

void explain_memory_start(struct explanation *t)
{
    const struct program *p = t->program;
    bool *joins = ARENA_ARRAY(t->arena, bool, (size_t)p->n_devices);
    int64_t *always = ARENA_ARRAY(t->arena, int64_t, (size_t)p->n_devices);
    t->alive = ARENA_ARRAY(t->arena, int64_t, 2 * 256 * (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_devices; i++) always[i] = program_lane_bytes(p, i);
    for (int32_t i = 0; i < p->n_stages; i++) {
        const struct program_stage *s = &p->stages[i];
        int32_t lane = t->lane_of_stage[i];
        always[lane] -= s->class_bytes[SLOT_BUFFER_RING] - offload_ring_bytes(s);
        for (int32_t r = 0; r < s->n_buffer_rings; r++) {
            const struct buffer_ring *g = &s->buffer_rings[r];
            bool message = (g->birth == PHASE_RECEIVE && g->received >= 0) ||
                           (g->death == PHASE_SEND && g->sent >= 0);
            joins[lane] |= message && g->stride_bytes;
        }
    }
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (joins[i]) continue;
        t->lanes[i].live = ARENA_ARRAY(t->arena, struct explain_live, 1);
        t->lanes[i].live->peak_bytes = t->result->devices[i].peak_bytes - always[i];
    }
}

/* Changes after the peak are ignored. */
static bool counts(const struct explanation *t, int32_t lane, int64_t now_ns)
{
    const struct explain_live *l = t->lanes[lane].live;
    return l ? l->bytes < l->peak_bytes : now_ns <= t->result->devices[lane].peak_ns;
}

void explain_born(struct explanation *t, int32_t lane, int32_t stage, enum phase phase,
                  int64_t now_ns)
{
    if (!counts(t, lane, now_ns)) return;
    struct explain_live *l = t->lanes[lane].live;
    if (l) l->bytes += call_bytes(&t->program->stages[stage], phase, false);
    t->alive[256 * stage + (unsigned char)phase]++;
}

void explain_dead(struct explanation *t, int32_t lane, int32_t stage, enum phase phase,
                  int64_t now_ns)
{
    if (!counts(t, lane, now_ns)) return;
    struct explain_live *l = t->lanes[lane].live;
    if (l) l->bytes -= call_bytes(&t->program->stages[stage], phase, true);
    t->alive[256 * (t->program->n_stages + stage) + (unsigned char)phase]++;
}

static void hold(const struct explanation *t, struct explain *x, size_t *capacity, const char *name,
                 int64_t buffers, int64_t bytes)
{
    if (!bytes) return;
    x->memory_breakdown = arena_grow(t->arena, x->memory_breakdown, x->n_memory_breakdown, capacity,
                                     sizeof *x->memory_breakdown);
    x->memory_breakdown[x->n_memory_breakdown++] = (struct explain_memory){name, buffers, bytes};
}

static int64_t messages_until(const struct explained_channel *c, int64_t when_ns, bool left)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_messages; i++) {
        int64_t at = left ? c->messages[i].left_ns : c->messages[i].start_ns;
        n += at >= 0 && at <= when_ns;
    }
    return n;
}

/* Allocations or releases of buffer ring r until the peak. */
static int64_t count(const struct explanation *t, int32_t stage, const struct buffer_ring *r,
                     bool deaths, int64_t when_ns)
{
    int32_t row = deaths ? t->program->n_stages + stage : stage;
    enum phase phase = deaths ? r->death : r->birth;
    if (phase == PHASE_HOST) return deaths ? 0 : r->count; /* at all times */
    int32_t channel = deaths ? r->sent : r->received;
    if (phase == (deaths ? 'S' : 'R'))
        return channel < 0 ? 0 : messages_until(&t->channels[channel], when_ns, deaths);
    int64_t n = t->alive[256 * row + (unsigned char)phase];
    return deaths && phase == PHASE_U ? n * t->program->stages[stage].microbatches : n;
}

static const char *buffer_ring_name(const struct program_stage *s, int32_t buffer_ring)
{
    const struct slot *best = NULL;
    for (int32_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].buffer_ring == buffer_ring && (!best || s->slots[i].bytes > best->bytes))
            best = &s->slots[i];
    return best ? best->name : "buffer ring";
}

static void hold_stage(const struct explanation *t, struct explain *x, int32_t stage,
                       int64_t when_ns, size_t *capacity)
{
    static const char *const names[SLOT_CLASS_COUNT] = {"parameters", "gradients",
                                                        "optimizer state", "compression feedback", "", "scratch"};
    const struct program_stage *s = &t->program->stages[stage];
    for (int32_t c = 0; c < SLOT_CLASS_COUNT; c++)
        if (c != SLOT_BUFFER_RING) hold(t, x, capacity, names[c], 1, program_class_bytes(s, c));
    hold(t, x, capacity, "collective buffers", 1, program_class_bytes(s, SLOT_CLASS_COUNT));
    for (int32_t r = 0; r < s->n_buffer_rings; r++) {
        int64_t alive = count(t, stage, &s->buffer_rings[r], false, when_ns) -
                        count(t, stage, &s->buffer_rings[r], true, when_ns);
        hold(t, x, capacity, buffer_ring_name(s, r), alive,
             alive * s->buffer_rings[r].stride_bytes);
    }
}

static int by_size(const void *a, const void *b)
{
    const struct explain_memory *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static double fullness(const struct explanation *t, int32_t device)
{
    int64_t memory = t->program->devices[device].memory_bytes;
    return (double)t->result->devices[device].peak_bytes / (memory > 0 ? (double)memory : 1);
}

void explain_memory(const struct explanation *t, struct explain *x)
{
    size_t capacity = 0;
    for (int32_t i = 1; i < t->program->n_devices; i++)
        if (fullness(t, i) > fullness(t, x->fullest)) x->fullest = i;
    for (int32_t s = 0; s < t->program->n_stages; s++)
        if (t->lane_of_stage[s] == x->fullest)
            hold_stage(t, x, s, t->result->devices[x->fullest].peak_ns, &capacity);
    const struct lane *lane = &t->program->lanes[x->fullest];
    if (lane->n_stages)
        hold(t, x, &capacity, "reserve", 1, t->program->stages[lane->stages[0]].reserve_bytes);
    if (x->n_memory_breakdown)
        qsort(x->memory_breakdown, x->n_memory_breakdown, sizeof *x->memory_breakdown, by_size);
}
