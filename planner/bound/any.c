#include "planner/bound/any_internal.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/bound/lp.h"
#include "planner/bound/messages.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The devices of a program and its additional constraints. */
struct sides {
    const int64_t *count[2]; /* (n_classes) devices of each side; NULL: none */
    double cross_ns;         /* > 0: the samples of side 1 cross the cut; ns for the whole batch */
};

static double least(double a, double b) { return a < b ? a : b; }

struct bound_any *bound_any_new(struct arena *a, int32_t n_layers, int32_t n_classes,
                                const int64_t *count, int64_t global_batch)
{
    struct bound_any *b = ARENA_ARRAY(a, struct bound_any, 1);
    *b = (struct bound_any){.arena = a,
                            .n_layers = n_layers,
                            .n_classes = n_classes,
                            .batch = (double)global_batch,
                            .most_on_node = 1,
                            .fewest = INT64_MAX};
    b->count = ARENA_ARRAY(a, int64_t, (size_t)n_classes);
    memcpy(b->count, count, (size_t)n_classes * sizeof *count);
    b->layers = ARENA_ARRAY(a, struct layer, (size_t)n_layers);
    for (int32_t l = 0; l < n_layers; l++) {
        struct layer *x = &b->layers[l];
        *x = (struct layer){NULL, NULL, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
        x->work_ns = ARENA_ARRAY(a, double, (size_t)n_classes);
        x->update_ns = ARENA_ARRAY(a, double, (size_t)n_classes);
        for (int32_t g = 0; g < n_classes; g++) x->work_ns[g] = x->update_ns[g] = INFINITY;
    }
    return b;
}

void bound_any_sharded(struct bound_any *b, enum bound_stages stages, int64_t most)
{
    b->stages = stages;
    if (stages != BOUND_STAGES_WHOLE) b->most_on_node = most;
}

bool bound_any_is_sharded(const struct bound_any *b) { return b->stages != BOUND_STAGES_WHOLE; }

void bound_any_offer(struct bound_any *b, int32_t device_class, int32_t layer, const struct bound_offer *o)
{
    if (o->samples < b->fewest) b->fewest = o->samples;
    struct layer *x = &b->layers[layer];
    double all = o->forward_ns + o->input_ns + o->weight_ns, n = (double)o->samples;
    x->work_ns[device_class] = least(x->work_ns[device_class], o->tp * all / n);
    x->update_ns[device_class] = least(x->update_ns[device_class], o->tp * o->update_ns);
    double shards = bound_any_is_sharded(b) ? o->tp : 1; /* else the devices' time is divided twice */
    x->pass_ns = least(x->pass_ns, shards * (o->forward_ns + o->input_ns));
    x->weight_ns = least(x->weight_ns, shards * o->weight_ns);
    bound_any_remember(b, device_class, layer, o);
}

int64_t bound_any_fewest(const struct bound_any *b) { return b->fewest; }

void bound_any_traffic(struct bound_any *b, int32_t layer, double parameter_bytes,
                       double activation_bytes)
{
    struct layer *x = &b->layers[layer];
    x->parameter_bytes = least(x->parameter_bytes, parameter_bytes);
    x->activation_bytes = least(x->activation_bytes, activation_bytes);
}

void bound_any_cut(struct bound_any *b, const int64_t *here, double both_directions_Bps, const char *name)
{
    if (b->n_cuts == b->capacity)
        b->cuts = arena_grow(b->arena, b->cuts, b->n_cuts, &b->capacity, sizeof *b->cuts);
    struct device_cut *c = &b->cuts[b->n_cuts++];
    *c = (struct device_cut){ARENA_ARRAY(b->arena, int64_t, (size_t)b->n_classes), both_directions_Bps, name};
    memcpy(c->here, here, (size_t)b->n_classes * sizeof *here);
}

void bound_any_parts(struct bound_any *b, const struct bound_any_part *parts, int32_t n,
                     const char *name)
{
    if (b->n_families == b->family_capacity)
        b->families = arena_grow(b->arena, b->families, b->n_families, &b->family_capacity,
                                 sizeof *b->families);
    b->families[b->n_families++] = (struct family){parts, n, name};
}

void bound_any_prices(struct bound_any *b, const double *price_per_h, double most_ns)
{
    b->price = ARENA_ARRAY(b->arena, double, (size_t)b->n_classes);
    memcpy(b->price, price_per_h, (size_t)b->n_classes * sizeof *price_per_h);
    b->most_ns = most_ns;
}

double bound_money(double price_per_h, double ns)
{
    return price_per_h * (ns / NS_PER_H);
}

double bound_cost_gap(double cost, double lower_cost)
{
    return lower_cost > 0 ? (cost - lower_cost) / lower_cost : INFINITY;
}

double bound_gap(int64_t iteration_ns, int64_t lower_bound_ns)
{
    if (lower_bound_ns <= 0) return INFINITY;
    return (double)(iteration_ns - lower_bound_ns) / (double)lower_bound_ns;
}

static bool same_layers(const struct bound_any *b, int32_t i, int32_t j)
{
    size_t n = (size_t)b->n_classes * sizeof(double);
    return !memcmp(b->layers[i].work_ns, b->layers[j].work_ns, n) &&
           !memcmp(b->layers[i].update_ns, b->layers[j].update_ns, n);
}

static void merge_layers(struct bound_any *b)
{
    b->n_rows = 0;
    b->row = ARENA_ARRAY(b->arena, int32_t, (size_t)b->n_layers);
    b->times = ARENA_ARRAY(b->arena, int32_t, (size_t)b->n_layers);
    for (int32_t l = 0; l < b->n_layers; l++) {
        int32_t r = 0;
        while (r < b->n_rows && !same_layers(b, l, b->row[r])) r++;
        if (r == b->n_rows) b->row[b->n_rows++] = l;
        b->times[r]++;
    }
}

/* Unit of time, so that coefficients are near 1: all work at its least cost on all devices. */
static double unit_ns(const struct bound_any *b)
{
    double sum = 0, n = 0;
    for (int32_t r = 0; r < b->n_rows; r++) {
        double w = INFINITY;
        for (int32_t g = 0; g < b->n_classes; g++) w = least(w, b->layers[b->row[r]].work_ns[g]);
        sum += b->times[r] * b->batch * w;
    }
    for (int32_t g = 0; g < b->n_classes; g++) n += (double)b->count[g];
    return sum > 0 && n > 0 ? sum / n : 1;
}

/* Columns: 0 is T, 1 the fraction of the batch that crosses; then for every side, class and distinct layer the fraction of
 * its work and of its updates. */
static int32_t column_of(const struct bound_any *b, int side, int32_t device_class, int32_t row, int update)
{
    return 2 + ((side * b->n_classes + device_class) * b->n_rows + row) * 2 + update;
}

static void put_work(struct bound_lp *p, const struct bound_any *b, const struct sides *s,
                     double unit)
{
    for (int side = 0; side < 2; side++)
        for (int32_t g = 0; s->count[side] && g < b->n_classes; g++) {
            if (!s->count[side][g]) continue;
            int32_t busy = bound_lp_row(p, 0);
            bound_lp_put(p, busy, 0, (double)s->count[side][g]);
            for (int32_t r = 0; r < b->n_rows; r++) {
                const struct layer *x = &b->layers[b->row[r]];
                if (isinf(x->work_ns[g])) continue;
                double work = b->times[r] * b->batch * x->work_ns[g];
                double update = b->times[r] * x->update_ns[g];
                bound_lp_put(p, busy, column_of(b, side, g, r, 0), -work / unit);
                bound_lp_put(p, busy, column_of(b, side, g, r, 1), -update / unit);
            }
        }
}

static void put_layers(struct bound_lp *p, const struct bound_any *b, const struct sides *s)
{
    for (int32_t r = 0; r < b->n_rows; r++)
        for (int update = 0; update < 2; update++) {
            int32_t done = bound_lp_row(p, 1);
            int32_t crosses = s->cross_ns > 0 && !update ? bound_lp_row(p, 0) : -1;
            if (crosses >= 0) bound_lp_put(p, crosses, 1, 1);
            for (int side = 0; side < 2; side++)
                for (int32_t g = 0; s->count[side] && g < b->n_classes; g++) {
                    if (!s->count[side][g] || isinf(b->layers[b->row[r]].work_ns[g])) continue;
                    int32_t column = column_of(b, side, g, r, update);
                    bound_lp_put(p, done, column, 1);
                    if (crosses >= 0 && side == 1) bound_lp_put(p, crosses, column, -1);
                }
        }
}

/* Crossing samples take link time; the far side lacks a layer, so it does at most the work of all other layers. */
static void put_crossing(struct bound_lp *p, const struct bound_any *b, const struct sides *s,
                         double unit)
{
    int32_t wire = bound_lp_row(p, 0), lacks = bound_lp_row(p, 0);
    bound_lp_put(p, wire, 0, 1);
    bound_lp_put(p, wire, 1, -s->cross_ns / unit);
    bound_lp_put(p, lacks, 1, b->n_layers - 1);
    for (int32_t r = 0; r < b->n_rows; r++)
        for (int32_t g = 0; g < b->n_classes; g++)
            if (s->count[1][g] && !isinf(b->layers[b->row[r]].work_ns[g]))
                bound_lp_put(p, lacks, column_of(b, 1, g, r, 0), -b->times[r]);
}

/* Least time of an iteration in ns; INFINITY: these devices cannot hold every layer. price: NULL, or (n_classes) the dual values
 * of a device's time on side 0, Σ count · price <= 1. */
static double compute_ns(struct bound_any *b, const struct sides *s, double *price)
{
    struct arena *scratch = arena_new();
    double unit = unit_ns(b);
    struct bound_lp *p = bound_lp_new(scratch, column_of(b, 2, 0, 0, 0));
    put_work(p, b, s, unit);
    put_layers(p, b, s);
    if (s->cross_ns > 0) put_crossing(p, b, s, unit);
    double ns = bound_lp_solve(p) * unit;
    for (int32_t g = 0, row = 0; price && g < b->n_classes; g++)
        price[g] = s->count[0][g] ? bound_lp_price(p, row++) : 0; /* put_work adds these rows first */
    arena_free(scratch);
    return ns;
}

static bool holds_all(const struct bound_any *b, const int64_t *count)
{
    for (int32_t r = 0; r < b->n_rows; r++) {
        bool held = false;
        for (int32_t g = 0; g < b->n_classes; g++)
            held |= count[g] > 0 && !isinf(b->layers[b->row[r]].work_ns[g]);
        if (!held) return false;
    }
    return true;
}

/* Gradients of all layers, and the narrowest cut between layers. false: some were not given. */
static bool traffic(const struct bound_any *b, double *bytes, double *narrow)
{
    *bytes = 0, *narrow = INFINITY;
    for (int32_t l = 0; l < b->n_layers; l++) {
        *bytes += b->layers[l].parameter_bytes;
        if (l + 1 < b->n_layers) *narrow = least(*narrow, b->layers[l].activation_bytes);
    }
    return *bytes < INFINITY && (b->n_layers == 1 || *narrow < INFINITY);
}

/* Minimum over the cases of a cut; stops once it is at most `enough`. all: the bound of compute. */
static double cut_ns(struct bound_any *b, const struct device_cut *c, double all, double enough)
{
    double bytes, narrow, both, cross;
    if (!traffic(b, &bytes, &narrow)) return 0;
    both = c->Bps > 0 ? 2 * bytes / c->Bps * 1e9 : INFINITY;
    cross = c->Bps > 0 ? 2 * b->batch * narrow / c->Bps * 1e9 : INFINITY;
    if (cross <= enough) return enough;
    int64_t *there = ARENA_ARRAY(b->arena, int64_t, (size_t)b->n_classes);
    for (int32_t g = 0; g < b->n_classes; g++) there[g] = b->count[g] - c->here[g];
    const int64_t *part[2] = {c->here, there};
    double t = both > all ? both : all;
    for (int side = 0; side < 2 && t > enough; side++)
        if (holds_all(b, part[side]))
            t = least(t, compute_ns(b, &(struct sides){{part[side], NULL}, 0}, NULL));
    for (int side = 0; side < 2 && t > enough && cross < INFINITY; side++)
        t = least(t, compute_ns(b, &(struct sides){{part[side], part[!side]}, cross}, NULL));
    return t;
}

/* The larger of what is known and what the messages between the parts of a family take. */
static double family_ns(const struct bound_any *b, const struct family *f, double known_ns)
{
    double bytes, narrow;
    if (!traffic(b, &bytes, &narrow)) return known_ns;
    struct arena *scratch = arena_new();
    struct bound_messages m = {.layers = ARENA_ARRAY(scratch, struct bound_layer_cost,
                                                     (size_t)b->n_layers),
                               .parts = ARENA_ARRAY(scratch, struct bound_part_kind, (size_t)f->n),
                               .n_layers = b->n_layers,
                               .n_parts = f->n,
                               .crossing_bytes = b->n_layers > 1 ? b->batch * narrow : 0};
    for (int32_t l = 0; l < b->n_layers; l++) {
        double work = INFINITY;
        for (int32_t g = 0; g < b->n_classes; g++)
            if (b->count[g])
                work = least(work, b->price_of_time[g] * b->batch * b->layers[l].work_ns[g]);
        m.layers[l] = (struct bound_layer_cost){work, b->layers[l].parameter_bytes};
    }
    for (int32_t i = 0; i < f->n; i++) {
        m.parts[i] = (struct bound_part_kind){0, f->parts[i].Bps, f->parts[i].times};
        for (int32_t g = 0; g < b->n_classes; g++)
            m.parts[i].share += b->price_of_time[g] * (double)f->parts[i].count[g];
    }
    double ns = bound_messages_ns(scratch, &m, known_ns);
    arena_free(scratch);
    return ns;
}

static double latency_ns(const struct bound_any *b)
{
    double ns = b->layers[0].weight_ns;
    for (int32_t l = 0; l < b->n_layers; l++) ns += b->layers[l].pass_ns;
    return ns / (double)b->most_on_node;
}

/* Safety margin: more than the rounding error of sums of some thousand doubles, plus 1 ns for rounding of times. */
static int64_t floored(double ns) { return ns > 1 ? (int64_t)(ns * (1 - 1e-9) - 1) : 0; }

/* Unit of money: all work with each layer at its least cost. */
static double unit_cost(const struct bound_any *b)
{
    double sum = 0;
    for (int32_t r = 0; r < b->n_rows; r++) {
        const struct layer *x = &b->layers[b->row[r]];
        double min_cost = INFINITY;
        for (int32_t g = 0; g < b->n_classes; g++)
            if (b->count[g] && !isinf(x->work_ns[g]))
                min_cost = least(min_cost, bound_money(b->price[g], b->batch * x->work_ns[g]));
        sum += b->times[r] * min_cost;
    }
    return sum;
}

/* Column 0 is money. One row sums the cost of busy time; one row per class limits busy time to the longest plan. */
static double work_cost(struct bound_any *b, double unit)
{
    struct arena *scratch = arena_new();
    struct bound_lp *p = bound_lp_new(scratch, column_of(b, 2, 0, 0, 0));
    int32_t paid = bound_lp_row(p, 0);
    bound_lp_put(p, paid, 0, 1);
    for (int32_t g = 0; g < b->n_classes; g++) {
        double most = (double)b->count[g] * b->most_ns;
        int32_t busy = most > 0 ? bound_lp_row(p, -1) : -1;
        for (int32_t r = 0; b->count[g] && r < b->n_rows; r++) {
            const struct layer *x = &b->layers[b->row[r]];
            if (isinf(x->work_ns[g])) continue;
            for (int update = 0; update < 2; update++) {
                double ns = b->times[r] * (update ? x->update_ns[g] : b->batch * x->work_ns[g]);
                int32_t column = column_of(b, 0, g, r, update);
                bound_lp_put(p, paid, column, -bound_money(b->price[g], ns) / unit);
                if (busy >= 0) bound_lp_put(p, busy, column, -ns / most);
            }
        }
    }
    put_layers(p, b, &(struct sides){{b->count, NULL}, 0});
    double cost = bound_lp_solve(p) * unit;
    arena_free(scratch);
    return cost;
}

/* Minus the margin of rounding: 1 ns of all devices. 0 if some class is free. */
static double min_cost(struct bound_any *b)
{
    double all = 0;
    for (int32_t g = 0; g < b->n_classes; g++) {
        if (b->count[g] && !(b->price[g] > 0)) return 0;
        all += (double)b->count[g] * b->price[g];
    }
    double cost = work_cost(b, unit_cost(b));
    if (isinf(cost)) return 0; /* no plan is so short, so the value is never used */
    cost = cost * (1 - 1e-9) - bound_money(all, 1);
    return cost > 0 ? cost : 0;
}

static const char *const class_texts[] = {
    [BOUND_STAGES_WHOLE] = "all plans without sharded operators, at the microbatch sizes tried",
    [BOUND_STAGES_ON_NODE] = "all plans whose operators are sharded inside a node or not at all, at the microbatch sizes tried",
    [BOUND_STAGES_ANY] = "all plans at the microbatch sizes tried"};

enum status bound_any_solve(struct bound_any *b, struct bound_certificate *out, struct error *err)
{
    *out = (struct bound_certificate){.binding = "compute of all devices",
                                      .class_text = class_texts[b->stages]};
    merge_layers(b);
    if (!holds_all(b, b->count))
        return error_set(err, ERR_INFEASIBLE, "some layer of the model fits no device");
    b->price_of_time = ARENA_ARRAY(b->arena, double, (size_t)b->n_classes);
    double all = compute_ns(b, &(struct sides){{b->count, NULL}, 0}, b->price_of_time), most = all;
    bool whole_layers = b->stages != BOUND_STAGES_ANY; /* on one side of every cut */
    if (whole_layers && latency_ns(b) > most) {
        most = latency_ns(b);
        out->binding = "latency of one microbatch";
    }
    for (size_t i = 0; whole_layers && i < b->n_cuts; i++) {
        double ns = cut_ns(b, &b->cuts[i], all, most);
        if (!(ns > most) || isinf(ns)) continue;
        most = ns;
        out->binding = b->cuts[i].name;
    }
    for (size_t i = 0; whole_layers && i < b->n_families; i++) {
        double ns = family_ns(b, &b->families[i], most);
        if (!(ns > most)) continue;
        most = ns;
        out->binding = b->families[i].name;
    }
    bool alone = false;
    double memory = bound_any_memory_ns(b, most, &alone);
    if (memory > most) {
        most = memory;
        out->binding = alone ? "memory of all devices: activations in flight beside parameters and "
                               "optimizer state"
                             : "compute of all devices, in microbatches that fit in their memory";
    }
    out->lower_bound_ns = floored(most);
    if (b->price) out->lower_cost = min_cost(b);
    return OK;
}
