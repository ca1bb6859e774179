/* tests/support/spmd_stage_cases.h - small jobs on small clusters for sharded stages. */
#ifndef TESTS_SUPPORT_SPMD_STAGE_CASES_H
#define TESTS_SUPPORT_SPMD_STAGE_CASES_H

#include "profiles/team.h"

#include "tests/support/random_teams.h"
#include "tests/support/suites.h"

struct small {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct lower_options lower;
    struct cost *cost;
    struct space space[2]; /* microbatches of 1 and of 2 sequences */
};

/* Three devices on fast links and a batch of two sequences, which cannot be divided by sequences. */
static inline void spmd_stage_cases_near(struct arena *arena, struct draw *d, struct small *x)
{
    struct yaml_text c = {.n = 0}, j = {.n = 0};
    struct error err = {0};
    int n = 3, blocks = 1 + (int)random_teams_below(d, 2),
        gigabytes = 20 + 30 * (int)random_teams_below(d, 2);
    random_teams_put(&c, "version: 1\nname: c\ndevice_types:\n");
    for (int i = 0; i < n; i++)
        random_teams_put(&c, "  - {name: t%d, device: host, slowdown: %d, memory: 1 GiB}\n", i,
                         1 + (int)random_teams_below(d, 3));
    random_teams_put(&c, "nodes: [{name: n, host: localhost, devices: [");
    for (int i = 0; i < n; i++) random_teams_put(&c, "%s{type: t%d}", i ? ", " : "", i);
    random_teams_put(&c,
                     "]}]\nlinks: [{name: bus, between: [n], bandwidth: %d GB/s, latency: 1 us}]\n",
                     gigabytes);
    random_teams_put(
        &j,
        "version: 1\nmodel: {model_type: gpt2, n_embd: 128, n_layer: %d, n_head: 4, n_positions: "
        "64, vocab_size: 512}\nsequence_length: 64\nglobal_batch: 2\nmicrobatch: [1, 2]\n",
        blocks);
    ck_assert_msg(cluster_parse(arena, random_teams_parsed(arena, &c), &x->cluster, &err) == OK,
                  "%s\n%s", err.text, c.at);
    ck_assert_msg(job_parse(arena, random_teams_parsed(arena, &j), ".", &x->job, &err) == OK, "%s",
                  err.text);
}

/* Three to six equal nodes of two devices on fast links, slow links between them. */
static inline void spmd_stage_cases_islands(struct arena *arena, struct draw *d, struct small *x)
{
    static const int kBps[] = {300, 2000, 10000, 50000};
    struct yaml_text c = {.n = 0}, j = {.n = 0};
    struct error err = {0};
    int nodes = 3 + (int)random_teams_below(d, 4), blocks = 1 + (int)random_teams_below(d, 4),
        rate = kBps[random_teams_below(d, 4)] * (1 + (int)random_teams_below(d, 4)),
        batch = 2 * (1 + (int)random_teams_below(d, 12));
    random_teams_put(
        &c,
        "version: 1\nname: c\ndevice_types: [{name: t, device: host, slowdown: %d, "
        "memory: 1 GiB}]\n"
        "nodes: [{name: n, count: %d, host: localhost, devices: {type: t, count: 2}}]\n"
        "switches: [{name: core}]\nlinks:\n"
        "  - {name: bus, count: %d, between: [n], bandwidth: 20 GB/s, latency: 1 us}\n"
        "  - {name: up, count: %d, between: [n, core], bandwidth: %d kB/s, latency: 2 us}\n",
        1 + (int)random_teams_below(d, 3), nodes, nodes, nodes, rate);
    random_teams_put(
        &j,
        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: 4, n_positions: "
        "64, vocab_size: 64}\nsequence_length: 64\nglobal_batch: %d\nmicrobatch: [1, 2]\n",
        32 << random_teams_below(d, 3), blocks, batch);
    ck_assert_msg(cluster_parse(arena, random_teams_parsed(arena, &c), &x->cluster, &err) == OK,
                  "%s\n%s", err.text, c.at);
    ck_assert_msg(job_parse(arena, random_teams_parsed(arena, &j), ".", &x->job, &err) == OK, "%s",
                  err.text);
}

/* What a search needs beside the job and the cluster. */
static inline struct small *small_complete(struct arena *arena, struct small *x)
{
    struct error err = {0};
    x->lower.check_memory = true;
    ck_assert_msg(profile_prior(arena, &x->cluster, &x->profile, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_fused(arena, &x->cluster, &x->lower, &err), OK);
    x->cost = cost_new(arena, &x->profile, &x->cluster);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(space_make(arena, &x->job, &x->cluster, x->cost, i + 1, &x->lower,
                                 &x->space[i], &err) == OK,
                      "%s", err.text);
    return x;
}

/* Odd seed: devices on fast links; even seed: any cluster. */
static inline struct small *small_new(struct arena *arena, uint64_t seed)
{
    struct small *x = ARENA_ARRAY(arena, struct small, 1);
    struct draw d = {seed, 0};
    if (seed % 2)
        spmd_stage_cases_near(arena, &d, x);
    else
        random_teams_case(arena, &d, &x->job, &x->cluster);
    return small_complete(arena, x);
}

static inline struct small *small_islands(struct arena *arena, uint64_t seed)
{
    struct small *x = ARENA_ARRAY(arena, struct small, 1);
    struct draw d = {seed, 0};
    spmd_stage_cases_islands(arena, &d, x);
    return small_complete(arena, x);
}

#endif
