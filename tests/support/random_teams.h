/* tests/support/random_teams.h - small random jobs on random clusters, and arbitrary valid plans of them. One random draw
 * per statement, because the order of evaluation of arguments is unspecified. */
#ifndef TESTS_SUPPORT_RANDOM_TEAMS_H
#define TESTS_SUPPORT_RANDOM_TEAMS_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/baseline/baseline.h"
#include "planner/candidate/space.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>

struct draw {
    uint64_t seed, at;
};
static inline int64_t random_teams_below(struct draw *d, int64_t n)
{
    return (int64_t)rng_below(d->seed, 502, d->at++, (uint64_t)n);
}

struct yaml_text {
    char at[6000];
    size_t n;
};
static inline void random_teams_put(struct yaml_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->n += (size_t)vsnprintf(t->at + t->n, sizeof t->at - t->n, fmt, args);
    va_end(args);
    ck_assert(t->n < sizeof t->at);
}

static inline void random_teams_put_link(struct yaml_text *t, struct draw *d, const char *name,
                                         const char *a, const char *b)
{
    static const int kBps[] = {30, 200, 2000, 20000, 200000};
    int rate = kBps[random_teams_below(d, 5)], times = 1 + (int)random_teams_below(d, 3),
        us = 1 + (int)random_teams_below(d, 300);
    bool full = random_teams_below(d, 4), fifo = random_teams_below(d, 4);
    random_teams_put(t,
                     "  - {name: %s, between: [%s%s%s], bandwidth: %d kB/s, latency: %d us%s%s}\n",
                     name, a, *b ? ", " : "", b, rate * times, us, full ? "" : ", duplex: half",
                     fifo ? "" : ", sharing: fair");
}

/* 1 … 4 nodes of 1 or 2 devices of 1 … 3 types, joined by links of their own or by one or two switches. */
static inline void random_teams_put_cluster(struct yaml_text *t, struct draw *d)
{
    int types = 1 + (int)random_teams_below(d, 3), nodes = 1 + (int)random_teams_below(d, 4),
        two[4], switches = 0;
    char a[8], b[8], name[8];
    random_teams_put(t, "version: 1\nname: c\ndevice_types:\n");
    for (int i = 0; i < types; i++) {
        int slowdown = 1 + (int)random_teams_below(d, 6);
        random_teams_put(t, "  - {name: t%d, device: host, slowdown: %d, memory: %s}\n", i,
                         slowdown, random_teams_below(d, 4) ? "1 GiB" : "700 KiB");
    }
    random_teams_put(t, "nodes:\n");
    for (int i = 0; i < nodes; i++) {
        two[i] = random_teams_below(d, 3) == 0 || nodes == 1;
        random_teams_put(t, "  - {name: n%d, host: localhost, devices: [{type: t%d}", i,
                         (int)random_teams_below(d, types));
        random_teams_put(t, two[i] ? ", {type: t%d, index: 1}]}\n" : "]}\n",
                         (int)random_teams_below(d, types));
    }
    if (nodes > 1 && random_teams_below(d, 3) == 0) {
        switches = 1 + (int)random_teams_below(d, 2);
        random_teams_put(t, "switches: [{name: s0}%s]\n", switches > 1 ? ", {name: s1}" : "");
    }
    random_teams_put(t, "links:\n");
    for (int i = 0; i < nodes; i++) {
        snprintf(a, sizeof a, "n%d", i);
        snprintf(name, sizeof name, "bus%d", i);
        if (two[i]) random_teams_put_link(t, d, name, a, "");
        snprintf(name, sizeof name, "up%d", i);
        if (switches)
            random_teams_put_link(t, d, name, a, random_teams_below(d, switches) ? "s1" : "s0");
        for (int j = 0; j < i && !switches; j++) {
            snprintf(b, sizeof b, "n%d", j);
            snprintf(name, sizeof name, "l%d%d", j, i);
            random_teams_put_link(t, d, name, b, a);
        }
    }
    if (switches > 1) random_teams_put_link(t, d, "trunk", "s0", "s1");
}

static const struct node *random_teams_parsed(struct arena *a, const struct yaml_text *t)
{
    struct node *root = NULL;
    struct error err = {0};
    ck_assert_msg(document_parse(a, "case", t->at, t->n, &root, &err) == OK, "%s\n%s", err.text,
                  t->at);
    return root;
}

static inline void random_teams_case(struct arena *a, struct draw *d, struct job *job,
                                     struct cluster *cluster)
{
    struct yaml_text c = {.n = 0}, j = {.n = 0};
    struct error err = {0};
    random_teams_put_cluster(&c, d);
    ck_assert_msg(cluster_parse(a, random_teams_parsed(a, &c), cluster, &err) == OK, "%s\n%s",
                  err.text, c.at);
    int width = random_teams_below(d, 2) ? 32 : 64, blocks = 1 + (int)random_teams_below(d, 2);
    int vocabulary = random_teams_below(d, 2) ? 64 : 512,
        batch = 2 * (1 + (int)random_teams_below(d, 4));
    random_teams_put(
        &j,
        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: 2, n_positions: "
        "16, vocab_size: %d}\nsequence_length: 16\nglobal_batch: %d\nmicrobatch: [1, 2]\n",
        width, blocks, vocabulary, batch);
    ck_assert_msg(job_parse(a, random_teams_parsed(a, &j), ".", job, &err) == OK, "%s", err.text);
}

/* Devices shuffled and assigned to replicas, layers and shares cut at random; 1F1B or another named schedule. */
static inline void random_teams_plan(struct arena *a, struct draw *d, const struct space *s,
                                     struct plan *out)
{
    static const char *const names[] = {"gpipe", "eager-1f1b", "zb-h1", "zb-h2", "h-1f1b"};
    int32_t order[16], n_stages[16], left = s->n_devices, n = 0;
    for (int32_t i = 0; i < left; i++) order[i] = i;
    for (int32_t i = left - 1; i > 0; i--) {
        int32_t j = (int32_t)random_teams_below(d, i + 1), x = order[i];
        order[i] = order[j], order[j] = x;
    }
    int32_t unused = (int32_t)random_teams_below(d, left), dealt = 0;
    left -= unused;
    while (left > 0 && n < s->microbatches) {
        int32_t most = left < s->n_layers ? left : s->n_layers;
        n_stages[n] = 1 + (int32_t)random_teams_below(d, most);
        left -= n_stages[n++];
    }
    plan_skeleton(a, s, "random", n, n_stages, out);
    int32_t batches = s->microbatches;
    for (int32_t r = 0; r < n; r++) {
        struct plan_replica *x = &out->replicas[r];
        int32_t behind = n - r - 1;
        x->microbatches = behind ? 1 + (int32_t)random_teams_below(d, batches - behind) : batches;
        batches -= x->microbatches;
        for (int32_t i = 0, first = 0; i < n_stages[r]; i++) {
            int32_t rest = n_stages[r] - i - 1, room = s->n_layers - first - rest;
            struct plan_stage *t = &x->stages[i];
            t->device = order[dealt++];
            t->first_layer = first;
            t->last_layer = rest ? first + (int32_t)random_teams_below(d, room) : s->n_layers - 1;
            first = t->last_layer + 1;
            if (!random_teams_below(d, 5)) t->recompute = RECOMPUTE_STAGE;
            if (!random_teams_below(d, 3)) t->bucket_bytes = 1 + random_teams_below(d, 100000);
        }
        if (random_teams_below(d, 2))
            x->schedule = names[random_teams_below(d, 5)], x->split = random_teams_below(d, 2);
    }
}

#endif
