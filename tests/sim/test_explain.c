/* The critical path tiles the iteration for every pipeline; small cases by hand. */
#include "sim/explain/explain.h"
#include "tests/support/pipelines.h"
#include "tests/support/plans.h"
#include "tests/support/random_pipes.h"

#include "profiles/profile.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct pipes uniform(int32_t n_stages, int32_t microbatches, int64_t f, int64_t b)
{
    struct pipes in = {.n_stages = n_stages, .microbatches = microbatches};
    for (int32_t s = 0; s < n_stages; s++) in.forward_ns[s] = f, in.backward_ns[s] = b;
    return in;
}

static struct explain explain_of(const struct program *p, struct cost *k,
                                 const struct sim_result *r)
{
    struct explain x;
    struct error err = {0};
    ck_assert_msg(explain_result(arena, p, k, r, &x, &err) == OK, "%s", err.text);
    return x;
}

static struct explain explained(struct pipes_made *m, int32_t steps)
{
    struct sim_result r = pipes_run(m, steps, true);
    return explain_of(&m->program, m->cost, &r);
}

static void piece_is(const struct explain *x, size_t i, enum explain_kind kind, int64_t begin,
                     int64_t end)
{
    ck_assert_uint_lt(i, x->n_pieces);
    ck_assert_str_eq(explain_kind_name(x->pieces[i].kind), explain_kind_name(kind));
    ck_assert_int_eq(x->pieces[i].begin_ns, begin);
    ck_assert_int_eq(x->pieces[i].end_ns, end);
}

START_TEST(two_stages_by_hand)
{
    /* d0: F0 0-10, F1 10-20; d1: F0 15-25, B0 25-45, F1 45-55, B1 55-75; d0: B0 50-70, B1 80-100, U 100-103. */
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 4, in.latency_ns[0] = 1, in.update_ns[0] = 3;
    struct explain x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_eq(x.iteration_ns, 103);
    ck_assert_uint_eq(x.n_pieces, 11);
    piece_is(&x, 0, EXPLAIN_compute, 0, 10);
    piece_is(&x, 1, EXPLAIN_transfer, 10, 14);
    piece_is(&x, 2, EXPLAIN_latency, 14, 15);
    piece_is(&x, 3, EXPLAIN_compute, 15, 25);
    piece_is(&x, 4, EXPLAIN_compute, 25, 45);
    piece_is(&x, 5, EXPLAIN_compute, 45, 55);
    piece_is(&x, 6, EXPLAIN_compute, 55, 75);
    piece_is(&x, 7, EXPLAIN_transfer, 75, 79);
    piece_is(&x, 8, EXPLAIN_latency, 79, 80);
    piece_is(&x, 9, EXPLAIN_compute, 80, 100);
    piece_is(&x, 10, EXPLAIN_update, 100, 103);
    ck_assert_int_eq(x.pieces[3].device, 1);
    ck_assert_int_eq(x.pieces[10].phase, 'U');
    ck_assert_int_eq(x.kind_ns[EXPLAIN_compute], 90);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_transfer] + x.kind_ns[EXPLAIN_latency], 10);
    /* d0 waits 20-50 for gradient 0 and 70-80 for gradient 1, both behind its last forward; they are under way 45-50 and 75-80. */
    ck_assert_int_eq(x.devices[0].busy_ns, 63);
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_bubble], 25 + 5);
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_messages], 5 + 5);
    /* d1: 0-15 before its first operator, 10-15 with the message under way; then never, until it has nothing left to do at 75. */
    ck_assert_int_eq(x.devices[1].wait_ns[SIM_WAIT_bubble], 10);
    ck_assert_int_eq(x.devices[1].wait_ns[SIM_WAIT_messages], 5);
    ck_assert_int_eq(x.devices[1].wait_ns[SIM_WAIT_imbalance], 28);
    /* Four messages of 5; activation 0 exposed 10-15, activation 1 (20-25) hidden; gradients 45-50 and 75-80 exposed. */
    ck_assert_int_eq(x.links[0].carried_ns, 20);
    ck_assert_int_eq(x.links[0].exposed_ns, 15);
    ck_assert_int_eq(x.links[0].path_ns, 10);
    ck_assert_int_eq(x.links[0].messages, 4);
    ck_assert_int_eq(x.links[0].bytes, 16);
}
END_TEST

START_TEST(a_link_that_is_the_slowest_is_named_with_its_queue)
{
    /* GPipe: activations 10-30, 30-50, 50-70 on the link, each ready at 10, 20, 30; then latency 100; F2 170-180. */
    struct pipes in = uniform(2, 3, 10, 1);
    in.transfer_ns[0] = 20, in.latency_ns[0] = 100, in.warmup[0] = in.warmup[1] = 3;
    struct explain x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_eq(x.iteration_ns, 342);
    /* F0 0-10; transfer 10-20; contention 20-30 (message 1 was ready at 20) … 50; transfer 50-70. */
    piece_is(&x, 0, EXPLAIN_compute, 0, 10);
    piece_is(&x, 1, EXPLAIN_transfer, 10, 20);
    piece_is(&x, 2, EXPLAIN_contention, 20, 30);
    piece_is(&x, 3, EXPLAIN_contention, 30, 50);
    piece_is(&x, 4, EXPLAIN_transfer, 50, 70);
    piece_is(&x, 5, EXPLAIN_latency, 70, 170);
    ck_assert_int_eq(x.links[0].queued_ns, 10 + 20 + 19 + 38);
}
END_TEST

START_TEST(a_message_behind_another_channel_s_is_followed_to_that_one_s_sender)
{
    /* All messages cross one link, 30 each. Down: a0 10-40, a1 40-70 (handed over at 20), b0 70-100 (at 41), b1 100-130 (at 71).
     * d2: F0 100-110, B0 110-115, F1 130-140, B1 140-145. Up: g0 115-145, g1 145-175, h0 175-205 (at 150), h1 205-235 (at
     * 180). d0: B1 235-240. The path goes from h0 to g1, which is of another channel and held the link, and from b0 to a1. */
    struct pipes in = uniform(3, 2, 10, 5);
    in.one_link = true, in.forward_ns[1] = 1;
    for (int i = 0; i < 3; i++) in.transfer_ns[i] = 30;
    struct explain x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_eq(x.iteration_ns, 240);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_compute], 5 + 5 + 10 + 10);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_transfer], 30 + 5 + 5 + 30 + 1 + 1 + 10);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_contention], 25 + 25 + 29 + 29 + 20);
    ck_assert_int_eq(x.devices[1].path_ns, 0);
    ck_assert_int_eq(x.devices[2].path_ns, 15);
}
END_TEST

START_TEST(a_buffer_that_is_not_free_and_a_receive_that_is_not_posted_are_causes)
{
    /* One send buffer: F1 of d0 starts when message 0 has left at 60; F2 at 120; message 2 leaves at 180. */
    struct pipes in = uniform(2, 3, 10, 1);
    in.forward_ns[1] = 1, in.transfer_ns[0] = 50, in.warmup[0] = in.warmup[1] = 3, in.buffers = 1;
    struct explain x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_ge(x.rooms, 2);
    /* F1 and F2 wait for the buffer; the gradients leave d1 at 182, 233 and 284, each behind the one before, and are under way 50. */
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_messages], 50 + 50 + 3 * 50);
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_bubble], 182 - 130);
    /* One receive ahead: message 1 is posted when d1's F0 ends at 115. */
    in = uniform(2, 3, 10, 1);
    in.forward_ns[1] = 100, in.transfer_ns[0] = 5, in.warmup[0] = in.warmup[1] = 3, in.ahead = 1;
    x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_ge(x.unposted, 2);
}
END_TEST

START_TEST(a_collective_waits_for_its_slowest_member)
{
    struct pipes in = uniform(3, 1, 0, 0);
    in.parallel = true, in.elements = 3000;
    for (int i = 0; i < 3; i++) in.latency_ns[i] = 10;
    in.forward_ns[1] = 777;
    struct explain x = explained(pipes_make(arena, &in), 2);
    ck_assert_int_eq(x.iteration_ns, 777 + 4 * 4010);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_compute], 777);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_collective], 4 * 4010);
    ck_assert_int_eq(x.devices[1].path_ns, 777);
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_imbalance], 777);
    ck_assert_int_eq(x.devices[0].wait_ns[SIM_WAIT_collectives], 4 * 4010);
    ck_assert_int_eq(x.busiest, 1);
    ck_assert_int_eq(x.devices[1].n_peers, 2);
    ck_assert_int_eq(x.devices[1].peers_ns, 0);
}
END_TEST

START_TEST(messages_that_begin_with_the_step_are_its_own)
{
    /* Without compute, each step's gradient all-reduce begins when the previous step's ends. Three members: 4 parts of
     * 1000 elements, one message a part on each link of the ring; the next step's first part begins at this step's end. */
    struct pipes in = uniform(3, 1, 0, 0);
    in.parallel = true, in.elements = 3000;
    for (int i = 0; i < 3; i++) in.latency_ns[i] = 10;
    struct explain x = explained(pipes_make(arena, &in), 4);
    ck_assert_int_eq(x.iteration_ns, 4 * 4010);
    ck_assert_int_eq(x.begin_ns, 2 * 4 * 4010);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(x.links[i].messages, 4);
        ck_assert_int_eq(x.links[i].bytes, 4 * 4000);
        ck_assert_int_eq(x.links[i].carried_ns, 4 * 4010);
    }
}
END_TEST

START_TEST(replicas_are_compared_with_each_other_and_routes_of_a_ring_have_their_latency)
{
    /* Two replicas of one stage, 10 and 25 of compute, a ring of 8 bytes over a route of 3 + 2 in both directions. */
    struct pipes in = uniform(2, 1, 0, 0);
    in.parallel = true, in.elements = 2;
    in.forward_ns[0] = 10, in.forward_ns[1] = 25, in.latency_ns[0] = 3, in.latency_ns[1] = 2;
    struct pipes_made *m = pipes_make(arena, &in);
    int32_t hop[2] = {0, 1}, direction[2] = {0, 0};
    m->program.links = ARENA_ARRAY(arena, struct program_link, 3);
    m->cluster.links[2] = m->cluster.links[0], m->cluster.links[2].name = "route";
    m->program.links[0] = (struct program_link){.name = "l0", .bandwidth_Bps = 1e9};
    m->program.links[1] = (struct program_link){.name = "l1", .bandwidth_Bps = 1e9};
    m->program.links[2] =
        (struct program_link){.name = "route", .n_hops = 2, .hop = hop, .hop_direction = direction};
    m->program.n_links = m->cluster.n_links = 3;
    for (int32_t i = 0; i < 2; i++) {
        m->program.stages[i].replica = i, m->program.stages[i].stage = 0;
        m->program.collectives[0].link[i] = 2, m->program.collectives[0].direction[i] = i;
    }
    struct explain x = explained(m, 1);
    ck_assert_int_eq(x.iteration_ns, 25 + 2 * (4 + 5));
    ck_assert_int_eq(x.kind_ns[EXPLAIN_collective], 2 * (4 + 5));
    ck_assert_int_eq(x.kind_ns[EXPLAIN_contention], 0);
    ck_assert(x.devices[1].replica_peers);
    ck_assert_int_eq(x.devices[1].n_peers, 1);
    ck_assert_int_eq(x.devices[1].peers_ns, 10);
}
END_TEST

START_TEST(a_chain_is_followed_to_the_member_that_bound_it)
{
    /* Member 3 of 4 comes at 150, when the sum (from 0, 1100 a hop) is still in flight: member 0 binds, not member 3. */
    struct pipes in = uniform(4, 1, 0, 0);
    in.parallel = true, in.elements = 250, in.algorithm = ALGORITHM_CHAIN;
    for (int i = 0; i < 4; i++) in.latency_ns[i] = 100;
    in.forward_ns[0] = 100, in.forward_ns[3] = 150;
    struct explain x = explained(pipes_make(arena, &in), 1);
    ck_assert_int_eq(x.iteration_ns, 100 + 6 * 1100);
    ck_assert_int_eq(x.devices[0].path_ns, 100);
    ck_assert_int_eq(x.devices[3].path_ns, 0);
}
END_TEST

START_TEST(what_a_shared_link_gives_to_others_is_contention)
{
    /* tests/sim/test_sim.c tells this one: the second activation moves 20 (ready), 70 (the first has left) … 189; alone it
     * would take 60. */
    struct pipes in = uniform(3, 2, 10, 1);
    in.forward_ns[1] = 1, in.forward_ns[2] = 1, in.transfer_ns[0] = in.transfer_ns[1] = 60;
    in.one_link = true, in.sharing = LINK_FAIR;
    for (int32_t s = 0; s < 3; s++) in.warmup[s] = 2;
    struct explain x = explained(pipes_make(arena, &in), 1);
    piece_is(&x, 0, EXPLAIN_compute, 0, 10);
    piece_is(&x, 1, EXPLAIN_transfer, 10, 20);
    piece_is(&x, 2, EXPLAIN_contention, 20, 70);
    piece_is(&x, 3, EXPLAIN_contention, 70, 129);
    piece_is(&x, 4, EXPLAIN_transfer, 129, 189);
    piece_is(&x, 5, EXPLAIN_compute, 189, 190);
    piece_is(&x, 6, EXPLAIN_transfer, 190, 250);
}
END_TEST

START_TEST(a_route_is_as_late_as_its_links_and_is_freed_with_them)
{
    struct pipes in = uniform(3, 1, 10, 20);
    in.transfer_ns[0] = 4, in.latency_ns[0] = 3, in.latency_ns[1] = 2;
    struct pipes_made *m = pipes_make(arena, &in);
    int32_t hop[2] = {0, 1}, direction[2] = {0, 0};
    struct program_link *route = &m->program.links[2];
    route->n_hops = 2, route->hop = hop, route->hop_direction = direction;
    m->program.channels[0].link = m->program.channels[1].link = 2;
    struct explain x = explained(m, 1);
    struct sim_options o = {.steps = 1};
    /* d0 and d1: 4 and 5 in each direction; d1 and d2: 0 and 2 in each direction. */
    ck_assert_int_eq(x.iteration_ns, 3 * 30 + 2 * 9 + 2 * 2);
    ck_assert_int_eq(x.links[2].path_ns, 18);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_latency], 2 * 5 + 2 * 2);
    ck_assert_int_eq(explain_what_if(&m->program, m->cost, &o, 100, &x, NULL), OK);
    for (size_t i = 0; i < x.n_what; i++)
        if (x.what[i].kind == EXPLAIN_WHAT_LINK && x.what[i].index == 2)
            ck_assert_int_eq(x.what[i].free_ns, 3 * 30); /* its second link is d1's and d2's too */
}
END_TEST

/* Invariants of every explanation. */
static void sound(const struct program *p, const struct sim_result *r, const struct explain *x)
{
    int64_t at = x->begin_ns, sum = 0, held = 0;
    ck_assert_int_eq(x->end_ns - x->begin_ns, x->iteration_ns);
    ck_assert_int_eq(x->iteration_ns, r->iteration_ns);
    for (size_t i = 0; i < x->n_pieces; i++) {
        ck_assert_int_eq(x->pieces[i].begin_ns, at);
        ck_assert_int_gt(x->pieces[i].end_ns, at);
        at = x->pieces[i].end_ns;
    }
    ck_assert_int_eq(at, x->end_ns);
    for (size_t i = 0; i < x->n_rows; i++) sum += x->rows[i].ns;
    ck_assert_int_eq(sum, x->iteration_ns);
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct explain_device *d = &x->devices[i];
        int64_t whole = d->busy_ns;
        for (int w = 0; w < SIM_WAIT_COUNT; w++) {
            ck_assert_int_ge(d->wait_ns[w], 0);
            ck_assert_int_eq(d->wait_ns[w], r->devices[i].wait_ns[w]);
            whole += d->wait_ns[w];
        }
        ck_assert_int_eq(whole, x->iteration_ns);
        ck_assert_int_le(d->path_ns, d->busy_ns);
    }
    for (int32_t i = 0; i < p->n_links; i++) {
        ck_assert_int_ge(x->links[i].exposed_ns, 0);
        ck_assert_int_le(x->links[i].exposed_ns, x->links[i].carried_ns);
    }
    for (size_t i = 0; i < x->n_memory_breakdown; i++) held += x->memory_breakdown[i].bytes;
    ck_assert_int_eq(held, r->devices[x->fullest].peak_bytes);
}

START_TEST(the_pieces_tile_the_iteration_of_any_pipeline)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 20000 : 600); seed++) {
        struct pipes in = seed % 4 ? random_pipes(seed) : random_pipes_replicas(seed);
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result r = pipes_run(m, (int32_t)(seed % 5), true);
        struct explain x = explain_of(&m->program, m->cost, &r);
        sound(&m->program, &r, &x);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(the_pieces_tile_the_iteration_of_any_plan)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 150); seed++) {
        struct plan plan = plans_random_any(arena, seed);
        struct program *p = plans_lower(arena, &plan, seed % 2);
        struct profile profile;
        struct sim_result r;
        struct sim_options o = {.keep_trace = true};
        struct error err = {0};
        ck_assert_msg(profile_prior(arena, &plan.cluster, &profile, &err) == OK, "%s", err.text);
        struct cost *k = cost_new(arena, &profile, &plan.cluster);
        ck_assert_msg(sim_run(arena, p, k, &o, &r, &err) == OK, "%s", err.text);
        ck_assert_uint_ge(r.trace->capacity, r.trace->n_spans); /* > : empty parts of sums */
        size_t room = r.trace->capacity;
        ck_assert_msg(room <= r.trace->n_spans + r.trace->n_spans / 2, "seed %d: %zu of %zu",
                      (int)seed, r.trace->n_spans, room);
        struct explain x = explain_of(p, k, &r);
        sound(p, &r, &x);
        arena_reset(arena);
    }
}
END_TEST

/* The run of m with room for a trace of `bytes`. */
static enum status within(struct pipes_made *m, int32_t steps, int64_t bytes, bool explained,
                          struct sim_result *r, struct error *err)
{
    struct sim_options o = {
        .steps = steps, .keep_trace = true, .beside_trace = explained ? explain_bytes : NULL, .trace_most_bytes = bytes};
    return sim_run(arena, &m->program, m->cost, &o, r, err);
}

START_TEST(the_room_of_a_trace_is_known_before_and_refused_beyond_its_limit)
{
    /* A step: 3 microbatches with F and B on two devices, 2 messages of 2 spans each, 2 updates; and the step itself. */
    const int64_t spans = 5 * (3 * (4 + 4) + 2 + 1),
                  bytes = spans * (int64_t)(sizeof(struct span) + 2 * sizeof(size_t));
    struct pipes in = uniform(2, 3, 10, 20);
    in.transfer_ns[0] = 4, in.update_ns[0] = in.update_ns[1] = 3;
    struct pipes_made *m = pipes_make(arena, &in);
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(within(m, 5, bytes, false, &r, &err), OK);
    ck_assert_int_eq((int64_t)r.trace->n_spans, spans);
    ck_assert_int_eq((int64_t)r.trace->capacity, spans);
    ck_assert_int_eq(within(m, 5, bytes - 1, false, &r, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "5 steps has 135 spans, which take") != NULL, "%s", err.text);
    ck_assert_int_eq(within(m, 5, bytes, true, &r, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "explaining them takes") != NULL, "%s", err.text);
    double more = explain_bytes(&m->program, 5, (double)spans);
    ck_assert_int_eq(within(m, 5, bytes + (int64_t)more + 1, true, &r, &err), OK);
    /* Twice the steps: twice the records and messages, the same path. */
    ck_assert_double_gt(explain_bytes(&m->program, 10, (double)(2 * spans)), 1.5 * more);
}
END_TEST

START_TEST(what_if_is_simulated_and_sorted_by_gain)
{
    /* One stage, 4 microbatches of 10 + 20, update 6; then two stages with a link. */
    struct pipes in = uniform(1, 4, 10, 20);
    in.update_ns[0] = 6;
    struct pipes_made *m = pipes_make(arena, &in);
    struct explain x = explained(m, 0);
    struct sim_options o = {0};
    struct error err = {0};
    ck_assert_int_eq(explain_what_if(&m->program, m->cost, &o, 100, &x, &err), OK);
    ck_assert_uint_eq(x.n_what, 2); /* the device and the one kind of operator */
    for (size_t i = 0; i < x.n_what; i++) {
        ck_assert_int_eq(x.what[i].free_ns, 0);
        ck_assert_int_eq(x.what[i].half_ns, 63);
    }
    in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 4, in.latency_ns[0] = 2;
    m = pipes_make(arena, &in);
    x = explained(m, 1);
    o.steps = 1;
    ck_assert_int_eq(explain_what_if(&m->program, m->cost, &o, 100, &x, &err), OK);
    ck_assert_uint_eq(x.n_what, 4); /* operators, d0, d1, the link */
    ck_assert_int_eq(x.iteration_ns, 102);
    ck_assert_int_eq(x.what[0].kind, EXPLAIN_WHAT_OP);
    ck_assert_int_eq(x.what[0].free_ns,
                     16); /* two messages down (4 + 4) and the latency, and back (4 + 2) behind */
    for (size_t i = 0; i < x.n_what; i++) {
        const struct explain_what *w = &x.what[i];
        if (i) ck_assert_int_ge(w->free_ns, x.what[i - 1].free_ns);
        if (w->kind == EXPLAIN_WHAT_LINK) {
            ck_assert_int_eq(w->free_ns, 90);
            ck_assert_int_eq(w->half_ns, 96);
        }
    }
    x = explained(m, 1);
    ck_assert_int_eq(explain_what_if(&m->program, m->cost, &o, 1, &x, &err), OK);
    ck_assert_uint_eq(x.n_what, 1);
    ck_assert_uint_eq(x.what_left_out, 3);
    ck_assert_int_eq(x.what[1].free_ns, -1); /* not tried */
    ck_assert_int_eq(x.what[1].half_ns, -1);
}
END_TEST

START_TEST(a_trace_of_another_program_is_refused)
{
    struct pipes in = uniform(2, 3, 10, 20);
    struct pipes_made *m = pipes_make(arena, &in);
    struct sim_result r = pipes_run(m, 1, true);
    struct explain x;
    struct error err = {0};
    in.microbatches = 4;
    struct pipes_made *other = pipes_make(arena, &in);
    ck_assert_int_eq(explain_result(arena, &other->program, other->cost, &r, &x, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "not of this program") != NULL, "%s", err.text);
    r.trace->spans[0].end_ns++;
    ck_assert_int_eq(explain_result(arena, &m->program, m->cost, &r, &x, &err), ERR_INPUT);
    r.trace = NULL;
    ck_assert_int_eq(explain_result(arena, &m->program, m->cost, &r, &x, &err), ERR_INPUT);
}
END_TEST

Suite *explain_suite(void)
{
    Suite *s = suite_create("sim/explain/explain");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, two_stages_by_hand);
    tcase_add_test(t, a_link_that_is_the_slowest_is_named_with_its_queue);
    tcase_add_test(t, a_message_behind_another_channel_s_is_followed_to_that_one_s_sender);
    tcase_add_test(t, a_buffer_that_is_not_free_and_a_receive_that_is_not_posted_are_causes);
    tcase_add_test(t, a_collective_waits_for_its_slowest_member);
    tcase_add_test(t, messages_that_begin_with_the_step_are_its_own);
    tcase_add_test(t,
                   replicas_are_compared_with_each_other_and_routes_of_a_ring_have_their_latency);
    tcase_add_test(t, a_chain_is_followed_to_the_member_that_bound_it);
    tcase_add_test(t, what_a_shared_link_gives_to_others_is_contention);
    tcase_add_test(t, a_route_is_as_late_as_its_links_and_is_freed_with_them);
    tcase_add_test(t, the_pieces_tile_the_iteration_of_any_pipeline);
    tcase_add_test(t, the_pieces_tile_the_iteration_of_any_plan);
    tcase_add_test(t, the_room_of_a_trace_is_known_before_and_refused_beyond_its_limit);
    tcase_add_test(t, what_if_is_simulated_and_sorted_by_gain);
    tcase_add_test(t, a_trace_of_another_program_is_refused);
    suite_add_tcase(s, t);
    return s;
}
