#include "planner/search_check.h"

#include <stdio.h>
#include <string.h>

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
