/* Messages and sums between devices, beside plain sums and plain copies. Ranks are forked; each has a stand-in card. */
#include "tests/device_ranks.h"

#include "core/half.h"
#include "core/rng.h"
#include "exec/device_transport_internal.h"

#include <math.h>

enum { RANKS_MOST = 4, GROUPS_MOST = 6, SEGMENTS_MOST = 5, SLOTS_MOST = 64 };

struct made { /* a program by hand: a stage a device */
    struct arena *a;
    struct program p;
    uint64_t seed, draws;
    double weight[RANKS_MOST][GROUPS_MOST];
};

static int64_t draw(struct made *m, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(11, m->seed, m->draws++, (uint64_t)(high - low + 1));
}

static struct made *make(struct arena *a, uint64_t seed, int32_t n)
{
    struct made *m = ARENA_ARRAY(a, struct made, 1);
    struct program *p = &m->p;
    m->a = a, m->seed = seed;
    p->n_devices = p->n_stages = n;
    p->devices = ARENA_ARRAY(a, struct program_device, (size_t)n);
    p->stages = ARENA_ARRAY(a, struct program_stage, (size_t)n);
    p->groups = ARENA_ARRAY(a, struct group, GROUPS_MOST);
    p->channels = ARENA_ARRAY(a, struct channel, 16);
    for (int32_t i = 0; i < n; i++) {
        p->devices[i] = (struct program_device){
            .name = arena_printf(a, "card.%d", (int)i), .host = "h", .kind = "cuda", .index = i};
        p->stages[i] = (struct program_stage){.stage = i, .device = i, .microbatches = 3};
        p->stages[i].slots = ARENA_ARRAY(a, struct slot, SLOTS_MOST);
        p->stages[i].rings = ARENA_ARRAY(a, struct ring, 16);
    }
    return m;
}

static int32_t slot(struct made *m, int32_t stage, enum slot_class class, enum dtype t, int64_t n,
                    int32_t buffers)
{
    struct program_stage *s = &m->p.stages[stage];
    int64_t room = (n * dtype_bytes(t) + 63) / 64 * 64;
    struct slot x = {.name = "slot",
                     .class = class,
                     .dtype = t,
                     .shape = {1, {n}},
                     .ring = -1,
                     .bytes = n * dtype_bytes(t),
                     .parameter = -1,
                     .input = -1,
                     .offset_bytes = s->class_bytes[class]};
    if (class == SLOT_RING) {
        x.ring = s->n_rings, x.offset_bytes = 0;
        s->rings[s->n_rings++] = (struct ring){buffers, room, -1, -1, 'F', 'B'};
        room *= buffers;
    }
    s->class_bytes[class] += room;
    s->slots[s->n_slots] = x;
    return s->n_slots++;
}

/* ---- sums ------------------------------------------------------------------------------------- */

static double value(const struct made *m, int32_t group, int32_t segment, int32_t member, int64_t i)
{
    uint64_t key = (uint64_t)(group * 64 + segment * 8 + member);
    return rng_normal(m->seed, key, (uint64_t)i);
}

/* A member's segment: whole, or in two runs of something longer. */
static void add_segment(struct made *m, struct group_member *x, enum dtype t, int64_t n, bool cuts)
{
    int64_t gap = cuts ? draw(m, 1, 3) : 0, first = cuts ? draw(m, 0, n) : n;
    int32_t k = x->n_segments++;
    x->segments[k] = slot(m, x->stage, SLOT_GRADIENT, t, n + 2 * gap, 0);
    if (!cuts) return;
    int64_t *at = ARENA_ARRAY(m->a, int64_t, 2), *count = ARENA_ARRAY(m->a, int64_t, 2);
    at[0] = gap, count[0] = first;
    at[1] = 2 * gap + first, count[1] = n - first;
    x->within[k].shape = (struct shape){1, {n + 2 * gap}};
    x->within[k].n_dims = 1;
    x->within[k].dim[0].n_runs = 2, x->within[k].dim[0].first = at,
    x->within[k].dim[0].count = count;
}

static struct group_member new_member(struct made *m, int32_t stage)
{
    return (struct group_member){.stage = stage,
                                 .segments = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MOST),
                                 .within = ARENA_ARRAY(m->a, struct region, SEGMENTS_MOST),
                                 .apart = -1};
}

static void keep_apart(struct made *m, struct group_member *x, const int64_t *n, int32_t segments)
{
    int64_t room = 0;
    x->apart_segments = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MOST);
    for (int32_t k = 0; k < segments; k++) room += (n[k] * 4 + 63) / 64 * 64;
    int32_t whole = slot(m, x->stage, SLOT_RING, DTYPE_fp32, room / 4, 3);
    struct program_stage *s = &m->p.stages[x->stage];
    x->apart = s->slots[whole].ring;
    int64_t at = 0;
    for (int32_t k = 0; k < segments; k++) {
        s->slots[s->n_slots] = s->slots[whole];
        s->slots[s->n_slots].shape = (struct shape){1, {n[k]}};
        s->slots[s->n_slots].offset_bytes = at;
        at += (n[k] * 4 + 63) / 64 * 64;
        x->apart_segments[k] = s->n_slots++;
    }
}

static void own_slots(struct made *m, struct group_member *x, enum dtype t, const int64_t *n,
                      int32_t segments, int32_t members)
{
    x->own = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MOST);
    for (int32_t k = 0; k < segments; k++)
        x->own[k] = slot(m, x->stage, SLOT_STATE, t, n[k] / members, 0);
}

static void make_sum(struct made *m)
{
    static const enum group_algorithm kinds[] = {GROUP_RING, GROUP_RING, GROUP_CHAIN, GROUP_SCATTER,
                                                 GROUP_GATHER};
    static const enum dtype wires[] = {DTYPE_fp32, DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16};
    struct group *g = &m->p.groups[m->p.n_groups];
    int32_t n = m->p.n_devices, segments = (int32_t)draw(m, 0, SEGMENTS_MOST);
    int64_t elements[SEGMENTS_MOST];
    *g = (struct group){.name = "sum", .algorithm = kinds[draw(m, 0, 4)], .n_members = n};
    bool ring = g->algorithm == GROUP_RING, chain = g->algorithm == GROUP_CHAIN;
    g->dtype = chain ? DTYPE_fp32 : wires[draw(m, 0, 4)];
    enum dtype t = dtype_is_half(g->dtype) && g->algorithm != GROUP_GATHER ? DTYPE_fp32 : g->dtype;
    for (int32_t k = 0; k < segments; k++) {
        elements[k] = draw(m, 0, 5) ? draw(m, 1, 300) : 0;
        if (group_divides(g)) elements[k] *= n;
        g->elements += elements[k];
    }
    g->members = ARENA_ARRAY(m->a, struct group_member, (size_t)n);
    bool own = draw(m, 0, 1), apart = draw(m, 0, 1);
    int32_t turn = (int32_t)draw(m, 0, n - 1), silent = (int32_t)draw(m, 0, 2 * n);
    for (int32_t i = 0; i < n; i++) {
        struct group_member *x = &g->members[i];
        *x = new_member(m, (i + turn) % n);
        x->silent = ring && i == silent;
        bool cuts = ring && draw(m, 0, 2) == 0;
        for (int32_t k = 0; k < segments; k++) add_segment(m, x, t, elements[k], cuts);
        if (chain && apart && i) keep_apart(m, x, elements, segments);
        if (group_divides(g) && own) own_slots(m, x, t, elements, segments, n);
        m->weight[x->stage][m->p.n_groups] = ring && t == g->dtype ? (double)draw(m, 1, 4) / 4 : 1;
        int64_t staging = group_staging_bytes(g, x, &m->p.stages[x->stage]);
        if (staging > m->p.stages[x->stage].buffer_bytes)
            m->p.stages[x->stage].buffer_bytes = staging;
    }
    m->p.n_groups++;
}

/* What a member has in the elements of a segment, before; as many as it has. */
static double before(const struct made *m, int32_t g, int32_t k, int32_t member, int64_t i)
{
    return value(m, g, k, member, i);
}

/* Through a device's memory, as doubles. */
static void pass(struct device_rank *r, const struct made *m, int32_t stage, int32_t slot_number,
                 int64_t seq, double *values, int64_t n, bool up)
{
    enum dtype t = m->p.stages[stage].slots[slot_number].dtype;
    char *at = lane_memory_slot(&r->memory[stage], slot_number, seq);
    union {
        float f[2048];
        double d[2048];
        uint16_t h[2048];
    } b;
    NEED(n <= 2048, "%" PRId64 " elements", n);
    if (!n) return;
    for (int64_t i = 0; up && i < n; i++) {
        if (t == DTYPE_fp32) b.f[i] = (float)values[i];
        if (t == DTYPE_fp64) b.d[i] = values[i];
        if (dtype_is_half(t)) b.h[i] = half_of(t, (float)values[i]);
    }
    NEED((up ? r->backend.upload(&r->backend, at, &b, n * dtype_bytes(t), &r->err)
             : r->backend.download(&r->backend, &b, at, n * dtype_bytes(t), &r->err)) == OK,
         "%s", r->err.text);
    for (int64_t i = 0; !up && i < n; i++)
        values[i] = t == DTYPE_fp32   ? (double)b.f[i]
                    : t == DTYPE_fp64 ? b.d[i]
                                      : (double)half_value(t, b.h[i]);
}

struct spread { /* elements of a region, in their order */
    int64_t at[2048], n;
};

static void note_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    struct spread *s = owner;
    (void)packed;
    for (int64_t i = 0; i < n; i++) s->at[s->n++] = first + i;
}

/* Where the elements of a segment are in its slot. */
static void where(const struct made *m, const struct group_member *x, int32_t k, struct spread *s)
{
    int64_t all = shape_elements(&m->p.stages[x->stage].slots[x->segments[k]].shape);
    s->n = 0;
    if (x->within[k].n_dims)
        region_walk(&x->within[k], note_run, s);
    else
        for (; s->n < all; s->n++) s->at[s->n] = s->n;
}

static void fill(struct device_rank *r, const struct made *m, int32_t g, int32_t i)
{
    const struct group_member *x = &m->p.groups[g].members[i];
    double v[2048];
    struct spread s;
    for (int32_t k = 0; k < x->n_segments; k++) {
        int64_t all = shape_elements(&m->p.stages[x->stage].slots[x->segments[k]].shape);
        where(m, x, k, &s);
        for (int64_t e = 0; e < all; e++) v[e] = -77;
        for (int64_t e = 0; e < s.n; e++) v[s.at[e]] = before(m, g, k, i, e);
        pass(r, m, x->stage, x->segments[k], 0, v, all, true);
        for (int64_t b = 0; x->apart >= 0 && b < 3; b++) {
            for (int64_t e = 0; e < s.n; e++) v[e] = value(m, g, k, i, e + 1000 * (b + 1));
            pass(r, m, x->stage, x->apart_segments[k], b, v, s.n, true);
        }
        for (int64_t e = 0; x->own && e < s.n / m->p.n_devices; e++)
            v[e] = value(m, g, k, i, e + 5000);
        if (x->own) pass(r, m, x->stage, x->own[k], 0, v, s.n / m->p.n_devices, true);
    }
}

/* Element e of segment k after the sum, for member i; *known: the member has a right to it. */
static double after(const struct made *m, int32_t g, int32_t k, int32_t i, int64_t e, bool *known)
{
    const struct group *x = &m->p.groups[g];
    int32_t n = x->n_members;
    int64_t all = group_segment_elements(&x->members[i], &m->p.stages[x->members[i].stage], k),
            part = all / n;
    double sum = 0;
    *known = true;
    if (x->algorithm == GROUP_GATHER) { /* chunk c is member c - 1's */
        int32_t owner = (int32_t)((e / part + n - 1) % n);
        return x->members[owner].own ? value(m, g, k, owner, e % part + 5000)
                                     : before(m, g, k, owner, e);
    }
    for (int32_t j = 0; j < n; j++) {
        const struct group_member *y = &x->members[j];
        double w = m->weight[y->stage][g];
        if (y->silent) continue;
        if (y->apart < 0) sum += w * before(m, g, k, j, e);
        for (int64_t b = 0; y->apart >= 0 && b < 3; b++)
            sum += value(m, g, k, j, e + 1000 * (b + 1));
    }
    if (x->algorithm == GROUP_SCATTER) *known = e / part == group_own_chunk(i, n);
    return sum;
}

static void check(struct device_rank *r, const struct made *m, int32_t g, int32_t i)
{
    const struct group *group = &m->p.groups[g];
    const struct group_member *x = &group->members[i];
    double v[2048], own[2048], limit = dtype_is_half(group->dtype) ? 0.05 : 1e-5;
    struct spread s;
    for (int32_t k = 0; k < x->n_segments; k++) {
        int64_t all = shape_elements(&m->p.stages[x->stage].slots[x->segments[k]].shape), kept = 0;
        where(m, x, k, &s);
        pass(r, m, x->stage, x->segments[k], 0, v, all, false);
        if (x->own) pass(r, m, x->stage, x->own[k], 0, own, s.n / m->p.n_devices, false);
        for (int64_t e = 0; e < s.n; e++) {
            bool known;
            double want = after(m, g, k, i, e, &known), got = v[s.at[e]];
            v[s.at[e]] = -77;
            if (!known) continue;
            if (x->own && group->algorithm == GROUP_SCATTER) {
                want += value(m, g, k, i, kept + 5000);
                got = own[kept++];
            }
            NEED(fabs(got - want) <= limit * (1 + fabs(want)),
                 "seed %" PRIu64 ", group %d kind %d %s, member %d segment %d element %" PRId64
                 ": %g, not %g",
                 m->seed, (int)g, (int)group->algorithm, dtype_name(group->dtype), (int)i, (int)k,
                 e, got, want);
        }
        for (int64_t e = 0; e < all; e++)
            NEED(v[e] == -77, "group %d segment %d: element %" PRId64 " is outside the sum", (int)g,
                 (int)k, e);
    }
}

static int32_t member_of(const struct group *g, int32_t stage)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == stage) return i;
    return -1;
}

static int sum_up(void *owner, int32_t rank)
{
    struct made *m = owner;
    struct arena *a = arena_new();
    struct device_rank r;
    NEED(device_rank_open(&r, a, &m->p, -1) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_groups; g++) fill(&r, m, g, member_of(&m->p.groups[g], rank));
    struct device_transport_options o = device_rank_options(&r);
    o.weight = m->weight[rank];
    NEED(device_transport_open(a, &o, &r.t, &r.err) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_groups; g++)
        NEED(device_transport_reduce(r.t, g, 0, 0, 0, -1, 'U', &r.err) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_groups; g++)
        NEED(device_transport_await(r.t, g, 0, &r.err) == OK, "%s", r.err.text);
    NEED(device_rank_wait(&r) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_groups; g++) check(&r, m, g, member_of(&m->p.groups[g], rank));
    device_rank_close(&r);
    arena_free(a);
    return 0;
}

START_TEST(sums_of_all_kinds_are_plain_sums_for_random_segments)
{
    struct arena *a = arena_new();
    int32_t n = 2 + _i % 3;
    struct made *m = make(a, 50 + (uint64_t)_i, n);
    while (m->p.n_groups < GROUPS_MOST) make_sum(m);
    device_ranks_run(sum_up, m, n);
    arena_free(a);
}
END_TEST

/* ---- messages --------------------------------------------------------------------------------- */

enum { MESSAGE = 3000, STEPS = 3 }; /* floats; more than a pipe holds */

/* Two activations forwards, their receives in another order than their sends, and a gradient back. */
struct line {
    struct made *m;
    int32_t in[RANKS_MOST][2], out[RANKS_MOST][2], grad_in[RANKS_MOST], grad_out[RANKS_MOST];
    int32_t kept[RANKS_MOST]; /* slot of all that came back */
};

static int32_t add_channel(struct made *m, int32_t from, int32_t from_slot, int32_t to,
                           int32_t to_slot, int32_t ahead, bool gradient)
{
    struct program *p = &m->p;
    p->stages[from].rings[p->stages[from].slots[from_slot].ring].sent = p->n_channels;
    p->stages[to].rings[p->stages[to].slots[to_slot].ring].received = p->n_channels;
    p->channels[p->n_channels] = (struct channel){.from_stage = from,
                                                  .to_stage = to,
                                                  .from_slot = from_slot,
                                                  .to_slot = to_slot,
                                                  .bytes = MESSAGE * 4,
                                                  .receive_ahead = ahead,
                                                  .gradient = gradient};
    return p->n_channels++;
}

static void procedures(struct line *l, int32_t s)
{
    struct program_stage *x = &l->m->p.stages[s];
    int32_t n = l->m->p.n_stages, f = 0, b = 0;
    struct instr *list = ARENA_ARRAY(l->m->a, struct instr, 8), *back = list + 5;
    for (int k = 1; s && k >= 0; k--) list[f++] = (struct instr){INSTR_RECEIVE, l->in[s][k]};
    for (int k = 0; s + 1 < n && k < 2; k++) list[f++] = (struct instr){INSTR_SEND, l->out[s][k]};
    if (s + 1 < n) back[b++] = (struct instr){INSTR_RECEIVE, l->grad_in[s]};
    if (s) back[b++] = (struct instr){INSTR_SEND, l->grad_out[s]};
    x->procedures = ARENA_ARRAY(l->m->a, struct procedure, 2);
    x->n_procedures = 2;
    x->procedures[0] = (struct procedure){'F', "", f, list};
    x->procedures[1] = (struct procedure){'B', "", b, back};
}

static void make_line(struct line *l, struct arena *a, uint64_t seed, int32_t n)
{
    struct made *m = l->m = make(a, seed, n);
    for (int32_t s = 0; s + 1 < n; s++) {
        int32_t ahead = (int32_t)draw(m, 1, 3), count = (int32_t)draw(m, 1, 3);
        for (int k = 0; k < 2; k++) {
            int32_t from = slot(m, s, SLOT_RING, DTYPE_fp32, MESSAGE, count),
                    to = slot(m, s + 1, SLOT_RING, DTYPE_fp32, MESSAGE, 3);
            l->out[s][k] = l->in[s + 1][k] = add_channel(m, s, from, s + 1, to, ahead, false);
        }
        ahead = (int32_t)draw(m, 1, 3);
        int32_t from = slot(m, s + 1, SLOT_RING, DTYPE_fp32, MESSAGE, (int32_t)draw(m, 1, 3)),
                to = slot(m, s, SLOT_RING, DTYPE_fp32, MESSAGE, 3);
        l->grad_out[s + 1] = l->grad_in[s] = add_channel(m, s + 1, from, s, to, ahead, true);
    }
    for (int32_t s = 0; s < n; s++) {
        l->kept[s] = slot(m, s, SLOT_STATE, DTYPE_fp32, MESSAGE * 3 * STEPS, 0);
        procedures(l, s);
    }
}

static float *at(const struct device_rank *r, int32_t s, int32_t slot_number, int64_t seq)
{
    return lane_memory_slot(&r->memory[s], slot_number, seq);
}

/* y = x + x on the compute stream. */
static void twice(struct device_rank *r, float *y, const float *x)
{
    static const struct op_attrs none;
    static struct op_shapes shapes;
    shapes = (struct op_shapes){.n_inputs = 2,
                                .input = {{1, {MESSAGE}}, {1, {MESSAGE}}},
                                .n_outputs = 1,
                                .output = {{1, {MESSAGE}}}};
    const struct op_call c = {.kind = OP_add,
                              .dtype = DTYPE_fp32,
                              .attrs = &none,
                              .shapes = &shapes,
                              .input = {x, x},
                              .output = {y}};
    NEED(r->backend.run(&r->backend, STREAM_COMPUTE, &c, &r->err) == OK, "%s", r->err.text);
}

#define ASK(call) NEED((call) == OK, "%s", r->err.text)

static void room(struct device_rank *r, int32_t channel, int64_t seq)
{
    const struct channel *c = &r->p->channels[channel];
    const struct program_stage *s = &r->p->stages[c->from_stage];
    int64_t count = s->rings[s->slots[c->from_slot].ring].count;
    if (seq >= count) ASK(device_transport_room(r->t, channel, seq - count, &r->err));
}

static void post(struct device_rank *r, int32_t channel, int64_t seq)
{
    if (seq < 3 * STEPS) ASK(device_transport_post(r->t, channel, seq, &r->err));
}

/* The first stage sends what it has kept, the others twice what came, of both. */
static void forward(struct device_rank *r, const struct line *l, int64_t seq)
{
    const struct channel *c = r->p->channels;
    int32_t s = r->rank, n = r->p->n_stages;
    for (int k = 0; s + 1 < n && k < 2; k++) room(r, l->out[s][k], seq);
    for (int k = 1; s && k >= 0; k--)
        ASK(device_transport_receive(r->t, l->in[s][k], seq, &r->err));
    for (int k = 0; s + 1 < n && k < 2; k++) {
        float *out = at(r, s, c[l->out[s][k]].from_slot, seq);
        if (s)
            twice(r, out, at(r, s, c[l->in[s][k]].to_slot, seq));
        else
            ASK(r->backend.copy(&r->backend, STREAM_COMPUTE, out,
                                at(r, s, l->kept[s], 0) + seq * MESSAGE + k, (MESSAGE - 1) * 4,
                                &r->err));
        ASK(device_transport_send(r->t, l->out[s][k], seq, &r->err));
    }
    for (int k = 0; s && s + 1 < n && k < 2; k++)
        post(r, l->in[s][k], seq + c[l->in[s][k]].receive_ahead);
}

/* The last stage sends twice the second activation back. */
static void backward(struct device_rank *r, const struct line *l, int64_t seq)
{
    const struct channel *c = r->p->channels;
    int32_t s = r->rank, n = r->p->n_stages;
    if (s) room(r, l->grad_out[s], seq);
    if (s + 1 < n) ASK(device_transport_receive(r->t, l->grad_in[s], seq, &r->err));
    const float *in = at(r, s, s + 1 < n ? c[l->grad_in[s]].to_slot : c[l->in[s][1]].to_slot, seq);
    if (s)
        twice(r, at(r, s, c[l->grad_out[s]].from_slot, seq), in);
    else
        ASK(r->backend.copy(&r->backend, STREAM_COMPUTE, at(r, s, l->kept[s], 0) + seq * MESSAGE,
                            in, (MESSAGE - 1) * 4, &r->err));
    if (s) ASK(device_transport_send(r->t, l->grad_out[s], seq, &r->err));
    if (s + 1 < n) post(r, l->grad_in[s], seq + c[l->grad_in[s]].receive_ahead);
    for (int k = 0; s && s + 1 == n && k < 2; k++)
        post(r, l->in[s][k], seq + c[l->in[s][k]].receive_ahead);
}

static float word(int64_t seq, int64_t i) { return (float)((seq * 7919 + i * 31) % 1000); }

static int along_the_line(void *owner, int32_t rank)
{
    struct line *l = owner;
    struct arena *a = arena_new();
    struct device_rank space, *r = &space;
    const struct program *p = &l->m->p;
    int32_t n = p->n_stages, warm = n - 1 - rank;
    float *host = ARENA_ARRAY(a, float, (size_t)MESSAGE * 3 * STEPS);
    ASK(device_rank_open(r, a, p, -1));
    for (int64_t seq = 0; seq < 3 * STEPS; seq++)
        for (int64_t i = 0; i < MESSAGE; i++) host[seq * MESSAGE + i] = word(seq, i);
    if (rank == 0)
        ASK(r->backend.upload(&r->backend, at(r, 0, l->kept[0], 0), host,
                              (int64_t)MESSAGE * 3 * STEPS * 4, &r->err));
    struct device_transport_options o = device_rank_options(r);
    o.timed = true;
    ASK(device_transport_open(a, &o, &r->t, &r->err));
    for (int32_t c = 0; c < p->n_channels; c++)
        for (int64_t seq = 0; seq < p->channels[c].receive_ahead; seq++)
            if (p->channels[c].to_stage == rank) post(r, c, seq);
    for (int64_t step = 0; step < STEPS; step++)
        for (int64_t i = 0; i < 3 + warm; i++) { /* one forward, one backward */
            if (i < 3) forward(r, l, 3 * step + i);
            if (i >= warm) backward(r, l, 3 * step + i - warm);
        }
    ASK(device_rank_wait(r));
    ASK(r->backend.finish(&r->backend, &r->err));
    struct span_list spans = {.a = a};
    ASK(device_transport_spans(r->t, STEPS - 1, 0, &spans, &r->err));
    size_t ends = (rank ? 3U : 0U) + (rank + 1 < n ? 3U : 0U);
    NEED(spans.n == ends * 3 * STEPS, "%zu spans", spans.n);
    for (size_t i = 0; i < spans.n; i++)
        NEED(spans.spans[i].end_ns >= spans.spans[i].begin_ns &&
                 spans.spans[i].bytes == MESSAGE * 4,
             "span %zu", i);
    if (rank == 0)
        ASK(r->backend.download(&r->backend, host, at(r, 0, l->kept[0], 0),
                                (int64_t)MESSAGE * 3 * STEPS * 4, &r->err));
    float times = 1;
    for (int32_t s = 0; s < 2 * n - 3; s++) times *= 2;
    for (int64_t seq = 0; rank == 0 && seq < 3 * STEPS; seq++)
        for (int64_t i = 0; i + 1 < MESSAGE; i++)
            NEED(host[seq * MESSAGE + i] == times * word(seq, i + 1),
                 "message %" PRId64 " element %" PRId64 ": %g, not %g", seq, i,
                 (double)host[seq * MESSAGE + i], (double)(times * word(seq, i + 1)));
    device_rank_close(r);
    arena_free(a);
    return 0;
}

START_TEST(messages_pass_along_a_line_and_back_with_receives_ahead)
{
    struct arena *a = arena_new();
    struct line l = {0};
    int32_t n = 2 + _i % 3;
    make_line(&l, a, 900 + (uint64_t)_i, n);
    device_ranks_run(along_the_line, &l, n);
    arena_free(a);
}
END_TEST

START_TEST(channels_that_are_sent_and_received_alike_share_a_clique)
{
    struct arena *a = arena_new();
    struct line l = {0};
    struct talks t;
    unsigned char channel[16], group[GROUPS_MOST];
    make_line(&l, a, 7, 3);
    memset(channel, TRANSPORT_DEVICE, sizeof channel);
    memset(group, TRANSPORT_DEVICE, sizeof group);
    device_talks(a, &l.m->p, channel, group, &t);
    ck_assert_int_eq(t.n_bundles, 4); /* forwards and backwards, twice */
    ck_assert_int_eq(t.bundle_of[l.out[0][0]], t.bundle_of[l.out[0][1]]);
    ck_assert_int_lt(t.place[l.out[0][0]], t.place[l.out[0][1]]);
    l.m->p.channels[l.out[0][1]].receive_ahead += 1;
    device_talks(a, &l.m->p, channel, group, &t);
    ck_assert_int_eq(t.n_bundles, 5);
    ck_assert_int_ne(t.bundle_of[l.out[0][0]], t.bundle_of[l.out[0][1]]);
    arena_free(a);
}
END_TEST

START_TEST(groups_of_the_same_devices_share_a_clique)
{
    struct arena *a = arena_new();
    struct talks t;
    unsigned char channel[1] = {0}, group[GROUPS_MOST];
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct made *m = make(a, seed, 4);
        bool turns[4] = {0};
        int32_t orders = 0;
        while (m->p.n_groups < GROUPS_MOST) make_sum(m);
        memset(group, TRANSPORT_DEVICE, sizeof group);
        device_talks(a, &m->p, channel, group, &t);
        for (int32_t g = 0; g < m->p.n_groups; g++)
            if (group_divides(&m->p.groups[g])) turns[m->p.groups[g].members[0].stage] = true;
        for (int i = 0; i < 4; i++) orders += turns[i];
        ck_assert_int_eq(t.n, orders ? orders : 1);
        for (int32_t g = 0; g < m->p.n_groups; g++)
            for (int32_t i = 0; i < 4; i++) {
                int32_t rank = t.rank_of[g][i];
                ck_assert_int_eq(t.talk[t.talk_of[g]].device[rank],
                                 m->p.groups[g].members[i].stage);
                if (group_divides(&m->p.groups[g])) ck_assert_int_eq(rank, group_own_chunk(i, 4));
            }
    }
    arena_free(a);
}
END_TEST

Suite *device_transport_suite(void)
{
    Suite *s = suite_create("device_transport");
    TCase *t = tcase_create("device_transport");
    tcase_add_loop_test(t, sums_of_all_kinds_are_plain_sums_for_random_segments, 0,
                        test_long() ? 60 : 9);
    tcase_add_loop_test(t, messages_pass_along_a_line_and_back_with_receives_ahead, 0,
                        test_long() ? 30 : 6);
    tcase_add_test(t, channels_that_are_sent_and_received_alike_share_a_clique);
    tcase_add_test(t, groups_of_the_same_devices_share_a_clique);
    suite_add_tcase(s, t);
    return s;
}
