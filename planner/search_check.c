#include "planner/search_check.h"

#include <stdio.h>
#include <string.h>

bool search_check_takes_one(const struct search_options *o)
{
    bool one = !o->tensor;
    for (int32_t i = 0; o->tensor && i < o->n_tensor; i++) one |= o->tensor[i] == 1;
    return one;
}

bool search_check_takes_several(const struct search_options *o)
{
    bool more = false;
    for (int32_t i = 0; o->tensor && i < o->n_tensor; i++) more |= o->tensor[i] > 1;
    return more;
}

enum status search_check_objective(const struct cluster *c, const struct search_options *o,
                                   struct error *err)
{
    bool prices = false;
    char listed[160] = "";
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct device_type *x = &c->types[t];
        prices |= x->price_per_h > 0;
        if (!*listed && x->list_price_per_h > 0)
            snprintf(listed, sizeof listed,
                     "; the catalogue lists %.4g USD/h for %.40s ('musher devices --json')",
                     x->list_price_per_h, x->catalogue);
    }
    if ((o->objective == OBJECTIVE_COST || o->max_cost > 0) && !prices)
        return error_set(err, ERR_INPUT,
                         "no device type of cluster '%s' has a price (for example price: 3.2/h)%s",
                         c->name, listed);
    if (o->objective == OBJECTIVE_RATE && !(o->max_cost > 0))
        return error_set(err, ERR_USAGE, "objective rate needs a budget: give --max-cost");
    return OK;
}

/* Whether any node has tp equal GPUs that are single devices. */
static bool has_gpus(const struct cluster *c, int32_t tp)
{
    for (int32_t n = 0; n < c->n_nodes; n++) {
        const struct device *d = &c->devices[c->nodes[n].first_device];
        for (int32_t i = 0; i < c->nodes[n].n_devices; i++) {
            int32_t equal = 0;
            for (int32_t k = 0; k < c->nodes[n].n_devices; k++) equal += d[k].type == d[i].type;
            if (equal >= tp && c->types[d[i].type].tensor_parallel <= 1) return true;
        }
    }
    return false;
}

enum status search_check_tensor(const struct cluster *c, const struct search_options *o,
                                struct error *err)
{
    if (o->baseline || search_check_takes_one(o)) return OK;
    int32_t least = o->tensor[0];
    for (int32_t i = 0; i < o->n_tensor; i++) {
        if (has_gpus(c, o->tensor[i])) return OK;
        if (o->tensor[i] < least) least = o->tensor[i];
    }
    return error_set(err, ERR_INPUT,
                     "no node of cluster '%s' has %d equal GPUs for tensor parallelism; degree 1 "
                     "uses single GPUs",
                     c->name, (int)least);
}

int32_t search_check_sizes(const struct job *j, int64_t sizes[16])
{
    if (j->n_microbatches_sizes) {
        memcpy(sizes, j->microbatch_sizes, sizeof j->microbatch_sizes);
        return j->n_microbatches_sizes;
    }
    int32_t n = 0;
    for (int64_t b = 1; b <= 64 && b <= j->global_batch; b *= 2)
        if (j->global_batch % b == 0) sizes[n++] = b;
    return n;
}
