/* Invariants of random pipelines, and the errors of programs that deadlock. */
#include "tests/support/random_pipes.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { CASES = 600 };

/* Times of one operator are floor(time / ops). */
static int64_t whole(int64_t ns, const struct pipes *in) { return ns / in->ops * in->ops; }

static int64_t busiest(const struct pipes *in)
{
    int64_t most = 0;
    for (int32_t s = 0; s < in->n_stages; s++) {
        int64_t busy =
            in->microbatches * (whole(in->forward_ns[s], in) + whole(in->backward_ns[s], in)) +
            in->update_ns[s];
        if (busy > most) most = busy;
    }
    return most;
}

/* One microbatch down to the last stage and back. */
static int64_t round_trip(const struct pipes *in)
{
    int64_t path = in->update_ns[0];
    for (int32_t s = 0; s < in->n_stages; s++) {
        path += whole(in->forward_ns[s], in) + whole(in->backward_ns[s], in);
        if (s + 1 < in->n_stages)
            path += 2 * (in->transfer_ns[s] + in->latency_ns[in->one_link ? 0 : s]);
    }
    return path;
}

static void check_spans(const struct trace *t, const struct pipes *in)
{
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i], *before = i ? s - 1 : NULL;
        ck_assert_int_le(s->begin_ns, s->end_ns);
        if (!before || before->device != s->device || before->stream != s->stream) continue;
        bool alone = s->stream == STREAM_compute || s->stream == STREAM_collective;
        if (alone) ck_assert_int_le(before->end_ns, s->begin_ns);
    }
    /* A FIFO link carries one message at a time in each direction. */
    for (size_t i = 0; i < t->n_spans && in->sharing == LINK_FIFO; i++)
        for (size_t k = 0; k < i; k++) {
            const struct span *x = &t->spans[i], *y = &t->spans[k];
            if (x->kind != SPAN_SEND || y->kind != SPAN_SEND || strcmp(x->name, y->name) != 0)
                continue;
            if (!in->half_duplex[strtol(x->name + 1, NULL, 10)] && x->op % 2 != y->op % 2) continue;
            ck_assert(x->end_ns <= y->begin_ns || y->end_ns <= x->begin_ns);
        }
}

START_TEST(no_lane_overlaps_itself_and_no_pipeline_beats_its_bounds)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
        check_spans(r.trace, &in);
        ck_assert_int_ge(r.makespan_ns, busiest(&in));
        ck_assert_int_ge(r.makespan_ns, round_trip(&in));
        arena_reset(arena);
    }
}
END_TEST

START_TEST(twice_the_costs_take_twice_the_time)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        in.ops = 1;
        int64_t once = pipes_makespan(arena, &in);
        for (int32_t s = 0; s < in.n_stages; s++) {
            in.forward_ns[s] *= 2, in.backward_ns[s] *= 2, in.update_ns[s] *= 2;
            in.transfer_ns[s] *= 2, in.latency_ns[s] *= 2;
        }
        int64_t twice = pipes_makespan(arena, &in);
        /* Ends of shared flows are rounded up to whole nanoseconds. */
        if (in.sharing == LINK_FIFO || (!in.one_link && !in.half_duplex[0])) {
            int64_t slack = in.sharing == LINK_FIFO ? 0 : 2 * in.microbatches * in.n_stages;
            ck_assert_int_le(llabs(twice - 2 * once), slack);
        }
        arena_reset(arena);
    }
}
END_TEST

START_TEST(the_order_of_the_lanes_changes_nothing)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        /* The order of messages that become ready at the same instant on one queue is that of pushes. */
        in.one_link = false;
        for (int32_t s = 0; s < in.n_stages; s++) in.half_duplex[s] = false;
        struct sim_result plain = pipes_run(pipes_make(arena, &in), 3, false);
        in.reversed = true;
        struct sim_result mirrored = pipes_run(pipes_make(arena, &in), 3, false);
        ck_assert_int_eq(plain.makespan_ns, mirrored.makespan_ns);
        ck_assert_int_eq(plain.iteration_ns, mirrored.iteration_ns);
        for (int32_t s = 0; s < in.n_stages; s++) {
            const struct sim_device *x = &plain.devices[s],
                                    *y = &mirrored.devices[in.n_stages - 1 - s];
            ck_assert_int_eq(x->peak_bytes, y->peak_bytes);
            ck_assert_int_eq(x->peak_ns, y->peak_ns);
            ck_assert_int_eq(x->busy_ns, y->busy_ns);
        }
        arena_reset(arena);
    }
}
END_TEST

START_TEST(a_steady_state_that_is_seen_early_is_the_one_that_is_reached)
{
    int32_t early = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result whole_run = pipes_run(m, 9, true), short_run = pipes_run(m, 9, false);
        ck_assert_int_eq(whole_run.steps, 9);
        ck_assert_int_eq(pipes_step_ns(whole_run.trace, 7), short_run.iteration_ns);
        ck_assert_int_eq(whole_run.iteration_ns, short_run.iteration_ns);
        ck_assert_int_le(whole_run.makespan_ns,
                         short_run.makespan_ns); /* nothing follows the last step */
        for (int32_t s = 0; s < in.n_stages; s++)
            ck_assert_int_eq(whole_run.devices[s].peak_bytes, short_run.devices[s].peak_bytes);
        early += short_run.steps < 9;
        arena_reset(arena);
    }
    ck_assert_int_ge(early, CASES / 2);
}
END_TEST

/* Field by field, because padding is undefined. */
static bool same_span(const struct span *x, const struct span *y)
{
    return x->kind == y->kind && x->stream == y->stream && x->device == y->device &&
           x->peer == y->peer && x->stage == y->stage && x->phase == y->phase &&
           x->step == y->step && x->microbatch == y->microbatch && x->op == y->op &&
           x->part == y->part && x->begin_ns == y->begin_ns && x->end_ns == y->end_ns &&
           x->bytes == y->bytes && x->key == y->key && !strcmp(x->name, y->name);
}

/* A slowdown below a millionth changes no duration, but holds every lane at the queue's time. Where several messages are
 * ready for one link at the same instant their order is that of pushes, which differs. */
START_TEST(running_ahead_of_the_queue_changes_nothing)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        in.one_link = false;
        memset(in.half_duplex, 0, sizeof in.half_duplex);
        int64_t ahead = pipes_makespan(arena, &in);
        in.compute_slowdown = 1e-9;
        ck_assert_int_eq(pipes_makespan(arena, &in), ahead);
        arena_reset(arena);
    }
}
END_TEST

/* Never shorter than without slowdown. Two slowdowns are not compared, because the greater one may move a message to a less
 * disturbing time. */
START_TEST(messages_that_slow_operators_down_never_make_a_step_shorter)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        in.one_link = false, in.sharing = LINK_FIFO;
        memset(in.half_duplex, 0, sizeof in.half_duplex);
        int64_t without = pipes_makespan(arena, &in);
        in.compute_slowdown = 0.25 * (double)(1 + seed % 8);
        ck_assert_int_ge(pipes_makespan(arena, &in), without);
        in.compute_slowdown = INFINITY;
        ck_assert_int_ge(pipes_makespan(arena, &in), without);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(two_runs_tell_the_same_spans)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result a = pipes_run(m, 2, true), b = pipes_run(m, 2, true);
        ck_assert_int_eq((int64_t)a.trace->n_spans, (int64_t)b.trace->n_spans);
        for (size_t i = 0; i < a.trace->n_spans; i++)
            ck_assert(same_span(&a.trace->spans[i], &b.trace->spans[i]));
        ck_assert_mem_eq(a.devices, b.devices, (size_t)in.n_stages * sizeof *a.devices);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(a_trace_does_not_change_what_is_simulated)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct pipes in = random_pipes(seed);
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result with = pipes_run(m, 1, true), without = pipes_run(m, 1, false);
        ck_assert_int_eq(with.makespan_ns, without.makespan_ns);
        ck_assert_mem_eq(with.devices, without.devices, (size_t)in.n_stages * sizeof *with.devices);
        arena_reset(arena);
    }
}
END_TEST

/* Peak by brute force: all allocations and releases of a run, from its spans. */
static int64_t peak_from_spans(const struct trace *t, const struct pipes *in, int32_t device)
{
    int64_t most = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        int64_t now = t->spans[i].begin_ns, live = 0;
        if (t->spans[i].kind == SPAN_STEP) continue;
        for (int32_t mb = 0; mb < in->microbatches; mb++) {
            int64_t first[256], last[256];
            memset(first, -1, sizeof first), memset(last, -1, sizeof last);
            int64_t sent[2] = {-1, -1}, begun[2] = {-1, -1}, sent_bytes[2] = {0},
                    begun_bytes[2] = {0};
            for (size_t k = 0; k < t->n_spans; k++) {
                const struct span *s = &t->spans[k];
                if (s->device != device || s->microbatch != mb) continue;
                if (s->kind == SPAN_SEND)
                    sent[s->phase == PHASE_B] = s->end_ns,
                                     sent_bytes[s->phase == PHASE_B] = s->bytes;
                if (s->kind == SPAN_RECEIVE)
                    begun[s->phase == PHASE_B] = s->begin_ns,
                                      begun_bytes[s->phase == PHASE_B] = s->bytes;
                if (s->kind != SPAN_COMPUTE) continue;
                if (first[(int)s->phase] < 0) first[(int)s->phase] = s->begin_ns;
                last[(int)s->phase] = s->end_ns;
            }
            if (first['F'] <= now && now < last['B']) live += in->kept_bytes;
            if (first['F'] <= now && now < sent[0]) live += sent_bytes[0];
            if (first['B'] <= now && now < sent[1]) live += sent_bytes[1];
            if (begun[0] >= 0 && begun[0] <= now && now < last['F']) live += begun_bytes[0];
            if (begun[1] >= 0 && begun[1] <= now && now < last['B']) live += begun_bytes[1];
        }
        if (live > most) most = live;
    }
    return most;
}

START_TEST(peak_memory_is_what_the_spans_say)
{
    for (uint64_t seed = 0; seed < CASES / 4; seed++) {
        struct pipes in = random_pipes(seed);
        if (in.microbatches > 6) in.microbatches = 6;
        struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
        for (int32_t s = 0; s < in.n_stages; s++)
            ck_assert_int_eq(r.devices[s].peak_bytes, peak_from_spans(r.trace, &in, s));
        arena_reset(arena);
    }
}
END_TEST

/* --- no progress --- */

static struct pipes stuck(int32_t n_stages, int32_t microbatches)
{
    struct pipes in = {.n_stages = n_stages, .microbatches = microbatches};
    for (int32_t s = 0; s < n_stages; s++) in.forward_ns[s] = 10, in.backward_ns[s] = 20;
    return in;
}

static void blocked(struct pipes_made *m, const char *const *parts)
{
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "deadlock: ") == err.text, "%s", err.text);
    for (; *parts; parts++)
        ck_assert_msg(strstr(err.text, *parts) != NULL, "'%s' in: %s", *parts, err.text);
}
#define BLOCKED(m, ...) blocked((m), (const char *const[]){__VA_ARGS__, NULL})

START_TEST(a_backward_before_its_forward_waits_forever)
{
    struct pipes in = stuck(2, 1);
    in.order[0] = "B0 F0";
    BLOCKED(pipes_make(arena, &in), "d0 at B0 (waits for gradient 0 from d1)",
            "d1 at F0 (waits for activation 0 from d0)");
}
END_TEST

START_TEST(a_stage_that_wants_all_forwards_first_starves_one_that_does_not)
{
    struct pipes in = stuck(2, 3);
    in.order[0] = "F0 B0 F1 B1 F2 B2";
    in.order[1] = "F0 F1 F2 B0 B1 B2";
    BLOCKED(pipes_make(arena, &in), "d0 at B0 (waits for gradient 0 from d1)",
            "d1 at F1 (waits for activation 1 from d0)");
}
END_TEST

START_TEST(a_message_beyond_the_posted_receives_never_comes)
{
    struct pipes in = stuck(2, 2);
    in.ahead = 1;
    in.order[0] = "F0 F1 B0 B1";
    in.order[1] = "F1 B1 F0 B0";
    BLOCKED(pipes_make(arena, &in), "d1 at F1 (waits for activation 1 from d0)", "d0 at B0");
}
END_TEST

START_TEST(a_full_buffer_ring_blocks_the_call_that_would_write_it)
{
    struct pipes in = stuck(2, 4);
    in.ahead = 1, in.buffers = 1;
    in.order[1] = "F0 F3 B0 B3";
    in.order[0] = "F0 F1 F2 F3 B0 B1 B2 B3";
    BLOCKED(pipes_make(arena, &in), "d0 at F3 (waits for activation 2 to leave for d1)",
            "d1 at F3");
}
END_TEST

START_TEST(a_message_that_nobody_sends_is_waited_for)
{
    struct pipes in = stuck(3, 2);
    struct pipes_made *m = pipes_make(arena, &in);
    m->program.stages[1].procedures[0].n_instrs--; /* the SEND of the middle's F */
    BLOCKED(m, "d0 at B0", "d1 at B0 (waits for gradient 0 from d2)",
            "d2 at F0 (waits for activation 0 from d1)");
}
END_TEST

START_TEST(a_stage_that_waits_for_its_own_message_blocks)
{
    struct pipes in = stuck(2, 1);
    in.order[0] = in.order[1] = "F0";
    struct pipes_made *m = pipes_make(arena, &in);
    m->program.stages[1].procedures[0].instrs[0].arg = 1; /* d1 waits for what it should send */
    BLOCKED(m, "d1 at F0 (waits for gradient 0 from d1)");
}
END_TEST

START_TEST(the_step_that_blocks_is_named)
{
    /* One send buffer and no receiver: message 0 leaves, message 1 of the second step cannot. */
    struct pipes in = stuck(2, 1);
    in.ahead = 1, in.buffers = 1;
    in.order[0] = "F0", in.order[1] = "B0";
    struct pipes_made *m = pipes_make(arena, &in);
    struct sim_options o = {.steps = 3};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "d0 at F0 of step 2 (waits for activation 0 to leave for d1)") !=
                      NULL,
                  "%s", err.text);
}
END_TEST

static struct pipes_made *two_groups(void)
{
    struct pipes in = stuck(2, 1);
    in.parallel = true, in.elements = 100;
    struct pipes_made *m = pipes_make(arena, &in);
    m->program.collectives[1] = m->program.collectives[0];
    m->program.collectives[1].name = "other";
    m->program.n_collectives = 2;
    return m;
}

static void update_calls(struct pipes_made *m, int32_t stage, int32_t n, const struct instr *x)
{
    m->program.stages[stage].procedures[2].n_instrs = n;
    m->program.stages[stage].procedures[2].instrs = pipes_copy(arena, x, (size_t)n * sizeof *x);
}

START_TEST(groups_that_join_in_different_orders_block)
{
    struct pipes_made *m = two_groups();
    const struct instr one[] = {{INSTR_COLLECTIVE_START, 0},
                                {INSTR_COLLECTIVE_START, 1},
                                {INSTR_COLLECTIVE_WAIT, 0},
                                {INSTR_COLLECTIVE_WAIT, 1}};
    const struct instr two[] = {{INSTR_COLLECTIVE_START, 1},
                                {INSTR_COLLECTIVE_START, 0},
                                {INSTR_COLLECTIVE_WAIT, 0},
                                {INSTR_COLLECTIVE_WAIT, 1}};
    update_calls(m, 0, 4, one), update_calls(m, 1, 4, two);
    BLOCKED(m, "d0 at U (waits for collective sum)", "d1 at U (waits for collective sum)");
}
END_TEST

START_TEST(awaiting_what_was_never_launched_blocks)
{
    struct pipes_made *m = two_groups();
    const struct instr one[] = {{INSTR_COLLECTIVE_START, 0}, {INSTR_COLLECTIVE_WAIT, 0}},
                       two[] = {{INSTR_COLLECTIVE_WAIT, 0}, {INSTR_COLLECTIVE_START, 0}};
    update_calls(m, 0, 2, one), update_calls(m, 1, 2, two);
    BLOCKED(m, "d0 at U (waits for collective sum)", "d1 at U (waits for collective sum)");
}
END_TEST

START_TEST(a_member_that_never_comes_leaves_the_other_inside_its_group)
{
    struct pipes_made *m = two_groups();
    const struct instr one[] = {{INSTR_COLLECTIVE_START, 1}};
    update_calls(m, 0, 1, one), update_calls(m, 1, 0, one);
    BLOCKED(m, "d0 done (in collective other)");
}
END_TEST

START_TEST(a_long_blocked_set_is_cut_and_counted)
{
    struct pipes in = stuck(40, 1);
    in.order[0] = "B0 F0";
    BLOCKED(pipes_make(arena, &in), "d0 at B0", " more");
}
END_TEST

Suite *sim_random_suite(void)
{
    Suite *s = suite_create("sim/engine/sim, random and blocked");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_lane_overlaps_itself_and_no_pipeline_beats_its_bounds);
    tcase_add_test(t, twice_the_costs_take_twice_the_time);
    tcase_add_test(t, the_order_of_the_lanes_changes_nothing);
    tcase_add_test(t, a_steady_state_that_is_seen_early_is_the_one_that_is_reached);
    tcase_add_test(t, running_ahead_of_the_queue_changes_nothing);
    tcase_add_test(t, messages_that_slow_operators_down_never_make_a_step_shorter);
    tcase_add_test(t, two_runs_tell_the_same_spans);
    tcase_add_test(t, a_trace_does_not_change_what_is_simulated);
    tcase_add_test(t, peak_memory_is_what_the_spans_say);
    tcase_add_test(t, a_backward_before_its_forward_waits_forever);
    tcase_add_test(t, a_stage_that_wants_all_forwards_first_starves_one_that_does_not);
    tcase_add_test(t, a_message_beyond_the_posted_receives_never_comes);
    tcase_add_test(t, a_full_buffer_ring_blocks_the_call_that_would_write_it);
    tcase_add_test(t, a_message_that_nobody_sends_is_waited_for);
    tcase_add_test(t, a_stage_that_waits_for_its_own_message_blocks);
    tcase_add_test(t, the_step_that_blocks_is_named);
    tcase_add_test(t, groups_that_join_in_different_orders_block);
    tcase_add_test(t, awaiting_what_was_never_launched_blocks);
    tcase_add_test(t, a_member_that_never_comes_leaves_the_other_inside_its_group);
    tcase_add_test(t, a_long_blocked_set_is_cut_and_counted);
    suite_add_tcase(s, t);
    return s;
}
