#include "sim/explain/footprint.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/program/offload.h"
#include "core/program/device_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- of a program --- */

static const char *const class_names[SLOT_CLASS_COUNT] = {
    "parameters", "gradients", "optimizer state", "compression feedback", "activations", "scratch"};

static void add_entry(struct footprint *f, const char *name, int64_t bytes, const char *why)
{
    int32_t at = f->n;
    for (; at > 0 && f->memory_breakdown[at - 1].bytes < bytes; at--) f->memory_breakdown[at] = f->memory_breakdown[at - 1];
    f->memory_breakdown[at] = (struct footprint_entry){name, bytes, why};
    f->n++;
    f->total_bytes += bytes;
}

static void hold(struct footprint *f, const char *name, int64_t bytes, const char *why)
{
    if (bytes > 0) add_entry(f, name, bytes, why);
}

static int64_t divided(const struct footprint_options *o, int64_t bytes, int32_t from)
{
    double share = o->share > 0 ? o->share : 1.0 / o->shards;
    return o->zero >= from ? (int64_t)((double)bytes * share + 0.5) : bytes;
}

/* Parameter bytes of the operator that reads most of them. */
static int64_t largest_parameters(const struct program_stage *s)
{
    int64_t most = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        int64_t bytes = 0;
        if (s->ops[i].phase == PHASE_U) continue;
        for (int32_t k = 0; k < s->ops[i].n_inputs; k++) {
            const struct slot *x = &s->slots[s->ops[i].input[k]];
            if (x->class == SLOT_PARAMETER) bytes += x->bytes;
        }
        if (bytes > most) most = bytes;
    }
    return most;
}

static const char *phase_name(enum phase phase)
{
    return phase == PHASE_RECEIVE ? "arrival" : phase == PHASE_SEND ? "departure" : NULL;
}

/* The first call, as "F3", after whose begin the number of live buffers is largest; NULL if the calls alone do not determine
 * it, because messages allocate or release at their own times. O(calls of the lane). */
static const char *fullest_at(struct arena *a, const struct program *p, int32_t device,
                              const struct program_stage *s, const struct buffer_ring *r)
{
    const struct lane *l = &p->lanes[device];
    struct cursor c;
    struct call call;
    int32_t alive = 0, most = 0;
    const char *at = NULL;
    if (!strchr("FBI", r->birth) || !strchr("FBIW", r->death)) return NULL;
    for (cursor_start(&c, &p->orders[l->order]); cursor_next(&c, &call);) {
        if (&p->stages[l->stages[call.chunk]] != s) continue;
        enum phase phase = s->procedures[call.procedure].phase;
        if (phase == r->birth && ++alive > most) {
            most = alive;
            at = arena_printf(a, "%c%" PRId32, phase, call.microbatch);
        }
        alive -= phase == r->death;
    }
    return at;
}

/* The entry of a buffer ring: its owner, and the calls that allocate and release its buffers. */
static void hold_buffer_ring(struct arena *a, const struct program *p, int32_t device,
                      const struct program_stage *s, const struct buffer_ring *r, struct footprint *f)
{
    const char *birth = phase_name(r->birth), *death = phase_name(r->death);
    const char *name = r->received >= 0  ? "receive buffers"
                       : r->sent >= 0    ? "send buffers"
                       : r->birth == PHASE_F ? "activations"
                                         : "activation gradients";
    if (r->death == PHASE_U) name = "per-microbatch gradients";
    if (r->death == PHASE_HOST) {
        bool out = r == &s->buffer_rings[s->offload.out];
        hold(f, out ? "activations to host" : "activations from host", (int64_t)r->count * r->stride_bytes,
             offload_parts(s) > 1
                 ? arena_printf(a, "2 blocks of stage %" PRId32 "; host memory has %" PRId32 " microbatches, %s", s->stage, s->offload.count,
                                units_print_bytes((char[32]){0}, (double)offload_host_bytes(s)))
                 : arena_printf(a, "%" PRId32 " microbatches on stage %" PRId32 "; host memory has %" PRId32 ", %s", r->count, s->stage,
                                s->offload.count, units_print_bytes((char[32]){0}, (double)offload_host_bytes(s))));
        return;
    }
    const char *at = fullest_at(a, p, device, s, r);
    /* A buffer ring of messages has spare buffers: receives are posted ahead, also for the next step, and send buffers are
     * released when the message has left. */
    int32_t posted = r->received >= 0 ? p->channels[r->received].receive_ahead : 0,
            flight = r->count - posted;
    const char *from = birth ? birth : arena_printf(a, "%c", r->birth),
               *to = death ? death : arena_printf(a, "%c", r->death),
               *ahead = posted ? arena_printf(a, "%" PRId32 " receive%s posted ahead", posted,
                                              posted > 1 ? "s" : "")
                               : "";
    const char *why =
        r->sent >= 0 && r->death == PHASE_SEND
            ? arena_printf(a, "%" PRId32 " send buffers on stage %" PRId32 ", from %s to %s",
                           r->count, s->stage, from, to)
        : flight <= 0
            ? arena_printf(a, "%s on stage %" PRId32 ", until %s", ahead, s->stage, to)
            : arena_printf(a,
                           "%" PRId32 " of %" PRId32 " microbatches in flight on stage %" PRId32
                           ", from %s to %s%s%s%s%s",
                           flight, s->microbatches, s->stage, from, to, at ? ", all first at " : "",
                           at ? at : "", posted ? ", and " : "", ahead);
    hold(f, name, (int64_t)r->count * r->stride_bytes, why);
}

/* (n_stages) The first collective that needs all of the stage's staging area; NULL: a gradient all-reduce. */
static const struct collective **find_staged(struct arena *a, const struct program *p)
{
    const struct collective **out =
        ARENA_ARRAY(a, const struct collective *, (size_t)p->n_stages + 1);
    for (int32_t g = 0; g < p->n_collectives; g++) {
        const struct collective *x = &p->collectives[g];
        if (!collective_of_tensor(x)) continue;
        int64_t bytes = collective_tensor_staging_bytes(x, x->dtype);
        for (int32_t i = 0; i < x->n_members; i++) {
            int32_t s = x->members[i].stage;
            if (!out[s] && bytes == p->stages[s].buffer_bytes) out[s] = x;
        }
    }
    return out;
}

static const char *staged(struct arena *a, const struct collective *x)
{
    if (!x) return "data in flight of the largest gradient all-reduce";
    return arena_printf(a, "data in flight of %s %s", collective_kind_word(x->kind), x->name);
}

static void hold_stage(struct arena *a, const struct program *p, int32_t device,
                       const struct program_stage *s, const struct collective *largest,
                       const struct footprint_options *o, struct footprint *f)
{
    static const int32_t from[SLOT_CLASS_COUNT] = {
        [SLOT_PARAMETER] = 3, [SLOT_GRADIENT] = 2, [SLOT_STATE] = 1};
    for (int class = 0; class < SLOT_CLASS_COUNT; class ++) {
        const char *why = "";
        int64_t bytes = program_class_bytes(s, class);
        if (class == SLOT_BUFFER_RING) continue;
        if (class == SLOT_STATE && s->offloads && s->class_bytes[SLOT_STATE])
            add_entry(f, class_names[class], 0,
                      arena_printf(a, "%s in host memory", units_print_bytes((char[32]){0}, (double)s->class_bytes[SLOT_STATE])));
        if (from[class] && o->zero >= from[class] && o->shards > 1) {
            why = arena_printf(a, "%s sharded over %" PRId32 " GPUs",
                               units_print_bytes((char[32]){0}, (double)bytes), o->shards);
            bytes = divided(o, bytes, from[class]);
        }
        hold(f, class_names[class], bytes, why);
    }
    for (int32_t r = 0; r < s->n_buffer_rings; r++) hold_buffer_ring(a, p, device, s, &s->buffer_rings[r], f);
    hold(f, "collective buffers", program_class_bytes(s, SLOT_CLASS_COUNT), staged(a, largest));
    if (o->zero >= 3 && o->shards > 1)
        hold(f, "gathered parameters", 2 * largest_parameters(s),
             "of one operator in use, of the next one in flight");
}

/* Memory outside slots, entry by entry; the rest of the reserve belongs to libraries. */
static void hold_reserve(struct arena *a, const struct device_memory *m, int64_t reserve,
                         struct footprint *f)
{
    int64_t known = device_memory_known(m);
    const char *communicators =
        m->communicators
            ? arena_printf(a, "; %" PRId32 " communicator%s", m->communicators,
                           m->communicators == 1 ? "" : "s")
            : "";
    if (reserve < known || !known) {
        hold(f, "reserve", reserve, "of the cluster's device type");
        return;
    }
    hold(f, "matmul workspace", m->workspace, "");
    hold(f, "operator scratch", m->scratch,
         m->largest ? arena_printf(a, "largest: %s", m->largest) : "");
    hold(f, "packed messages", m->messages, "packing buffers of messages between devices");
    hold(f, "rounding", m->rounding, "allocation granularity of 2 MiB");
    hold(f, "reserve", reserve - known,
         arena_printf(a, "libraries: context and loaded code%s", communicators));
}

enum status footprint_stages(struct arena *a, const struct program *p,
                             const struct footprint_options *o, struct footprint *out,
                             struct error *err)
{
    if (o->zero < 0 || o->zero > 3)
        return error_set(err, ERR_INPUT, "zero: must be 0, 1, 2 or 3, found %" PRId32, o->zero);
    if (o->shards < 1 || !(o->share >= 0 && o->share <= 1) || o->reserve_bytes < 0)
        return error_set(err, ERR_INPUT,
                         "shards: at least 1, a share between 0 and 1, a reserve of 0 or more");
    struct device_memory *beside = ARENA_ARRAY(a, struct device_memory, (size_t)p->n_devices + 1);
    device_memory_of(a, p, beside);
    const struct collective **largest = find_staged(a, p);
    for (int32_t d = 0; d < p->n_devices; d++) {
        size_t room = 7;
        int64_t reserve = 0;
        struct footprint *f = &out[d];
        *f = (struct footprint){.device = p->devices[d].name,
                                .memory_bytes = p->devices[d].memory_bytes};
        const struct lane *l = &p->lanes[d];
        for (int32_t c = 0; c < l->n_stages; c++)
            room += SLOT_CLASS_COUNT + 3 + (size_t)p->stages[l->stages[c]].n_buffer_rings;
        f->memory_breakdown = ARENA_ARRAY(a, struct footprint_entry, room);
        for (int32_t c = 0; c < l->n_stages; c++) {
            const struct program_stage *s = &p->stages[l->stages[c]];
            hold_stage(a, p, d, s, largest[l->stages[c]], o, f);
            reserve = s->reserve_bytes;
        }
        hold_reserve(a, &beside[d], reserve, f);
        hold(f, "framework", o->reserve_bytes, "stated by the user");
    }
    return OK;
}

const char *footprint_verdict(struct arena *a, const struct footprint *f)
{
    char needs[32], has[64], text[32];
    bool fits = f->total_bytes <= f->memory_bytes;
    units_print_bytes(needs, (double)f->total_bytes);
    units_print_capacity(has, (double)f->memory_bytes);
    const char *line = arena_printf(a, fits ? "needs %s of %s" : "needs %s, has %s", needs, has);
    if (!fits)
        line = arena_printf(a, "%s, lacks %s", line,
                            units_print_bytes(text, (double)(f->total_bytes - f->memory_bytes)));
    for (int32_t i = 0; i < f->n && i < 3; i++) {
        const struct footprint_entry *h = &f->memory_breakdown[i];
        line = arena_printf(a, "%s%s%s %s%s%s%s", line, i ? ", " : ": ", h->name,
                            units_print_bytes(text, (double)h->bytes), *h->why ? " (" : "", h->why,
                            *h->why ? ")" : "");
    }
    return line;
}

/* --- closed forms --- */

static double block_unit(const struct footprint_block *b)
{
    return (double)b->sequence * (double)b->microbatch * (double)b->hidden;
}

double footprint_block(const struct footprint_block *b)
{
    double t = b->tp > 1 ? b->tp : 1;
    double scores = 5.0 * (double)b->heads * (double)b->sequence / ((double)b->hidden * t);
    if (b->recompute == RECOMPUTE_BLOCKS) return block_unit(b) * (b->sequence_parallel ? 2 / t : 2);
    if (b->recompute == RECOMPUTE_SELECTIVE) scores = 0;
    return block_unit(b) * ((b->sequence_parallel ? 34 / t : 10 + 24 / t) + scores);
}

double footprint_block_weights(const struct footprint_block *b)
{
    return 32 * block_unit(b) / (b->tp > 1 ? b->tp : 1);
}

double footprint_activations(const struct footprint_step *s)
{
    double p = (double)s->stages, more = s->chunks > 1 ? (p - 1) / (p * (double)s->chunks) : 0;
    return footprint_block(&s->block) * (double)s->layers * (1 + more);
}

double footprint_parameters(const struct footprint_step *s, double bytes)
{
    double h = (double)s->block.hidden, t = s->block.tp > 1 ? s->block.tp : 1;
    return bytes * 12 * h * h * (double)s->layers / ((double)s->stages * t);
}
