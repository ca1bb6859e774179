/* tests/support/brute.h - random small clusters and jobs, and brute-force enumeration of the exact search's class on them. */
#ifndef TESTS_SUPPORT_BRUTE_H
#define TESTS_SUPPORT_BRUTE_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/baseline/baseline.h"
#include "planner/bound/pipeline_bound.h"
#include "planner/candidate/scorer.h"

#include <check.h>
#include <stdio.h>

static struct arena *arena; /* of the test */

static uint64_t draws;
static int64_t brute_draw(uint64_t seed, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(seed, 77, draws++, (uint64_t)(high - low + 1));
}

/* A cluster of n emulated devices on nodes of their own, with random speeds and links, and a small job. */
static void brute_make_case(uint64_t seed, int32_t n, struct job *job, struct cluster *cluster)
{
    char text[4096];
    int at = 0;
    struct error err = {0};
    struct node *root = NULL;
    draws = 0;
    at += snprintf(text + at, sizeof text - (size_t)at, "version: 1\nname: c\ndevice_types:\n");
    for (int32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: t%d, device: host, slowdown: %d, memory: 1 GiB}\n", (int)i,
                       (int)brute_draw(seed, 1, 6));
    at += snprintf(text + at, sizeof text - (size_t)at, "nodes:\n");
    for (int32_t i = 0; i < n; i++)
        at +=
            snprintf(text + at, sizeof text - (size_t)at,
                     "  - {name: n%d, host: localhost, devices: [{type: t%d}]}\n", (int)i, (int)i);
    at += snprintf(text + at, sizeof text - (size_t)at, "links:\n");
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++) { /* one draw a statement: arguments have no order */
            int us = (int)brute_draw(seed, 1, 500), rate = (int)brute_draw(seed, 1, 200);
            at += snprintf(
                text + at, sizeof text - (size_t)at,
                "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: %d us}\n",
                (int)j, (int)i, (int)j, (int)i, rate, us);
        }
    int batch = (int)brute_draw(seed, 2, 5), blocks = (int)brute_draw(seed, 1, 2);
    ck_assert_msg(document_parse(arena, "cluster", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, cluster, &err) == OK, "%s", err.text);
    at = snprintf(text, sizeof text,
                  "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, "
                  "n_positions: 16, vocab_size: 256}\n"
                  "sequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n",
                  blocks, batch);
    ck_assert_msg(document_parse(arena, "job", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(arena, root, ".", job, &err) == OK, "%s", err.text);
    /* Some are cut inside the halves of their blocks, where several tensors cross. */
    if (job->model.layers == 2 && seed % 2) job->layers = (struct layers_choice){LAYERS_NUMBER, 8};
}

/* Brute force: plain recursion over replicas, devices, splits and shares. */
struct brute {
    const struct space *s;
    struct scorer *scorer;
    int64_t best_ns, plans, violations;
    int32_t n_replicas, n_stages[SEARCH_DEVICES_MAX], share[SEARCH_DEVICES_MAX];
    int32_t device[SEARCH_DEVICES_MAX][SEARCH_DEVICES_MAX],
        last[SEARCH_DEVICES_MAX][SEARCH_DEVICES_MAX];
};

static int64_t brute_bound(const struct brute *b, int32_t r)
{
    struct bound_stage stages[SEARCH_DEVICES_MAX];
    for (int32_t i = 0, first = 0; i < b->n_stages[r]; i++) {
        struct space_stage_time t;
        int32_t left = b->n_stages[r] - i;
        space_stage_time(b->s, b->device[r][i], first, b->last[r][i], 1, &t);
        stages[i] = (struct bound_stage){.forward_ns = t.forward_ns,
                                         .backward_ns = t.backward_ns,
                                         .update_ns = t.update_ns,
                                         .recompute_ns = t.recompute_ns,
                                         .return_ns = t.return_ns,
                                         .in_flight = left < b->share[r] ? left : b->share[r]};
        if (i + 1 < b->n_stages[r])
            stages[i].transfer_ns =
                space_least_transfer_ns(b->s, b->device[r][i], b->device[r][i + 1], b->last[r][i]);
        first = b->last[r][i] + 1;
    }
    int64_t path;
    return bound_pipeline(stages, b->n_stages[r], b->share[r], &path);
}

static void brute_score(struct brute *b)
{
    struct plan p;
    struct error err = {0};
    int64_t ns = 0, bound = 0;
    plan_skeleton(scorer_arena(b->scorer), b->s, "brute", b->n_replicas, b->n_stages, &p);
    for (int32_t r = 0; r < b->n_replicas; r++) {
        p.replicas[r].microbatches = b->share[r];
        for (int32_t i = 0, first = 0; i < b->n_stages[r]; i++) {
            struct plan_stage *stage = &p.replicas[r].stages[i];
            stage->device = b->device[r][i];
            stage->first_layer = first;
            stage->last_layer = b->last[r][i];
            first = stage->last_layer + 1;
        }
        if (brute_bound(b, r) > bound) bound = brute_bound(b, r);
    }
    ck_assert_msg(scorer_run(b->scorer, b->s, &p, &ns, &err) == OK, "%s", err.text);
    b->plans++;
    if (bound > ns) b->violations++;
    if (ns < b->best_ns) b->best_ns = ns;
}

static void brute_shares(struct brute *b, int32_t r, int32_t left)
{
    if (r == b->n_replicas - 1) {
        if (left < 1) return;
        b->share[r] = left;
        brute_score(b);
        return;
    }
    for (int32_t m = 1; m < left; m++) {
        b->share[r] = m;
        brute_shares(b, r + 1, left - m);
    }
}

static void brute_splits(struct brute *b, int32_t r, int32_t i, int32_t first)
{
    if (r == b->n_replicas) {
        brute_shares(b, 0, b->s->microbatches);
        return;
    }
    int32_t n = b->s->n_layers;
    if (i == b->n_stages[r] - 1) {
        b->last[r][i] = n - 1;
        if (first <= n - 1) brute_splits(b, r + 1, 0, 0);
        return;
    }
    for (int32_t last = first; last < n - 1; last++) {
        b->last[r][i] = last;
        brute_splits(b, r, i + 1, last + 1);
    }
}

/* Adds a device to the current replica, or closes it and opens the next one (with a larger first device, so that each set
 * occurs once). */
static void brute_devices(struct brute *b, uint32_t unused, int32_t depth)
{
    int32_t r = b->n_replicas;
    if (depth > 0) {
        b->n_stages[r] = depth;
        b->n_replicas = r + 1;
        brute_splits(b, 0, 0, 0);
        for (int32_t d = 0; d < b->s->n_devices; d++)
            if (unused >> d & 1) {
                b->device[r + 1][0] = d;
                brute_devices(b, unused & ~(1u << d), 1);
            }
        b->n_replicas = r;
    }
    for (int32_t d = 0; d < b->s->n_devices; d++)
        if (unused >> d & 1) {
            b->device[r][depth] = d;
            if (depth > 0 || r == 0) brute_devices(b, unused & ~(1u << d), depth + 1);
        }
}

#endif
