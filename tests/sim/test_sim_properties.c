/* Properties of random programs: lowered plans, pipelines and replicas made by hand. Properties of
 * tests/sim/test_sim_random.c, of pipelines alone, are not repeated here.
 *
 * Some properties need links without contention: with contention a faster device may change the order of messages, and
 * with it everything after (Graham's anomalies). Those cases are made `dedicated`.
 */
#include "sim/explain/explain.h"
#include "tests/support/plans.h"
#include "tests/support/random_pipes.h"

#include <inttypes.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static uint64_t cases(void) { return suites_long() ? 12000 : 400; }

struct made {
    const struct program *program;
    struct cost *cost;
};

/* Costs by hand, independent of the catalogue: 1 to 97 us by the operator's position. */
static struct profile *price(const struct program *p)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    size_t capacity = 0;
    f->pace = 1;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_ops; i++) {
            const struct program_op *op = &p->stages[s].ops[i];
            if (profile_row(f, "type:plain", op->key)) continue;
            f->ops = arena_grow(arena, f->ops, f->n_ops, &capacity, sizeof *f->ops);
            f->ops[f->n_ops++] =
                (struct op_row){.base = "type:plain",
                                .key = op->key,
                                .kind = op->kind,
                                .text = op->name,
                                .samples = 1,
                                .seconds = (double)(1 + (131 * s + 17 * i) % 97) * 1e-6,
                                .provenance = "profile"};
        }
    return f;
}

static struct made lowered(uint64_t seed, bool dedicated)
{
    struct plan *plan = ARENA_ARRAY(arena, struct plan, 1);
    *plan = seed % 12 ? plans_random_plan(arena, seed) : plans_random_chunks(arena, seed);
    struct link *bus = &plan->cluster.links[0];
    if (dedicated)
        bus->bandwidth_Bps = 1e30; /* nothing is in flight for long enough to meet another */
    if (!dedicated && seed % 3 == 0) bus->sharing = LINK_FAIR;
    if (!dedicated && seed % 5 == 0) bus->half_duplex = true;
    const struct program *p = plans_lower(arena, plan, seed % 2);
    return (struct made){p, cost_new(arena, price(p), &plan->cluster)};
}

static struct made make(uint64_t seed, bool dedicated)
{
    if (seed % 4 == 0) return lowered(seed, dedicated);
    struct pipes in = seed % 4 == 1 ? random_pipes_replicas(seed) : random_pipes(seed);
    if (dedicated) {
        in.one_link = false, in.sharing = LINK_FIFO;
        for (int32_t s = 0; s < in.n_stages; s++) in.half_duplex[s] = false;
    }
    struct pipes_made *m = pipes_make(arena, &in);
    return (struct made){&m->program, m->cost};
}

static struct sim_result simulate(struct made m, int32_t steps, bool trace,
                                  const struct sim_scale *scale)
{
    struct sim_options o = {.steps = steps, .keep_trace = trace, .scale = scale};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(arena, m.program, m.cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* --- what is carried --- */

START_TEST(what_goes_into_a_link_comes_out_of_it)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, false);
        const struct program *p = m.program;
        struct sim_result r = simulate(m, 2, true, NULL);
        int64_t *in = ARENA_ARRAY(arena, int64_t, (size_t)p->n_channels),
                *out = ARENA_ARRAY(arena, int64_t, (size_t)p->n_channels);
        for (size_t i = 0; i < r.trace->n_spans; i++) {
            const struct span *s = &r.trace->spans[i];
            if (s->kind == SPAN_SEND) in[s->op] += s->bytes;
            if (s->kind == SPAN_RECEIVE) out[s->op] += s->bytes;
        }
        for (int32_t c = 0; c < p->n_channels; c++) {
            const struct channel *x = &p->channels[c];
            ck_assert_int_eq(in[c], out[c]);
            ck_assert_int_eq(in[c],
                             2 * p->stages[x->from_stage].microbatches * x->bytes * (x->link >= 0));
        }
        arena_reset(arena);
    }
}
END_TEST

/* Total bytes of the ring's or chain's members, from the program alone. */
static int64_t group_bytes(const struct collective *g)
{
    int64_t whole = g->elements * dtype_bytes(g->dtype);
    if (g->n_members < 2 || g->algorithm == ALGORITHM_LOCAL) return 0;
    return 2 * (g->n_members - 1) * whole; /* every chunk crosses every hop but one, twice */
}

START_TEST(every_byte_of_a_collective_is_sent)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, false);
        struct sim_result r = simulate(m, 1, true, NULL);
        int64_t *sent = ARENA_ARRAY(arena, int64_t, (size_t)m.program->n_collectives);
        for (size_t i = 0; i < r.trace->n_spans; i++)
            if (r.trace->spans[i].kind == SPAN_REDUCE)
                sent[r.trace->spans[i].op] += r.trace->spans[i].bytes;
        for (int32_t g = 0; g < m.program->n_collectives; g++)
            ck_assert_int_eq(sent[g], group_bytes(&m.program->collectives[g]));
        arena_reset(arena);
    }
}
END_TEST

/* --- streams and links --- */

static int by_link_then_begin(const void *a, const void *b)
{
    const struct span *x = *(const struct span *const *)a, *y = *(const struct span *const *)b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

START_TEST(no_stream_and_no_fifo_link_does_two_things_at_once)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, false);
        const struct program *p = m.program;
        struct sim_result r = simulate(m, 2, true, NULL);
        const struct span **sends = ARENA_ARRAY(arena, const struct span *, r.trace->n_spans);
        size_t n = 0;
        for (size_t i = 0; i < r.trace->n_spans; i++) {
            const struct span *s = &r.trace->spans[i], *before = i ? s - 1 : NULL;
            ck_assert_int_ge(s->begin_ns, 0);
            ck_assert_int_le(s->begin_ns, s->end_ns);
            bool alone = s->stream == STREAM_compute || s->stream == STREAM_collective;
            if (alone && before && before->device == s->device && before->stream == s->stream)
                ck_assert_int_le(before->end_ns, s->begin_ns);
            if (s->kind != SPAN_SEND) continue;
            const struct channel *c = &p->channels[s->op];
            if (p->links[c->link].sharing != LINK_FIFO) continue;
            struct span *copy = ARENA_ARRAY(arena, struct span, 1);
            *copy = *s;
            copy->part = 2 * c->link + (p->links[c->link].half_duplex ? 0 : c->direction);
            sends[n++] = copy;
        }
        if (n) qsort(sends, n, sizeof *sends, by_link_then_begin);
        for (size_t i = 1; i < n; i++)
            if (sends[i]->part == sends[i - 1]->part)
                ck_assert_int_ge(sends[i]->begin_ns, sends[i - 1]->end_ns);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(messages_of_a_channel_leave_in_the_order_they_are_handed_over)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, false);
        const struct program *p = m.program;
        struct sim_result r = simulate(m, 1, true, NULL);
        for (int32_t lane = 0; lane < p->n_devices; lane++) {
            int64_t *last = ARENA_ARRAY(arena, int64_t, (size_t)p->n_channels);
            int64_t *begin =
                ARENA_ARRAY(arena, int64_t, (size_t)p->n_channels * (size_t)(p->microbatches + 1));
            struct cursor c;
            struct call call;
            for (size_t i = 0; i < r.trace->n_spans; i++) {
                const struct span *s = &r.trace->spans[i];
                if (s->kind == SPAN_SEND && s->device == lane)
                    begin[s->op * (p->microbatches + 1) + s->microbatch] = s->begin_ns;
            }
            cursor_start(&c, &p->orders[p->lanes[lane].order]);
            while (cursor_next(&c, &call)) {
                const struct program_stage *s = program_called(p, lane, &call);
                const struct procedure *f = &s->procedures[call.procedure];
                for (int32_t i = 0; i < f->n_instrs; i++) {
                    if (f->instrs[i].kind != INSTR_SEND) continue;
                    int32_t channel = f->instrs[i].arg;
                    int64_t now = begin[channel * (p->microbatches + 1) + call.microbatch];
                    ck_assert_int_ge(now, last[channel]);
                    last[channel] = now;
                }
            }
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- the critical path --- */

START_TEST(the_makespan_is_the_critical_path_and_no_less_than_the_busiest_resource)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, false);
        const struct program *p = m.program;
        struct sim_result r = simulate(m, 1, true, NULL);
        struct explain x;
        struct error err = {0};
        ck_assert_msg(explain_result(arena, p, m.cost, &r, &x, &err) == OK, "%s", err.text);
        int64_t path = 0;
        for (size_t i = 0; i < x.n_pieces; i++) path += x.pieces[i].end_ns - x.pieces[i].begin_ns;
        ck_assert_int_eq(path, r.makespan_ns);
        ck_assert_int_eq(x.begin_ns, 0);
        for (int32_t i = 0; i < p->n_devices; i++)
            ck_assert_int_le(r.devices[i].busy_ns, r.makespan_ns);
        int64_t *carried = ARENA_ARRAY(arena, int64_t, 2 * (size_t)p->n_links);
        for (size_t i = 0; i < r.trace->n_spans; i++) {
            const struct span *s = &r.trace->spans[i];
            if (s->kind != SPAN_SEND || p->links[p->channels[s->op].link].sharing != LINK_FIFO)
                continue;
            carried[2 * p->channels[s->op].link + p->channels[s->op].direction] +=
                s->end_ns - s->begin_ns;
        }
        for (int32_t i = 0; i < p->n_links; i++) {
            ck_assert_int_le(carried[2 * i], r.makespan_ns);
            ck_assert_int_le(carried[2 * i + 1], r.makespan_ns);
            if (p->links[i].half_duplex)
                ck_assert_int_le(carried[2 * i] + carried[2 * i + 1], r.makespan_ns);
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- scales --- */

static double *factors(struct pipes_random *r, int32_t n, double most)
{
    double *f = ARENA_ARRAY(arena, double, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        f[i] = random_pipes_draw(r, 0, 2) ? 1 : most * (double)random_pipes_draw(r, 0, 1000) / 1000;
    return f;
}

START_TEST(nothing_that_is_faster_makes_it_slower)
{
    int64_t shorter = 0;
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, true);
        struct pipes_random r = {seed, 0};
        struct sim_scale scale = {.device = factors(&r, m.program->n_devices, 1),
                                  .link = factors(&r, m.program->n_links, 1),
                                  .kind = factors(&r, OP_KIND_COUNT, 1)};
        struct sim_result plain = simulate(m, 2, false, NULL), fast = simulate(m, 2, false, &scale);
        ck_assert_int_le(fast.makespan_ns, plain.makespan_ns);
        shorter += fast.makespan_ns < plain.makespan_ns;
        arena_reset(arena);
    }
    ck_assert_int_gt(shorter, (int64_t)cases() / 2);
}
END_TEST

START_TEST(what_takes_no_time_or_the_same_is_scaled_so)
{
    for (uint64_t seed = 0; seed < cases() / 4; seed++) {
        struct made m = make(seed, true);
        double *zero = ARENA_ARRAY(arena, double, OP_KIND_COUNT + 64),
               *one = ARENA_ARRAY(arena, double, OP_KIND_COUNT + 64);
        for (int i = 0; i < OP_KIND_COUNT + 64; i++) one[i] = 1;
        struct sim_scale nothing = {.device = zero, .link = zero}, same = {one, one, one};
        ck_assert_int_eq(simulate(m, 2, false, &nothing).makespan_ns, 0);
        ck_assert_int_eq(simulate(m, 2, false, &same).makespan_ns,
                         simulate(m, 2, false, NULL).makespan_ns);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(twice_all_costs_take_twice_the_time_to_the_nanosecond)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, seed % 4 != 0); /* a bus of 1 GB/s: whole ns a byte */
        if (m.program->links[0].sharing == LINK_FAIR)
            continue; /* ends of shared flows are rounded */
        double *two = ARENA_ARRAY(arena, double, OP_KIND_COUNT + 64);
        for (int i = 0; i < OP_KIND_COUNT + 64; i++) two[i] = 2;
        struct sim_scale scale = {.device = two, .link = two};
        struct sim_result once = simulate(m, 3, false, NULL), twice = simulate(m, 3, false, &scale);
        ck_assert_int_eq(twice.makespan_ns, 2 * once.makespan_ns);
        ck_assert_int_eq(twice.iteration_ns, 2 * once.iteration_ns);
        for (int32_t i = 0; i < m.program->n_devices; i++) {
            ck_assert_int_eq(twice.devices[i].busy_ns, 2 * once.devices[i].busy_ns);
            ck_assert_int_eq(twice.devices[i].peak_bytes, once.devices[i].peak_bytes);
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- names and numbers --- */

static int32_t *shuffled(struct pipes_random *r, int32_t n)
{
    int32_t *to = ARENA_ARRAY(arena, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) to[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t k = (int32_t)random_pipes_draw(r, 0, i), other = to[i];
        to[i] = to[k], to[k] = other;
    }
    return to;
}

#define COPY(type, from, n) ((type *)pipes_copy(arena, (from), (size_t)(n) * sizeof(type)))

static void renumber_stage(struct program_stage *s, const int32_t *device, const int32_t *channel,
                           const int32_t *group)
{
    s->device = device[s->device];
    s->buffer_rings = COPY(struct buffer_ring, s->buffer_rings, s->n_buffer_rings);
    for (int32_t i = 0; i < s->n_buffer_rings; i++) {
        if (s->buffer_rings[i].sent >= 0) s->buffer_rings[i].sent = channel[s->buffer_rings[i].sent];
        if (s->buffer_rings[i].received >= 0) s->buffer_rings[i].received = channel[s->buffer_rings[i].received];
    }
    s->procedures = COPY(struct procedure, s->procedures, s->n_procedures);
    for (int32_t f = 0; f < s->n_procedures; f++) {
        struct procedure *p = &s->procedures[f];
        p->instrs = COPY(struct instr, p->instrs, p->n_instrs);
        for (int32_t i = 0; i < p->n_instrs; i++) {
            struct instr *x = &p->instrs[i];
            if (x->kind == INSTR_SEND || x->kind == INSTR_RECEIVE) x->arg = channel[x->arg];
            if (x->kind == INSTR_COLLECTIVE_START || x->kind == INSTR_COLLECTIVE_WAIT)
                x->arg = group[x->arg];
        }
    }
}

/* The same program with other numbers for devices, channels and groups, and other names. */
static struct program *renumbered(const struct program *p, struct pipes_random *r,
                                  const int32_t *device)
{
    struct program *out = COPY(struct program, p, 1);
    const int32_t *channel = shuffled(r, p->n_channels), *group = shuffled(r, p->n_collectives);
    out->devices = COPY(struct program_device, p->devices, p->n_devices);
    out->lanes = COPY(struct lane, p->lanes, p->n_devices);
    out->stages = COPY(struct program_stage, p->stages, p->n_stages);
    out->channels = COPY(struct channel, p->channels, p->n_channels);
    out->collectives = COPY(struct collective, p->collectives, p->n_collectives);
    for (int32_t i = 0; i < p->n_devices; i++) {
        out->devices[device[i]] = p->devices[i];
        out->devices[device[i]].name = arena_printf(arena, "other.%" PRId32, i);
        out->lanes[device[i]] = p->lanes[i];
    }
    for (int32_t i = 0; i < p->n_channels; i++) out->channels[channel[i]] = p->channels[i];
    for (int32_t i = 0; i < p->n_collectives; i++) out->collectives[group[i]] = p->collectives[i];
    for (int32_t i = 0; i < p->n_stages; i++)
        renumber_stage(&out->stages[i], device, channel, group);
    return out;
}

START_TEST(names_and_numbers_change_nothing)
{
    for (uint64_t seed = 0; seed < cases(); seed++) {
        struct made m = make(seed, true);
        struct pipes_random random = {seed + 77, 0};
        const int32_t *device = shuffled(&random, m.program->n_devices);
        struct made other = {renumbered(m.program, &random, device), m.cost};
        struct sim_result x = simulate(m, 3, false, NULL), y = simulate(other, 3, false, NULL);
        ck_assert_int_eq(x.makespan_ns, y.makespan_ns);
        ck_assert_int_eq(x.iteration_ns, y.iteration_ns);
        for (int32_t i = 0; i < m.program->n_devices; i++) {
            const struct sim_device *a = &x.devices[i], *b = &y.devices[device[i]];
            ck_assert_int_eq(a->busy_ns, b->busy_ns);
            ck_assert_int_eq(a->peak_bytes, b->peak_bytes);
            ck_assert_int_eq(a->peak_ns, b->peak_ns);
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- the same bytes --- */

static uint64_t hash_int(uint64_t h, int64_t v)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)((uint64_t)v >> (8 * i) & 255);
    return rng_hash_bytes(h, b, sizeof b);
}

static uint64_t hash_result(uint64_t h, const struct program *p, const struct sim_result *r)
{
    for (size_t i = 0; i < r->trace->n_spans; i++) {
        const struct span *s = &r->trace->spans[i];
        const int64_t fields[] = {s->kind,   s->stream,   s->device, s->peer,       s->stage,
                                  s->phase, s->step,     s->part,   s->microbatch, s->op,
                                  s->bytes,  s->begin_ns, s->end_ns};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) h = hash_int(h, fields[k]);
        h = rng_hash_text(h, s->name);
    }
    for (int32_t i = 0; i < p->n_devices; i++) h = hash_int(h, r->devices[i].peak_bytes);
    h = hash_int(h, r->iteration_ns);
    return hash_int(h, r->makespan_ns);
}

START_TEST(two_runs_of_a_program_are_the_same_bytes)
{
    for (uint64_t seed = 0; seed < cases() / 2; seed++) {
        struct made m = make(seed, false);
        struct sim_result a = simulate(m, 2, true, NULL), b = simulate(m, 2, true, NULL);
        ck_assert(hash_result(1, m.program, &a) == hash_result(1, m.program, &b));
        arena_reset(arena);
    }
}
END_TEST

/* Constants of this suite: every compiler and optimization level gives the same bytes. They change only with the rules
 * of the simulator (or, for the second, of lowering). */
#define GOLDEN_MADE UINT64_C(0x2dd4327cbb27b6b4)
#define GOLDEN_LOWERED UINT64_C(0x276bcbdb343be0f1)

START_TEST(traces_are_the_same_bytes_in_every_build)
{
    uint64_t made = 1, plans = 1;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct made m = make(seed, false);
        struct sim_result r = simulate(m, 3, true, NULL);
        uint64_t *h = seed % 4 ? &made : &plans;
        *h = hash_result(*h, m.program, &r);
        arena_reset(arena);
    }
    ck_assert_msg(made == GOLDEN_MADE, "programs made by hand: 0x%016" PRIx64, made);
    ck_assert_msg(plans == GOLDEN_LOWERED, "lowered plans: 0x%016" PRIx64, plans);
}
END_TEST

Suite *sim_properties_suite(void)
{
    Suite *s = suite_create("sim/engine/sim, properties");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_goes_into_a_link_comes_out_of_it);
    tcase_add_test(t, every_byte_of_a_collective_is_sent);
    tcase_add_test(t, no_stream_and_no_fifo_link_does_two_things_at_once);
    tcase_add_test(t, messages_of_a_channel_leave_in_the_order_they_are_handed_over);
    tcase_add_test(t, the_makespan_is_the_critical_path_and_no_less_than_the_busiest_resource);
    tcase_add_test(t, nothing_that_is_faster_makes_it_slower);
    tcase_add_test(t, what_takes_no_time_or_the_same_is_scaled_so);
    tcase_add_test(t, twice_all_costs_take_twice_the_time_to_the_nanosecond);
    tcase_add_test(t, names_and_numbers_change_nothing);
    tcase_add_test(t, two_runs_of_a_program_are_the_same_bytes);
    tcase_add_test(t, traces_are_the_same_bytes_in_every_build);
    suite_add_tcase(s, t);
    return s;
}
