/* Plans on clusters with switches: their programs' routes, the program file, and their time. */
#include "tests/support/plans.h"

#include "sim/engine/sim.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Devices a.0 … at one switch each; switches in a row: 0 - 1 - 2 … with `trunk` between. Or one switch for all. */
static void with_switches(struct plan *p, bool row, double trunk_Bps)
{
    struct cluster *c = &p->cluster;
    int32_t n = c->n_devices, switches = row ? n : 1;
    c->n_switches = switches;
    c->switches = ARENA_ARRAY(arena, const char *, (size_t)switches);
    c->n_links = n + switches - 1;
    c->links = ARENA_ARRAY(arena, struct link, (size_t)c->n_links);
    for (int32_t i = 0; i < switches; i++) c->switches[i] = arena_printf(arena, "s%d", (int)i);
    for (int32_t i = 0; i < c->n_links; i++) {
        bool up = i < n;
        c->links[i] = (struct link){
            .name = arena_printf(arena, "%s%d", up ? "up" : "trunk", (int)(up ? i : i - n)),
            .bandwidth_Bps = up ? 1e9 : trunk_Bps,
            .latency_s = 1e-6,
            .stated = true,
            .n_ends = 2,
            .kind = {up ? END_DEVICE : END_SWITCH, END_SWITCH},
            .end = {up ? i : i - n, up ? (row ? i : 0) : i - n + 1}};
    }
}

static struct plan pipeline(int32_t n_devices, int32_t microbatches)
{
    struct plan p = plans_new(arena, "gpt2", 2, n_devices);
    int32_t n = plans_layers(arena, &p), last[8];
    for (int32_t i = 0; i < n_devices; i++) last[i] = (i + 1) * n / n_devices - 1;
    plans_replica(arena, &p, microbatches, n_devices, last);
    return p;
}

static struct plan replicas(int32_t n_devices)
{
    struct plan p = plans_new(arena, "gpt2", 2, n_devices);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t i = 0; i < n_devices; i++) plans_replica(arena, &p, 2, 1, &last);
    return p;
}

static int64_t iteration(const struct plan *p, const struct program *program)
{
    struct profile prior = {.pace = 1};
    struct sim_options o = {0};
    struct sim_result r;
    struct error err = {0};
    struct cost *k;
    ck_assert_msg(profile_prior(arena, &p->cluster, &prior, &err) == OK, "%s", err.text);
    k = cost_new(arena, &prior, &p->cluster);
    ck_assert_msg(sim_run(arena, program, k, &o, &r, &err) == OK, "%s", err.text);
    return r.iteration_ns;
}

START_TEST(each_pair_of_neighbours_has_one_route)
{
    struct plan p = pipeline(4, 3);
    with_switches(&p, true, 1e9);
    struct program *x = plans_lower(arena, &p, false);
    ck_assert_int_eq(x->n_channels, 6);
    ck_assert_int_eq(x->n_links, 7 + 4); /* the tied embedding joins the first and the last, too */
    for (int32_t i = 0; i < x->n_channels; i++) {
        const struct channel *c = &x->channels[i];
        int32_t low = c->gradient ? c->to_stage : c->from_stage;
        const struct program_link *l = &x->links[c->link];
        ck_assert_int_eq(c->direction, c->gradient);
        ck_assert_int_eq(l->n_hops, 3);
        ck_assert(l->hop[0] == low && l->hop[1] == 4 + low && l->hop[2] == low + 1);
        ck_assert(l->hop_direction[0] == 0 && l->hop_direction[1] == 0 && l->hop_direction[2] == 1);
        ck_assert_str_eq(
            l->name, arena_printf(arena, "up%d+trunk%d+up%d", (int)low, (int)low, (int)low + 1));
    }
}
END_TEST

START_TEST(routes_are_written_as_they_are_read)
{
    struct plan p = replicas(3);
    with_switches(&p, false, 0);
    struct program *x = plans_lower(arena, &p, true), again;
    struct error err = {0};
    size_t n, m;
    char *text = plans_text(x, &n);
    ck_assert(strstr(text, "\nroute \"up0+up1\" 2 0 1 0 1 0 %\n") ||
              strstr(text, "\nroute up0+up1 2 0 1 0 1 0 %\n"));
    ck_assert_msg(program_parse(arena, "t", text, n, &again, &err) == OK, "%s", err.text);
    char *second = plans_text(&again, &m);
    ck_assert(n == m && !memcmp(text, second, n));
    ck_assert_int_eq(iteration(&p, x), iteration(&p, &again));
    free(text), free(second);
}
END_TEST

static void spoiled(const char *text, const char *from, const char *to, const char *says)
{
    struct program x;
    struct error err = {0};
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s", from);
    char *copy = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ck_assert_int_eq(program_parse(arena, "t", copy, strlen(copy), &x, &err), ERR_INPUT);
    ck_assert_msg(!strncmp(err.text, "t:", 2) && strstr(err.text, says), "%s\nexpected: %s",
                  err.text, says);
}

START_TEST(a_route_over_nothing_is_refused)
{
    struct plan p = replicas(2);
    size_t n;
    with_switches(&p, false, 0);
    char *text = plans_text(plans_lower(arena, &p, true), &n), *name = strstr(text, "\nroute ");
    ck_assert(name);
    const char *line = arena_strndup(arena, name, strcspn(name + 1, "\n") + 1);
    const char *head = arena_strndup(arena, line, strlen(line) - strlen(" 2 0 1 0 1 0 %"));
    spoiled(text, line, arena_printf(arena, "%s 2 0 7 0 1 0 %%", head), "hop 1 is not a plain link");
    spoiled(text, line, arena_printf(arena, "%s 2 0 2 0 1 0 %%", head), "hop 1 is not a plain link");
    spoiled(text, line, arena_printf(arena, "%s 2 0 -1 0 1 0 %%", head), "hop 1 is not a plain link");
    spoiled(text, line, arena_printf(arena, "%s 2 0 1 0 2", head), "2 is not from");
    spoiled(text, line, arena_printf(arena, "%s 1 0 0 0 %%", head), "of 1 links");
    spoiled(text, line, arena_printf(arena, "%s 2 0 1 0 1", head), "too soon");
    spoiled(text, line, arena_printf(arena, "%s 2 0 1 0 1 65 %%", head), "65 is not from 0 to 64");
    spoiled(text, line, arena_printf(arena, "%s 900000000 0 1 0", head), "");
    free(text);
}
END_TEST

START_TEST(a_route_takes_as_long_as_one_link_of_its_least_bandwidth_and_all_its_latency)
{
    struct plan p = pipeline(2, 4);
    with_switches(&p, true, 3e8);
    int64_t through = iteration(&p, plans_lower(arena, &p, false));
    struct plan q = pipeline(2, 4);
    q.cluster.links[0].bandwidth_Bps = 3e8;
    q.cluster.links[0].latency_s = 3e-6;
    q.cluster.links[0].sharing = LINK_FAIR;
    ck_assert_int_eq(through, iteration(&q, plans_lower(arena, &q, false)));
}
END_TEST

/* The trunk alone does not overlap: compute streams wait for the message on the complete route. */
START_TEST(a_route_that_the_streams_wait_for_is_priced_hop_by_hop)
{
    struct plan p = pipeline(2, 4);
    with_switches(&p, true, 3e8);
    int64_t meanwhile = iteration(&p, plans_lower(arena, &p, false));
    p.cluster.links[2].blocking = true;
    int64_t waited = iteration(&p, plans_lower(arena, &p, false));
    struct plan q = pipeline(2, 4);
    q.cluster.links[0].bandwidth_Bps = 3e8;
    q.cluster.links[0].latency_s = 3e-6;
    q.cluster.links[0].blocking = true;
    ck_assert_int_eq(waited, iteration(&q, plans_lower(arena, &q, false)));
    ck_assert_int_gt(waited, meanwhile);
}
END_TEST

/* One microbatch, 2 sequences · 8 positions · 32 channels · 4 B = 2 KiB: F, over, F, B, back, B; both ends stand still while a
 * message passes: 3 us + 2048 B / 0.3 GB/s = 9827 ns, once at the sender and once at the receiver, there and back. */
START_TEST(a_route_that_blocks_is_paid_by_the_compute_streams)
{
    struct plan p = pipeline(2, 1);
    with_switches(&p, true, 3e8);
    struct program *flows = plans_lower(arena, &p, false);
    p.cluster.links[2].blocking = true;
    struct program *blocks = plans_lower(arena, &p, false);
    struct profile prior = {.pace = 1};
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p.cluster, &prior, &err) == OK, "%s", err.text);
    struct cost *k = cost_new(arena, &prior, &p.cluster);
    double none[4] = {0}, twice[4] = {2, 2, 2, 2}, still[2] = {0};
    struct sim_scale free = {.link = none}, slow = {.link = twice}, link_only = {.device = still};
    struct sim_options o = {0};
    int64_t ns[4];
    for (int i = 0; i < 4; i++) {
        struct sim_result r;
        o.scale = i == 1 ? &free : i == 2 ? &slow : i == 3 ? &link_only : NULL;
        ck_assert_msg(sim_run(arena, blocks, k, &o, &r, &err) == OK, "%s", err.text);
        ns[i] = r.devices[0].busy_ns;
    }
    ck_assert_int_eq(flows->n_channels, blocks->n_channels);
    ck_assert_int_eq(ns[0] - ns[1], 2 * 9827);
    ck_assert_int_eq(ns[2] - ns[1], 2 * 2 * 9827);
    ck_assert_int_eq(ns[3], 2 * 9827);
}
END_TEST

/* A ring of n over one switch: up and down of every device are used by one message at a time. */
START_TEST(a_ring_over_a_switch_shares_nothing)
{
    struct plan p = replicas(4), q = replicas(4);
    with_switches(&p, false, 0);
    q.cluster.n_links = 6;
    q.cluster.links = ARENA_ARRAY(arena, struct link, 6);
    for (int32_t i = 0, n = 0; i < 4; i++)
        for (int32_t j = 0; j < i; j++, n++)
            q.cluster.links[n] = (struct link){.name = arena_printf(arena, "l%d", (int)n),
                                               .bandwidth_Bps = 1e9,
                                               .latency_s = 2e-6,
                                               .stated = true,
                                               .sharing = LINK_FAIR,
                                               .n_ends = 2,
                                               .kind = {END_DEVICE, END_DEVICE},
                                               .end = {j, i}};
    ck_assert_int_eq(iteration(&p, plans_lower(arena, &p, true)),
                     iteration(&q, plans_lower(arena, &q, true)));
}
END_TEST

START_TEST(devices_without_a_route_are_named)
{
    struct plan p = pipeline(3, 2);
    struct error err = {0};
    with_switches(&p, true, 1e9);
    p.cluster.n_links--;
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "no route from a.1 to a.2"), "%s", err.text);
}
END_TEST

Suite *routes_suite(void)
{
    Suite *s = suite_create("core/lower/links");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, each_pair_of_neighbours_has_one_route);
    tcase_add_test(t, routes_are_written_as_they_are_read);
    tcase_add_test(t, a_route_over_nothing_is_refused);
    tcase_add_test(t, a_route_takes_as_long_as_one_link_of_its_least_bandwidth_and_all_its_latency);
    tcase_add_test(t, a_route_that_the_streams_wait_for_is_priced_hop_by_hop);
    tcase_add_test(t, a_route_that_blocks_is_paid_by_the_compute_streams);
    tcase_add_test(t, a_ring_over_a_switch_shares_nothing);
    tcase_add_test(t, devices_without_a_route_are_named);
    suite_add_tcase(s, t);
    return s;
}
