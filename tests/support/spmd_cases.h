/* tests/support/spmd_cases.h - a small model on a few unequal devices as a planner/spmd/spmd question. */
#ifndef TESTS_SUPPORT_SPMD_CASES_H
#define TESTS_SUPPORT_SPMD_CASES_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "planner/spmd/spmd.h"
#include "profiles/team.h"

#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct spmd_case {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct graph *forward, *training;
    struct sharding s;
    struct cost_link near, far; /* between devices of one half, of the two */
    int32_t type[8];
    struct spmd_question q;
};

static inline struct cost_link spmd_case_hop(const void *of, int32_t from, int32_t to)
{
    const struct spmd_case *c = of;
    int32_t half = c->s.n_devices / 2;
    return (from < half) == (to < half) ? c->near : c->far;
}

static inline void spmd_case_must(enum status st, const struct error *err)
{
    ck_assert_msg(st == OK, "%s", err->text);
}

/* model: the YAML of job.model; the first half of the devices is faster. */
static inline struct spmd_case *spmd_case_new(struct arena *a, const char *model, int64_t sequence,
                                              int64_t microbatch, int32_t n_devices,
                                              const double *ratios, int32_t n_ratios)
{
    struct spmd_case *c = ARENA_ARRAY(a, struct spmd_case, 1);
    struct error err = {0};
    struct node *root;
    const char *job = arena_printf(a,
                                   "version: 1\nmodel: %s\nsequence_length: %d\nglobal_batch: %d\n"
                                   "precision: fp32\n",
                                   model, (int)sequence, (int)microbatch);
    static const char cluster[] =
        "version: 1\nname: two\ndevice_types: [{name: v, device: V100-SXM2-16}, "
        "{name: p, device: P100-PCIe-16}]\nnodes: [{name: n, host: n, devices: [{type: v}, "
        "{type: p}]}]\nlinks: []\n";
    spmd_case_must(document_parse(a, "job", job, strlen(job), &root, &err), &err);
    spmd_case_must(job_parse(a, root, ".", &c->job, &err), &err);
    spmd_case_must(document_parse(a, "cluster", cluster, strlen(cluster), &root, &err), &err);
    spmd_case_must(cluster_parse(a, root, &c->cluster, &err), &err);
    spmd_case_must(team_complete(&c->cluster, &err), &err);
    spmd_case_must(profile_prior(a, &c->cluster, &c->profile, &err), &err);
    spmd_case_must(lower_graph(a, &c->job, microbatch, &c->forward, &err), &err);
    spmd_case_must(lower_graph(a, &c->job, microbatch, &c->training, &err), &err);
    spmd_case_must(gradient_build(c->training, 1, &err), &err);
    c->s = (struct sharding){.n_devices = n_devices,
                             .n_axes = 1,
                             .mesh = {n_devices, 1},
                             .n_ratios = n_ratios,
                             .ratios = ratios};
    c->near = (struct cost_link){12e9, 3000, NULL}, c->far = (struct cost_link){1.3e9, 20000, NULL};
    for (int32_t d = 0; d < n_devices; d++) c->type[d] = d >= n_devices / 2;
    c->q = (struct spmd_question){.g = c->training,
                                  .last_layer = c->training->n_layers - 1,
                                  .s = &c->s,
                                  .cost = cost_new(a, &c->profile, &c->cluster),
                                  .type = c->type,
                                  .hop = spmd_case_hop,
                                  .of = c,
                                  .microbatches = 2,
                                  .in_flight = 1,
                                  .optimizer = &c->job.optimizer,
                                  .algorithms = 1U << ALGORITHM_RING};
    return c;
}

#endif
