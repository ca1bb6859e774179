/* Expected times are worked by hand or come from a closed form, in whole nanoseconds, unrounded unless stated. */
#include "tests/support/harp.h"
#include "tests/support/pipelines.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct pipes uniform(int32_t n_stages, int32_t microbatches, int64_t f, int64_t b)
{
    struct pipes in = {.n_stages = n_stages, .microbatches = microbatches};
    for (int32_t s = 0; s < n_stages; s++) in.forward_ns[s] = f, in.backward_ns[s] = b;
    return in;
}

/* --- computing --- */

START_TEST(one_device_takes_the_sum_of_its_operators)
{
    struct pipes in = uniform(1, 5, 30, 70);
    in.update_ns[0] = 11;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 0, false);
    ck_assert_int_eq(r.iteration_ns, 5 * 100 + 11);
    ck_assert_int_eq(r.makespan_ns, 4 * (5 * 100 + 11));
    ck_assert_int_eq(r.devices[0].busy_ns, 511);
    ck_assert_int_eq(r.devices[0].idle_ns, 0);
}
END_TEST

START_TEST(two_stages_of_1f1b_by_hand)
{
    /* f = 10, b = 20, transfer 5, m = 2. d0: F0 0-10, F1 10-20. d1: F0 15-25, B0 25-45, F1 45-55, B1 55-75.
     * d0: gradient 0 at 50: B0 50-70; gradient 1 at 80: B1 80-100. */
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 5;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
    ck_assert_int_eq(r.makespan_ns, 100);
    int64_t ends[2] = {0, 0};
    for (size_t i = 0; i < r.trace->n_spans; i++)
        if (r.trace->spans[i].kind == SPAN_COMPUTE)
            ends[r.trace->spans[i].device] = r.trace->spans[i].end_ns;
    ck_assert_int_eq(ends[0], 100);
    ck_assert_int_eq(ends[1], 75);
}
END_TEST

START_TEST(the_next_step_follows_the_update)
{
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 5;
    in.update_ns[0] = in.update_ns[1] = 7;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 4, true);
    ck_assert_int_eq(r.iteration_ns, 107);
    ck_assert_int_eq(r.makespan_ns, 4 * 107);
    ck_assert_int_eq(trace_iteration(r.trace), 107);
    ck_assert_int_eq(r.devices[1].busy_ns, 67);
    ck_assert_int_eq(r.devices[1].idle_ns, 40);
}
END_TEST

/* Steps, spans, busy and idle agree with the iteration; messages keep their time. */
START_TEST(the_pace_of_a_profile_stretches_operators)
{
    struct pipes in = uniform(1, 1, 100, 101);
    in.pace = 1.1;
    ck_assert_int_eq(pipes_run(pipes_make(arena, &in), 0, false).iteration_ns, 221); /* 110 + 111 */
    in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 5;
    in.update_ns[0] = in.update_ns[1] = 7;
    in.pace = 2;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 4, true);
    ck_assert_int_eq(r.iteration_ns, 2 * (107 - 10) + 10);
    ck_assert_int_eq(r.makespan_ns, 4 * r.iteration_ns);
    ck_assert_int_eq(trace_iteration(r.trace), r.iteration_ns);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(r.devices[i].busy_ns, 2 * 67);
        ck_assert_int_eq(r.devices[i].busy_ns + r.devices[i].idle_ns, r.iteration_ns);
    }
}
END_TEST

START_TEST(warm_up_counts_give_the_published_makespans)
{
    const struct harp_golden *g = &harp_goldens[_i];
    struct pipes in =
        uniform(g->stages, g->microbatches, (int64_t)(g->f * PIPES_MS), (int64_t)(g->b * PIPES_MS));
    for (int32_t s = 0; s < in.n_stages; s++) {
        in.warmup[s] = g->warmup[s];
        if (s < 3) in.transfer_ns[s] = (int64_t)(g->c[s] * PIPES_MS + .5);
    }
    ck_assert_int_eq(pipes_makespan(arena, &in), (int64_t)(g->makespan * PIPES_MS + .5));
}
END_TEST

START_TEST(uniform_1f1b_and_gpipe_take_m_plus_p_minus_1_rounds)
{
    for (int32_t p = 1; p <= 6; p++)
        for (int32_t m = p; m <= 12; m += 3) {
            struct pipes in = uniform(p, m, 11, 23);
            ck_assert_int_eq(pipes_makespan(arena, &in), (m + p - 1) * 34);
            for (int32_t s = 0; s < p; s++) in.warmup[s] = m;
            ck_assert_int_eq(pipes_makespan(arena, &in), (m + p - 1) * 34);
        }
}
END_TEST

/* --- links --- */

START_TEST(latency_delays_a_message_and_not_the_next_one)
{
    /* GPipe of 2 stages: last activation leaves at 3·20 (the link is the slowest), arrives 100 later. */
    struct pipes in = uniform(2, 3, 10, 1);
    in.transfer_ns[0] = 20, in.latency_ns[0] = 100;
    in.warmup[0] = in.warmup[1] = 3;
    /* d1: F2 at 10 + 60 + 100 = 170 to 180, B 181 182 183; gradients leave one after the other: 201 221 241, arrive 341. */
    ck_assert_int_eq(pipes_makespan(arena, &in), 342);
}
END_TEST

START_TEST(a_slow_link_sets_the_rate)
{
    struct pipes in = uniform(3, 50, 10, 20);
    in.transfer_ns[0] = 10, in.transfer_ns[1] = 120;
    for (int32_t s = 0; s < 3; s++) in.warmup[s] = 50;
    int64_t slow = pipes_makespan(arena, &in);
    /* All 50 activations cross in 50·120, then 50 gradients do. */
    ck_assert_int_ge(slow, 2 * 50 * 120);
    ck_assert_int_le(slow, 2 * 50 * 120 + 500);
}
END_TEST

/* Two replicas' stages over one link; both directions full of messages of 100. */
static int64_t two_directions(bool half_duplex)
{
    struct pipes in = uniform(2, 40, 1, 1);
    in.transfer_ns[0] = 100;
    in.half_duplex[0] = half_duplex;
    in.warmup[0] = 12;
    return pipes_makespan(arena, &in);
}

START_TEST(operators_take_longer_while_a_message_moves)
{
    /* f = 10, b = 20, transfer 5, m = 2, slowdown 1/2: an operator advances two thirds as fast while a message moves.
     * d0: F0 0-10. Activation 0 10-15: F1 does 3 1/3 (3) by 15, 7 more by 22. d1: F0 15-25 with activation 1 at 22-27:
     * 7 + 2 at 27 (3 done in 5 ns, 0 left): F0 of d1 at 27? 10 = 7 by 22, 3 more at 2/3 take 4.5 → 5: 27. B0 27-47,
     * F1 47-57 with gradient 0 at 47-52: 3 by 52, 7 more by 59. B1 59-79. d0: B0 from 52 to 72; B1 84-104. */
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 5;
    in.compute_slowdown = 0.5;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, false);
    ck_assert_int_eq(r.makespan_ns, 104);
    /* An operator that a message touches ends at the next whole nanosecond: two of them are on the way. */
    in.compute_slowdown = 1e-6;
    ck_assert_int_eq(pipes_makespan(arena, &in), 102);
}
END_TEST

START_TEST(operators_stand_still_under_a_link_that_stops_them)
{
    /* As above; d0: F0 0-10, stands until 15, F1 15-25. d1: F0 15-25, stands until 30: B0 30-50, stands until 55, F1 55-65,
     * B1 65-85. d0: B0 55-75; B1 90-110. */
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 5;
    in.compute_slowdown = INFINITY;
    ck_assert_int_eq(pipes_makespan(arena, &in), 110);
}
END_TEST

START_TEST(a_half_duplex_link_takes_twice_as_long_for_traffic_in_both_directions)
{
    int64_t full = two_directions(false), half = two_directions(true);
    ck_assert_int_ge(full, 4000);
    ck_assert_int_le(full, 4300);
    ck_assert_int_ge(half, 8000);
    ck_assert_int_le(half, 8300);
}
END_TEST

/* Three stages whose two links are one: when stage 1's activation comes, stage 0's next one may be on it. */
START_TEST(two_flows_share_a_fair_link_equally)
{
    /* d0 sends at 10 and 20; d1 sends its first at arrival + 1. All of 60 bytes on one link, nothing flows back yet. */
    struct pipes in = uniform(3, 2, 10, 1);
    in.forward_ns[1] = 1, in.forward_ns[2] = 1;
    in.transfer_ns[0] = in.transfer_ns[1] = 60;
    in.one_link = true;
    in.sharing = LINK_FAIR;
    for (int32_t s = 0; s < 3; s++) in.warmup[s] = 2;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
    /* Channel 0: first 10-70, second starts at 70. d1 F0 70 … 71, sends at 71. Until 71 the second has 59 left; both share:
     * it ends at 71 + 118 = 189, the other has 1 left, alone again: 190. d1 F1 189-190 sends at 190: alone: 250. */
    int64_t ends[4] = {0};
    int32_t n = 0;
    for (size_t i = 0; i < r.trace->n_spans; i++)
        if (r.trace->spans[i].kind == SPAN_SEND && r.trace->spans[i].phase == PHASE_F)
            ends[n++] = r.trace->spans[i].end_ns;
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(ends[0], 70);
    ck_assert_int_eq(ends[1], 189);
    ck_assert_int_eq(ends[2], 190);
    ck_assert_int_eq(ends[3], 250);
}
END_TEST

START_TEST(a_fifo_link_serves_messages_in_order_of_readiness)
{
    struct pipes in = uniform(3, 2, 10, 1);
    in.forward_ns[1] = 1, in.forward_ns[2] = 1;
    in.transfer_ns[0] = in.transfer_ns[1] = 60;
    in.one_link = true;
    for (int32_t s = 0; s < 3; s++) in.warmup[s] = 2;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
    /* d0: 10-70, 70-130 (ready at 70); d1's first is ready at 71: 130-190, its second ready at 131: 190-250. */
    int64_t ends[4] = {0}, expected[4] = {70, 130, 190, 250};
    int32_t n = 0;
    for (size_t i = 0; i < r.trace->n_spans; i++)
        if (r.trace->spans[i].kind == SPAN_SEND && r.trace->spans[i].phase == PHASE_F)
            ends[n++] = r.trace->spans[i].end_ns;
    for (int32_t i = 0; i < 4; i++) ck_assert_int_eq(ends[i], expected[i]);
}
END_TEST

START_TEST(a_message_waits_until_its_receive_is_posted)
{
    /* GPipe, f0 = 10, f1 = 100, transfer 5, one receive ahead: message 1 is posted when d1's F0 ends at 115, arrives 120;
     * message 2 is posted when F1 ends at 220, arrives 225: F2 225-325. With two ahead nothing but f1 binds: 15 + 300. */
    struct pipes in = uniform(2, 3, 10, 1);
    in.forward_ns[1] = 100, in.transfer_ns[0] = 5, in.warmup[0] = in.warmup[1] = 3;
    in.ahead = 1;
    ck_assert_int_eq(pipes_makespan(arena, &in), 325 + 1 + 5 + 5 + 5 + 1 + 2);
    in.ahead = 2;
    ck_assert_int_eq(pipes_makespan(arena, &in), 315 + 1 + 5 + 5 + 5 + 1);
}
END_TEST

START_TEST(a_call_waits_for_room_in_the_buffer_ring_it_sends_from)
{
    /* One send buffer, transfer 50: F1 of d0 starts when message 0 has left, at 60: 60-70, left 120; F2 120-130. */
    struct pipes in = uniform(2, 3, 10, 1);
    in.forward_ns[1] = 1, in.transfer_ns[0] = 50, in.warmup[0] = in.warmup[1] = 3, in.buffers = 1;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
    int64_t begins[3] = {-1, -1, -1};
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind == SPAN_COMPUTE && s->device == 0 && s->phase == PHASE_F)
            begins[s->microbatch] = s->begin_ns;
    }
    ck_assert_int_eq(begins[0], 0);
    ck_assert_int_eq(begins[1], 60);
    ck_assert_int_eq(begins[2], 120);
}
END_TEST

START_TEST(a_channel_inside_a_device_costs_nothing)
{
    struct pipes in = uniform(2, 4, 10, 20);
    in.transfer_ns[0] = 1000, in.latency_ns[0] = 1000;
    struct pipes_made *m = pipes_make(arena, &in);
    m->program.channels[0].link = m->program.channels[1].link = -1;
    ck_assert_int_eq(pipes_run(m, 1, false).makespan_ns, 5 * 30);
}
END_TEST

/* --- collectives --- */

static struct pipes parallel(int32_t n, int64_t elements, int64_t latency_ns)
{
    struct pipes in = uniform(n, 1, 0, 0);
    in.parallel = true, in.elements = elements;
    for (int32_t i = 0; i < n; i++) in.latency_ns[i] = latency_ns;
    return in;
}

START_TEST(a_ring_takes_2_n_minus_1_latencies_and_2_n_minus_1_over_n_of_the_bytes)
{
    for (int32_t n = 2; n <= 9; n++) {
        struct pipes in = parallel(n, 1000 * n, 5000);
        ck_assert_int_eq(pipes_makespan(arena, &in),
                         2 * (n - 1) * INT64_C(5000) + 2 * (n - 1) * INT64_C(4000));
        in = parallel(n, 1000 * n + 1,
                      5000); /* the one element more is in one chunk: 4 ns at most a step */
        int64_t more = pipes_makespan(arena, &in) - 2 * (n - 1) * INT64_C(9000);
        ck_assert_int_ge(more, 4);
        ck_assert_int_le(more, 8 * n);
    }
}
END_TEST

START_TEST(one_slow_hop_sets_the_rate_of_a_ring)
{
    struct pipes in = parallel(4, 4000, 0);
    in.latency_ns[2] = 46000;
    ck_assert_int_eq(pipes_makespan(arena, &in), 6 * 50000);
}
END_TEST

START_TEST(empty_chunks_take_no_time)
{
    /* One element among 4: each of 3 hops of reduce-scatter and 3 of all-gather carries it once, one after the other. */
    struct pipes in = parallel(4, 1, 100);
    ck_assert_int_eq(pipes_makespan(arena, &in), 6 * 104);
    in = parallel(1, 10, 100);
    ck_assert_int_eq(pipes_makespan(arena, &in), 0);
}
END_TEST

START_TEST(a_chain_goes_to_the_last_and_back)
{
    struct pipes in = parallel(4, 250, 100);
    in.algorithm = ALGORITHM_CHAIN;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, true);
    ck_assert_int_eq(r.makespan_ns, 2 * 3 * 1100);
}
END_TEST

START_TEST(a_ring_on_one_half_duplex_link_is_as_slow_as_all_its_bytes)
{
    struct pipes in = parallel(4, 4000, 0);
    in.one_link = true, in.half_duplex[0] = true;
    ck_assert_int_eq(pipes_makespan(arena, &in), 6 * 4 * 4000);
    in.sharing = LINK_FAIR;
    ck_assert_int_eq(pipes_makespan(arena, &in), 6 * 4 * 4000);
}
END_TEST

START_TEST(a_replica_that_comes_late_holds_up_the_others)
{
    struct pipes in = parallel(3, 3000, 10);
    in.forward_ns[1] = 777;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 2, true);
    ck_assert_int_eq(r.iteration_ns, 777 + 4 * 4010);
    ck_assert_int_eq(r.makespan_ns, 2 * (777 + 4 * 4010));
}
END_TEST

/* --- memory --- */

START_TEST(memory_of_1f1b_peaks_at_its_warm_up_count)
{
    for (int32_t p = 1; p <= 4; p++) {
        struct pipes in = uniform(p, 8, 10, 20);
        in.kept_bytes = 1000;
        struct pipes_made *m = pipes_make(arena, &in);
        for (int32_t s = 0; s < p; s++) m->program.stages[s].class_bytes[SLOT_PARAMETER] = 50;
        struct sim_result r = pipes_run(m, 0, false);
        for (int32_t s = 0; s < p; s++) {
            ck_assert_int_eq(r.devices[s].peak_bytes, 50 + 1000 * (p - s));
            ck_assert_int_eq(r.devices[s].peak_ns, s * 10 + (p - s - 1) * 10);
            ck_assert_int_ge(r.devices[s].reserved_bytes, r.devices[s].peak_bytes);
        }
    }
}
END_TEST

START_TEST(buffers_of_messages_live_from_their_start_until_they_have_left)
{
    /* GPipe of 2, transfer 100 > f = 10: d0 has all 4 messages waiting or leaving. F3 ends at 40 with message 0 still there. */
    struct pipes in = uniform(2, 4, 10, 1);
    in.transfer_ns[0] = 100, in.warmup[0] = in.warmup[1] = 4;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, false);
    ck_assert_int_eq(r.devices[0].peak_bytes, 400);
    ck_assert_int_eq(r.devices[0].peak_ns, 30);
    /* d1 holds a received activation from its start to the end of F: message i+1 is in flight while F(i) runs. */
    ck_assert_int_eq(r.devices[1].peak_bytes, 400);
}
END_TEST

/* --- options and refusals --- */

START_TEST(a_run_beyond_the_limit_is_given_up)
{
    struct pipes in = uniform(2, 100, 10, 20);
    struct pipes_made *m = pipes_make(arena, &in);
    struct sim_options o = {.limit_ns = 200};
    struct sim_result r;
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, NULL), OK);
    ck_assert_int_eq(r.iteration_ns, INT64_MAX);
    ck_assert_int_le(r.operators, 40);
    o.limit_ns = INT64_C(4) * 101 * 30;
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, NULL), OK);
    ck_assert_int_eq(r.iteration_ns, 101 * 30);
}
END_TEST

static void refused(struct pipes_made *m, int32_t steps, const char *why)
{
    struct sim_options o = {.steps = steps};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

START_TEST(times_beyond_int64_are_refused)
{
    struct pipes in = uniform(1, 300, INT64_C(300000000000000000), 0);
    refused(pipes_make(arena, &in), 1, "73 years");
    in = uniform(1, 1, INT64_C(1000000000000000000), 0);
    refused(pipes_make(arena, &in), 1, "not a time that can be simulated");
    in = uniform(2, 300, 0, 0);
    in.transfer_ns[0] = INT64_C(300000000000000000), in.buffers = 4;
    refused(pipes_make(arena, &in), 1, "73 years");
    in.sharing = LINK_FAIR;
    refused(pipes_make(arena, &in), 1, "twelve days");
}
END_TEST

START_TEST(a_message_that_is_sent_twice_is_refused)
{
    struct pipes in = uniform(2, 2, 10, 10);
    in.order[0] = "F0 F0 B0 B1";
    refused(pipes_make(arena, &in), 1, "sent twice");
}
END_TEST

START_TEST(a_link_that_the_cluster_does_not_have_is_refused)
{
    struct pipes in = uniform(2, 2, 10, 10);
    struct pipes_made *m = pipes_make(arena, &in);
    m->program.links[0].name = "elsewhere";
    refused(m, 1, "elsewhere");
}
END_TEST

Suite *sim_suite(void)
{
    Suite *s = suite_create("sim/engine/sim");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_device_takes_the_sum_of_its_operators);
    tcase_add_test(t, two_stages_of_1f1b_by_hand);
    tcase_add_test(t, the_next_step_follows_the_update);
    tcase_add_test(t, the_pace_of_a_profile_stretches_operators);
    tcase_add_loop_test(t, warm_up_counts_give_the_published_makespans, 0,
                        (int)(sizeof harp_goldens / sizeof *harp_goldens));
    tcase_add_test(t, uniform_1f1b_and_gpipe_take_m_plus_p_minus_1_rounds);
    tcase_add_test(t, latency_delays_a_message_and_not_the_next_one);
    tcase_add_test(t, a_slow_link_sets_the_rate);
    tcase_add_test(t, operators_take_longer_while_a_message_moves);
    tcase_add_test(t, operators_stand_still_under_a_link_that_stops_them);
    tcase_add_test(t, a_half_duplex_link_takes_twice_as_long_for_traffic_in_both_directions);
    tcase_add_test(t, two_flows_share_a_fair_link_equally);
    tcase_add_test(t, a_fifo_link_serves_messages_in_order_of_readiness);
    tcase_add_test(t, a_message_waits_until_its_receive_is_posted);
    tcase_add_test(t, a_call_waits_for_room_in_the_buffer_ring_it_sends_from);
    tcase_add_test(t, a_channel_inside_a_device_costs_nothing);
    tcase_add_test(t, a_ring_takes_2_n_minus_1_latencies_and_2_n_minus_1_over_n_of_the_bytes);
    tcase_add_test(t, one_slow_hop_sets_the_rate_of_a_ring);
    tcase_add_test(t, empty_chunks_take_no_time);
    tcase_add_test(t, a_chain_goes_to_the_last_and_back);
    tcase_add_test(t, a_ring_on_one_half_duplex_link_is_as_slow_as_all_its_bytes);
    tcase_add_test(t, a_replica_that_comes_late_holds_up_the_others);
    tcase_add_test(t, memory_of_1f1b_peaks_at_its_warm_up_count);
    tcase_add_test(t, buffers_of_messages_live_from_their_start_until_they_have_left);
    tcase_add_test(t, a_run_beyond_the_limit_is_given_up);
    tcase_add_test(t, times_beyond_int64_are_refused);
    tcase_add_test(t, a_message_that_is_sent_twice_is_refused);
    tcase_add_test(t, a_link_that_the_cluster_does_not_have_is_refused);
    suite_add_tcase(s, t);
    return s;
}
