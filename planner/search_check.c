#include "planner/search_check.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/lower/lower.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The type of the first device whose type states no price; NULL: all do. *any: some price is not zero. */
static const struct device_type *unpriced(const struct cluster *c, bool *any)
{
    const struct device_type *first = NULL;
    *any = false;
    for (int32_t d = c->n_devices - 1; d >= 0; d--) {
        const struct device_type *t = &c->types[c->devices[d].type];
        *any |= t->price_per_h > 0;
        if (!t->priced) first = t;
    }
    return first;
}

enum status search_check_objective(const struct cluster *c, const struct search_options *o,
                                   struct error *err)
{
    bool any;
    char listed[128] = "";
    const struct device_type *x = unpriced(c, &any);
    if (o->objective == OBJECTIVE_RATE && !(o->max_cost > 0))
        return error_set(err, ERR_USAGE, "objective rate needs a budget: give --max-cost");
    if ((o->objective != OBJECTIVE_COST && !(o->max_cost > 0)) || (any && !x)) return OK;
    if (!x)
        return error_set(err, ERR_INPUT,
                         "all device types of cluster '%s' are free (price: 0/h), so that every plan costs the same",
                         c->name);
    double price = x->list_price_per_h > 0 ? x->list_price_per_h : 3.2;
    if (x->list_price_per_h > 0)
        snprintf(listed, sizeof listed, "; %.4g is the catalogue's price of %.40s in USD", price,
                 x->catalogue);
    return error_set(err, ERR_INPUT,
                     "device type '%s' of cluster '%s' has no price, and cost is the objective or limited: write price: %.4g/h, or "
                     "price: 0/h if it is free%s",
                     x->name, c->name, price, listed);
}

/* A gradient and the optimizer's tensors are in the master precision, which half-precision parameters have a copy of. */
static int64_t least_bytes(const struct job *j, const struct graph *g, bool offloads)
{
    int64_t master = dtype_bytes(dtype_master(g->dtype)), bytes = 0;
    int64_t state = offloads ? 0 : optimizer_state_tensors(&j->optimizer) + dtype_is_half(g->dtype);
    int64_t each = master * (1 + state);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER) continue;
        int64_t own = graph_tensor_bytes(g, t);
        bytes += own + own / dtype_bytes(g->dtype) * each;
    }
    return bytes;
}

const char *search_check_offload_hint(const struct cluster *c)
{
    for (int32_t i = 0; i < c->n_types; i++)
        if (c->types[i].offloads || !strcmp(c->types[i].catalogue, "host")) return "";
    return "; --offload TYPE (offload: optimizer in the cluster file) would keep the optimizer's state in host memory";
}

enum status search_check_offload(struct cost *k, struct error *err)
{
    const struct cluster *c = cost_cluster(k);
    for (int32_t i = 0; i < c->n_types; i++) {
        int64_t ns;
        if (!c->types[i].offloads_activations) continue;
        if (c->emulated && !(c->types[i].host_Bps > 0))
            return error_set(err, ERR_INPUT, "device type '%s': offload: activations of an emulated device needs host_bandwidth, e.g. 24 GB/s",
                             c->types[i].name);
        TRY(cost_host_copy_ns(k, i, 1, &ns, err));
    }
    return OK;
}

enum status search_check_memory(const struct job *j, const struct cluster *c, struct error *err)
{
    struct arena *a = arena_new();
    struct graph *g;
    int64_t has = 0, needs = 0;
    char need[32], all[32];
    bool offloads = false;
    for (int32_t i = 0; i < c->n_types; i++) offloads |= c->types[i].offloads;
    for (int32_t i = 0; i < c->n_devices; i++) has += c->types[c->devices[i].type].memory_bytes;
    enum status st = j->model.measured ? OK : lower_graph(a, j, 1, &g, err);
    if (st == OK && !j->model.measured) needs = least_bytes(j, g, offloads);
    arena_free(a);
    if (st != OK || needs <= has) return st;
    return error_set(err, ERR_INFEASIBLE,
                     SEARCH_NO_PLAN "parameters, gradients and optimizer state of the model take %s, divided over devices "
                     "without any copy, and all %d device%s of cluster '%s' have %s; about %.0f devices of the same types would "
                     "hold them, and activations need memory beside them%s",
                     units_print_bytes(need, needs), (int)c->n_devices, c->n_devices == 1 ? "" : "s", c->name,
                     units_print_bytes(all, has), ceil((double)needs / (double)has * (double)c->n_devices),
                     search_check_offload_hint(c));
}

int32_t search_check_sizes(const struct job *j, const struct plan *from, int64_t sizes[16])
{
    if (j->n_microbatches_sizes) {
        memcpy(sizes, j->microbatch_sizes, sizeof j->microbatch_sizes);
        return j->n_microbatches_sizes;
    }
    int32_t n = 0;
    for (int64_t b = 1; b <= 64; b *= 2) {
        if (j->global_batch % b == 0) sizes[n++] = b;
        if (b > 1 && b < 64 && j->global_batch % (b / 2 * 3) == 0) sizes[n++] = b / 2 * 3;
    }
    int64_t own = from ? from->microbatch : 0;
    int32_t at = n;
    while (at > 0 && sizes[at - 1] > own) at--;
    if (own < 1 || j->global_batch % own || (at && sizes[at - 1] == own)) return n;
    memmove(&sizes[at + 1], &sizes[at], (size_t)(n - at) * sizeof *sizes);
    sizes[at] = own;
    return n + 1;
}
