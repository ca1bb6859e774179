/* core/exchange.c - sizes of parts. */
#include "core/exchange.h"

#include <stddef.h>

int64_t division_extent(const struct division *d, int32_t member)
{
    int64_t n = 0;
    for (int32_t r = 0; r < d->n_runs; r++) n += d->run[member * d->n_runs + r].n;
    return n;
}

bool division_equal(const struct division *a, const struct division *b)
{
    if (a == b) return true;
    if (a->n != b->n || a->n_runs != b->n_runs || a->whole != b->whole) return false;
    for (int32_t i = 0; i < a->n * a->n_runs; i++)
        if (a->run[i].first != b->run[i].first || a->run[i].n != b->run[i].n) return false;
    return true;
}
