/* tools/print/unused.h - the devices of a cluster that a plan does not use, and why. */
#ifndef TOOLS_PRINT_UNUSED_H
#define TOOLS_PRINT_UNUSED_H

#include "core/plan/plan.h"

struct arena;

struct unused {
    int32_t n;
    const char **names; /* (n) in the order of the cluster */
    bool *apart;        /* (n) no link, over any switches, joins it to a device of the plan */
};
/* c: the cluster as given. O(devices + links). */
void unused_find(struct arena *a, const struct cluster *c, const struct plan *p,
                 struct unused *out);
/* cost: the search was for the cheapest plan, not the fastest. */
void unused_print(struct arena *a, const struct unused *x, bool cost);

#endif
