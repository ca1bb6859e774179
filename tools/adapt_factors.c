#include "tools/adapt_factors.h"

#include "core/base/arena.h"

#include <string.h>

double *adapt_factors_follow(struct arena *a, const double *factors, int32_t n, const char *(*name)(const struct cluster *c, int32_t i), const struct cluster *from,
                      int32_t n_to, const struct cluster *to)
{
    double *out = ARENA_ARRAY(a, double, (size_t)n_to + 1);
    for (int32_t k = 0; k < n_to; k++) out[k] = 1;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n_to; k++)
            if (!strcmp(name(from, i), name(to, k))) out[k] = factors[i];
    return out;
}

const char *adapt_factors_device(const struct cluster *c, int32_t i) { return c->devices[i].name; }
const char *adapt_factors_link(const struct cluster *c, int32_t i) { return c->links[i].name; }
