/* core/graph/exchange.c - sizes of shards. */
#include "core/graph/exchange.h"

#include <stddef.h>

int64_t division_extent(const struct division *d, int32_t member)
{
    int64_t n = 0;
    for (int32_t r = 0; r < d->n_runs; r++) n += d->run[member * d->n_runs + r].n;
    return n;
}
