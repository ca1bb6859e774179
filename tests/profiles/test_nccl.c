/* NCCL's model by hand, from its tables: 2.28.9. */
#include "profiles/nccl.h"

#include "tests/support/suites.h"

#include <math.h>

static struct error err;

static struct nccl_system system_of(const char *device, int32_t n, int32_t nodes,
                                    double network_Bps)
{
    struct nccl_system s;
    ck_assert_msg(nccl_system_of(device, n, nodes, network_Bps, &s, &err) == OK, "%s", err.text);
    return s;
}

static double us(const struct nccl_system *s, enum collective_kind kind, int64_t bytes,
                 enum nccl_algorithm a, enum nccl_protocol p)
{
    return 1e6 * nccl_seconds(s, kind, bytes, a, p);
}

START_TEST(rings_of_one_node_by_hand)
{
    struct nccl_system s = system_of("A100-SXM4-80", 8, 1, 0);
    /* 12 links of 20 GB/s: 240; · 8/14 of the user's bytes. Simple: 8.4 + 14 · 3.4. */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 1000000000, NCCL_RING, NCCL_SIMPLE),
                            8.4 + 14 * 3.4 + 1e6 / (240. * 8 / 14), 1e-6);
    /* LL: the cap of one node of Ampere, 87.7, is less than half of 240. */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 100000, NCCL_RING, NCCL_LL),
                            6.6 + 14 * .6 + 100 / (87.7 * 8 / 14), 1e-6);
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 100000, NCCL_RING, NCCL_LL128),
                            14 + 14 * 1.9 + 100 / (.92 * 240 * 8 / 14), 1e-6);
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_GATHER, 1000000000, NCCL_RING, NCCL_SIMPLE),
                            8.4 + 7 * 3.4 + 1e6 / (240. * 8 / 7), 1e-6);
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_BROADCAST, 1000000000, NCCL_RING, NCCL_SIMPLE),
                            8.4 + 3.4 + 1e6 / 240, 1e-6);
}
END_TEST

START_TEST(trees_and_networks_by_hand)
{
    struct nccl_system s = system_of("H100-SXM5", 32, 4, 400e9);
    /* ring: 370.8 holds 6 channels of 60 = 360, less than the network's 400; 62 steps, 6 of them over the network; 1 us of overhead, 3 of Simple */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 1000000000, NCCL_RING, NCCL_SIMPLE),
                            (8.4 + 56 * 3.4 + 6 * 14) * 1.4 + 1e6 / (360. * 32 / 62), 1e-6);
    /* few bytes: no plateau; LL: intra .6 is less than the overhead of 1; cap 20.4 of an Intel host */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 4096, NCCL_RING, NCCL_LL),
                            6.6 + 56 * 1 + 6 * 2.7 + 4.096 / (20.4 * 32 / 62), 1e-6);
    /* tree of 1 GB (beyond the corrections): .92 · 360 against 12 · 36 */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 1000000000, NCCL_TREE, NCCL_SIMPLE),
                            8.4 + 2 * (7 * 4. + 2 * 14) + 1e6 / (.92 * 360 / 2), 1e-6);
    /* 64 KiB = 64 B · 2^10: LL's bandwidth · .6; min(.92 · 360 / 3.8, 20.4) */
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 65536, NCCL_TREE, NCCL_LL),
                            6.8 + 2 * (7 * .6 + 2 * 5) + 65.536 / (20.4 / 2 * .6), 1e-6);
    s.amd_host = true;
    ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 4096, NCCL_RING, NCCL_LL),
                            6.6 + 56 * 2 + 6 * 2.7 + 4.096 / (19. * 32 / 62), 1e-6);
}
END_TEST

/* A channel for each GPU at a listed speed: (n + 1) · speed fits in the GPU's links. */
START_TEST(sums_in_the_switch_by_hand)
{
    static const struct {
        const char *device;
        int32_t n;
        double speed, efficiency;
    } cases[] = {{"H200-SXM", 4, 60, .85},
                 {"H200-SXM", 6, 50, .85},
                 {"H200-SXM", 8, 40, .85},
                 {"B200-SXM", 6, 90, .74},
                 {"B200-SXM", 8, 80, .74}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t n = cases[i].n;
        struct nccl_system s = system_of(cases[i].device, n, 1, 0);
        double bus = 2 * cases[i].speed * (n - 1) * cases[i].efficiency;
        ck_assert_int_eq(s.nvls_channels, n);
        ck_assert_double_eq(s.nvls_Bps, cases[i].speed * 1e9);
        ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_REDUCE, 1000000000, NCCL_NVLS, NCCL_SIMPLE),
                                25 + 1e6 / (bus * n / (2. * (n - 1))), 1e-6);
        ck_assert_double_eq_tol(us(&s, COLLECTIVE_ALL_GATHER, 1000000000, NCCL_NVLS, NCCL_SIMPLE),
                                25 + 1e6 / (bus / 2 * (n - 1) / n), 1e-6);
        ck_assert(isnan(us(&s, COLLECTIVE_ALL_REDUCE, 1, NCCL_NVLS, NCCL_LL)));
        ck_assert(isnan(us(&s, COLLECTIVE_BROADCAST, 1, NCCL_NVLS, NCCL_SIMPLE)));
    }
    ck_assert_int_eq(system_of("A100-SXM4-80", 8, 1, 0).nvls_channels, 0);
    ck_assert_int_eq(system_of("H200-SXM", 16, 2, 4e11).nvls_channels, 0);
    ck_assert_double_eq(system_of("H200-SXM", 8, 1, 0).near_Bps, 360e9); /* 6 · 60 of 370.8 */
    ck_assert_double_eq(system_of("B200-SXM", 8, 1, 0).near_Bps, 720e9); /* 8 · 90 of 721.8 */
}
END_TEST

START_TEST(the_choice_is_the_least_and_few_bytes_leave_few_channels)
{
    static const char *const devices[] = {"V100-SXM2-32", "A100-SXM4-80", "H100-SXM5", "B200-SXM",
                                          "A100-PCIe-80"};
    for (int d = 0; d < 5; d++)
        for (int32_t n = 2; n <= 64; n *= 2) {
            struct nccl_system s = system_of(devices[d], n, n > 8 ? n / 8 : 1, 100e9);
            double before = 0;
            int32_t channels = 1;
            for (int64_t bytes = 256; bytes < INT64_C(1) << 34; bytes *= 2) {
                struct nccl_choice c;
                ck_assert_int_eq(nccl_choose("2.28.9", &s, COLLECTIVE_ALL_REDUCE, bytes, &c, &err),
                                 OK);
                for (int x = 0; x < NCCL_ALGORITHMS; x++)
                    for (int p = 0; p < NCCL_PROTOCOLS; p++) {
                        double t = nccl_seconds(&s, COLLECTIVE_ALL_REDUCE, bytes,
                                                (enum nccl_algorithm)x, (enum nccl_protocol)p);
                        ck_assert(!(t < c.seconds));
                    }
                ck_assert_double_gt(c.seconds, 0);
                ck_assert(c.channels >= 1 &&
                          c.channels <= (c.algorithm == NCCL_NVLS ? s.nvls_channels : s.channels));
                if (bytes > 1 << 28) { /* all of NCCL's corrections are behind */
                    ck_assert_double_gt(c.seconds, before);
                    ck_assert_int_ge(c.channels, channels);
                }
                before = c.seconds, channels = c.channels;
            }
            ck_assert(channels == s.channels || channels == s.nvls_channels);
        }
    struct nccl_system s = system_of("A100-SXM4-80", 8, 1, 0);
    struct nccl_choice c;
    ck_assert_int_eq(nccl_choose("2.30", &s, COLLECTIVE_ALL_REDUCE, 1024, &c, &err), OK);
    ck_assert_int_eq(c.protocol, NCCL_LL);
    ck_assert_int_eq(c.channels, 1);
    ck_assert_int_eq(nccl_choose("2.30", &s, COLLECTIVE_ALL_REDUCE, 1 << 30, &c, &err), OK);
    ck_assert_int_eq(c.protocol, NCCL_SIMPLE);
    ck_assert_int_eq(c.algorithm, NCCL_RING);
    ck_assert_int_eq(c.channels, 12);
}
END_TEST

/* Rings by the links that leave a GPU for others of the first n: 1, 2 and 4 are as many as fit; 6 is every link of the mesh. */
START_TEST(rings_of_the_cube_mesh_are_as_many_as_its_links_allow)
{
    static const int32_t buffer_rings[] = {1, 2, 4, 2, 2, 4, 6};
    for (int32_t n = 2; n <= 8; n++) ck_assert_int_eq(nccl_cube_mesh_rings(n), buffer_rings[n - 2]);
    struct nccl_system s = system_of("V100-SXM2-16", 4, 1, 0);
    ck_assert_double_eq(s.near_Bps, 80e9);
    ck_assert_int_eq(s.channels, 4);
    ck_assert_double_eq(system_of("V100-PCIe-16", 4, 1, 0).near_Bps, 12e9);
    ck_assert(!system_of("V100-PCIe-16", 4, 1, 0).nvlink);
}
END_TEST

START_TEST(what_the_model_does_not_know_is_said)
{
    struct nccl_system s = system_of("A100-SXM4-80", 8, 1, 0);
    struct nccl_choice c;
    ck_assert_int_eq(nccl_choose("1.3", &s, COLLECTIVE_ALL_REDUCE, 1, &c, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "known: 2.28.9, 2.30"));
    ck_assert_int_eq(nccl_choose("2.30", &s, COLLECTIVE_ALL_TO_ALL, 1, &c, &err), ERR_INPUT);
    ck_assert_int_eq(nccl_system_of("host", 8, 1, 0, &s, &err), ERR_INPUT);
    ck_assert_int_eq(nccl_system_of("MI300X", 8, 1, 0, &s, &err), ERR_INPUT);
    ck_assert_int_eq(nccl_system_of("A100-SXM4-80", 9, 2, 1e9, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "evenly"));
    ck_assert_int_eq(nccl_system_of("A100-SXM4-80", 8, 2, 0, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "network"));
    s = system_of("A100-SXM4-80", 1, 1, 0);
    ck_assert_int_eq(nccl_choose("2.30", &s, COLLECTIVE_ALL_REDUCE, 1 << 20, &c, &err), OK);
    ck_assert_double_eq(c.seconds, 0);
    s = system_of("A100-SXM4-80", 8, 1, 0);
    ck_assert(isnan(nccl_seconds(&s, COLLECTIVE_ALL_GATHER, 8, NCCL_TREE, NCCL_LL)));
    s = system_of("A100-PCIe-80", 8, 1, 0);
    ck_assert(isnan(nccl_seconds(&s, COLLECTIVE_ALL_GATHER, 8, NCCL_RING, NCCL_LL128)));
}
END_TEST

SUITE_OF(nccl, rings_of_one_node_by_hand, trees_and_networks_by_hand, sums_in_the_switch_by_hand,
         the_choice_is_the_least_and_few_bytes_leave_few_channels,
         rings_of_the_cube_mesh_are_as_many_as_its_links_allow,
         what_the_model_does_not_know_is_said)
