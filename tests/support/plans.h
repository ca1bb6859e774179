/* tests/support/plans.h - short constructors of plans, for suites that lower them.
 *
 * One node with n devices, a dedicated link between every two of them, a tiny model.
 */
#ifndef TESTS_SUPPORT_PLANS_H
#define TESTS_SUPPORT_PLANS_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/lower/lower.h"

#include "tests/support/suites.h"

#include <stdio.h>

#define TINY_GPT2                                                                                  \
    "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"n_embd\": 32, "           \
    "\"n_head\": 2,"                                                                               \
    " \"n_layer\": %d, \"n_positions\": 64, \"vocab_size\": 64}"
#define TINY_LLAMA                                                                                 \
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"hidden_size\": 32, "                  \
    "\"intermediate_size\": 48,"                                                                   \
    " \"max_position_embeddings\": 64, \"num_attention_heads\": 2, \"num_hidden_layers\": %d,"     \
    " \"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false, "        \
    "\"vocab_size\": 64}"

static inline struct model plans_model(struct arena *a, const char *text, int layers)
{
    struct model m;
    struct node *config;
    struct error err = {0};
    const char *json = strstr(text, "gpt2") ? arena_printf(a, TINY_GPT2, layers)
                                            : arena_printf(a, TINY_LLAMA, layers);
    ck_assert_msg(document_parse(a, "config", json, strlen(json), &config, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(model_read(config, "tiny", &m, &err) == OK, "%s", err.text);
    return m;
}

/* tests/data/models/NAME.json */
static inline struct model plans_model_file(struct arena *a, const char *name)
{
    struct model m;
    struct node *config;
    struct error err = {0};
    const char *path = arena_printf(a, "tests/data/models/%s.json", name);
    ck_assert_msg(document_read(a, path, &config, &err) == OK, "%s", err.text);
    ck_assert_msg(model_read(config, name, &m, &err) == OK, "%s", err.text);
    return m;
}

static inline struct cluster plans_cluster(struct arena *a, int32_t n_devices)
{
    struct cluster c = {
        .name = "team", .n_types = 1, .n_nodes = 1, .n_links = 1, .n_devices = n_devices};
    c.types = ARENA_ARRAY(a, struct device_type, 1);
    c.types[0] = (struct device_type){
        .name = "plain", .catalogue = "host", .memory_bytes = INT64_C(1) << 40};
    c.nodes = ARENA_ARRAY(a, struct node_spec, 1);
    c.nodes[0] = (struct node_spec){.name = "a", .host = "localhost", .n_devices = n_devices};
    c.links = ARENA_ARRAY(a, struct link, 1);
    c.links[0] = (struct link){
        .name = "bus", .bandwidth_Bps = 1e9, .latency_s = 1e-6, .stated = true, .n_ends = 1};
    c.devices = ARENA_ARRAY(a, struct device, (size_t)n_devices);
    for (int32_t i = 0; i < n_devices; i++)
        c.devices[i] = (struct device){.name = arena_printf(a, "a.%d", i), .index = i};
    return c;
}

/* Replicas are added by plans_replica, which increases global_batch. */
static inline struct plan plans_new(struct arena *a, const char *model, int layers,
                                    int32_t n_devices)
{
    struct plan p = {.name = "made", .microbatch = 2, .steps = 1, .seed = 1};
    p.job = (struct job){.model = plans_model(a, model, layers),
                         .sequence_length = 8,
                         .precision = DTYPE_fp32,
                         .seed = 1,
                         .optimizer = {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}};
    p.cluster = plans_cluster(a, n_devices);
    p.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)n_devices);
    return p;
}

/* Stages end at last[0], last[1], … (the last one is the model's last layer); devices in order. */
static inline struct plan_replica *plans_replica(struct arena *a, struct plan *p,
                                                 int32_t microbatches, int32_t n_stages,
                                                 const int32_t *last)
{
    int32_t device = 0, first = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) device += p->replicas[r].n_stages;
    struct plan_replica *x = &p->replicas[p->n_replicas++];
    *x = (struct plan_replica){.microbatches = microbatches,
                               .n_stages = n_stages,
                               .stages = ARENA_ARRAY(a, struct plan_stage, (size_t)n_stages)};
    for (int32_t s = 0; s < n_stages; s++) {
        x->stages[s] = (struct plan_stage){
            .first_layer = first, .last_layer = last[s], .device = device + s, .receive_ahead = 2};
        first = last[s] + 1;
    }
    p->job.global_batch += microbatches * p->microbatch;
    return x;
}

static inline int32_t plans_layers(struct arena *a, const struct plan *p)
{
    struct graph *g;
    struct error err = {0};
    ck_assert_msg(lower_graph(a, &p->job, p->microbatch, &g, &err) == OK, "%s", err.text);
    return g->n_layers;
}

static const enum op_kind plans_fused[] = {OP_bias_gelu, OP_swiglu, OP_flat_adamw, OP_flat_sgd};

static inline struct program *plans_lower(struct arena *a, const struct plan *p, bool fused)
{
    struct lower_options o = {.n_fused = fused ? 4 : 0, .fused = plans_fused};
    struct program *out = ARENA_ARRAY(a, struct program, 1);
    struct error err = {0};
    ck_assert_msg(lower_plan(a, p, &o, out, &err) == OK, "%s", err.text);
    return out;
}

static inline enum status plans_refused(struct arena *a, const struct plan *p, struct error *err)
{
    struct lower_options o = {.fused = plans_fused};
    struct program out;
    return lower_plan(a, p, &o, &out, err);
}

static inline char *plans_text(const struct program *p, size_t *n) /* the caller frees */
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    ck_assert_ptr_nonnull(f);
    program_write(f, p);
    fclose(f);
    char *copy = malloc(*n + 1);
    memcpy(copy, text, *n + 1);
    free(text);
    return copy;
}

/* A program is read as it was written. */
static inline void plans_read_back(struct arena *arena, const struct program *p)
{
    size_t n1, n2;
    char *first = plans_text(p, &n1), *second;
    struct program again;
    struct error err = {0};
    ck_assert_msg(program_parse(arena, "text", first, n1, &again, &err) == OK, "%s", err.text);
    second = plans_text(&again, &n2);
    ck_assert(n1 == n2 && !memcmp(first, second, n1));
    ck_assert_msg(program_check(arena, &again, &err) == OK, "%s", err.text);
    free(first), free(second);
}

/* Draws numbers of one random case. */
struct plans_random {
    uint64_t seed, n;
};
static inline int32_t plans_below(struct plans_random *r, int32_t n)
{
    return (int32_t)rng_below(r->seed, 7, r->n++, (uint64_t)n);
}

/* An order in the manner of zero bubble: in_flight forwards, then I and F, weight gradients
 * whenever. */
static inline const char *plans_split_order(struct arena *a, struct plans_random *r, int32_t m,
                                            int32_t w)
{
    const char *text = "";
    int32_t f = 0, i = 0, g = 0;
    while (g < m) {
        if (f < m && f - i < w)
            text = arena_printf(a, "%sF%d ", text, f), f++;
        else if (i < m)
            text = arena_printf(a, "%sI%d ", text, i), i++;
        while (g < i && (i == m || plans_below(r, 3) == 0))
            text = arena_printf(a, "%sW%d ", text, g), g++;
    }
    return text;
}

static inline void plans_random_stage(struct arena *a, struct plans_random *r, struct plan_stage *s,
                                      int32_t m, int32_t w)
{
    s->warmup = w;
    s->recompute = plans_below(r, 3) == 0;
    s->bucket_bytes = plans_below(r, 2) ? 0 : 1 << (6 + plans_below(r, 10));
    s->receive_ahead = 1 + plans_below(r, 3);
    if (plans_below(r, 3) == 0) s->order = plans_split_order(a, r, m, w);
}

/* by: where stages may begin; LAYERS_DEFAULT, COARSE or FINE. */
static inline struct plan plans_random_cut(struct arena *a, uint64_t seed, enum layers_by by)
{
    struct plans_random r = {seed, 0};
    int32_t n_replicas = 1 + plans_below(&r, 3);
    int32_t blocks = 1 + plans_below(&r, 3); /* one draw a statement: a compiler may order others */
    const char *model = plans_below(&r, 2) ? "gpt2" : "llama";
    struct plan p = plans_new(a, model, blocks, 5 * n_replicas);
    p.job.layers.by = by;
    int32_t layers = plans_layers(a, &p);
    if (plans_below(&r, 3) == 0) p.job.optimizer.kind = OPTIMIZER_SGD;
    p.deterministic = plans_below(&r, 3) == 0;
    for (int32_t k = 0; k < n_replicas; k++) {
        int32_t last[5], n = 0, m = 1 + plans_below(&r, 9);
        for (int32_t l = 0; l + 1 < layers && n < 4; l++)
            if (plans_below(&r, 3) == 0) last[n++] = l;
        last[n++] = layers - 1;
        struct plan_replica *x = plans_replica(a, &p, m, n, last);
        for (int32_t s = n - 1, w = 1; s >= 0; s--) {
            w += plans_below(&r, 3);
            if (w > m) w = m;
            plans_random_stage(a, &r, &x->stages[s], m, w);
        }
    }
    return p;
}

static inline struct plan plans_random_plan(struct arena *a, uint64_t seed)
{
    return plans_random_cut(a, seed, LAYERS_DEFAULT);
}

/* --- several stages on a device --- */

/* The stages of a replica are on these devices, relative to its first. */
static inline void plans_place(struct plan_replica *x, const int32_t *device)
{
    int32_t base = x->stages[0].device;
    for (int32_t s = 0; s < x->n_stages; s++) {
        x->stages[s].device = base + device[s];
        x->stages[s].warmup = 0, x->stages[s].order = NULL;
    }
}

/* Stages split the layers as evenly as possible and are placed on n_devices by the schedule. */
static inline struct plan_replica *plans_scheduled(struct arena *a, struct plan *p,
                                                   const char *schedule, int32_t n_devices,
                                                   int32_t n_chunks, int32_t microbatches)
{
    int32_t n = n_devices * n_chunks, layers = plans_layers(a, p), last[64], device[64];
    bool v = strstr(schedule, "v-") == schedule || strstr(schedule, "-v");
    for (int32_t s = 0; s < n; s++) {
        int32_t d = s % n_devices;
        last[s] = (s + 1) * layers / n - 1;
        device[s] = v && s / n_devices % 2 ? n_devices - 1 - d : d;
    }
    struct plan_replica *x = plans_replica(a, p, microbatches, n, last);
    x->stages[0].device = 0;
    for (int32_t r = 0; r + 1 < p->n_replicas; r++)
        for (int32_t k = 0; k < p->replicas[r].n_stages; k++)
            if (p->replicas[r].stages[k].device >= x->stages[0].device)
                x->stages[0].device = p->replicas[r].stages[k].device + 1;
    plans_place(x, device);
    x->schedule = schedule;
    return x;
}

struct plans_progress { /* of a stage: forwards, backwards and weight gradients taken */
    int32_t f, b, w;
    bool split, done[64]; /* done: of weight gradients */
};

/* Whether the stage may make this call now, after the calls made by others. Activations and gradients arrive in order. */
static inline bool plans_may(const struct plans_progress *q, int32_t n, int32_t m, int32_t s,
                             enum phase phase)
{
    if (phase == PHASE_F) return q[s].f < m && (s == 0 || q[s - 1].f > q[s].f);
    if (phase == PHASE_B) return q[s].b < q[s].f && (s + 1 == n || q[s + 1].b > q[s].b);
    return q[s].split && q[s].w < q[s].b;
}

/* Orders from a random valid execution, so that they cannot deadlock; weight gradients in any order. */
static inline void plans_random_orders(struct arena *a, struct plans_random *r,
                                       struct plan_replica *x)
{
    int32_t n = x->n_stages, m = x->microbatches, *first = ARENA_ARRAY(a, int32_t, (size_t)n),
            *chunk = ARENA_ARRAY(a, int32_t, (size_t)n),
            *chunks = ARENA_ARRAY(a, int32_t, (size_t)n);
    struct plans_progress *q = ARENA_ARRAY(a, struct plans_progress, (size_t)n);
    x->orders = ARENA_ARRAY(a, const char *, (size_t)n);
    for (int32_t s = 0; s < n; s++) {
        while (x->stages[first[s]].device != x->stages[s].device) first[s]++;
        chunk[s] = chunks[first[s]]++;
        q[s].split = plans_below(r, 2);
        x->orders[first[s]] = "";
    }
    for (int64_t left = 3 * (int64_t)n * m; left > 0;) {
        int32_t s = plans_below(r, n), k = 0;
        enum phase phase = "FFBBW"[plans_below(r, 5)];
        if (!plans_may(q, n, m, s, phase)) continue;
        if (phase == PHASE_F) k = q[s].f++;
        if (phase == PHASE_B) k = q[s].b++;
        if (phase == PHASE_W) {
            do k = plans_below(r, q[s].b);
            while (q[s].done[k]);
            q[s].done[k] = true, q[s].w++;
        }
        left -= phase == PHASE_B && !q[s].split ? 2 : 1;
        if (phase == PHASE_B && q[s].split) phase = PHASE_I;
        const char **text = &x->orders[first[s]];
        *text = chunks[first[s]] > 1
                    ? arena_printf(a, "%s%d%c%d ", *text, (int)chunk[s], phase, (int)k)
                    : arena_printf(a, "%s%c%d ", *text, phase, (int)k);
    }
}

/* A random plan whose replicas have more stages than devices. */
static inline struct plan plans_random_cut_chunks(struct arena *a, uint64_t seed, enum layers_by by)
{
    struct plan p = plans_random_cut(a, seed, by);
    struct plans_random r = {seed, 1000};
    for (int32_t k = 0; k < p.n_replicas; k++) {
        struct plan_replica *x = &p.replicas[k];
        int32_t device[5] = {0}, n = 1 + plans_below(&r, x->n_stages);
        for (int32_t s = 1; s < x->n_stages; s++) device[s] = plans_below(&r, n);
        plans_place(x, device);
        plans_random_orders(a, &r, x);
    }
    return p;
}

static inline struct plan plans_random_chunks(struct arena *a, uint64_t seed)
{
    return plans_random_cut_chunks(a, seed, LAYERS_DEFAULT);
}

/* Every third on several stages a device, every fourth with cuts inside the halves of blocks. */
static inline struct plan plans_random_any(struct arena *a, uint64_t seed)
{
    enum layers_by by = seed % 4 == 1 ? LAYERS_FINE : LAYERS_DEFAULT;
    return seed % 3 ? plans_random_cut(a, seed, by) : plans_random_cut_chunks(a, seed, by);
}

/* A program's text (n bytes) with one to three bytes changed, again and again: refused or read, never a crash; what is read may
 * be checked. Not every copy may come through. */
static inline void plans_mangle(struct arena *a, struct plans_random *r, const char *text, size_t n,
                                const char *letters, int cases)
{
    char *copy = malloc(n);
    int good = 0;
    for (int i = 0; i < cases; i++) {
        memcpy(copy, text, n);
        for (int k = plans_below(r, 3); k >= 0; k--) {
            int32_t at = plans_below(r, (int32_t)n);
            copy[at] = letters[plans_below(r, (int32_t)strlen(letters))];
        }
        struct program p;
        if (program_parse(a, "x", copy, n, &p, NULL) == OK)
            good += program_check(a, &p, NULL) == OK;
        arena_reset(a);
    }
    ck_assert_int_lt(good, cases);
    free(copy);
}

#endif
