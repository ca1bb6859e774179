/* tools/adapt_factors.h - factors by which devices or links are slower, for another cluster that has some of them. */
#ifndef TOOLS_ADAPT_FACTORS_H
#define TOOLS_ADAPT_FACTORS_H

#include "core/cluster/cluster.h"

struct arena;

/* (n_to) factors of `to`, by name, from the first n of those of `from`; 1 of what only `to` has. name: of a device or link. */
double *adapt_factors_follow(struct arena *a, const double *factors, int32_t n, const char *(*name)(const struct cluster *c, int32_t i), const struct cluster *from,
                     int32_t n_to, const struct cluster *to);
const char *adapt_factors_device(const struct cluster *c, int32_t i);
const char *adapt_factors_link(const struct cluster *c, int32_t i);

#endif
