#include "core/program/device_memory.h"

#include "core/collective/rounds.h"

#include "core/base/arena.h"

#include <string.h>

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- groups ------------------------------------------------------------------------------------ */

static const struct slot *segment(const struct program *p, const struct collective_member *m, int32_t k)
{
    return &p->stages[m->stage].slots[m->segments[k]];
}

static int64_t elements(const struct program *p, const struct collective_member *m, int32_t k)
{
    return program_collective_segment_elements(m, &p->stages[m->stage], k);
}

static bool is_cut(const struct collective_member *m, int32_t k)
{
    return m->within && m->within[k].n_dims;
}

/* Direct algorithms: a message to each member and one from each, side by side; the others pack in the stage's staging. */
static int64_t tensor_bytes(const struct collective *m, int32_t member, enum dtype t)
{
    int64_t size = dtype_bytes(t), bytes = 0;
    if (m->n_members < 2 || !collective_rounds_of(m->algorithm)->direct) return 0;
    for (int32_t i = 0; i < m->n_members; i++)
        bytes += aligned(collective_elements(m, member, i) * size) +
                 aligned(collective_elements(m, i, member) * size);
    return bytes;
}

int64_t device_memory_group_wire(const struct program *p, const struct collective *g, int32_t member)
{
    const struct collective_member *m = &g->members[member];
    int64_t bytes = 0;
    if (program_collective_in_rounds(g)) /* one vector */
        return m->n_segments == 1 && segment(p, m, 0)->dtype == g->dtype ? 0 : aligned(g->elements * dtype_bytes(g->dtype));
    for (int32_t k = 0; k < m->n_segments; k++)
        if (segment(p, m, k)->dtype != g->dtype || is_cut(m, k))
            bytes += aligned(elements(p, m, k) * dtype_bytes(g->dtype));
    return bytes;
}

int64_t device_memory_group_scratch(const struct program *p, const struct collective *g, int32_t member)
{
    const struct collective_member *m = &g->members[member];
    int64_t most = 0;
    if (g->n_members < 2) return 0;
    if (collective_of_tensor(g)) return tensor_bytes(g, member, g->dtype);
    for (int32_t k = 0; k < m->n_segments; k++) {
        const struct slot *s = segment(p, m, k);
        int64_t bytes = aligned(elements(p, m, k) * dtype_bytes(s->dtype));
        if (s->dtype != g->dtype && is_cut(m, k) && bytes > most) most = bytes;
    }
    return device_memory_group_wire(p, g, member) + most;
}

int64_t device_memory_group_zeros(const struct program *p, const struct collective *g, int32_t member)
{
    const struct collective_member *m = &g->members[member];
    int64_t bytes = 0;
    for (int32_t k = 0; m->silent && g->n_members > 1 && !collective_of_tensor(g) && k < m->n_segments; k++)
        bytes += elements(p, m, k) * dtype_bytes(g->dtype);
    return bytes;
}

/* ---- one device after the other ---------------------------------------------------------------- */

struct counted { /* of one device */
    uint64_t *communicator;
    size_t n, capacity;
    int64_t packed, zeros;
    int32_t max_members;
};

/* Collectives of tensors with equal cuts have equal messages. */
enum { KNOWN_MAX = 256 };
struct known {
    const struct collective *g;
    int64_t *bytes; /* (n_members) */
};

/* Stages that differ in their devices only share their operators (core/lower/equal_stages.h). */
struct known_ops {
    const struct program_op *ops;
    int32_t n_ops;
    int64_t scratch, workspace;
    const char *largest;
};

struct counting {
    struct arena *a;
    const struct program *p;
    struct device_memory *out;
    struct counted *device; /* (n_devices) */
    struct known known[KNOWN_MAX]; /* by hash, the latest one */
    struct known_ops known_ops[KNOWN_MAX];
};

static bool is_host(const struct program *p, int32_t device)
{
    return program_device_is_host(&p->devices[device]);
}

static int32_t device_of(const struct program *p, int32_t stage) { return p->stages[stage].device; }

static uint64_t mixed(uint64_t h, uint64_t value)
{
    h = (h ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static void add_communicator(struct counting *c, int32_t device, uint64_t key, int32_t members)
{
    struct counted *d = &c->device[device];
    if (members > d->max_members) d->max_members = members;
    for (size_t i = 0; i < d->n; i++)
        if (d->communicator[i] == key) return;
    d->communicator =
        arena_grow(c->a, d->communicator, d->n, &d->capacity, sizeof *d->communicator);
    d->communicator[d->n++] = key;
}

/* By calls of which letter each channel is sent, and received. */
static void find_phases(const struct program *p, enum phase *sent, enum phase *received)
{
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t f = 0; f < p->stages[s].n_procedures; f++) {
            const struct procedure *x = &p->stages[s].procedures[f];
            for (int32_t i = 0; i < x->n_instrs; i++) {
                if (x->instrs[i].kind == INSTR_SEND) sent[x->instrs[i].arg] = x->phase;
                if (x->instrs[i].kind == INSTR_RECEIVE) received[x->instrs[i].arg] = x->phase;
            }
        }
}

/* Channels from one stage to another that calls of one phase send, of one receive, equally far ahead, share a communicator
 * (exec/device_transport/plan.c). */
static void count_channels(struct counting *c)
{
    const struct program *p = c->p;
    enum phase *sent = ARENA_ARRAY(c->a, enum phase, (size_t)p->n_channels + 1),
               *received = ARENA_ARRAY(c->a, enum phase, (size_t)p->n_channels + 1);
    find_phases(p, sent, received);
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *x = &p->channels[i];
        int32_t from = device_of(p, x->from_stage), to = device_of(p, x->to_stage);
        if (from == to || is_host(p, from) || is_host(p, to)) continue;
        uint64_t key = mixed(mixed(1, (uint64_t)x->from_stage), (uint64_t)x->to_stage);
        key = mixed(key, (uint64_t)x->receive_ahead);
        key = mixed(key, (uint64_t)(256 * sent[i] + received[i]));
        add_communicator(c, from, key, 2);
        add_communicator(c, to, key, 2);
    }
}

static bool same_numbers(const int64_t *x, const int64_t *y, size_t n)
{
    return x == y || (x && y && !memcmp(x, y, n * sizeof *x));
}

static bool same_cut(const struct collective_cut *x, const struct collective_cut *y, int32_t n_members)
{
    size_t n = (size_t)x->n_runs * (size_t)n_members;
    return x->dimension == y->dimension && x->n_runs == y->n_runs &&
           same_numbers(x->first, y->first, n) && same_numbers(x->count, y->count, n);
}

static bool same_messages(const struct collective *x, const struct collective *y)
{
    return x->kind == y->kind && x->algorithm == y->algorithm && x->n_members == y->n_members &&
           x->dtype == y->dtype && x->whole.rank == y->whole.rank &&
           !memcmp(x->whole.dim, y->whole.dim, sizeof *x->whole.dim * (size_t)x->whole.rank) &&
           same_cut(&x->from, &y->from, x->n_members) && same_cut(&x->to, &y->to, x->n_members);
}

/* Collectives of one kind in the blocks of a model have equal hashes. */
static uint64_t hash_of(const struct collective *g)
{
    uint64_t h = mixed(mixed(4, g->kind), (uint64_t)g->n_members);
    h = mixed(mixed(h, (uint64_t)g->from.dimension), (uint64_t)g->to.dimension);
    if (g->from.count) h = mixed(h, (uint64_t)g->from.count[0]);
    if (g->to.count) h = mixed(h, (uint64_t)g->to.count[0]);
    for (int32_t d = 0; d < g->whole.rank; d++) h = mixed(h, (uint64_t)g->whole.dim[d]);
    return h;
}

/* (n_members) device_memory_group_scratch of a tensor's collective */
static const int64_t *scratch_of(struct counting *c, const struct collective *g)
{
    struct known *x = &c->known[hash_of(g) % KNOWN_MAX];
    if (x->g && same_messages(x->g, g)) return x->bytes;
    *x = (struct known){g, ARENA_ARRAY(c->a, int64_t, (size_t)g->n_members)};
    for (int32_t i = 0; i < g->n_members; i++)
        x->bytes[i] = device_memory_group_scratch(c->p, g, i);
    return x->bytes;
}

/* Groups of the same devices share one; of ZeRO's the order counts. */
static void count_group(struct counting *c, const struct collective *g)
{
    const struct program *p = c->p;
    uint64_t key = program_collective_divides(g) ? 2 : 3;
    if (g->algorithm == ALGORITHM_LOCAL && !collective_of_tensor(g)) return;
    for (int32_t i = 0; i < g->n_members; i++) {
        int32_t device = device_of(p, g->members[i].stage);
        if (is_host(p, device)) return;
        key = program_collective_divides(g) ? mixed(key, (uint64_t)device) : key + mixed(3, (uint64_t)device);
    }
    const int64_t *scratch = collective_of_tensor(g) ? scratch_of(c, g) : NULL;
    for (int32_t i = 0; i < g->n_members; i++) {
        int32_t device = device_of(p, g->members[i].stage);
        struct counted *d = &c->device[device];
        int64_t packed = scratch ? scratch[i] : device_memory_group_scratch(p, g, i), zeros = device_memory_group_zeros(p, g, i);
        if (packed > d->packed) d->packed = packed;
        if (zeros > d->zeros) d->zeros = zeros;
        if (g->n_members > 1) add_communicator(c, device, key, g->n_members);
    }
}

static int64_t to_granule(int64_t bytes)
{
    int64_t rest = bytes % DEVICE_GRANULE;
    return rest ? DEVICE_GRANULE - rest : 0;
}

static const struct known_ops *count_ops(struct counting *c, const struct program_stage *s)
{
    struct known_ops *x = &c->known_ops[mixed(5, (uint64_t)(uintptr_t)s->ops) % KNOWN_MAX];
    if (x->ops == s->ops && x->n_ops == s->n_ops) return x;
    *x = (struct known_ops){.ops = s->ops, .n_ops = s->n_ops};
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct program_op *op = &s->ops[i];
        int64_t bytes = op_scratch(op->kind, &op->attrs, &op->shapes, op->dtype);
        if (op_uses_workspace(op->kind)) x->workspace = DEVICE_WORKSPACE;
        if (bytes > x->scratch) x->scratch = bytes, x->largest = op->name;
    }
    return x;
}

static void count_stage(struct counting *c, const struct program_stage *s, struct device_memory *m)
{
    const struct known_ops *x = count_ops(c, s);
    if (x->workspace) m->workspace = x->workspace;
    if (x->scratch > m->scratch) m->scratch = x->scratch, m->largest = x->largest;
    for (int i = 0; i < SLOT_CLASS_COUNT; i++) m->rounding += to_granule(program_class_bytes(s, i));
    m->rounding += to_granule(s->buffer_bytes);
}

/* The first word: what a device says, hears, and some more of each member, a few hundred bytes. */
static int64_t first_word(const struct counted *d)
{
    return d->n ? DEVICE_WORD_BYTES * (2 * (int64_t)d->max_members + 4) : 0;
}

static void finish_device(const struct counted *d, struct device_memory *m)
{
    const int64_t parts[] = {aligned(d->packed), aligned(d->zeros), first_word(d)};
    m->communicators = (int32_t)d->n;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        m->messages += parts[i];
        m->rounding += to_granule(parts[i]);
    }
    m->rounding += to_granule(m->scratch) + to_granule(m->workspace);
}

void device_memory_of(struct arena *a, const struct program *p, struct device_memory *out)
{
    struct counting c = {.a = a,
                         .p = p,
                         .out = out,
                         .device = ARENA_ARRAY(a, struct counted, (size_t)p->n_devices + 1)};
    for (int32_t i = 0; i < p->n_devices; i++) out[i] = (struct device_memory){0};
    for (int32_t i = 0; i < p->n_stages; i++)
        if (!is_host(p, p->stages[i].device))
            count_stage(&c, &p->stages[i], &out[p->stages[i].device]);
    if (!p->emulated) { /* else the host carries everything */
        count_channels(&c);
        for (int32_t g = 0; g < p->n_collectives; g++) count_group(&c, &p->collectives[g]);
    }
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!is_host(p, i)) finish_device(&c.device[i], &out[i]);
}

int64_t device_memory_known(const struct device_memory *m)
{
    int64_t bytes = m->workspace, parts[] = {m->scratch, m->messages, m->rounding};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (__builtin_add_overflow(bytes, parts[i], &bytes)) return INT64_MAX;
    return bytes;
}
