#include "tests/support/random_questions.h"
#include "tests/support/measured_rows.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/model/measured.h"
#include "profiles/measured.h"

#include <check.h>
#include <math.h>

struct draws {
    struct arena *a;
    uint64_t seed, n;
};

static int64_t draw(struct draws *d, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(d->seed, 91, d->n++, (uint64_t)(high - low + 1));
}

/* As likely between 1 and 10 as between 10 and 100. */
static double spread(struct draws *d, double low, double high)
{
    return low * pow(high / low, rng_uniform(d->seed, 92, d->n++));
}

/* --- the job --- */

/* *state_B: parameters, gradients and state of AdamW of the whole model. */
static const char *dense(struct draws *d, int layers, int width, int length, double *state_B)
{
    bool llama = draw(d, 0, 1);
    int heads = width / 64, vocabulary = draw(d, 0, 1) ? 8192 : 32000;
    *state_B = 16.0 * ((double)layers * 12 * width * width + (double)vocabulary * width);
    if (llama)
        return arena_printf(
            d->a,
            "{model_type: llama, hidden_size: %d, intermediate_size: %d, "
            "num_hidden_layers: %d, num_attention_heads: %d, num_key_value_heads: %d, "
            "vocab_size: %d, max_position_embeddings: %d, tie_word_embeddings: %s}",
            width, width * 7 / 2, layers, heads, heads / 2, vocabulary, length,
            draw(d, 0, 1) ? "true" : "false");
    return arena_printf(d->a,
                        "{model_type: gpt2, n_embd: %d, n_layer: %d, n_head: %d, n_positions: %d, "
                        "vocab_size: %d}",
                        width, layers, heads, length, vocabulary);
}

static const char *experts(struct draws *d, int layers, int width, int length, double *state_B)
{
    int n = draw(d, 0, 1) ? 4 : 8;
    *state_B = 16.0 * ((double)layers * (4 + 6.0 * n) * width * width + 16000.0 * width);
    return arena_printf(d->a,
                        "{model_type: mixtral, hidden_size: %d, intermediate_size: %d, "
                        "num_hidden_layers: %d, num_attention_heads: %d, num_key_value_heads: %d, "
                        "vocab_size: 16000, max_position_embeddings: %d, num_local_experts: %d, "
                        "num_experts_per_tok: 2, capacity_factor: 1.25}",
                        width, width * 2, layers, width / 64, width / 128, length, n);
}

static const char *measured(struct draws *d, struct random_question *q, double *state_B)
{
    const char *layers = "";
    int n = (int)draw(d, 4, RANDOM_QUESTIONS_LAYERS);
    q->measured_layers = n;
    q->n_degrees = (int32_t)draw(d, 1, 3);
    *state_B = 0;
    for (int l = 0; l < n; l++) {
        double parameters = spread(d, 1e7, 2e8), kept = spread(d, 1e7, 1e8);
        const char *each = "", *keeps = "";
        *state_B += 16 * parameters;
        for (int k = 0; k < q->n_degrees; k++) {
            each = arena_printf(d->a, "%s%s%.0f", each, k ? ", " : "", parameters / (1 << k));
            keeps = arena_printf(d->a, "%s%s%.0f", keeps, k ? ", " : "", kept / (1 << k));
        }
        layers = arena_printf(
            d->a, "%s%s{name: l%d, cost: \"%d\", output: %.0f, parameters: [%s], kept: [%s]}",
            layers, l ? ", " : "", l, l, l + 1 < n ? spread(d, 1e5, 4e6) : 0, each, keeps);
    }
    return arena_printf(d->a,
                        "{model_type: measured_layers, version: 1, _name_or_path: toy, "
                        "sequence_length: 512, tensor_parallel: [%s], layers: [%s]}",
                        q->n_degrees > 2   ? "1, 2, 4"
                        : q->n_degrees > 1 ? "1, 2"
                                           : "1",
                        layers);
}

static void make_job(struct draws *d, struct random_question *q, double *state_B)
{
    static const char *const kinds[] = {"dense", "dense", "dense", "experts", "measured"};
    int kind = (int)draw(d, 0, 4), layers = (int)draw(d, 2, 8), width = 256 * (int)draw(d, 2, 12),
        length = 512 << draw(d, 0, 2), n = random_questions_devices(q);
    const char *model = kind == 4   ? measured(d, q, state_B)
                        : kind == 3 ? experts(d, layers, width, length, state_B)
                                    : dense(d, layers, width, length, state_B);
    int batch = 4;
    while (batch < n) batch *= 2;
    batch = batch / 2 * (int)draw(d, 1, 8);
    q->job = arena_printf(d->a,
                          "version: 1\nmodel: %s\nsequence_length: %d\nglobal_batch: %d\n%s"
                          "precision: %s\noptimizer: {kind: adamw, lr: 1e-4}\n",
                          model, kind == 4 ? 512 : length, batch,
                          kind == 4 ? "microbatch: [1, 2]\n" : "", kind == 4 ? "fp32" : "fp16");
    q->what = arena_printf(d->a, "%s, %d layers of %d, batch %d", kinds[kind],
                           kind == 4 ? q->measured_layers : layers, width, batch);
}

/* --- the cluster --- */

static void make_kinds(struct draws *d, struct random_question *q, int32_t most)
{
    static const char *const devices[] = {
        "A100-SXM4-40", "V100-SXM2-16", "A30",          "A10",  "H100-PCIe", "H100-SXM5",
        "V100-SXM2-32", "A100-SXM4-80", "A100-PCIe-80", "L40S", "RTX-3090",  "RTX-4090"};
    bool taken[12] = {false};
    int32_t all = (int32_t)spread(d, 4, most + 0.99), left = all;
    q->n_kinds = (int32_t)draw(d, 1, RANDOM_QUESTIONS_KINDS);
    for (int32_t k = 0; k < q->n_kinds; k++) {
        struct random_questions_kind *x = &q->kinds[k];
        int64_t at = draw(d, 0, 11);
        while (taken[at]) at = (at + 1) % 12;
        taken[at] = true;
        int32_t share = k + 1 < q->n_kinds ? left / (int32_t)draw(d, 2, 4) : left;
        *x = (struct random_questions_kind){.device = devices[at], .per_node = 1 << draw(d, 0, 3)};
        while (x->per_node > 1 && x->per_node > share) x->per_node /= 2;
        x->nodes = share / x->per_node > 1 ? share / x->per_node : 1;
        left -= x->nodes * x->per_node;
        x->inside_Bps = spread(d, 10e9, 400e9), x->inside_s = 2e-6;
        x->uplink_Bps = spread(d, 1e9, 50e9), x->uplink_s = spread(d, 4e-6, 50e-6);
        x->ports = x->per_node > 2 && draw(d, 0, 3) == 0;
        x->slowdown = spread(d, 1, 4);
        if (left < 1) q->n_kinds = k + 1;
    }
    q->halves = q->n_kinds > 1 && draw(d, 0, 3) == 0;
    q->trunk_Bps = spread(d, 2e9, 50e9), q->trunk_s = spread(d, 5e-6, 100e-6);
}

/* In every second question the whole model with its state takes 1 to 40 devices. */
static void make_memory(struct draws *d, struct random_question *q, double state_B)
{
    bool tight = draw(d, 0, 1);
    double n = random_questions_devices(q), across = spread(d, 1, n < 40 ? n * 0.8 : 40);
    for (int32_t k = 0; tight && k < q->n_kinds; k++)
        q->kinds[k].memory_B = 6e9 + state_B / across * spread(d, 1, 2);
    q->what = arena_printf(d->a, "%d devices of %d types%s%s, %s", (int)n, (int)q->n_kinds,
                           q->halves ? " in halves" : "", tight ? ", memory tight" : "", q->what);
}

void random_questions_make(struct arena *a, uint64_t seed, int32_t devices_most,
                           struct random_question *out)
{
    struct draws d = {.a = a, .seed = seed};
    double state_B;
    *out = (struct random_question){.seed = seed};
    make_kinds(&d, out, devices_most);
    make_job(&d, out, &state_B);
    make_memory(&d, out, state_B);
}

int32_t random_questions_devices(const struct random_question *q)
{
    int32_t n = 0;
    for (int32_t k = 0; k < q->n_kinds; k++) n += q->kinds[k].nodes * q->kinds[k].per_node;
    return n;
}

/* --- its text --- */

struct writing {
    struct arena *a;
    const struct random_question *q;
    bool listed;
    const char *types, *nodes, *switches, *links;
};

static const char *rate(struct arena *a, double Bps, double s)
{
    return arena_printf(a, "bandwidth: %.0f MB/s, latency: %.1f us", Bps / 1e6, s * 1e6);
}

static void put_link(struct writing *w, const char *name, int32_t count, const char *ends,
                     const char *speed)
{
    w->links =
        arena_printf(w->a, "%s  - {name: %s, %sbetween: [%s], %s}\n", w->links, name,
                     count ? arena_printf(w->a, "count: %d, ", (int)count) : "", ends, speed);
}

/* Node `at` of a kind, or all of them as one entry. */
static void put_node(struct writing *w, int32_t kind, int32_t at, int32_t count)
{
    struct arena *a = w->a;
    const struct random_questions_kind *x = &w->q->kinds[kind];
    const char *node =
        count ? arena_printf(a, "n%d-", (int)kind) : arena_printf(a, "n%d-%d", (int)kind, (int)at);
    const char *sw = arena_printf(a, "s%s", node), *core = w->q->halves && !kind ? "half" : "core";
    w->nodes = arena_printf(a, "%s  - {name: %s, %sdevices: {type: t%d, count: %d}}\n", w->nodes,
                            node, count ? arena_printf(a, "count: %d, ", (int)count) : "",
                            (int)kind, (int)x->per_node);
    put_link(w, arena_printf(a, "u%s", node), count, arena_printf(a, "%s, %s", node, core),
             rate(a, x->uplink_Bps, x->uplink_s));
    if (x->per_node < 2) return;
    if (!x->ports) {
        put_link(w, arena_printf(a, "b%s", node), count, node, rate(a, x->inside_Bps, x->inside_s));
        return;
    }
    w->switches = arena_printf(a, "%s, {name: %s%s}", w->switches, sw,
                               count ? arena_printf(a, ", count: %d", (int)count) : "");
    for (int32_t i = 0; i < x->per_node; i++)
        put_link(w, arena_printf(a, "p%d-%s", (int)i, node), 0,
                 arena_printf(a, "%s.%d, %s", node, (int)i, sw),
                 rate(a, x->inside_Bps, x->inside_s / 2));
}

static void put_kind(struct writing *w, int32_t kind)
{
    struct arena *a = w->a;
    const struct random_questions_kind *x = &w->q->kinds[kind];
    if (!x->nodes) return;
    w->types =
        arena_printf(a, "%s  - {name: t%d, device: %s%s}\n", w->types, (int)kind, x->device,
                     x->memory_B > 0 ? arena_printf(a, ", memory: %.0f B", x->memory_B) : "");
    bool each = w->listed || x->ports; /* the ports of counted nodes cannot be counted too */
    for (int32_t i = 0; i < (each ? x->nodes : 1); i++) put_node(w, kind, i, each ? 0 : x->nodes);
}

const char *random_questions_cluster(struct arena *a, const struct random_question *q,
                                     enum random_questions_words words)
{
    struct writing w = {a, q, words == RANDOM_QUESTIONS_LISTED, "", "", "{name: core}", ""};
    for (int32_t k = 0; k < q->n_kinds; k++)
        put_kind(&w, words == RANDOM_QUESTIONS_REVERSED ? q->n_kinds - 1 - k : k);
    if (q->halves) {
        w.switches = arena_printf(a, "%s, {name: half}", w.switches);
        put_link(&w, "trunk", 0, "half, core", rate(a, q->trunk_Bps, q->trunk_s));
    }
    return arena_printf(a,
                        "version: 1\nname: random\ndevice_types:\n%snodes:\n%sswitches: "
                        "[%s]\nlinks:\n%s",
                        w.types, w.nodes, w.switches, w.links);
}

/* --- its profile --- */

void random_questions_profile(struct arena *a, const struct random_question *q,
                              const struct cluster *c, struct profile *out)
{
    struct error err = {0};
    struct draws d = {.a = a, .seed = q->seed, .n = 10000};
    size_t room = 0;
    ck_assert_msg(profile_prior(a, c, out, &err) == OK, "%s", err.text);
    if (!q->measured_layers) return;
    room = out->n_ops = 0, out->ops = NULL, out->ops_sorted = false;
    for (int32_t l = 0; l < q->measured_layers; l++) {
        const char *layer = arena_printf(a, "%d", (int)l);
        double layer_s = spread(&d, 2e-3, 2e-2);
        for (int32_t k = 0; k < q->n_kinds; k++) {
            double s = layer_s * q->kinds[k].slowdown * spread(&d, 0.7, 1.4);
            for (int32_t g = 0; g < q->n_degrees; g++) {
                char base[MEASURED_BASE_MAX];
                double took = s / pow(1.7, g);
                const char *name = arena_strdup(a, measured_base(base, q->kinds[k].device, 1 << g));
                for (int64_t b = 1; b <= 2; b *= 2) {
                    double ns = took * (0.3 + 0.7 * (double)b);
                    measured_rows_add(a, out, &room, name, layer, b, OP_measured_forward, ns);
                    measured_rows_add(a, out, &room, name, layer, b, OP_measured_backward, 2 * ns);
                }
            }
        }
    }
    profile_sort(out);
}
