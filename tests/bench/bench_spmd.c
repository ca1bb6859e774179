/* The best sharded program of a complete GPT-2: 12 blocks on 8 devices of two types, 96 blocks on 64; from the training graph on, tables
 * included. One core's CPU time. The exponent is of the time in the number of blocks, from 12 to 96 on 8 devices.
 * Then HAP's four models on 8 and on 64 devices of tests/data/clusters: one search of each (and with so little memory that it
 * binds), and search and ratios by turns. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "planner/spmd/ratio.h"
#include "planner/spmd/spmd.h"
#include "profiles/team.h"
#include "tests/support/spmd_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_spmd(void);

static const char cluster_text[] =
    "version: 1\nname: two\ndevice_types: [{name: v, device: V100-SXM2-16}, {name: p, device: "
    "P100-PCIe-16}]\n"
    "nodes: [{name: n, host: n, devices: [{type: v}, {type: p}]}]\nlinks: []\n";

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void must(enum status st, const struct error *err)
{
    if (st == OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(st);
}

/* 12.5 GB/s inside a node of eight, 1.3 GB/s between. */
static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    (void)of;
    bool near = from / 8 == to / 8;
    return (struct cost_link){near ? 12.5e9 : 1.3e9, near ? 5000 : 20000, NULL};
}

/* CPU ms of one synthesis. */
static double synthesis(int blocks, int32_t n_devices, int32_t n_ratios, struct spmd_answer *x)
{
    struct arena *a = arena_new();
    struct error err = {0};
    struct node *root;
    struct job job = {0};
    struct cluster cluster = {0};
    struct profile profile = {0};
    struct graph *g;
    char text[400];
    snprintf(text, sizeof text,
             "version: 1\nmodel: {model_type: gpt2, n_embd: 768, n_layer: %d, n_head: 12, "
             "n_positions: 1024, vocab_size: 50304}\nsequence_length: 128\nglobal_batch: 256\n"
             "precision: fp32\n",
             blocks);
    must(document_parse(a, "job", text, strlen(text), &root, &err), &err);
    must(job_parse(a, root, ".", &job, &err), &err);
    must(document_parse(a, "cluster", cluster_text, strlen(cluster_text), &root, &err), &err);
    must(cluster_parse(a, root, &cluster, &err), &err);
    must(team_complete(&cluster, &err), &err);
    must(profile_prior(a, &cluster, &profile, &err), &err);
    must(lower_graph(a, &job, 256, &g, &err), &err);
    must(gradient_build(g, 1, &err), &err);
    int32_t *type = ARENA_ARRAY(a, int32_t, n_devices);
    double *ratios = ARENA_ARRAY(a, double, n_devices * 2);
    for (int32_t d = 0; d < n_devices; d++) {
        type[d] = 4 * d >= n_devices;
        ratios[d] = type[d] ? 5 : 9;
        ratios[n_devices + d] = 1;
    }
    struct sharding s = {.n_devices = n_devices,
                         .n_axes = 1,
                         .mesh = {n_devices, 1},
                         .n_ratios = n_ratios,
                         .ratios = ratios};
    double start = cpu_ms();
    struct spmd_question q = {.g = g,
                              .last_layer = g->n_layers - 1,
                              .s = &s,
                              .cost = cost_new(a, &profile, &cluster),
                              .type = type,
                              .hop = hop,
                              .microbatches = 1,
                              .in_flight = 1,
                              .optimizer = &job.optimizer,
                              .algorithms = 1U << ALGORITHM_RING | 1U << ALGORITHM_PAIRS,
                              .gather = true};
    must(spmd_best(a, &q, x, &err), &err);
    double took = cpu_ms() - start;
    arena_free(a);
    return took;
}

enum kind_of_run { FREE, TIGHT, TURNS };

/* CPU ms of one search for a model, microbatch of 512 rows. Tight: three quarters of the memory of the unconstrained
 * optimum. */
static double model_ms(const char *model, int32_t n_devices, enum kind_of_run run)
{
    struct arena *a = arena_new();
    struct error err = {0};
    char job[200], cluster[200];
    struct spmd_model *m;
    struct spmd_answer x;
    struct ratio_best best;
    snprintf(job, sizeof job, "tests/data/jobs/hap-%s.yaml", model);
    snprintf(cluster, sizeof cluster, "tests/data/clusters/hap%d.yaml", n_devices);
    must(spmd_model_new(a, job, cluster, 512, &m, &err), &err);
    if (run == TIGHT) {
        int64_t *memory = ARENA_ARRAY(a, int64_t, n_devices);
        must(spmd_best(a, &m->q, &x, &err), &err);
        for (int32_t d = 0; d < n_devices; d++) memory[d] = x.bytes[d] / 4 * 3;
        m->q.memory_bytes = memory, m->q.gather = true, m->q.limits.max_labels = 2000;
    }
    double start = cpu_ms();
    if (run == TURNS)
        must(ratio_alternate(a, &m->q, &best, &err), &err);
    else
        must(spmd_best(a, &m->q, &x, &err), &err);
    double took = cpu_ms() - start;
    arena_free(a);
    return took;
}

static void bench_models(void)
{
    enum { ROUNDS = 3 };
    static const char *const models[][2] = {
        {"vgg19", "vgg19"}, {"vit", "vit"}, {"bert", "bert"}, {"bert-moe", "bert_moe"}};
    static const char *const ends[] = {"", "_tight", "_turns"};
    for (int k = 0; k < 4; k++)
        for (int32_t n = 8; n <= 64; n *= 8)
            for (int run = FREE; run <= TURNS; run++) {
                double best = INFINITY;
                for (int round = 0; round < ROUNDS; round++)
                    best = fmin(best, model_ms(models[k][0], n, (enum kind_of_run)run));
                printf("bench spmd_seconds_%s_%d%s %.3g s\n", models[k][1], n, ends[run],
                       1e-3 * best);
            }
}

void bench_spmd(void)
{
    enum { ROUNDS = 3 };
    static const struct {
        const char *name;
        int blocks;
        int32_t devices, ratios;
    } cases[] = {{"spmd_seconds_12", 12, 8, 1},
                 {"spmd_seconds_96", 96, 64, 1},
                 {"spmd_seconds_96_of_8", 96, 8, 1},
                 {"spmd_seconds_12_two_ratios", 12, 8, 2}};
    double best[4];
    struct spmd_answer x;
    for (int c = 0; c < 4; c++) {
        best[c] = INFINITY;
        for (int round = 0; round < ROUNDS; round++)
            best[c] =
                fmin(best[c], synthesis(cases[c].blocks, cases[c].devices, cases[c].ratios, &x));
        printf("bench %s %.3g s\n", cases[c].name, 1e-3 * best[c]);
    }
    printf("bench spmd_exponent_layers %.3g 1\n", log(best[2] / best[0]) / log(96.0 / 12));
    bench_models();
}
