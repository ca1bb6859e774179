/* tests/support/symmetric.h - random plans with symmetries, on clusters whose links are shared: one a seed.
 *
 * Equal replicas of pipelines, each stage on one device or on several (sharded by operators, sequences or positions), with ZeRO,
 * recomputation and several chunks a device, on nodes of equal devices. Nodes are joined by switches with ports, a network
 * link at each node, buses, or a link of every pair: fifo, fair or fluid, full or half duplex. Some cases have one deviant: a
 * slower device, or a slower link.
 */
#ifndef TESTS_SUPPORT_SYMMETRIC_H
#define TESTS_SUPPORT_SYMMETRIC_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "profiles/profile.h"
#include "sim/engine/sim.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symmetric {
    struct arena *a;
    uint64_t seed, draws;
    int32_t replicas, stages, chunks, width, per_node, n_devices, order;
    struct plan plan;
    struct program program;
    struct profile profile;
    struct cost *cost;
    struct sim_scale scale;
    struct error err;
};

static inline int32_t symmetric_draw(struct symmetric *c, int32_t low, int32_t high)
{
    return low + (int32_t)rng_below(11, c->seed, c->draws++, (uint64_t)(high - low + 1));
}
static inline bool symmetric_one_in(struct symmetric *c, int32_t n)
{
    return !symmetric_draw(c, 0, n - 1);
}

/* Appends to a text that grows in an arena. */
#define SYMMETRIC_PUT(c, text, ...)                                                                \
    ((text) = symmetric_join((c)->a, text, arena_printf((c)->a, __VA_ARGS__)))
static inline const char *symmetric_join(struct arena *a, const char *x, const char *y)
{
    size_t n = strlen(x), m = strlen(y);
    char *out = ARENA_ARRAY(a, char, n + m + 1);
    memcpy(out, x, n), memcpy(out + n, y, m + 1);
    return out;
}

/* --- the cluster --- */

static inline const char *symmetric_link(struct symmetric *c, bool shared)
{
    static const char *const speeds[] = {"100 MB/s", "250 MB/s", "1 GB/s", "0.7 GB/s", "10 GB/s"};
    static const char *const sharing[] = {"fifo", "fair", "fluid"};
    const char *speed = speeds[symmetric_draw(c, 0, 4)], *how = sharing[symmetric_draw(c, 0, 2)];
    const char *duplex = symmetric_one_in(c, 5) ? "half" : "full";
    int32_t late = symmetric_draw(c, 0, 3);
    const char *slows = symmetric_one_in(c, 16)             ? ", compute_slowdown: 0.2"
                        : symmetric_one_in(c, 20) && shared ? ", overlap: false"
                                                            : "";
    return arena_printf(c->a, "bandwidth: %s, latency: %d us, sharing: %s, duplex: %s%s", speed,
                        (int)(1 + late * late), how, duplex, slows);
}

static inline const char *symmetric_links(struct symmetric *c, int32_t nodes)
{
    const char *out = "", *near = symmetric_link(c, false), *far = symmetric_link(c, true),
               *leaf = symmetric_link(c, true);
    int32_t kind = symmetric_draw(c, 0, c->replicas > 8 ? 2 : 4); /* many nodes: few links */
    if (kind < 2) SYMMETRIC_PUT(c, out, "  switches: [{name: core}");
    for (int32_t i = 0; kind < 2 && i < nodes; i++) SYMMETRIC_PUT(c, out, ", {name: sw%d}", (int)i);
    SYMMETRIC_PUT(c, out, "%s  links:\n", kind < 2 ? "]\n" : "");
    for (int32_t i = 0; i < nodes; i++) {
        for (int32_t d = 0; kind < 2 && d < c->per_node; d++)
            SYMMETRIC_PUT(c, out, "    - {name: p%d-%d, between: [n%d.%d, sw%d], %s}\n", (int)i,
                          (int)d, (int)i, (int)d, (int)i, near);
        if (kind == 0) /* the node's network link, for all its devices */
            SYMMETRIC_PUT(c, out, "    - {name: nic%d, between: [n%d, core], %s}\n", (int)i, (int)i,
                          far);
        if (kind == 1)
            SYMMETRIC_PUT(c, out, "    - {name: up%d, between: [sw%d, core], %s}\n", (int)i, (int)i,
                          far);
        if (kind >
            1) /* a bus in the node, and one for each two nodes, or a link of each two devices */
            SYMMETRIC_PUT(c, out, "    - {name: in%d, between: [n%d], %s}\n", (int)i, (int)i, leaf);
        for (int32_t k = 0; kind > 2 && k < i; k++)
            SYMMETRIC_PUT(c, out, "    - {name: net%d-%d, between: [n%d, n%d], %s}\n", (int)k,
                          (int)i, (int)(kind == 3 ? k : i), (int)(kind == 3 ? i : k), far);
    }
    if (kind == 2) SYMMETRIC_PUT(c, out, "    - {name: net, every: across, %s}\n", far);
    return out;
}

static inline const char *symmetric_cluster(struct symmetric *c)
{
    int32_t nodes = (c->n_devices + c->per_node - 1) / c->per_node;
    return arena_printf(
        c->a,
        "cluster:\n  version: 1\n  name: c\n  device_types: [{name: g, device: A100-SXM4-40}]\n"
        "  nodes: [{name: n, count: %d, devices: {type: g, count: %d}}]\n%s",
        (int)nodes, (int)c->per_node, symmetric_links(c, nodes));
}

/* --- the plan --- */

/* The device of member t of stage s of replica r. */
static inline const char *symmetric_device(const struct symmetric *c, int32_t r, int32_t s,
                                           int32_t t)
{
    int32_t i = c->order == 0   ? (r * c->stages + s) * c->width + t
                : c->order == 1 ? (s * c->replicas + r) * c->width + t
                                : (t * c->replicas + r) * c->stages + s;
    return arena_printf(c->a, "n%d.%d", (int)(i / c->per_node), (int)(i % c->per_node));
}

static inline const char *symmetric_sharding(struct symmetric *c, int64_t microbatch)
{
    int32_t how = symmetric_draw(c, 0, 3);
    const char *out = "", *list = "";
    if (how == 0 && microbatch % c->width == 0) {
        for (int32_t i = 0; i < c->width; i++)
            SYMMETRIC_PUT(c, list, "%s%d", i ? ", " : "", (int)(microbatch / c->width));
        return arena_printf(c->a, ", sequences: [%s]", list);
    }
    if (symmetric_one_in(c, 6)) {
        for (int32_t i = 0; i < c->width; i++)
            SYMMETRIC_PUT(c, list, "%s%d", i ? ", " : "", (int)(1 + i % 2));
        SYMMETRIC_PUT(c, out, "ratios: [[%s]], ", list);
    }
    static const char *const algorithms[] = {"pairs", "hierarchical"};
    static const char *const kinds[] = {"all_gather", "reduce_scatter"};
    if (how > 1 && symmetric_one_in(c, 3))
        SYMMETRIC_PUT(c, out, "collectives: [{match: \"*\", kind: %s, algorithm: %s}], ",
                      kinds[symmetric_draw(c, 0, 1)], algorithms[symmetric_draw(c, 0, 1)]);
    SYMMETRIC_PUT(c, out, "operators: [");
    if (how < 3)
        SYMMETRIC_PUT(
            c, out,
            "{match: \"*attn*\", shard: heads}, {match: \"*mlp.down_proj*\", shard: inputs}, "
            "{match: \"*mlp*\", shard: features}, {match: \"lm_head\", shard: vocabulary}, "
            "{match: \"loss\", shard: vocabulary}, {match: \"embed_tokens\", shard: "
            "features}%s]",
            how == 2 ? ", {match: \"*\", shard: positions}" : "");
    else
        SYMMETRIC_PUT(c, out, "{match: \"*\", shard: %s}]",
                      symmetric_one_in(c, 2) ? "batch" : "positions");
    return arena_printf(c->a, ", sharding: {%s}", out);
}

static inline const char *symmetric_replicas(struct symmetric *c, int32_t layers,
                                             int32_t microbatches, int64_t microbatch)
{
    int32_t n = c->stages * c->chunks, last[16],
            zero = c->replicas < 2 ? 0 : symmetric_draw(c, 0, c->width > 1 ? 2 : 3);
    const char *rules[16], *out = "replicas:\n", *schedule = "";
    bool alike = symmetric_draw(c, 0, 3);
    for (int32_t s = 0; s < n; s++) last[s] = (s + 1) * layers / n - 1;
    for (int32_t s = 0; s < n; s++)
        rules[s] = c->width == 1 ? "" : alike && s ? rules[0] : symmetric_sharding(c, microbatch);
    if (c->chunks > 1)
        schedule = ", schedule: interleaved";
    else if (symmetric_one_in(c, 4))
        schedule = symmetric_one_in(c, 2) ? ", schedule: gpipe" : ", schedule: zb-h1";
    const char *extra = symmetric_one_in(c, 3) ? ", bucket: 2 KiB" : "";
    if (symmetric_one_in(c, 4)) SYMMETRIC_PUT(c, extra, ", recompute: true");
    if (zero) SYMMETRIC_PUT(c, extra, ", zero: %d", (int)zero);
    for (int32_t r = 0; r < c->replicas; r++) {
        SYMMETRIC_PUT(c, out, "  - {microbatches: %d%s, stages: [", (int)microbatches, schedule);
        for (int32_t s = 0; s < n; s++) {
            SYMMETRIC_PUT(c, out, "%s{layers: [%d, %d], ", s ? ", " : "",
                          (int)(s ? last[s - 1] + 1 : 0), (int)last[s]);
            SYMMETRIC_PUT(c, out, c->width > 1 ? "devices: [" : "device: ");
            for (int32_t t = 0; t < c->width; t++)
                SYMMETRIC_PUT(c, out, "%s%s", t ? ", " : "",
                              symmetric_device(c, r, s % c->stages, t));
            SYMMETRIC_PUT(c, out, "%s%s%s}", c->width > 1 ? "]" : "", rules[s], extra);
        }
        SYMMETRIC_PUT(c, out, "]}\n");
    }
    return out;
}

static inline enum status symmetric_parse(struct symmetric *c, const char *text)
{
    struct node *root;
    TRY(document_parse(c->a, "made", text, strlen(text), &root, &c->err));
    return plan_parse(c->a, root, ".", &c->plan, &c->err);
}

static inline enum status symmetric_lower(struct symmetric *c)
{
    TRY(lower_plan(c->a, &c->plan, &(struct lower_options){.n_fused = 0}, &c->program, &c->err));
    TRY(profile_prior(c->a, &c->plan.cluster, &c->profile, &c->err));
    c->cost = cost_new(c->a, &c->profile, &c->plan.cluster);
    return OK;
}

/* At most one device or link differs. */
static inline void symmetric_deviate(struct symmetric *c)
{
    int32_t what = symmetric_draw(c, 0, 5);
    size_t devices = (size_t)c->program.n_devices, links = (size_t)c->program.n_links;
    double *device = ARENA_ARRAY(c->a, double, devices), *link = ARENA_ARRAY(c->a, double, links);
    for (size_t i = 0; i < devices; i++) device[i] = 1;
    for (size_t i = 0; i < links; i++) link[i] = 1;
    if (what == 0) device[symmetric_draw(c, 0, (int32_t)devices - 1)] = 1.5;
    if (what == 1) link[symmetric_draw(c, 0, c->plan.cluster.n_links - 1)] = 1.5;
    c->scale = (struct sim_scale){.device = device, .link = link};
}

/* pipelines 0: drawn. Not every combination is a valid plan: ERR_INPUT. */
static inline enum status symmetric_make_of(struct symmetric *c, struct arena *a, uint64_t seed,
                                            int32_t pipelines)
{
    static const int32_t many[] = {1, 2, 2, 3, 4, 4, 6, 8}, widths[] = {1, 1, 2, 4},
                         nodes[] = {1, 2, 4, 8};
    *c = (struct symmetric){.a = a, .seed = seed};
    c->replicas = many[symmetric_draw(c, 0, 7)];
    if (pipelines) c->replicas = pipelines;
    c->width = widths[symmetric_draw(c, 0, 3)];
    c->stages = symmetric_draw(c, 1, 3);
    c->chunks = c->stages > 1 && symmetric_one_in(c, 3) ? 2 : 1;
    c->per_node = nodes[symmetric_draw(c, 0, 3)];
    c->order = symmetric_draw(c, 0, 2);
    c->n_devices = c->replicas * c->stages * c->width;
    if (c->n_devices < c->per_node) c->per_node = c->n_devices;
    int32_t microbatches = c->stages * symmetric_draw(c, 1, 3);
    int64_t microbatch = symmetric_draw(c, 1, 2) * 2;
    const char *job = arena_printf(
        a,
        "job:\n  version: 1\n  sequence_length: 8\n  global_batch: %d\n  model: {model_type: "
        "llama, hidden_act: silu, hidden_size: 96, intermediate_size: 192, num_attention_heads: 4, "
        "num_key_value_heads: 4, max_position_embeddings: 64, num_hidden_layers: %d, rms_norm_eps: "
        "1e-5, tie_word_embeddings: %s, vocab_size: 96}\n",
        (int)(microbatches * microbatch * c->replicas), (int)(2 * c->chunks),
        symmetric_one_in(c, 4) ? "true" : "false");
    const char *cluster = symmetric_cluster(c),
               *head = "version: 1\nname: made\nmicrobatch: %d\n%s%s%s";
    TRY(symmetric_parse(
        c, arena_printf(a, head, (int)microbatch,
                        "replicas: [{microbatches: 1, stages: [{layers: [0, 0], device: "
                        "n0.0}]}]\n",
                        job, cluster)));
    struct graph *g;
    TRY(lower_graph(a, &c->plan.job, microbatch, &g, &c->err));
    const char *replicas = symmetric_replicas(c, g->n_layers, microbatches, microbatch);
    TRY(symmetric_parse(c, arena_printf(a, head, (int)microbatch, replicas, job, cluster)));
    TRY(plan_check(&c->plan, g->n_layers, &c->err));
    TRY(symmetric_lower(c));
    symmetric_deviate(c);
    return OK;
}

static inline struct sim_result symmetric_simulated(struct symmetric *c, struct sim_options o)
{
    struct sim_result r = {0};
    struct error err = {0};
    o.scale = &c->scale;
    ck_assert_msg(sim_run(c->a, &c->program, c->cost, &o, &r, &err) == OK, "seed %lu: %s",
                  (unsigned long)c->seed, err.text);
    return r;
}

static inline enum status symmetric_make(struct symmetric *c, struct arena *a, uint64_t seed)
{
    return symmetric_make_of(c, a, seed, 0);
}

#endif
