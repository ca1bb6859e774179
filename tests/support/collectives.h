/* tests/support/collectives.h - teams of devices with a link of its own for every pair, and collectives on them. */
#ifndef TESTS_SUPPORT_COLLECTIVES_H
#define TESTS_SUPPORT_COLLECTIVES_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/collective/cost.h"
#include "sim/collective/steps.h"

#include "tests/support/suites.h"

#include <stdio.h>

struct mesh {
    struct arena *arena;
    struct cluster cluster;
    struct profile profile;
    struct cost *cost;
    int32_t *device; /* 0 … n-1 */
};

static inline int32_t mesh_link(int32_t n, int32_t a, int32_t b)
{
    int32_t low = a < b ? a : b, high = a < b ? b : a;
    return low * (2 * n - low - 1) / 2 + high - low - 1;
}

static inline struct link *mesh_pair(struct mesh *m, int32_t a, int32_t b)
{
    return &m->cluster.links[mesh_link(m->cluster.n_devices, a, b)];
}

/* n devices, each on a node of its own, each pair with a full-duplex FIFO link of this bandwidth and latency; links may be
 * changed before use. */
static inline struct mesh *mesh_new(struct arena *a, int32_t n, double Bps, double latency_s)
{
    struct mesh *m = ARENA_ARRAY(a, struct mesh, 1);
    struct node *root = NULL;
    struct error err = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("version: 1\nname: mesh\ndevice_types: [{name: t, device: host, slowdown: 1, memory: 1 "
          "GiB}]\n"
          "nodes:\n",
          out);
    for (int32_t i = 0; i < n; i++)
        fprintf(out, "  - {name: n%d, host: localhost, devices: [{type: t}]}\n", i);
    fputs(n > 1 ? "links:\n" : "links: []\n", out);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i + 1; k < n; k++)
            fprintf(
                out,
                "  - {name: l%d-%d, between: [n%d.0, n%d.0], bandwidth: 1 GB/s, latency: 1 us}\n",
                i, k, i, k);
    fclose(out);
    ck_assert_msg(document_parse(a, "mesh", text, length, &root, &err) == OK, "%s", err.text);
    free(text); /* open_memstream's */
    ck_assert_msg(cluster_parse(a, root, &m->cluster, &err) == OK, "%s", err.text);
    m->arena = a;
    m->profile = (struct profile){.pace = 1};
    m->device = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) m->device[i] = i;
    for (int32_t i = 0; i < m->cluster.n_links; i++)
        m->cluster.links[i].bandwidth_Bps = Bps, m->cluster.links[i].latency_s = latency_s;
    m->cost = cost_new(a, &m->profile, &m->cluster);
    return m;
}

static inline struct cost_link mesh_hop(const void *of, int32_t from, int32_t to)
{
    const struct mesh *m = of;
    struct cost_link l = {0};
    struct error err;
    ck_assert_int_ne(from, to);
    ck_assert_msg(cost_link(m->cost, mesh_link(m->cluster.n_devices, from, to), &l, &err) == OK,
                  "%s", err.text);
    return l;
}

static inline int64_t mesh_closed(const struct mesh *m, const struct collective_case *c,
                                  const int64_t *start_ns, int64_t *end_ns)
{
    struct collective_hops hops = {.hop = mesh_hop, .of = m};
    struct error err = {0};
    int64_t ns = 0;
    ck_assert_msg(collective_ns(c, &hops, start_ns, end_ns, &ns, &err) == OK, "%s", err.text);
    return ns;
}

static inline struct steps_play mesh_prepare(struct mesh *m, const struct collective_case *c,
                                             const int64_t *start_ns)
{
    struct steps *s = ARENA_ARRAY(m->arena, struct steps, 1);
    struct error err = {0};
    ck_assert_msg(steps_make(m->arena, c, s, &err) == OK, "%s", err.text);
    return (struct steps_play){.steps = s,
                               .device = m->device,
                               .start_ns = start_ns,
                               .end_ns = ARENA_ARRAY(m->arena, int64_t, (size_t)c->n_members)};
}

static inline struct steps_play mesh_played(struct mesh *m, const struct collective_case *c,
                                            const int64_t *start_ns)
{
    struct steps_play p = mesh_prepare(m, c, start_ns);
    struct error err = {0};
    ck_assert_msg(steps_run(&m->cluster, m->cost, &p, 1, &err) == OK, "%s", err.text);
    return p;
}

#endif
