/* The planner's preparation of layers before a search, for a GPT of 133 blocks cut into 401 layers: cut points, equal
 * layers, and the costs of all 80,601 ranges of layers on one device type; then of the distinct ranges only. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "core/lower/layer_classes.h"
#include "profiles/team.h"
#include "sim/stage/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_layers(void);

static const char job_text[] =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 4096, n_layer: 133, n_head: 32, n_positions: 1024, "
    "vocab_size: 51200}\n"
    "sequence_length: 1024\nglobal_batch: 64\nprecision: fp16\nlayers: 401\n";
static const char cluster_text[] =
    "version: 1\nname: one\ndevice_types: [{name: h100, device: H100-SXM5}]\n"
    "nodes: [{name: n, host: n, devices: [{type: h100}]}]\nlinks: []\n";

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

struct setting {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct lower_options lower;
};

static void read_setting(struct arena *a, struct setting *s)
{
    struct node *root;
    struct error err = {0};
    must(document_parse(a, "job", job_text, strlen(job_text), &root, &err), &err);
    must(job_parse(a, root, ".", &s->job, &err), &err);
    must(document_parse(a, "cluster", cluster_text, strlen(cluster_text), &root, &err), &err);
    must(cluster_parse(a, root, &s->cluster, &err), &err);
    must(team_complete(&s->cluster, &err), &err);
    must(team_fused(a, &s->cluster, &s->lower, &err), &err);
    must(profile_prior(a, &s->cluster, &s->profile, &err), &err);
}

/* All ranges, or only the distinct ones. */
static double table_ms(struct arena *a, const struct setting *s, const struct graph *g,
                       const struct layer_classes *c, bool distinct)
{
    struct error err = {0};
    struct stage_cost x;
    double start = cpu_ms();
    struct cost *k = cost_new(a, &s->profile, &s->cluster);
    struct stage_table *t = stage_table_new(a, g, k, &s->job.optimizer);
    stage_table_fused(t, s->lower.fused, s->lower.n_fused);
    for (int32_t first = 0; first < g->n_layers; first++)
        for (int32_t last = first; last < g->n_layers; last++)
            if (!distinct || layer_classes_same(c, first, last) == first)
                must(stage_table_cost(t, first, last, 0, &x, &err), &err);
    return cpu_ms() - start;
}

void bench_layers(void)
{
    enum { ROUNDS = 5 };
    double best[4] = {1e9, 1e9, 1e9, 1e9};
    static const char *const names[] = {"layers_401_cut", "layers_401_classes", "stages_401_all",
                                        "stages_401_distinct"};
    for (int round = 0; round < ROUNDS; round++) {
        struct arena *a = arena_new();
        struct setting s = {0};
        struct graph *g;
        struct error err = {0};
        read_setting(a, &s);
        double start = cpu_ms(), took[4];
        must(lower_graph(a, &s.job, 1, &g, &err), &err);
        took[0] = cpu_ms() - start;
        g = graph_fuse(g, s.lower.fused, s.lower.n_fused);
        must(gradient_build(g, 1, &err), &err);
        start = cpu_ms();
        const struct layer_classes *c = layer_classes_new(a, g);
        took[1] = cpu_ms() - start;
        took[2] = table_ms(a, &s, g, c, false);
        took[3] = table_ms(a, &s, g, c, true);
        for (int i = 0; i < 4; i++) best[i] = took[i] < best[i] ? took[i] : best[i];
        arena_free(a);
    }
    for (int i = 0; i < 4; i++) printf("bench %s %.3g cpu_ms\n", names[i], best[i]);
}
