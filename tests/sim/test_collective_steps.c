/* On separate links, simulated collectives take exactly the closed forms; on shared links they respect the link capacity. */
#include "core/collective/rounds.h"
#include "sim/collective/routes.h"
#include "tests/support/collectives.h"
#include "tests/support/pipelines.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* --- random collectives on links of their own ------------------------------------------------- */

struct dice {
    uint64_t seed, at;
};
static int64_t roll(struct dice *d, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(d->seed, 7, d->at++, (uint64_t)(high - low + 1));
}

static struct mesh *random_mesh(struct dice *d, int32_t n)
{
    bool even = roll(d, 0, 1);
    double Bps = (double)roll(d, 1000000, 300000000000);
    struct mesh *m = mesh_new(arena, n, Bps, (double)roll(d, 0, 100000) * 1e-9);
    for (int32_t i = 0; i < m->cluster.n_links && !even; i++) {
        m->cluster.links[i].bandwidth_Bps = (double)roll(d, 1000000, 300000000000);
        m->cluster.links[i].latency_s = (double)roll(d, 0, 100000) * 1e-9;
    }
    return m;
}

static struct collective_case random_collective(struct dice *d, int32_t n)
{
    struct collective_case c = {.n_members = n};
    c.elements = roll(d, 0, roll(d, 0, 1) ? 40 : 10000000);
    c.element_bytes = (int32_t)roll(d, 1, 8);
    c.piece_bytes = roll(d, 0, 3) ? roll(d, 100000, 9000000) : 0;
    do {
        c.kind = (enum collective_kind)roll(d, 0, COLLECTIVE_KIND_COUNT - 1);
        c.algorithm = (enum collective_algorithm)roll(d, 0, COLLECTIVE_ALGORITHM_COUNT - 1);
    } while (!collective_can(c.kind, c.algorithm) || collective_misfit(c.algorithm, n, true));
    if (c.kind == COLLECTIVE_ALL_GATHER || c.kind == COLLECTIVE_REDUCE_SCATTER) {
        int64_t *shards = ARENA_ARRAY(arena, int64_t, (size_t)n), left = c.elements;
        for (int32_t i = 0; i < n; i++) {
            shards[i] = i + 1 < n ? roll(d, 0, left / (roll(d, 0, 1) ? 1 : n)) : left;
            left -= shards[i];
        }
        if (roll(d, 0, 2)) c.shards = shards;
    }
    if (c.algorithm == ALGORITHM_LEADER || c.algorithm == ALGORITHM_HIERARCHICAL) {
        int32_t *node = ARENA_ARRAY(arena, int32_t, (size_t)n), g = (int32_t)roll(d, 1, n);
        while (c.algorithm == ALGORITHM_HIERARCHICAL && n % g) g--;
        for (int32_t i = 0; i < n; i++)
            node[i] = c.algorithm == ALGORITHM_HIERARCHICAL ? i / g
                      : i                                   ? node[i - 1] + (int32_t)roll(d, 0, 1)
                                                            : 0;
        c.node = node;
    }
    return c;
}

START_TEST(every_collective_alone_takes_its_closed_form_to_the_nanosecond)
{
    uint64_t cases = suites_long() ? 20000 : 1200;
    for (uint64_t i = 0; i < cases; i++) {
        struct dice d = {i + 1, 0};
        int32_t n = (int32_t)roll(&d, 1, 17);
        struct mesh *m = random_mesh(&d, n);
        struct collective_case c = random_collective(&d, n);
        int64_t start[17], end[17], *begin = roll(&d, 0, 1) ? start : NULL;
        for (int32_t k = 0; k < n; k++) start[k] = roll(&d, 0, 300000);
        int64_t closed = mesh_closed(m, &c, begin, end);
        struct steps_play p = mesh_played(m, &c, begin);
        ck_assert_msg(p.makespan_ns == closed,
                      "case %d: %s %s, n %d, %lld elements: closed %lld, played %lld", (int)i,
                      collective_kind_name(c.kind), collective_algorithm_name(c.algorithm), n,
                      (long long)c.elements, (long long)closed, (long long)p.makespan_ns);
        for (int32_t k = 0; k < n; k++) ck_assert_int_eq(p.end_ns[k], end[k]);
        arena_reset(arena);
    }
}
END_TEST

/* Lower bound: all data that a member needs arrives over its hops. */
START_TEST(each_member_is_sent_what_it_must_learn)
{
    for (uint64_t i = 0; i < 400; i++) {
        struct dice d = {i + 1, 0};
        int32_t n = (int32_t)roll(&d, 2, 17);
        struct mesh *m = random_mesh(&d, n);
        struct collective_case c = random_collective(&d, n);
        struct steps_play p = mesh_prepare(m, &c, NULL);
        int64_t in[17] = {0}, out[17] = {0}, s = c.elements * c.element_bytes;
        for (int32_t t = 0; t < p.steps->n; t++) {
            const struct step_transfer *x = &p.steps->transfers[t];
            ck_assert_int_gt(x->bytes, 0);
            in[x->to] += x->bytes, out[x->from] += x->bytes;
            for (int32_t k = 0; k < x->n_after; k++)
                ck_assert_int_lt(p.steps->after[x->first_after + k] / 2, t);
        }
        for (int32_t k = 0; k < n; k++) {
            int64_t own =
                (c.shards ? c.shards[k] : collective_chunk_of(c.elements, k, n)) * c.element_bytes;
            if (c.kind == COLLECTIVE_ALL_REDUCE) {
                ck_assert_int_ge(in[k], s / n);
                ck_assert_int_ge(out[k], s / n);
            } else if (c.kind == COLLECTIVE_ALL_GATHER) {
                ck_assert_int_ge(in[k], s - own);
                if (c.algorithm != ALGORITHM_PADDED) ck_assert_int_eq(in[k], s - own);
            } else if (c.kind == COLLECTIVE_REDUCE_SCATTER) {
                if (c.algorithm != ALGORITHM_PADDED) ck_assert_int_eq(out[k], s - own);
            } else if (c.kind == COLLECTIVE_BROADCAST) {
                ck_assert_int_eq(in[k], k ? s : 0);
            } else {
                ck_assert_int_eq(out[k], s - own);
            }
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- the same as the engine ------------------------------------------------------------------- */

/* A program's collective, with lanes that reach it at different times, on links of different kinds. */
START_TEST(the_engines_ring_and_chain_take_the_same_time)
{
    for (uint64_t i = 0; i < (suites_long() ? 3000 : 300); i++) {
        struct dice d = {i + 1, 0};
        int32_t n = (int32_t)roll(&d, 2, 9);
        struct pipes in = {.n_stages = n, .microbatches = 1, .parallel = true};
        struct mesh *m = mesh_new(arena, n, 1e9, 0);
        int64_t start[9];
        in.elements = roll(&d, 0, roll(&d, 0, 1) ? 12 : 100000);
        in.algorithm = roll(&d, 0, 1) ? ALGORITHM_RING : ALGORITHM_CHAIN;
        for (int32_t k = 0; k < n; k++) {
            in.latency_ns[k] = roll(&d, 0, 5000);
            in.forward_ns[k] = start[k] = roll(&d, 0, 200000);
        }
        struct pipes_made *made = pipes_make(arena, &in);
        for (int32_t k = 0; k < n; k++) {
            struct link *l = &made->cluster.links[k];
            l->bandwidth_Bps = (double)roll(&d, 1000000, 2000000000);
            if (n == 2 && k)
                *l = (struct link){.name = l->name,
                                   .bandwidth_Bps = made->cluster.links[0].bandwidth_Bps,
                                   .latency_s = made->cluster.links[0].latency_s,
                                   .stated = true};
            mesh_pair(m, k, (k + 1) % n)->bandwidth_Bps = l->bandwidth_Bps;
            mesh_pair(m, k, (k + 1) % n)->latency_s = l->latency_s;
        }
        struct collective_case c = {.kind = COLLECTIVE_ALL_REDUCE,
                                    .algorithm = in.algorithm == ALGORITHM_RING ? ALGORITHM_RING
                                                                                : ALGORITHM_CHAIN,
                                    .n_members = n,
                                    .elements = in.elements,
                                    .element_bytes = 4};
        int64_t engine = pipes_run(made, 1, false).makespan_ns;
        ck_assert_int_eq(mesh_played(m, &c, start).makespan_ns, engine);
        ck_assert_int_eq(mesh_closed(m, &c, start, NULL), engine);
        arena_reset(arena);
    }
}
END_TEST

/* --- contention ------------------------------------------------------------------------------- */

static struct collective_case gigabyte(enum collective_algorithm algorithm, int32_t n)
{
    return (struct collective_case){.kind = COLLECTIVE_ALL_REDUCE,
                                    .algorithm = algorithm,
                                    .n_members = n,
                                    .elements = 250000000,
                                    .element_bytes = 4};
}

START_TEST(one_hop_twelve_times_slower_sets_the_pace)
{
    struct mesh *m = mesh_new(arena, 8, 300e9, 5e-6);
    struct collective_case c = gigabyte(ALGORITHM_RING, 8);
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * INT64_C(421667)); /* 5.9033 ms */
    mesh_pair(m, 3, 4)->bandwidth_Bps = 25e9;
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * INT64_C(5005000)); /* 70.07 ms */
}
END_TEST

/* 8 devices behind one bus: 7 hops one direction and 1 back share its two directions. */
START_TEST(hops_that_share_a_bus_take_turns)
{
    struct mesh *m = mesh_new(arena, 8, 300e9, 0);
    struct link *bus = &m->cluster.links[0];
    for (int32_t i = 0; i < 8; i++) m->cluster.devices[i].node = 0, m->cluster.devices[i].index = i;
    *bus = (struct link){.name = "bus", .bandwidth_Bps = 300e9, .stated = true, .n_ends = 1};
    m->cluster.n_links = 1, m->cluster.n_nodes = 1;
    struct collective_case c = gigabyte(ALGORITHM_RING, 8);
    int64_t step = 416667; /* 125 MB / 300 GB/s */
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * 7 * step);
    bus->half_duplex = true;
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * 8 * step);
    bus->half_duplex = false, bus->sharing = LINK_FAIR;
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * 7 * step);
}
END_TEST

/* Two rings on the same links: at least the time of their bytes, at most one after the other. */
START_TEST(two_collectives_on_the_same_links_contend)
{
    for (int fair = 0; fair < 2; fair++)
        for (uint64_t i = 0; i < 100; i++) {
            struct dice d = {i + 1, 0};
            int32_t n = (int32_t)roll(&d, 2, 8);
            struct mesh *m = random_mesh(&d, n);
            for (int32_t l = 0; l < m->cluster.n_links && fair; l++)
                m->cluster.links[l].sharing = LINK_FAIR;
            struct collective_case c[2];
            struct steps_play p[2];
            int64_t alone[2], carried = 0;
            for (int k = 0; k < 2; k++) {
                c[k] = (struct collective_case){.kind = COLLECTIVE_ALL_REDUCE,
                                                .algorithm = ALGORITHM_RING,
                                                .n_members = n,
                                                .elements = roll(&d, n, 1000000),
                                                .element_bytes = 4};
                p[k] = mesh_prepare(m, &c[k], NULL);
                alone[k] = mesh_closed(m, &c[k], NULL, NULL);
                for (int32_t t = 0; t < p[k].steps->n; t++) {
                    struct cost_link hop = mesh_hop(m, 0, 1);
                    if (!p[k].steps->transfers[t].from && p[k].steps->transfers[t].to == 1)
                        carried += cost_occupancy_ns(&hop, p[k].steps->transfers[t].bytes);
                }
            }
            struct error err = {0};
            ck_assert_msg(steps_run(&m->cluster, m->cost, p, 2, &err) == OK, "%s", err.text);
            int64_t both =
                p[0].makespan_ns > p[1].makespan_ns ? p[0].makespan_ns : p[1].makespan_ns;
            for (int k = 0; k < 2; k++)
                ck_assert_int_ge(p[k].makespan_ns, alone[k] - 2 * p[k].steps->n);
            ck_assert_int_ge(both, carried - 2);
            ck_assert_int_le(both, alone[0] + alone[1] + 4 * p[0].steps->n);
            arena_reset(arena);
        }
}
END_TEST

START_TEST(collectives_that_share_no_link_do_not_join)
{
    struct mesh *m = mesh_new(arena, 8, 1e9, 3e-6);
    struct collective_case c = {
        .kind = COLLECTIVE_ALL_REDUCE, .n_members = 4, .elements = 4000, .element_bytes = 1};
    struct steps_play p[2] = {mesh_prepare(m, &c, NULL), mesh_prepare(m, &c, NULL)};
    const int32_t low[] = {0, 1, 2, 3}, high[] = {4, 5, 6, 7};
    struct error err = {0};
    p[0].device = low, p[1].device = high;
    ck_assert_int_eq(steps_run(&m->cluster, m->cost, p, 2, &err), OK);
    ck_assert_int_eq(p[0].makespan_ns, 6 * 4000);
    ck_assert_int_eq(p[1].makespan_ns, 6 * 4000);
}
END_TEST

/* Rings 0 1 2 3 at 3 GB/s and 0 2 1 3 at 1 GB/s: hops 0-1, 1-2, 2-3, 3-0 and 0-2, 2-1, 1-3, 3-0, the same in part. */
START_TEST(shares_by_bandwidth_end_together)
{
    struct mesh *m = mesh_new(arena, 5, 1e9, 0);
    const int32_t one[] = {0, 1, 2, 3, 4}, two[] = {0, 2, 4, 1, 3};
    const double Bps[] = {3e9, 1e9};
    int64_t share[2];
    for (int32_t i = 0; i < 5; i++) mesh_pair(m, i, (i + 1) % 5)->bandwidth_Bps = 3e9;
    collective_split(2, Bps, 20000000, share);
    struct collective_case c[2];
    struct steps_play p[2];
    for (int k = 0; k < 2; k++) {
        c[k] = (struct collective_case){.kind = COLLECTIVE_ALL_REDUCE,
                                        .n_members = 5,
                                        .elements = share[k],
                                        .element_bytes = 1};
        p[k] = mesh_prepare(m, &c[k], NULL);
        p[k].device = k ? two : one;
    }
    struct error err = {0};
    ck_assert_int_eq(steps_run(&m->cluster, m->cost, p, 2, &err), OK);
    ck_assert_int_eq(p[0].makespan_ns, 8 * INT64_C(1000000)); /* 15 MB / 5 / 3 GB/s */
    ck_assert_int_eq(p[1].makespan_ns, 8 * INT64_C(1000000));
    struct collective_case whole = c[0];
    whole.elements = 20000000;
    ck_assert_int_gt(mesh_played(m, &whole, NULL).makespan_ns, 8 * INT64_C(1000000));
}
END_TEST

START_TEST(devices_without_a_link_are_named)
{
    struct mesh *m = mesh_new(arena, 3, 1e9, 0);
    struct collective_case c = gigabyte(ALGORITHM_RING, 3);
    struct steps_play p = mesh_prepare(m, &c, NULL);
    struct error err = {0};
    m->cluster.n_links = 1;
    ck_assert_int_eq(steps_run(&m->cluster, m->cost, &p, 1, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "no link between n1.0 and n2.0") != NULL, "%s", err.text);
}
END_TEST

/* Through a switch a ring meets nobody; of a tree's inner members two children and a parent share the port. */
START_TEST(routes_through_a_switch_share_its_ports)
{
    struct mesh *m = mesh_new(arena, 8, 1, 1e-6);
    struct error err = {0};
    ck_assert_msg(cluster_read(arena, "tests/data/clusters/switch8.yaml", &m->cluster, &err) == OK,
                  "%s", err.text);
    struct collective_case c = gigabyte(ALGORITHM_RING, 8);
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * INT64_C(421667)); /* 5.9033 ms */
    m->cluster.links[3].bandwidth_Bps = 25e9;
    ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, 14 * INT64_C(5005000)); /* 70.07 ms */
    m->cluster.links[3].bandwidth_Bps = 300e9;
    c.algorithm = ALGORITHM_TREE;
    int64_t tree = mesh_played(m, &c, NULL).makespan_ns;
    ck_assert_int_ge(tree, 3 * INT64_C(3333333)); /* 3 GB come in */
    ck_assert_int_le(tree, 4 * INT64_C(3333333));
    struct collective_routes *w = collective_routes_new(arena, &m->cluster);
    for (int32_t from = 0; from < 8; from++)
        for (int32_t to = 0; to < 8; to++) {
            struct cost_link l;
            int32_t link, direction, back, turned;
            ck_assert(collective_routes_find(w, from, to, &link, &direction));
            ck_assert(collective_routes_find(w, to, from, &back, &turned));
            ck_assert_int_eq(link, back);
            if (from == to) continue;
            ck_assert_int_eq(direction, !turned);
            ck_assert_int_ge(link, m->cluster.n_links);
            ck_assert_int_eq(collective_routes_cost(w, m->cost, from, to, &l, &err), OK);
            ck_assert_double_eq(l.bandwidth_Bps, 300e9);
            ck_assert_int_eq(l.latency_ns, 5000);
        }
    ck_assert_int_eq(collective_routes_program(w)->n_links, 8 + 28);
}
END_TEST

START_TEST(the_same_steps_play_the_same_again)
{
    struct dice d = {99, 0};
    struct mesh *m = random_mesh(&d, 16);
    int32_t node[16];
    for (int32_t i = 0; i < 16; i++) node[i] = i / 4;
    struct collective_case c = gigabyte(ALGORITHM_LEADER, 16);
    c.node = node;
    int64_t first = mesh_played(m, &c, NULL).makespan_ns;
    for (int i = 0; i < 3; i++) ck_assert_int_eq(mesh_played(m, &c, NULL).makespan_ns, first);
}
END_TEST

Suite *collective_steps_suite(void)
{
    Suite *s = suite_create("collective_steps");
    TCase *c = tcase_create("collective_steps");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, every_collective_alone_takes_its_closed_form_to_the_nanosecond);
    tcase_add_test(c, each_member_is_sent_what_it_must_learn);
    tcase_add_test(c, the_engines_ring_and_chain_take_the_same_time);
    tcase_add_test(c, one_hop_twelve_times_slower_sets_the_pace);
    tcase_add_test(c, hops_that_share_a_bus_take_turns);
    tcase_add_test(c, two_collectives_on_the_same_links_contend);
    tcase_add_test(c, collectives_that_share_no_link_do_not_join);
    tcase_add_test(c, shares_by_bandwidth_end_together);
    tcase_add_test(c, devices_without_a_link_are_named);
    tcase_add_test(c, routes_through_a_switch_share_its_ports);
    tcase_add_test(c, the_same_steps_play_the_same_again);
    suite_add_tcase(s, c);
    return s;
}
