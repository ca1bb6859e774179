#include "core/program/offload.h"

#include "core/base/arena.h"
#include "core/base/units.h"

void offload_restart(const struct program_stage *s, struct offload_state *x)
{
    struct offload_state was = *x;
    *x = (struct offload_state){.count = s->offload.count,
                                .parts = was.parts,
                                .out_count = s->buffer_rings[s->offload.out].count,
                                .in_count = s->buffer_rings[s->offload.in].count,
                                .offloaded = was.offloaded,
                                .fetching = was.fetching,
                                .consumed = was.consumed,
                                .out_ns = was.out_ns,
                                .in_ns = was.in_ns,
                                .last = {-1, -1},
                                .free = {true, true},
                                .next_part = was.parts - 1};
    for (int64_t i = 0; i < (int64_t)x->count * x->parts; i++) x->offloaded[i] = x->fetching[i] = x->consumed[i] = -1;
}

void offload_start(struct arena *a, const struct program_stage *s, struct offload_state *out)
{
    int32_t parts = offload_parts(s);
    size_t n = (size_t)s->offload.count * (size_t)parts;
    *out = (struct offload_state){.parts = parts,
                                  .offloaded = ARENA_ARRAY(a, int64_t, n),
                                  .fetching = ARENA_ARRAY(a, int64_t, n),
                                  .consumed = ARENA_ARRAY(a, int64_t, n),
                                  .out_ns = ARENA_ARRAY(a, int64_t, n),
                                  .in_ns = ARENA_ARRAY(a, int64_t, n)};
    offload_restart(s, out);
}

int64_t offload_place(const struct offload_state *x, int64_t seq, int32_t part) { return seq % x->count * x->parts + part; }

int64_t offload_before(const struct offload_state *x, int64_t seq, int32_t part)
{
    if (x->parts > 1) return x->last[part % OFFLOAD_HALVES];
    return seq < x->out_count ? -1 : offload_place(x, seq - x->out_count, 0);
}

int64_t offload_room(const struct offload_state *x, int64_t seq, int32_t part)
{
    int64_t place = offload_before(x, seq, part);
    return place < 0 ? 0 : x->out_ns[place];
}

static void start_back(struct offload_state *x, struct offload_streams *s, int64_t seq, int32_t part, int64_t now_ns, int64_t ns,
                       struct offload_copies *out)
{
    int64_t place = offload_place(x, seq, part), begin_ns = units_max(units_max(now_ns, x->out_ns[place]), s->in_ns);
    x->fetching[place] = seq;
    x->in_ns[place] = s->in_ns = begin_ns + ns;
    out->at[out->n++] = (struct offload_copy){seq, part, begin_ns, begin_ns + ns};
}

/* Several parts: the next ones in the backward's order whose halves are free. */
static void start_next(struct offload_state *x, struct offload_streams *s, int64_t now_ns, int64_t ns, struct offload_copies *out)
{
    while (x->offloaded[offload_place(x, x->next_seq, x->next_part)] == x->next_seq && x->free[x->next_part % OFFLOAD_HALVES]) {
        x->free[x->next_part % OFFLOAD_HALVES] = false;
        start_back(x, s, x->next_seq, x->next_part, now_ns, ns, out);
        if (x->next_part--) continue;
        x->next_seq++, x->next_part = x->parts - 1;
    }
}

struct offload_copy offload_out(struct offload_state *x, struct offload_streams *s, int64_t seq, int32_t part, int64_t now_ns, int64_t ns,
                                struct offload_copies *back)
{
    int64_t place = offload_place(x, seq, part), before = seq - x->in_count, begin_ns = units_max(now_ns, s->out_ns);
    x->offloaded[place] = seq;
    x->out_ns[place] = s->out_ns = begin_ns + ns;
    x->last[part % OFFLOAD_HALVES] = place;
    back->n = 0;
    if (x->parts > 1)
        start_next(x, s, now_ns, ns, back);
    else if (before < 0 || x->consumed[offload_place(x, before, 0)] == before)
        start_back(x, s, seq, 0, now_ns, ns, back);
    return (struct offload_copy){seq, part, begin_ns, begin_ns + ns};
}

int64_t offload_arrival(const struct offload_state *x, int64_t seq, int32_t part)
{
    int64_t place = offload_place(x, seq, part);
    return x->fetching[place] == seq ? x->in_ns[place] : -1;
}

struct offload_copies offload_fetched(struct offload_state *x, struct offload_streams *s, int64_t seq, int32_t part, int64_t now_ns,
                                      int64_t ns)
{
    struct offload_copies out = {0};
    if (part + 1 >= x->parts) return out;
    x->consumed[offload_place(x, seq, part + 1)] = seq;
    x->free[(part + 1) % OFFLOAD_HALVES] = true;
    start_next(x, s, now_ns, ns, &out);
    return out;
}

struct offload_copies offload_consumed(struct offload_state *x, struct offload_streams *s, int64_t seq, int64_t now_ns, int64_t ns)
{
    struct offload_copies out = {0};
    int64_t next = seq + x->in_count;
    x->consumed[offload_place(x, seq, 0)] = seq;
    if (x->parts > 1) {
        x->free[0] = true;
        start_next(x, s, now_ns, ns, &out);
    } else if (x->offloaded[offload_place(x, next, 0)] == next) {
        start_back(x, s, next, 0, now_ns, ns, &out);
    }
    return out;
}

bool offload_overwrites(const struct offload_state *x, int64_t seq, int32_t part, int64_t *held)
{
    int64_t place = offload_place(x, seq, part);
    *held = x->offloaded[place];
    return *held >= 0 && x->consumed[place] != *held;
}

bool offload_has(const struct procedure *f, enum instr_kind kind)
{
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind == kind) return true;
    return false;
}

bool offload_consumes(const struct procedure *f) { return f->phase != PHASE_I && offload_has(f, INSTR_FETCH); }

int32_t offload_parts(const struct program_stage *s)
{
    int32_t parts = 1;
    for (int32_t i = 0; s->offload.count && i < s->n_procedures; i++)
        for (int32_t k = 0; s->procedures[i].phase == PHASE_F && k < s->procedures[i].n_instrs; k++) {
            const struct instr *x = &s->procedures[i].instrs[k];
            if (x->kind == INSTR_OFFLOAD && x->arg >= parts) parts = x->arg + 1;
        }
    return parts;
}

int64_t offload_bytes(const struct program_stage *s)
{
    if (!s->offload.count) return 0;
    int64_t stride = s->buffer_rings[s->offload.out].stride_bytes;
    return offload_parts(s) > 1 ? stride / OFFLOAD_HALVES : stride;
}

int64_t offload_host_bytes(const struct program_stage *s) { return (int64_t)s->offload.count * offload_parts(s) * offload_bytes(s); }

int64_t offload_ring_bytes(const struct program_stage *s)
{
    const struct buffer_ring *r = s->buffer_rings;
    if (!s->offload.count) return 0;
    return r[s->offload.out].stride_bytes * (r[s->offload.out].count + r[s->offload.in].count);
}

int64_t offload_offset(const struct program_stage *s, int32_t ring, int32_t parts, int64_t seq, int32_t part)
{
    const struct buffer_ring *r = &s->buffer_rings[ring];
    return parts > 1 ? part % OFFLOAD_HALVES * (r->stride_bytes / OFFLOAD_HALVES) : buffer_ring_at(r, seq) * r->stride_bytes;
}
