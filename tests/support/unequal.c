#include "tests/support/unequal.h"

#include "core/base/rng.h"
#include "core/model/measured.h"
#include "tests/support/measured_rows.h"
#include "tests/support/texts.h"

#include <math.h>

enum links { LINKS_PAIRS, LINKS_NODES, LINKS_SWITCH };

struct draws {
    struct arena *a;
    uint64_t seed, n;
    int32_t n_devices, n_types, n_layers, sizes;
    bool graph;
    enum links links;
};

static int64_t draw(struct draws *d, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(d->seed, 78, d->n++, (uint64_t)(high - low + 1));
}

/* As likely between 1 and 10 as between 10 and 100. */
static double spread(struct draws *d, double low, double high)
{
    return low * pow(high / low, rng_uniform(d->seed, 79, d->n++));
}

static const char *const catalogue[] = {
    "A100-SXM4-40", "V100-SXM2-16", "T4",        "L4",           "A30",          "A10",
    "RTX-3090",     "H100-PCIe",    "H100-SXM5", "V100-SXM2-32", "A100-SXM4-80", "A100-PCIe-80"};

static int32_t type_of(const struct draws *d, int32_t device)
{
    return device * d->n_types / d->n_devices;
}

/* --- the model --- */

static const char *model_text(struct draws *d, double *state_bytes)
{
    const char *layers = "";
    if (d->graph) {
        *state_bytes = 2e6;
        return arena_printf(d->a,
                            "{model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, n_positions: "
                            "16, vocab_size: 256}",
                            d->n_layers < 8 ? 1 : 2);
    }
    *state_bytes = 0;
    for (int32_t l = 0; l < d->n_layers; l++) {
        double parameters = spread(d, 1e5, 4e6);
        *state_bytes += 16 * parameters;
        layers = arena_printf(d->a,
                              "%s%s{name: l%d, cost: \"%d\", output: %.0f, parameters: [%.0f], "
                              "kept: [%.0f]}",
                              layers, l ? ", " : "", (int)l, (int)l,
                              l + 1 < d->n_layers ? spread(d, 1e4, 1e6) : 0, parameters,
                              spread(d, 1e4, 1e6));
    }
    return arena_printf(d->a,
                        "{model_type: measured_layers, version: 1, _name_or_path: toy, "
                        "sequence_length: 16, tensor_parallel: [1], layers: [%s]}",
                        layers);
}

static void make_job(struct draws *d, struct job *out, double *state_bytes)
{
    static const int32_t batches[] = {2, 3, 4, 5, 6, 8, 12};
    int32_t batch = batches[draw(d, 0, d->graph ? 4 : 6)];
    d->sizes = 1;
    while (d->sizes < 3 && batch % (1 << d->sizes) == 0 && draw(d, 0, 1)) d->sizes++;
    const char *text = model_text(d, state_bytes);
    *out = texts_job(d->a, arena_printf(d->a,
                                        "version: 1\nmodel: %s\nsequence_length: 16\n"
                                        "global_batch: %d\nmicrobatch: [1%s%s]\n",
                                        text, (int)batch, d->sizes > 1 ? ", 2" : "",
                                        d->sizes > 2 ? ", 4" : ""));
    if (d->graph && d->n_layers == 8 && d->seed % 2)
        out->layers = (struct layers_choice){LAYERS_NUMBER, 8};
}

static void make_rows(struct draws *d, struct profile *p)
{
    double layer_s[16];
    size_t room = p->n_ops = 0;
    p->ops = NULL;
    p->ops_sorted = false;
    for (int32_t l = 0; l < d->n_layers; l++) layer_s[l] = spread(d, 2e-4, 2e-3);
    for (int32_t t = 0; t < d->n_types; t++) {
        double slowdown = spread(d, 1, 6);
        for (int32_t l = 0; l < d->n_layers; l++) {
            const char *layer = arena_printf(d->a, "%d", (int)l);
            double s = layer_s[l] * slowdown * spread(d, 0.7, 1.4), fixed = spread(d, 0.1, 0.5),
                   back = spread(d, 1.5, 2.5);
            for (int64_t b = 1; b <= 4; b *= 2) {
                double took = s * (fixed + (1 - fixed) * (double)b);
                measured_rows_add(d->a, p, &room, catalogue[t], layer, b, OP_measured_forward,
                                  took);
                measured_rows_add(d->a, p, &room, catalogue[t], layer, b, OP_measured_backward,
                                  back * took);
            }
        }
    }
    profile_sort(p);
}

/* --- the team --- */

static const char *types_text(struct draws *d, double state_bytes)
{
    const char *text = "device_types:\n";
    bool binding = draw(d, 0, 1);
    for (int32_t t = 0; t < d->n_types; t++) {
        double memory = binding ? state_bytes * spread(d, 0.3, 1.5) : 1e9;
        const char *device =
            d->graph ? arena_printf(d->a, "host, slowdown: %.2f", spread(d, 1, 6)) : catalogue[t];
        text = arena_printf(d->a, "%s  - {name: t%d, device: %s, memory: %.0f B}\n", text, (int)t,
                            device, memory);
    }
    return text;
}

static const char *one_link(struct draws *d, const char *text, const char *ends)
{
    static const char *const attributes[] = {"", "", "", ", duplex: half", ", sharing: fair"};
    bool slow = d->graph; /* its layers take microseconds */
    return arena_printf(d->a,
                        "%s  - {name: %s, between: [%s], bandwidth: %.2f MB/s, latency: %.1f "
                        "us%s}\n",
                        text, arena_printf(d->a, "l%d", (int)d->n), ends,
                        slow ? spread(d, 2, 200) : spread(d, 100, 10000), spread(d, 1, 300),
                        attributes[draw(d, 0, 4)]);
}

static const char *nodes_text(struct draws *d)
{
    const char *text = "nodes:\n", *host = d->graph ? ", host: localhost" : "";
    for (int32_t i = 0; i < d->n_devices; i++) {
        bool second = d->links == LINKS_NODES && i + 1 < d->n_devices;
        text = arena_printf(d->a, "%s  - {name: n%d%s, devices: [{type: t%d}", text,
                            (int)(d->links == LINKS_NODES ? i / 2 : i), host, (int)type_of(d, i));
        if (second) text = arena_printf(d->a, "%s, {type: t%d}", text, (int)type_of(d, ++i));
        text = arena_printf(d->a, "%s]}\n", text);
    }
    return text;
}

static const char *links_text(struct draws *d)
{
    int32_t nodes = d->links == LINKS_NODES ? (d->n_devices + 1) / 2 : d->n_devices;
    int64_t missing = d->links == LINKS_PAIRS && nodes > 2 && !draw(d, 0, 5)
                          ? draw(d, 0, nodes * (nodes - 1) / 2 - 1)
                          : -1;
    const char *text = d->links == LINKS_SWITCH ? "switches: [{name: s}]\nlinks:\n" : "links:\n";
    for (int32_t i = 0; i < nodes; i++) {
        if (d->links == LINKS_SWITCH)
            text = one_link(d, text, arena_printf(d->a, "n%d, s", (int)i));
        if (d->links == LINKS_NODES && 2 * i + 1 < d->n_devices)
            text = one_link(d, text, arena_printf(d->a, "n%d", (int)i));
        for (int32_t k = 0; k < i && d->links != LINKS_SWITCH; k++)
            if (missing-- != 0)
                text = one_link(d, text, arena_printf(d->a, "n%d, n%d", (int)k, (int)i));
    }
    return text;
}

void unequal_make(struct arena *a, uint64_t seed, int32_t n_devices, int32_t max_layers,
                  struct unequal *out)
{
    static const int32_t devices[] = {2, 3, 3, 4, 4, 5, 5, 6, 6, 6};
    static const char *const names[] = {"pairs", "nodes", "switch"};
    struct draws d = {.a = a, .seed = seed};
    double state_bytes;
    struct error err = {0};
    d.graph = !n_devices && draw(&d, 0, 7) == 0;
    d.n_devices = n_devices ? n_devices : devices[draw(&d, 0, d.graph ? 4 : 9)];
    d.n_types = draw(&d, 0, 2) ? d.n_devices : (d.n_devices + 1) / 2;
    d.links = (enum links)(draw(&d, 0, 3) % 3);
    d.n_layers = d.graph ? (int32_t)draw(&d, 7, 8) : (int32_t)draw(&d, 2, max_layers);
    make_job(&d, &out->job, &state_bytes);
    const char *types = types_text(&d, state_bytes), *nodes = nodes_text(&d);
    out->cluster = texts_cluster(
        a, arena_printf(a, "version: 1\nname: c\n%s%s%s", types, nodes, links_text(&d)));
    ck_assert_msg(profile_prior(a, &out->cluster, &out->profile, &err) == OK, "%s", err.text);
    if (!d.graph) make_rows(&d, &out->profile);
    out->shared = d.links != LINKS_PAIRS;
    out->what =
        arena_printf(a, "%s, %s, %d types, batch %d, %d sizes", d.graph ? "graph" : "table",
                     names[d.links], (int)d.n_types, (int)out->job.global_batch, (int)d.sizes);
}
