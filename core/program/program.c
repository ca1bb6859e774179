/* core/program/program.c - accessors of a program, and coding of orders.
 *
 * Orders are coded greedily: at each position the repeated body that covers most calls is taken; calls
 * without repetition form a run of their own. 1F1B becomes "F × w, (B F) × …, B × …, B U"
 * for any number of microbatches. Longest common substrings would compress slightly better, at a
 * cost above the gain.
 */
#include "core/program/program.h"

#include "core/base/arena.h"
#include "core/program/offload.h"

#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 64 }; /* calls; schedules of today repeat after 2 to 12 */

void cursor_start(struct cursor *c, const struct order *o) { *c = (struct cursor){.order = o}; }

bool cursor_next(struct cursor *c, struct call *out)
{
    while (c->run < c->order->n_runs) {
        const struct order_run *r = &c->order->runs[c->run];
        if (c->call == r->n_calls) c->call = 0, c->repetition++;
        if (c->repetition >= r->repeat || !r->n_calls) {
            c->run++, c->repetition = 0, c->call = 0;
            continue;
        }
        *out = r->calls[c->call++];
        if (out->microbatch >= 0) out->microbatch += c->repetition;
        return true;
    }
    return false;
}

/* How often the body of `length` calls at calls[0] repeats, microbatches moving on by one. U
 * repeats nothing. */
static int64_t repetitions(const struct call *calls, int64_t n, int64_t length)
{
    int64_t same = 0; /* calls that equal the one a body earlier, moved on */
    while (same + length < n) {
        const struct call *a = &calls[same], *b = &calls[same + length];
        if (a->microbatch < 0 || a->procedure != b->procedure || a->chunk != b->chunk ||
            a->microbatch + 1 != b->microbatch)
            break;
        same++;
    }
    for (int64_t i = 0; i < length; i++)
        if (calls[i].microbatch < 0) return 1;
    return 1 + same / length;
}

static int64_t best_body(const struct call *calls, int64_t n, int64_t *repeat)
{
    int64_t best = 0, covered = 0;
    *repeat = 1;
    for (int64_t length = 1; length <= BODY_MAX && 2 * length <= n; length++) {
        int64_t r = repetitions(calls, n, length);
        if (r < 2 || r * length <= covered) continue;
        best = length, covered = r * length, *repeat = r;
        if (covered == n) break;
    }
    return best;
}

struct coder {
    struct arena *a;
    struct order *out;
    size_t capacity;
};

static void add_run(struct coder *c, const struct call *calls, int64_t n, int64_t repeat)
{
    if (!n) return;
    struct order *o = c->out;
    o->runs = arena_grow(c->a, o->runs, (size_t)o->n_runs, &c->capacity, sizeof *o->runs);
    struct order_run *r = &o->runs[o->n_runs++];
    *r = (struct order_run){(int32_t)repeat, (int32_t)n, ARENA_ARRAY(c->a, struct call, (size_t)n)};
    memcpy(r->calls, calls, (size_t)n * sizeof *calls);
    o->n_calls += n * repeat;
}

void order_code(struct arena *a, const struct call *calls, int64_t n, struct order *out)
{
    struct coder c = {a, out, 0};
    *out = (struct order){0};
    int64_t loose = 0; /* first call not yet in a run */
    for (int64_t i = 0; i < n;) {
        int64_t repeat, length = best_body(calls + i, n - i, &repeat);
        if (!length) {
            i++;
            continue;
        }
        add_run(&c, calls + loose, i - loose, 1);
        add_run(&c, calls + i, length, repeat);
        loose = i += length * repeat;
    }
    add_run(&c, calls + loose, n - loose, 1);
}

int32_t program_procedure(const struct program_stage *s, enum phase phase, const char *variant)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        if (s->procedures[i].phase == phase && !strcmp(s->procedures[i].variant, variant))
            return i;
    return -1;
}

static int64_t align_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t program_collective_incoming_bytes(const struct collective *g)
{
    if (g->algorithm == ALGORITHM_CHAIN) return align_up(g->elements * dtype_bytes(g->dtype));
    if (g->n_members < 2 || g->algorithm == ALGORITHM_LOCAL) return 0;
    if (program_collective_in_rounds(g)) return align_up(g->most * dtype_bytes(g->dtype));
    return align_up((g->elements + g->n_members - 1) / g->n_members * dtype_bytes(g->dtype));
}

static bool is_chunk_start(const struct collective *g, int64_t at)
{
    int32_t low = 0, high = g->n_members; /* the first chunk that starts there or later */
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (collective_chunk_start(g->elements, middle, g->n_members) < at)
            low = middle + 1;
        else
            high = middle;
    }
    return collective_chunk_start(g->elements, low, g->n_members) == at;
}

int64_t program_collective_segment_elements(const struct collective_member *m, const struct program_stage *s,
                               int32_t segment)
{
    if (m->within && m->within[segment].n_dims) return region_elements(&m->within[segment]);
    return shape_elements(&s->slots[m->segments[segment]].shape);
}

/* A chunk is in pieces where memory breaks off in its midst. */
static bool chunks_stand_whole(const struct collective *g, const struct collective_member *m,
                               const struct program_stage *s)
{
    int64_t at = 0;
    if (m->within) return false; /* not looked into: most regions are in many pieces */
    for (int32_t k = 0; k + 1 < m->n_segments; k++) {
        const struct slot *x = &s->slots[m->segments[k]], *next = &s->slots[m->segments[k + 1]];
        at += shape_elements(&x->shape);
        bool neighbours = program_slot_offset(s, x) + shape_elements(&x->shape) * dtype_bytes(x->dtype) ==
                          program_slot_offset(s, next);
        if (!neighbours && at > 0 && at < g->elements && !is_chunk_start(g, at)) return false;
    }
    return true;
}

int64_t program_collective_staging_bytes(const struct collective *g, const struct collective_member *m,
                            const struct program_stage *s)
{
    if (collective_of_tensor(g)) return collective_tensor_staging_bytes(g, g->dtype);
    int64_t bytes = program_collective_incoming_bytes(g);
    bool narrows = dtype_is_half(g->dtype) && !program_collective_gathers(g);
    bool whole = narrows            ? false /* goes out narrower than it stands in memory */
                 : program_collective_divides(g) ? m->n_segments == 1
                                    : chunks_stand_whole(g, m, s);
    if (program_collective_in_rounds(g)) whole = !narrows && m->n_segments == 1;
    return bytes && g->algorithm != ALGORITHM_CHAIN && !whole ? 2 * bytes : bytes;
}

/* By its phase, as in the deadlock check, because operators write slots, and collectives of tensors do. */
bool procedure_writes_buffer_ring(const struct program_stage *s, const struct procedure *f, int32_t buffer_ring)
{
    return s->buffer_rings[buffer_ring].birth == f->phase;
}

int64_t program_class_bytes(const struct program_stage *s, int32_t class)
{
    if (s->offloads && class == SLOT_STATE) return 0;
    return class == SLOT_CLASS_COUNT ? s->buffer_bytes : s->class_bytes[class];
}

int64_t program_host_bytes(const struct program_stage *s)
{
    return (s->offloads ? s->class_bytes[SLOT_STATE] : 0) + offload_host_bytes(s);
}

int64_t program_stage_bytes(const struct program_stage *s)
{
    int64_t bytes = s->reserve_bytes;
    for (int32_t i = 0; i <= SLOT_CLASS_COUNT; i++) bytes += program_class_bytes(s, i);
    return bytes;
}

static const char *host_of(const struct program *p, int32_t device)
{
    return p->devices[device].host ? p->devices[device].host : "";
}

bool program_device_is_host(const struct program_device *d)
{
    return !d->kind || !strcmp(d->kind, "host");
}

bool program_same_host(const struct program *p, int32_t device, int32_t other)
{
    return !strcmp(host_of(p, device), host_of(p, other));
}

struct device_label program_device_label(const struct program *p, int32_t device)
{
    struct device_label out;
    bool several_hosts = false;
    for (int32_t i = 1; i < p->n_devices; i++) several_hosts |= !program_same_host(p, i, 0);
    several_hosts &= *host_of(p, device) != 0;
    snprintf(out.text, sizeof out.text, "%s%s%s", p->devices[device].name, several_hosts ? " on " : "",
             several_hosts ? host_of(p, device) : "");
    return out;
}

int64_t program_instrs(const struct program *p)
{
    int64_t n = 0;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_procedures; i++)
            n += p->stages[s].procedures[i].n_instrs;
    return n;
}

int32_t program_islands(const struct program *p)
{
    int32_t n = 1;
    for (int32_t i = 0; i < p->n_stages && p->outer.every; i++)
        if (p->stages[i].island >= n) n = p->stages[i].island + 1;
    return n;
}

int64_t program_lane_bytes(const struct program *p, int32_t lane)
{
    int64_t bytes = 0, reserve = 0;
    for (int32_t i = 0; i < p->lanes[lane].n_stages; i++) {
        const struct program_stage *s = &p->stages[p->lanes[lane].stages[i]];
        reserve = s->reserve_bytes; /* the GPU's, whatever stages share it */
        if (__builtin_add_overflow(bytes, program_stage_bytes(s) - reserve, &bytes))
            return INT64_MAX;
    }
    return __builtin_add_overflow(bytes, reserve, &bytes) ? INT64_MAX : bytes;
}

bool program_stage_carries(const struct program_stage *s, int32_t slot)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        for (int32_t k = 0; s->ops[i].kind == OP_message && k < s->ops[i].n_inputs; k++)
            if (s->ops[i].input[k] == slot) return true;
    return false;
}

void program_op_wide(const struct program_stage *s, struct program_op *op)
{
    op->wide_input = op->wide_output = 0;
    if (!dtype_is_half(op->dtype)) return;
    for (int32_t i = 0; i < op->n_inputs; i++)
        op->wide_input |= (uint32_t)(s->slots[op->input[i]].dtype == DTYPE_fp32) << i;
    for (int32_t i = 0; i < op->n_outputs; i++)
        op->wide_output |= (uint32_t)(s->slots[op->output[i]].dtype == DTYPE_fp32) << i;
}
