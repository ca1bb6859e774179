#include "planner/baseline/harp.h"

#include "core/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESH_MAX = 5 }; /* meshes of 1, 2 … 16 GPUs */

struct harp {
    struct arena *a;
    struct baseline_task *k;
    struct space *s; /* of whole microbatches */
    /* of the sequences of one GPU of a mesh; NULL: not divisible */
    struct space *part[MESH_MAX];
    const struct cluster *c;
    int32_t n, layers;
    int64_t *transfer;    /* (n, layers): of a cut, to this device from the one before it */
    int64_t *best;        /* (n + 1, layers + 1): sum of t + c from this device and layer on */
    int32_t *mesh, *last; /* likewise: the argmin */
    int32_t *ends, *next; /* of `exists` */
    bool *fits;           /* (n, MESH_MAX) mesh_fits */
    bool *starts;         /* (layers) whether a plan of the rest starts there */
};

/* Whether 2^k GPUs from this device on form a mesh: one node, one type. */
static bool is_mesh(const struct harp *h, int32_t device, int32_t k)
{
    const struct device *d = h->c->devices;
    int32_t tp = 1 << k, end = device + tp;
    if (end > h->n || !h->part[k]) return false;
    int32_t at = device - h->c->nodes[d[device].node].first_device;
    return at % tp == 0 && d[end - 1].node == d[device].node && d[end - 1].type == d[device].type;
}

static bool mesh_fits(const struct harp *h, int32_t device, int32_t k)
{
    return h->fits[device * MESH_MAX + k];
}

static void find_meshes(struct harp *h)
{
    h->fits = ARENA_ARRAY(h->a, bool, (size_t)h->n * MESH_MAX);
    for (int32_t d = 0; d < h->n; d++)
        for (int32_t k = 0; k < MESH_MAX; k++) h->fits[d * MESH_MAX + k] = is_mesh(h, d, k);
}

static int64_t sub_mesh_stage_ns(const struct harp *h, int32_t device, int32_t k, int32_t first,
                                 int32_t last)
{
    const struct stage_cost *c =
        space_stage_type(h->part[k], h->c->devices[device].type, first, last);
    return c->forward_ns + c->input_ns + c->weight_ns;
}

/* From the mesh's last GPU to the first one of the next mesh. */
static int64_t sub_mesh_transfer_ns(const struct harp *h, int32_t device, int32_t k, int32_t last)
{
    int32_t next = device + (1 << k);
    return next >= h->n || last == h->layers - 1 ? 0
                                                 : h->transfer[(int64_t)next * h->layers + last];
}

static void find_transfers(struct harp *h)
{
    h->transfer = ARENA_ARRAY(h->a, int64_t, (size_t)h->n * (size_t)h->layers);
    for (int32_t d = 1; d < h->n; d++) {
        bool linked = space_linked(h->s, d - 1, d);
        for (int32_t l = 0; l + 1 < h->layers; l++)
            h->transfer[(int64_t)d * h->layers + l] =
                linked ? space_transfer_ns(h->s, d - 1, d, l) : INT64_MAX / 4;
    }
}

static int64_t *cell(const struct harp *h, int64_t *table, int32_t device, int32_t layer)
{
    return &table[(int64_t)device * (h->layers + 1) + layer];
}

/* Best suffix from (device, layer) with stages and messages of at most `most` each. */
static void fill_cell(const struct harp *h, int32_t device, int32_t layer, int64_t most)
{
    int64_t at = (int64_t)device * (h->layers + 1) + layer, best = INT64_MAX;
    for (int32_t k = 0; k < MESH_MAX; k++) {
        if (!mesh_fits(h, device, k)) continue;
        int32_t next = device + (1 << k);
        for (int32_t last = layer; last < h->layers; last++) {
            int64_t ns = sub_mesh_stage_ns(h, device, k, layer, last),
                    c = sub_mesh_transfer_ns(h, device, k, last);
            if (ns > most) break;
            int64_t rest = *cell(h, h->best, next, last + 1);
            if (c > most || rest == INT64_MAX || ns + c + rest >= best) continue;
            best = ns + c + rest;
            h->mesh[at] = k, h->last[at] = last;
        }
    }
    h->best[at] = best;
}

/* Sum of t + c of the best plan within `most`; INT64_MAX: none. */
static int64_t within(const struct harp *h, int64_t most)
{
    for (int32_t d = h->n; d >= 0; d--)
        for (int32_t l = h->layers; l >= 0; l--) {
            if (d == h->n || l == h->layers)
                *cell(h, h->best, d, l) = d == h->n && l == h->layers ? 0 : INT64_MAX;
            else
                fill_cell(h, d, l, most);
        }
    return *cell(h, h->best, 0, 0);
}

/* ends: (types, MESH_MAX, layers) the last layer up to which each stage of the mesh from `layer` on takes at most `most`; layer - 1:
 * none. */
static void find_ends(const struct harp *h, int64_t most, int32_t *ends)
{
    bool found[MESH_MAX] = {0};
    for (int32_t d = 0; d < h->n; d++) {
        int32_t type = h->c->devices[d].type;
        if (!d || type != h->c->devices[d - 1].type) memset(found, 0, sizeof found);
        for (int32_t k = 0; k < MESH_MAX; k++) {
            if (found[k] || !mesh_fits(h, d, k)) continue;
            found[k] = true;
            int32_t *end = &ends[(type * MESH_MAX + k) * h->layers];
            for (int32_t l = 0; l < h->layers; l++) {
                end[l] = l - 1;
                while (end[l] + 1 < h->layers && sub_mesh_stage_ns(h, d, k, l, end[l] + 1) <= most)
                    end[l]++;
            }
        }
    }
}

/* Whether `within` finds a plan; O(devices · layers · meshes) without the argmin. next: (n, layers) the first layer from `layer` on
 * after which a stage may end, because its message takes at most `most` and a plan of the rest starts behind it. */
static bool exists(const struct harp *h, int64_t most)
{
    find_ends(h, most, h->ends);
    for (int32_t d = h->n; d-- > 0;) {
        int32_t *next = &h->next[(int64_t)d * h->layers];
        const int32_t *type = &h->ends[h->c->devices[d].type * MESH_MAX * h->layers];
        for (int32_t l = h->layers; l-- > 0;) {
            bool plan = false;
            for (int32_t k = 0; k < MESH_MAX && !plan; k++) {
                int32_t behind = d + (1 << k), end = type[k * h->layers + l];
                if (!mesh_fits(h, d, k)) continue;
                plan = behind == h->n ? end == h->layers - 1
                                      : h->next[(int64_t)behind * h->layers + l] <= end;
            }
            h->starts[l] = plan;
        }
        next[h->layers - 1] = h->layers; /* the last stage ends on the last device only */
        for (int32_t l = h->layers - 1; l-- > 0;) {
            bool may = h->starts[l + 1] && h->transfer[(int64_t)d * h->layers + l] <= most;
            next[l] = may ? l : next[l + 1];
        }
    }
    return h->starts[0];
}

/* The maximum attained, for which the closed form is evaluated. */
static int64_t reached(const struct harp *h)
{
    int64_t most = 0;
    for (int32_t d = 0, l = 0; d < h->n;) {
        int64_t at = (int64_t)d * (h->layers + 1) + l;
        int32_t k = h->mesh[at], last = h->last[at];
        int64_t ns = sub_mesh_stage_ns(h, d, k, l, last), c = sub_mesh_transfer_ns(h, d, k, last);
        ns = ns > c ? ns : c;
        most = ns > most ? ns : most;
        d += 1 << k, l = last + 1;
    }
    return most;
}

static void read_plan(const struct harp *h, struct harp_plan *out)
{
    struct arena *a = h->k->arena;
    size_t n = (size_t)h->n;
    out->n_stages = 0;
    out->first_device = ARENA_ARRAY(a, int32_t, n), out->n_devices = ARENA_ARRAY(a, int32_t, n);
    out->last_layer = ARENA_ARRAY(a, int32_t, n), out->warmup = ARENA_ARRAY(a, int32_t, n);
    for (int32_t d = 0, l = 0; d < h->n;) {
        int64_t at = (int64_t)d * (h->layers + 1) + l;
        int32_t i = out->n_stages++;
        out->first_device[i] = d, out->n_devices[i] = 1 << h->mesh[at];
        out->last_layer[i] = h->last[at];
        d += 1 << h->mesh[at], l = h->last[at] + 1;
    }
    int64_t slowest = reached(h);
    out->warmup[out->n_stages - 1] = 1;
    for (int32_t i = out->n_stages - 2; i >= 0; i--) {
        int32_t k = 0, device = out->first_device[i];
        while (1 << k < out->n_devices[i]) k++;
        int64_t c = sub_mesh_transfer_ns(h, device, k, out->last_layer[i]);
        bool near = h->c->devices[device].node == h->c->devices[out->first_device[i + 1]].node;
        out->warmup[i] = out->warmup[i + 1] + (near || c < slowest / 10 ? 1
                                               : c < slowest / 2        ? 2
                                                                        : 3);
    }
}

/* Spaces for the sequences of one GPU of each mesh size. */
static enum status find_parts(struct harp *h, int32_t size, struct error *err)
{
    struct baseline_task *k = h->k;
    for (int32_t m = 0; m < MESH_MAX; m++) {
        int64_t tp = INT64_C(1) << m;
        if (k->sizes[size] % tp || (m && k->job->model.measured)) continue;
        int32_t have = 0;
        while (have < k->n_sizes && k->sizes[have] != k->sizes[size] / tp) have++;
        if (have < k->n_sizes) {
            TRY(baseline_space(k, have, &h->part[m], err));
            continue;
        }
        h->part[m] = ARENA_ARRAY(k->arena, struct space, 1);
        TRY(space_make_on(k->arena, k->job, k->cluster, h->s->cost, h->s->devices,
                          k->sizes[size] / tp, k->t->lower, h->part[m], err));
    }
    return OK;
}

/* Bytes that a stage lacks with recomputation, and a copy of the state on each of its GPUs. */
static int64_t lacking(const struct harp *h, const struct harp_plan *x, int32_t i)
{
    const struct device *d = &h->c->devices[x->first_device[i]];
    int32_t k = 0, first = i ? x->last_layer[i - 1] + 1 : 0;
    while (1 << k < x->n_devices[i]) k++;
    const struct stage_cost *c = space_stage_type(h->part[k], d->type, first, x->last_layer[i]);
    return c->parameter_bytes + c->gradient_bytes + c->state_bytes + c->activation_bytes +
           (x->warmup[i] + 1) * c->input_bytes - h->c->types[d->type].memory_bytes;
}

static void check_memory(const struct harp *h, struct harp_plan *x)
{
    struct baseline_task *k = h->k;
    int64_t most = 0;
    for (int32_t i = 0; i < x->n_stages; i++) {
        const struct device *d = &h->c->devices[x->first_device[i]];
        int64_t bytes = lacking(h, x, i), memory = h->c->types[d->type].memory_bytes;
        if (bytes <= most) continue;
        most = bytes;
        snprintf(k->why, sizeof k->why, "%s: its layers need about %.4g GiB of %.4g GiB", d->name,
                 (double)(memory + bytes) / 0x1p30, (double)memory / 0x1p30);
    }
    x->fits = !most;
    k->miss = most;
}

static void weigh(const struct harp *h, int64_t sum, struct harp_plan *out)
{
    int64_t closed = sum + ((int64_t)h->s->microbatches - 1) * reached(h);
    if (closed >= out->closed_ns) return;
    out->closed_ns = closed;
    read_plan(h, out);
}

/* The work of all layers divided over all GPUs, if a GPU of a mesh took its part of the time. */
static int64_t least_pace(const struct harp *h)
{
    double rate = 0;
    for (int32_t d = 0; d < h->n; d++)
        rate += 1 / ((double)sub_mesh_stage_ns(h, d, 0, 0, h->layers - 1) + 1);
    return (int64_t)(1 / rate) + 1;
}

/* Bidirectional pruning: the least possible maximum by bisection, to a 64th. A maximum above that plan's T / (B - 1) cannot be
 * optimal. From there the limit falls to just below each attained maximum, so no candidate for the optimum is missed: the sum rises as the
 * limit falls, and ends the search once no possible maximum makes up for it. */
static void prune_maxima(struct harp *h, struct harp_plan *out)
{
    int64_t b = h->s->microbatches, low = 0, high = least_pace(h);
    while (high < INT64_MAX / 8 && !exists(h, high)) low = high, high *= 2;
    if (!exists(h, high)) return;
    while (high - low > 1 + high / 64) {
        int64_t middle = low + (high - low) / 2;
        *(exists(h, middle) ? &high : &low) = middle;
    }
    int64_t sum = within(h, high), most = INT64_MAX / 8;
    weigh(h, sum, out);
    if (b > 1) most = out->closed_ns / (b - 1);
    while ((sum = within(h, most)) < INT64_MAX && sum + (b - 1) * (low + 1) < out->closed_ns) {
        weigh(h, sum, out);
        most = reached(h) - 1;
    }
}

enum status harp_plan_make(struct baseline_task *k, int32_t size, struct harp_plan *out,
                           struct error *err)
{
    struct harp h = {.a = arena_new(), .k = k, .c = k->cluster};
    *out = (struct harp_plan){.closed_ns = INT64_MAX, .size = size};
    k->miss = INT64_MAX;
    enum status st = baseline_space(k, size, &h.s, err);
    if (st == OK) st = find_parts(&h, size, err);
    h.n = h.c->n_devices, h.layers = st == OK ? h.s->n_layers : 0;
    int32_t least = 0; /* stages: at least one per node */
    for (int32_t i = 0; i < h.c->n_nodes; i++) least += h.c->nodes[i].n_devices > 0;
    if (st == OK && least > h.layers) {
        snprintf(k->why, sizeof k->why, "%d nodes need a stage each, the model has %d layers",
                 (int)least, (int)h.layers);
    } else if (st == OK) {
        size_t cells = (size_t)(h.n + 1) * (size_t)(h.layers + 1);
        h.best = ARENA_ARRAY(h.a, int64_t, cells);
        h.mesh = ARENA_ARRAY(h.a, int32_t, cells), h.last = ARENA_ARRAY(h.a, int32_t, cells);
        h.ends = ARENA_ARRAY(h.a, int32_t, (size_t)h.c->n_types * MESH_MAX * (size_t)h.layers);
        h.next = ARENA_ARRAY(h.a, int32_t, (size_t)h.n * (size_t)h.layers);
        h.starts = ARENA_ARRAY(h.a, bool, (size_t)h.layers);
        find_meshes(&h);
        find_transfers(&h);
        prune_maxima(&h, out);
        if (out->closed_ns < INT64_MAX)
            check_memory(&h, out);
        else
            snprintf(k->why, sizeof k->why,
                     "no pipeline of %d layers fits all %d devices in cluster order", (int)h.layers,
                     (int)h.n);
    }
    arena_free(h.a);
    return st;
}

enum status harp_plan_fill(struct baseline_task *k, const struct harp_plan *x, struct arena *a,
                           struct plan *out, struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, x->size, &s, err));
    plan_skeleton(a, s, "harp-published", 1, &x->n_stages, out);
    out->replicas[0].microbatches = s->microbatches;
    for (int32_t i = 0; i < x->n_stages; i++) {
        struct plan_stage *stage = &out->replicas[0].stages[i];
        int32_t n = x->n_devices[i], most = s->microbatches;
        stage->device = x->first_device[i];
        stage->first_layer = i ? x->last_layer[i - 1] + 1 : 0;
        stage->last_layer = x->last_layer[i];
        stage->warmup = x->warmup[i] < most ? x->warmup[i] : most;
        if (n == 1) continue;
        int32_t *devices = ARENA_ARRAY(a, int32_t, (size_t)n);
        int64_t *sequences = ARENA_ARRAY(a, int64_t, (size_t)n);
        for (int32_t d = 0; d < n; d++)
            devices[d] = stage->device + d, sequences[d] = s->microbatch / n;
        stage->n_shards = n, stage->devices = devices, stage->sequences = sequences;
    }
    return OK;
}
