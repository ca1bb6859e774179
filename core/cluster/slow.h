/* core/cluster/slow.h - devices that are slower or faster than their type. */
#ifndef CORE_CLUSTER_SLOW_H
#define CORE_CLUSTER_SLOW_H

#include "core/cluster/cluster.h"

/* Each operator of n devices from `first` on takes `factor` times as long: they get types of their own, whose slowdown is multiplied. *out may be the
 * same struct as *c. */
void cluster_slow(struct arena *a, const struct cluster *c, int32_t first, int32_t n, double factor, struct cluster *out);

#endif
