/* Gradient all-reduces between devices, of every algorithm, against plain sums. Ranks are forked; each has a stand-in
 * GPU. */
#include "tests/support/made_programs.h"

#include "core/graph/half.h"
#include "exec/device_transport/plan.h"

#include <math.h>

/* ---- sums ------------------------------------------------------------------------------------- */

static double value(const struct made_program *m, int32_t group, int32_t segment, int32_t member, int64_t i)
{
    uint64_t key = (uint64_t)(group * 64 + segment * 8 + member);
    return rng_normal(m->seed, key, (uint64_t)i);
}

/* A member's segment: whole, or in two runs of something longer. */
static void add_segment(struct made_program *m, struct collective_member *x, enum dtype t, int64_t n, bool cuts)
{
    int64_t gap = cuts ? made_program_draw(m, 1, 3) : 0, first = cuts ? made_program_draw(m, 0, n) : n;
    int32_t k = x->n_segments++;
    x->segments[k] = made_program_slot(m, x->stage, SLOT_GRADIENT, t, n + 2 * gap, 0);
    if (!cuts) return;
    int64_t *at = ARENA_ARRAY(m->a, int64_t, 2), *count = ARENA_ARRAY(m->a, int64_t, 2);
    at[0] = gap, count[0] = first;
    at[1] = 2 * gap + first, count[1] = n - first;
    x->within[k].shape = (struct shape){1, {n + 2 * gap}};
    x->within[k].n_dims = 1;
    x->within[k].dim[0].n_runs = 2, x->within[k].dim[0].first = at,
    x->within[k].dim[0].count = count;
}

static struct collective_member new_member(struct made_program *m, int32_t stage)
{
    return (struct collective_member){.stage = stage,
                                 .segments = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MAX),
                                 .within = ARENA_ARRAY(m->a, struct region, SEGMENTS_MAX),
                                 .chain_ring = -1};
}

static void keep_microbatches(struct made_program *m, struct collective_member *x, const int64_t *n, int32_t segments)
{
    int64_t room = 0;
    x->chain_segments = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MAX);
    for (int32_t k = 0; k < segments; k++) room += (n[k] * 4 + 63) / 64 * 64;
    int32_t whole = made_program_slot(m, x->stage, SLOT_BUFFER_RING, DTYPE_fp32, room / 4, 3);
    struct program_stage *s = &m->p.stages[x->stage];
    x->chain_ring = s->slots[whole].buffer_ring;
    int64_t at = 0;
    for (int32_t k = 0; k < segments; k++) {
        s->slots[s->n_slots] = s->slots[whole];
        s->slots[s->n_slots].shape = (struct shape){1, {n[k]}};
        s->slots[s->n_slots].offset_bytes = at;
        at += (n[k] * 4 + 63) / 64 * 64;
        x->chain_segments[k] = s->n_slots++;
    }
}

static void own_slots(struct made_program *m, struct collective_member *x, enum dtype t, const int64_t *n,
                      int32_t segments, int32_t members)
{
    x->own = ARENA_ARRAY(m->a, int32_t, SEGMENTS_MAX);
    for (int32_t k = 0; k < segments; k++)
        x->own[k] = made_program_slot(m, x->stage, SLOT_STATE, t, n[k] / members, 0);
}

static void make_reduce(struct made_program *m)
{
    static const struct {
        enum collective_kind kind;
        enum collective_algorithm algorithm;
    } kinds[] = {{COLLECTIVE_ALL_REDUCE, ALGORITHM_RING},
                 {COLLECTIVE_ALL_REDUCE, ALGORITHM_RING},
                 {COLLECTIVE_ALL_REDUCE, ALGORITHM_CHAIN},
                 {COLLECTIVE_REDUCE_SCATTER, ALGORITHM_RING},
                 {COLLECTIVE_ALL_GATHER, ALGORITHM_RING}};
    static const enum dtype wires[] = {DTYPE_fp32, DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16};
    struct collective *g = &m->p.collectives[m->p.n_collectives];
    int32_t n = m->p.n_devices, segments = (int32_t)made_program_draw(m, 0, SEGMENTS_MAX);
    int64_t elements[SEGMENTS_MAX];
    int64_t which = made_program_draw(m, 0, 4);
    *g = (struct collective){.name = "sum",
                             .kind = kinds[which].kind,
                             .algorithm = kinds[which].algorithm,
                             .n_members = n};
    bool ring = program_collective_rings(g) && !program_collective_divides(g), chain = g->algorithm == ALGORITHM_CHAIN;
    g->dtype = chain ? DTYPE_fp32 : wires[made_program_draw(m, 0, 4)];
    enum dtype t = dtype_is_half(g->dtype) && !program_collective_gathers(g) ? DTYPE_fp32 : g->dtype;
    for (int32_t k = 0; k < segments; k++) {
        elements[k] = made_program_draw(m, 0, 5) ? made_program_draw(m, 1, 300) : 0;
        if (program_collective_divides(g)) elements[k] *= n;
        g->elements += elements[k];
    }
    g->members = ARENA_ARRAY(m->a, struct collective_member, (size_t)n);
    bool own = made_program_draw(m, 0, 1), apart = made_program_draw(m, 0, 1);
    int32_t turn = (int32_t)made_program_draw(m, 0, n - 1), silent = (int32_t)made_program_draw(m, 0, 2 * n);
    for (int32_t i = 0; i < n; i++) {
        struct collective_member *x = &g->members[i];
        *x = new_member(m, (i + turn) % n);
        x->silent = ring && i == silent;
        bool cuts = ring && made_program_draw(m, 0, 2) == 0;
        for (int32_t k = 0; k < segments; k++) add_segment(m, x, t, elements[k], cuts);
        if (chain && apart && i) keep_microbatches(m, x, elements, segments);
        if (program_collective_divides(g) && own) own_slots(m, x, t, elements, segments, n);
        m->weight[x->stage][m->p.n_collectives] = ring && t == g->dtype ? (double)made_program_draw(m, 1, 4) / 4 : 0;
        int64_t staging = program_collective_staging_bytes(g, x, &m->p.stages[x->stage]);
        if (staging > m->p.stages[x->stage].buffer_bytes)
            m->p.stages[x->stage].buffer_bytes = staging;
    }
    m->p.n_collectives++;
}

/* What a member has in the elements of a segment, before; as many as it has. */
static double before(const struct made_program *m, int32_t g, int32_t k, int32_t member, int64_t i)
{
    return value(m, g, k, member, i);
}

/* Through a device's memory, as doubles. */
static void pass(struct device_rank *r, const struct made_program *m, int32_t stage, int32_t slot_number,
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
static void where(const struct made_program *m, const struct collective_member *x, int32_t k, struct spread *s)
{
    int64_t all = shape_elements(&m->p.stages[x->stage].slots[x->segments[k]].shape);
    s->n = 0;
    if (x->within[k].n_dims)
        region_walk(&x->within[k], note_run, s);
    else
        for (; s->n < all; s->n++) s->at[s->n] = s->n;
}

static void fill(struct device_rank *r, const struct made_program *m, int32_t g, int32_t i)
{
    const struct collective_member *x = &m->p.collectives[g].members[i];
    double v[2048];
    struct spread s;
    for (int32_t k = 0; k < x->n_segments; k++) {
        int64_t all = shape_elements(&m->p.stages[x->stage].slots[x->segments[k]].shape);
        where(m, x, k, &s);
        for (int64_t e = 0; e < all; e++) v[e] = -77;
        for (int64_t e = 0; e < s.n; e++) v[s.at[e]] = before(m, g, k, i, e);
        pass(r, m, x->stage, x->segments[k], 0, v, all, true);
        for (int64_t b = 0; x->chain_ring >= 0 && b < 3; b++) {
            for (int64_t e = 0; e < s.n; e++) v[e] = value(m, g, k, i, e + 1000 * (b + 1));
            pass(r, m, x->stage, x->chain_segments[k], b, v, s.n, true);
        }
        for (int64_t e = 0; x->own && e < s.n / m->p.n_devices; e++)
            v[e] = value(m, g, k, i, e + 5000);
        if (x->own) pass(r, m, x->stage, x->own[k], 0, v, s.n / m->p.n_devices, true);
    }
}

/* Element e of segment k after the sum, for member i; *known: the member has a right to it. */
static double after(const struct made_program *m, int32_t g, int32_t k, int32_t i, int64_t e, bool *known)
{
    const struct collective *x = &m->p.collectives[g];
    int32_t n = x->n_members;
    int64_t all = program_collective_segment_elements(&x->members[i], &m->p.stages[x->members[i].stage], k),
            part = all / n;
    double sum = 0;
    *known = true;
    if (program_collective_gathers(x)) { /* chunk c is member c - 1's */
        int32_t owner = (int32_t)((e / part + n - 1) % n);
        return x->members[owner].own ? value(m, g, k, owner, e % part + 5000)
                                     : before(m, g, k, owner, e);
    }
    for (int32_t j = 0; j < n; j++) {
        const struct collective_member *y = &x->members[j];
        double w = m->weight[y->stage][g] != 0 ? m->weight[y->stage][g] : 1;
        if (y->silent) continue;
        if (y->chain_ring < 0) sum += w * before(m, g, k, j, e);
        for (int64_t b = 0; y->chain_ring >= 0 && b < 3; b++)
            sum += value(m, g, k, j, e + 1000 * (b + 1));
    }
    if (program_collective_scatters(x)) *known = e / part == program_collective_own_chunk(i, n);
    return sum;
}

static void check(struct device_rank *r, const struct made_program *m, int32_t g, int32_t i)
{
    const struct collective *group = &m->p.collectives[g];
    const struct collective_member *x = &group->members[i];
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
            if (x->own && program_collective_scatters(group)) {
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

static int32_t member_of(const struct collective *g, int32_t stage)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->members[i].stage == stage) return i;
    return -1;
}

static int sum_up(void *owner, int32_t rank)
{
    struct made_program *m = owner;
    struct arena *a = arena_new();
    struct device_rank r;
    NEED(device_rank_open(&r, a, &m->p, -1) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_collectives; g++) fill(&r, m, g, member_of(&m->p.collectives[g], rank));
    struct device_transport_options o = device_rank_options(&r);
    o.weight = m->weight[rank];
    NEED(device_transport_open(a, &o, &r.t, &r.err) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_collectives; g++)
        NEED(device_transport_reduce(r.t, g, 0, 0, 0, -1, 'U', &r.err) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_collectives; g++)
        NEED(device_transport_await(r.t, g, 0, &r.err) == OK, "%s", r.err.text);
    NEED(device_rank_wait(&r) == OK, "%s", r.err.text);
    for (int32_t g = 0; g < m->p.n_collectives; g++) check(&r, m, g, member_of(&m->p.collectives[g], rank));
    device_rank_close(&r);
    arena_free(a);
    return 0;
}

START_TEST(sums_of_all_kinds_are_plain_sums_for_random_segments)
{
    struct arena *a = arena_new();
    int32_t n = 2 + _i % 3;
    struct made_program *m = made_program_make(a, 50 + (uint64_t)_i, n);
    while (m->p.n_collectives < GROUPS_MAX) make_reduce(m);
    device_ranks_run(sum_up, m, n);
    arena_free(a);
}
END_TEST

START_TEST(groups_of_the_same_devices_share_a_communicator)
{
    struct arena *a = arena_new();
    struct talks t;
    unsigned char channel[1] = {0}, group[GROUPS_MAX];
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct made_program *m = made_program_make(a, seed, 4);
        bool turns[4] = {0};
        int32_t orders = 0;
        while (m->p.n_collectives < GROUPS_MAX) make_reduce(m);
        memset(group, TRANSPORT_DEVICE, sizeof group);
        plan_talks(a, &m->p, channel, group, &t);
        for (int32_t g = 0; g < m->p.n_collectives; g++)
            if (program_collective_divides(&m->p.collectives[g])) turns[m->p.collectives[g].members[0].stage] = true;
        for (int i = 0; i < 4; i++) orders += turns[i];
        ck_assert_int_eq(t.n, orders ? orders : 1);
        for (int32_t g = 0; g < m->p.n_collectives; g++)
            for (int32_t i = 0; i < 4; i++) {
                int32_t rank = t.rank_of[g][i];
                ck_assert_int_eq(t.talk[t.talk_of[g]].device[rank],
                                 m->p.collectives[g].members[i].stage);
                if (program_collective_divides(&m->p.collectives[g])) ck_assert_int_eq(rank, program_collective_own_chunk(i, 4));
            }
    }
    arena_free(a);
}
END_TEST

Suite *device_transport_reduce_suite(void)
{
    Suite *s = suite_create("device_transport_sums");
    TCase *t = tcase_create("device_transport_sums");
    tcase_add_loop_test(t, sums_of_all_kinds_are_plain_sums_for_random_segments, 0,
                        suites_long() ? 60 : 9);
    tcase_add_test(t, groups_of_the_same_devices_share_a_communicator);
    suite_add_tcase(s, t);
    return s;
}
