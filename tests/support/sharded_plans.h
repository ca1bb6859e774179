/* tests/support/sharded_plans.h - random plans whose operators are sharded, one a seed: for ranks that run them.
 *
 * A model of the table, cut into stages at random layers, on all devices of a team; a stage of several devices has a mesh, uneven
 * ratios (some of them nothing) and an index for each operator, drawn from those that the table of operators allows. A model
 * with operators of a new kind joins by a line in the table.
 */
#ifndef TESTS_SUPPORT_SHARDED_PLANS_H
#define TESTS_SUPPORT_SHARDED_PLANS_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/lower/lower.h"

#include "tests/support/rounds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In fp32 a last bit may send a token to another expert, so those are compared in fp64 alone. */
struct sharded_model {
    bool images, wide;
    const char *config;
};
#define SHARDED_SMALL "num_hidden_layers: 2, num_attention_heads: 4, "
static const struct sharded_model sharded_models[] = {
    {false, false,
     "{model_type: gpt2, activation_function: gelu_new, n_embd: 24, n_head: 3, n_layer: 2, "
     "n_positions: 32, vocab_size: 61}"},
    {false, false,
     "{model_type: llama, hidden_act: silu, hidden_size: 32, intermediate_size: 40, " SHARDED_SMALL
     "max_position_embeddings: 32, num_key_value_heads: 2, rms_norm_eps: 1e-5, "
     "tie_word_embeddings: false, vocab_size: 61}"},
    {false, false,
     "{model_type: gpt2, activation_function: gelu_new, n_embd: 32, n_head: 4, n_layer: 1, "
     "n_positions: 32, vocab_size: 64}"},
    {false, false,
     "{model_type: qwen3, hidden_act: silu, hidden_size: 24, intermediate_size: 40, head_dim: "
     "8, " SHARDED_SMALL "max_position_embeddings: 32, num_key_value_heads: 2, rms_norm_eps: "
     "1e-6, tie_word_embeddings: true, vocab_size: 61}"},
    {false, true,
     "{model_type: mixtral, hidden_size: 32, intermediate_size: 24, " SHARDED_SMALL
     "num_key_value_heads: 2, vocab_size: 61, max_position_embeddings: 32, num_local_experts: 4, "
     "num_experts_per_tok: 2}"},
    {false, false,
     "{model_type: bert, hidden_size: 32, intermediate_size: 48, " SHARDED_SMALL
     "vocab_size: 61, max_position_embeddings: 32}"},
    {false, true,
     "{model_type: qwen3_moe, hidden_size: 24, head_dim: 8, intermediate_size: 40, "
     "moe_intermediate_size: 16, " SHARDED_SMALL "num_key_value_heads: 2, vocab_size: 61, "
     "max_position_embeddings: 32, num_experts: 5, num_experts_per_tok: 2, decoder_sparse_step: "
     "2, capacity_factor: 1.1}"},
    {true, false,
     "{model_type: vit, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 3, "
     "intermediate_size: 40, image_size: 12, patch_size: 4, num_channels: 3, num_labels: 5}"},
    {true, false,
     "{model_type: vgg, image_size: 12, num_channels: 2, features: [6, 6, M, 8, 8, A], "
     "classifier: [24], norm_groups: 2, num_labels: 5}"}};

struct sharded {
    struct arena *a;
    uint64_t seed, draws;
    struct plan plan, one; /* the same job on one device */
    struct error err;
    bool mixed; /* replicas that share in other ways */
};

static inline int64_t sharded_draw(struct sharded *s, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(3, s->seed, s->draws++, (uint64_t)(high - low + 1));
}

/* Lion in fp64 only, because a last bit may change the sign of a small momentum. Half of the jobs clip. */
static inline const char *sharded_optimizer(const struct sharded *s, bool wide)
{
    static const char *const kinds[] = {"sgd, lr: 1e-2", "sgd, lr: 3e-3, momentum: 0.9, nesterov: true", "adamw, lr: 1e-3", "lion, lr: 1e-4"};
    int kind = s->seed % 10 == 5 ? 1 : s->seed % 5 == 0 ? 0 : s->seed % 5 == 2 && wide ? 3 : 2;
    return arena_printf(s->a, "%s%s", kinds[kind], s->seed % 2 ? "" : ", max_grad_norm: 0.3");
}

static inline enum status sharded_job(struct sharded *s, int32_t n_devices, int32_t microbatches,
                                      int64_t microbatch, bool emulated)
{
    const struct sharded_model *model =
        &sharded_models[s->seed % (sizeof sharded_models / sizeof *sharded_models)];
    int32_t length = (int32_t)sharded_draw(s, 6, 12);
    const char *devices[2] = {"", ""}, *nodes, *bus = "n";
    bool far = n_devices > 3 && n_devices % 2 == 0;
    const char *positions =
        model->images ? "" : arena_printf(s->a, "  sequence_length: %d\n", (int)length);
    for (int32_t i = 0; i < n_devices; i++)
        devices[far && i >= n_devices / 2] =
            arena_printf(s->a, "%s%s{type: cpu}", devices[far && i >= n_devices / 2],
                         i && !(far && i == n_devices / 2) ? ", " : "");
    nodes = arena_printf(s->a, "{name: n, host: localhost, devices: [%s]}", devices[0]);
    if (far) /* two nodes */
        bus = "n, m", nodes = arena_printf(s->a, "%s, {name: m, host: localhost, devices: [%s]}",
                                           nodes, devices[1]);
    const char *extras = model->wide && s->seed % 2           ? "  balance: 0.1\n"
                         : s->seed % 4 == 1 && !model->images ? "  dropout: 0.1\n"
                                                              : "";
    const char *text = arena_printf(
        s->a,
        "version: 1\nname: made\nmicrobatch: %d\nreplicas:\n  - microbatches: %d\n    stages: "
        "[{layers: [0, 0], device: n.0}]\njob:\n  version: 1\n  model: %s\n%s"
        "  global_batch: %d\n  precision: %s\n  optimizer: {kind: %s}\n%s%s"
        "cluster:\n  version: 1\n  name: here\n  device_types: [{name: cpu, device: host, memory: "
        "1 GiB%s}]\n  nodes: [%s]\n  links: [{name: bus, "
        "between: [%s], bandwidth: 500 MB/s, latency: 20 us}%s]\n",
        (int)microbatch, (int)microbatches, model->config, positions,
        (int)(microbatches * microbatch), model->wide || s->seed % 3 ? "fp64" : "fp32",
        sharded_optimizer(s, model->wide || s->seed % 3),
        sharded_draw(s, 0, 3) ? "" : "  layers: fine\n", extras, emulated ? ", slowdown: 2" : "",
        nodes, bus,
        far ? ", {name: in-n, between: [n], bandwidth: 5 GB/s, latency: 5 us}, {name: in-m, "
              "between: [m], bandwidth: 5 GB/s, latency: 5 us}"
            : "");
    struct node *root;
    TRY(document_parse(s->a, "made", text, strlen(text), &root, &s->err));
    return plan_parse(s->a, root, ".", &s->plan, &s->err);
}

/* --- one stage --- */

static inline struct sharding *sharded_mesh(struct sharded *s, int32_t n)
{
    struct sharding *x = ARENA_ARRAY(s->a, struct sharding, 1);
    *x = (struct sharding){.n_devices = n, .n_axes = 1, .mesh = {n, 1}};
    int32_t rows = (int32_t)sharded_draw(s, 1, n);
    if (n > 3 && sharded_draw(s, 0, 1) && n % rows == 0 && rows > 1 && rows < n)
        x->n_axes = 2, x->mesh[0] = rows, x->mesh[1] = n / rows;
    x->n_ratios = (int32_t)sharded_draw(s, 1, 2);
    double *ratios = ARENA_ARRAY(s->a, double, (size_t)(x->n_ratios * n));
    for (int32_t i = 0; i < x->n_ratios * n; i++)
        ratios[i] = sharded_draw(s, 0, 6) ? (double)sharded_draw(s, 1, 4) : 0;
    for (int32_t v = 0; v < x->n_ratios; v++) ratios[v * n + sharded_draw(s, 0, n - 1)] = 2;
    x->ratios = ratios;
    return x;
}

/* Algorithms of collectives that may match no collective of the stage: see sharded_variants_that_fit. */
static inline void sharded_variants(struct sharded *s, struct sharding *x)
{
    struct sharding_algorithm *algorithms = ARENA_ARRAY(s->a, struct sharding_algorithm, 4);
    x->n_algorithms = sharded_draw(s, 0, 1) ? (int32_t)sharded_draw(s, 1, 4) : 0;
    for (int32_t k = 0; k < x->n_algorithms; k++) {
        struct sharding_algorithm *w = &algorithms[k];
        w->match = sharded_draw(s, 0, 1) ? "*" : "*.grad_*";
        w->algorithm = rounds_algorithm(sharded_draw(s, 0, rounds_algorithms() - 1));
        w->kind = rounds_kinds[sharded_draw(s, 0, COLLECTIVE_CALL_KINDS)];
        while (w->kind < COLLECTIVE_CALL_KINDS && !collective_in_calls(w->kind, w->algorithm))
            w->kind = rounds_kinds[sharded_draw(s, 0, COLLECTIVE_CALL_KINDS)];
    }
    x->algorithms = algorithms;
}

static inline enum op_index sharded_index(struct sharded *s, uint32_t set, enum op_index like)
{
    enum op_index all[INDEX_COUNT];
    int32_t n = 0;
    if (set >> like & 1 && like != INDEX_partial && sharded_draw(s, 0, 2)) return like;
    for (int32_t i = 0; i < INDEX_COUNT; i++)
        if (set >> i & 1 && i != INDEX_partial) all[n++] = (enum op_index)i;
    return all[sharded_draw(s, 0, n - 1)];
}

/* Names of the parameters that these layers read, as often as they do; how many. */
static inline int32_t sharded_parameters(const struct graph *g, int32_t first, int32_t last,
                                         const char **out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        for (int32_t k = 0; k < op->n_inputs && op->layer >= first && op->layer <= last; k++)
            if (g->tensors[op->input[k]].role == TENSOR_PARAMETER)
                out[n++] = g->tensors[op->input[k]].name;
    }
    return n;
}

/* Which parameters the stage keeps sharded and gathers when they are used: one of its matrices or none; and besides, drawn apart so that the
 * rest of a seed's plan does not hang on it, up to two of any kind that it reads (tables, gains, biases, experts), or all that are left. */
static inline void sharded_gathers(struct sharded *s, const struct graph *g, struct sharding *x,
                                   int32_t first, int32_t last)
{
    struct sharding_rule *rules = ARENA_ARRAY(s->a, struct sharding_rule, 4);
    struct sharding_rule matrix = {.sharded = true};
    bool any = !sharded_draw(s, 0, 2);
    for (int32_t i = 0; any && i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (op->kind != OP_matmul || op->layer < first || op->layer > last) continue;
        if (matrix.match && sharded_draw(s, 0, 2)) continue;
        matrix.match = g->tensors[op->input[1]].name;
    }
    matrix.reshard_after_forward = any && sharded_draw(s, 0, 1);
    if (matrix.match) rules[x->n_parameters++] = matrix;
    uint64_t draws = s->draws;
    s->draws += 1 << 21;
    const char **read = ARENA_ARRAY(s->a, const char *, (size_t)(g->n_tensors + g->n_forward));
    int32_t n = sharded_parameters(g, first, last, read), some = (int32_t)sharded_draw(s, 0, 3);
    for (int32_t k = some < 3 ? 0 : 2; k < some && n; k++) {
        const char *name = some < 3 ? read[sharded_draw(s, 0, n - 1)] : "*";
        bool sharded = sharded_draw(s, 0, 3), again = sharded_draw(s, 0, 1);
        rules[x->n_parameters++] = (struct sharding_rule){
            .match = name, .sharded = sharded, .reshard_after_forward = sharded && again};
    }
    s->draws = draws;
    x->parameters = rules;
}

/* A rule for each operator of the stage; how much they have in common differs. */
static inline void sharded_rules(struct sharded *s, const struct graph *g, struct sharding *x,
                                 int32_t first, int32_t last)
{
    const struct grain *grains = graph_grains(s->a, g);
    struct sharding_rule *rules = ARENA_ARRAY(s->a, struct sharding_rule, (size_t)g->n_forward + 1);
    enum op_index like[2] = {(enum op_index)sharded_draw(s, 0, INDEX_COUNT - 1),
                             (enum op_index)sharded_draw(s, 0, INDEX_COUNT - 1)};
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        if (op->layer < first || op->layer > last) continue;
        struct sharding_rule *r = &rules[x->n_operators++];
        uint32_t set = op_index_set(g, op, grains);
        r->match = op->name;
        for (int32_t k = 0; k < x->n_axes; k++) {
            r->choice.index[k] = sharded_index(s, set, like[k]);
            r->choice.ratio[k] = (int32_t)sharded_draw(s, 0, x->n_ratios - 1);
        }
        /* A rule names one vector for both axes. */
        r->choice.ratio[1] = r->choice.ratio[0];
        r->choice.sufficient_factors =
            sharding_factor_axes(x, g, op, grains, &r->choice) && sharded_draw(s, 0, 1);
    }
    x->operators = rules;
    sharded_gathers(s, g, x, first, last);
}

static inline void sharded_stage(struct sharded *s, const struct graph *g, struct plan_stage *x,
                                 int32_t device, int32_t n, int32_t in_flight)
{
    int32_t *devices = ARENA_ARRAY(s->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) devices[i] = device + i;
    x->device = device, x->warmup = in_flight;
    x->receive_ahead = (int32_t)sharded_draw(s, 1, 3);
    x->recompute = sharded_draw(s, 0, 2) ? RECOMPUTE_NONE : (enum recompute)sharded_draw(s, 1, 2);
    x->bucket_bytes = sharded_draw(s, 0, 1) ? 0 : 2048;
    if (n < 2) return;
    x->n_shards = n, x->devices = devices;
    if (sharded_draw(s, 0, 9) == 0 && s->plan.microbatch >= n) {
        int64_t *sequences = ARENA_ARRAY(s->a, int64_t, (size_t)n);
        for (int32_t i = 0; i < n; i++) sequences[i] = s->plan.microbatch / n;
        sequences[0] += s->plan.microbatch % n;
        x->sequences = sequences;
        return;
    }
    struct sharding *how = sharded_mesh(s, n);
    sharded_rules(s, g, how, x->first_layer, x->last_layer);
    sharded_variants(s, how);
    x->sharding = how;
}

/* --- the plan --- */

/* A replica on the `each` devices from `device` on. */
static inline struct plan_replica sharded_replica(struct sharded *s, const struct graph *g,
                                                  int32_t device, int32_t each,
                                                  int32_t microbatches)
{
    int32_t at = 0, first = 0, n = 0;
    struct plan_replica r = {.microbatches = microbatches,
                             .stages = ARENA_ARRAY(s->a, struct plan_stage, (size_t)each)};
    while (at < each) {
        int32_t take = (int32_t)sharded_draw(s, 1, each - at), left = each - at - take;
        int32_t most = g->n_layers - 1; /* each stage behind has a layer of its own */
        if (most - left < first || sharded_draw(s, 0, 2) == 0) take = each - at, left = 0;
        int32_t last = left ? (int32_t)sharded_draw(s, first, most - left) : most;
        r.stages[n] = (struct plan_stage){.first_layer = first, .last_layer = last};
        sharded_stage(s, g, &r.stages[n], device + at, take, 0);
        at += take, first = last + 1, n++;
    }
    r.n_stages = n;
    for (int32_t k = n - 1, w = 1; k >= 0; k--) {
        r.stages[k].warmup = w < microbatches ? w : microbatches;
        w += (int32_t)sharded_draw(s, 1, 2);
    }
    return r;
}

/* The same on devices that come `by` later. */
static inline struct plan_replica sharded_copy(struct sharded *s, const struct plan_replica *of,
                                               int32_t by, int32_t microbatches)
{
    struct plan_replica r = *of;
    r.microbatches = microbatches;
    r.stages = arena_copy(s->a, of->stages, (size_t)of->n_stages * sizeof *of->stages);
    for (int32_t k = 0; k < r.n_stages; k++) {
        struct plan_stage *x = &r.stages[k];
        if (x->warmup > microbatches) x->warmup = microbatches;
        x->device += by;
        int32_t *devices = ARENA_ARRAY(s->a, int32_t, (size_t)x->n_shards + 1);
        for (int32_t i = 0; i < x->n_shards; i++) devices[i] = x->devices[i] + by;
        if (x->n_shards) x->devices = devices;
    }
    return r;
}

/* Replica 1, where there is one, is like replica 0 on other devices, or keeps other shards, or cuts elsewhere as well. */
static inline enum status sharded_replicas(struct sharded *s, const struct graph *g,
                                           int32_t n_devices, int32_t microbatches)
{
    int32_t copies = n_devices >= 4 && n_devices % 2 == 0 && sharded_draw(s, 0, 2) == 0 ? 2 : 1;
    int32_t each = n_devices / copies,
            first = copies == 2 ? microbatches - microbatches / 2 : microbatches;
    struct plan_replica *r = ARENA_ARRAY(s->a, struct plan_replica, 2);
    r[0] = sharded_replica(s, g, 0, each, microbatches);
    r[0].microbatches = first;
    for (int32_t k = 0; k < r[0].n_stages; k++)
        if (r[0].stages[k].warmup > first) r[0].stages[k].warmup = first;
    if (copies == 2) {
        int32_t rest = microbatches - first;
        s->mixed = sharded_draw(s, 0, 2);
        r[1] =
            s->mixed ? sharded_replica(s, g, each, each, rest) : sharded_copy(s, &r[0], each, rest);
    }
    s->plan.replicas = r, s->plan.n_replicas = copies;
    return OK;
}

/* Entries that are for no collective are an error of the plan: the last ones go until none is left that is. */
static inline void sharded_variants_that_fit(struct sharded *s)
{
    struct lower_options o = {.n_fused = 0};
    struct sharding *how[16];
    int32_t n_algorithms[16], n = 0;
    for (int32_t k = 0; k < s->plan.n_replicas; k++)
        for (int32_t i = 0; i < s->plan.replicas[k].n_stages; i++) {
            struct sharding *x =
                (struct sharding *)(uintptr_t)s->plan.replicas[k].stages[i].sharding;
            bool known = !x || n == 16;
            for (int32_t j = 0; j < n; j++) known |= how[j] == x;
            if (known) continue;
            how[n] = x, n_algorithms[n++] = x->n_algorithms;
            x->n_algorithms = 0;
        }
    for (int32_t i = 0; i < n; i++) {
        struct program p;
        struct error err = {0};
        how[i]->n_algorithms = n_algorithms[i];
        while (how[i]->n_algorithms && lower_plan(s->a, &s->plan, &o, &p, &err) != OK &&
               strstr(err.text, "collectives:"))
            how[i]->n_algorithms--;
    }
}

/* One plan in three divides state, or gradients as well, among who keeps the same. */
static inline void sharded_zero(struct sharded *s)
{
    struct plan_replica *r = s->plan.replicas;
    bool even = s->plan.n_replicas < 2 || r[0].microbatches == r[1].microbatches;
    s->draws += 1 << 20; /* nothing else is drawn anew */
    if (sharded_draw(s, 0, 2) || s->mixed) return;
    int32_t zero = even ? (int32_t)sharded_draw(s, 1, 2) : 1;
    for (int32_t k = 0; k < s->plan.n_replicas; k++)
        for (int32_t i = 0; i < r[k].n_stages; i++)
            if (r[k].stages[i].n_shards > 1 || s->plan.n_replicas > 1) r[k].stages[i].zero = zero;
}

/* s->plan for so many devices, s->one for one; through its text and back. */
static inline enum status sharded_make(struct sharded *s, struct arena *a, uint64_t seed,
                                       int32_t n_devices, bool emulated)
{
    *s = (struct sharded){.a = a, .seed = seed};
    s->draws = (uint64_t)n_devices << 32; /* the job is drawn alike for any number of devices */
    struct sharded job = *s;
    job.draws = 0;
    int32_t microbatches = 2 + (int32_t)sharded_draw(&job, 0, 2);
    int64_t microbatch = sharded_draw(&job, 2, 4);
    enum status status = sharded_job(&job, n_devices, microbatches, microbatch, emulated);
    s->err = job.err;
    if (status != OK) return status;
    s->plan = s->one = job.plan;
    struct graph *g;
    TRY(lower_graph(a, &s->plan.job, s->plan.microbatch, &g, &s->err));
    struct plan_replica *alone = ARENA_ARRAY(a, struct plan_replica, 1);
    *alone = job.plan.replicas[0];
    alone->stages[0].last_layer = g->n_layers - 1;
    s->one.replicas = alone;
    TRY(sharded_replicas(s, g, n_devices, microbatches));
    sharded_zero(s);
    sharded_variants_that_fit(s);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    plan_write(f, a, &s->plan);
    fclose(f);
    const char *copy = arena_strndup(a, text, n);
    free(text);
    struct node *root;
    TRY(document_parse(a, "made", copy, n, &root, &s->err));
    return plan_parse(a, root, ".", &s->plan, &s->err);
}

#endif
