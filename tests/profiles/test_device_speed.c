#include "profiles/device_speed.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#include <string.h>

static const struct factor_row of_type = {.type = "t", .kind = -1, .factor = 1.1, .samples = 9, .provenance = "x"};

static struct cluster cluster_of(struct device_type *types, struct device *devices, struct link *links)
{
    types[0] = (struct device_type){.name = "t", .catalogue = "host", .slowdown = 2};
    for (int32_t i = 0; i < 3; i++) devices[i] = (struct device){(const char *const[]){"a.0", "a.1", "b.0"}[i], 0, i / 2, i % 2};
    links[0] = (struct link){.name = "net", .bandwidth_Bps = 1e9, .latency_s = 1e-5};
    return (struct cluster){.n_types = 1, .types = types, .n_devices = 3, .devices = devices, .n_links = 1, .links = links};
}

START_TEST(devices_have_types_of_their_own)
{
    struct arena *a = arena_new();
    struct device_type types[1];
    struct device devices[3];
    struct link links[1];
    struct cluster c = cluster_of(types, devices, links), now;
    struct factor_row rows[] = {of_type};
    struct profile p = {.n_factors = 1, .factors = rows};
    device_speed_apply(a, &p, &c, &now);
    ck_assert_int_eq(now.n_types, 1);
    device_speed_scale(a, &p, "a.1", 3, 1.5, "run:r");
    device_speed_apply(a, &p, &c, &now);
    ck_assert_int_eq(now.n_types, 2);
    ck_assert_int_eq(now.devices[0].type + now.devices[2].type, 0);
    ck_assert_double_eq(now.types[now.devices[1].type].slowdown, 6);
    ck_assert_int_eq(c.devices[1].type, 0); /* the old one is not changed */
    device_speed_scale(a, &p, "a.1", 2, 1.5, "run:s"); /* of another run: factors multiply */
    ck_assert_int_eq(p.n_factors, 2);
    ck_assert_double_eq(p.factors[1].factor, 6);
    ck_assert_str_eq(p.factors[1].provenance, "run:s");
    device_speed_scale(a, &p, "a.1", 1 / 5.0, 1.5, "run:t"); /* it has recovered */
    ck_assert_int_eq(p.n_factors, 1);
    ck_assert_str_eq(p.factors[0].type, "t");
    device_speed_scale(a, &p, "b.0", 0.5, 1.5, "run:u");
    device_speed_scale(a, &p, "gone.0", 4, 1.5, "run:u"); /* not in this cluster */
    device_speed_apply(a, &p, &c, &now);
    ck_assert_int_eq(now.n_types, 2);
    ck_assert_double_eq(now.types[now.devices[2].type].slowdown, 1);
    arena_free(a);
}
END_TEST

/* What was measured takes precedence over what the cluster states. */
START_TEST(links_are_scaled)
{
    struct arena *a = arena_new();
    struct device_type types[1];
    struct device devices[3];
    struct link links[1];
    struct cluster c = cluster_of(types, devices, links);
    struct profile p = {0};
    struct link_model m;
    struct error err;
    ck_assert_int_eq(device_speed_scale_link(a, &p, &c, 0, 20, &err), OK);
    ck_assert_int_eq(profile_link(&p, &c, 0, &m, &err), OK);
    ck_assert_double_eq(m.bandwidth_Bps, 5e7);
    ck_assert_double_eq(m.latency_s, 1e-5);
    ck_assert_int_eq(device_speed_scale_link(a, &p, &c, 0, 0.1, &err), OK);
    ck_assert_int_eq(profile_link(&p, &c, 0, &m, &err), OK);
    ck_assert_double_eq_tol(m.bandwidth_Bps, 5e8, 1);
    links[0].bandwidth_Bps = 0;
    ck_assert_int_eq(device_speed_scale_link(a, &(struct profile){0}, &c, 0, 20, &err), ERR_INPUT);
    arena_free(a);
}
END_TEST

Suite *device_speed_suite(void)
{
    Suite *s = suite_create("device_speed");
    TCase *t = tcase_create("device_speed");
    tcase_add_test(t, devices_have_types_of_their_own);
    tcase_add_test(t, links_are_scaled);
    suite_add_tcase(s, t);
    return s;
}
