#include "core/collective/part.h"

#include "core/base/arena.h"

struct shape part_whole(const struct shape *shape, const struct tensor_part *part)
{
    struct shape s = *shape;
    for (int32_t c = 0; part && c < part->n_cuts; c++) s.dim[part->cut[c].dim] = part->cut[c].whole;
    return s;
}

struct region part_region(struct arena *a, const struct shape *shape,
                          const struct tensor_part *part)
{
    struct region r = {.shape = part_whole(shape, part)};
    for (int32_t d = 0; d < shape->rank; d++)
        for (int32_t c = 0; c < part->n_cuts; c++) {
            if (part->cut[c].dim != d) continue;
            int32_t n = part->cut[c].n_runs;
            int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)n),
                    *count = ARENA_ARRAY(a, int64_t, (size_t)n);
            for (int32_t k = 0; k < n; k++)
                first[k] = part->cut[c].run[k].first, count[k] = part->cut[c].run[k].n;
            r.dim[r.n_dims].dimension = d, r.dim[r.n_dims].n_runs = n;
            r.dim[r.n_dims].first = first, r.dim[r.n_dims++].count = count;
        }
    return r;
}

bool part_valid(const struct shape *shape, const struct tensor_part *part)
{
    if (part->n_cuts < 0 || part->n_cuts > CUTS_MAX) return false;
    for (int32_t c = 0; c < part->n_cuts; c++) {
        int64_t at = 0, n = 0;
        int32_t dim = part->cut[c].dim;
        if (dim < 0 || dim >= shape->rank || part->cut[c].n_runs < 1 ||
            part->cut[c].n_runs > RUNS_MAX || (c && part->cut[0].dim == dim))
            return false;
        for (int32_t k = 0; k < part->cut[c].n_runs; k++) {
            const struct run *r = &part->cut[c].run[k];
            if (r->first < at || r->n < 0 || r->n > part->cut[c].whole - r->first) return false;
            at = r->first + r->n, n += r->n;
        }
        if (n != shape->dim[dim]) return false;
    }
    return true;
}

bool part_equal(const struct tensor_part *a, const struct tensor_part *b)
{
    if (a->n_cuts != b->n_cuts) return false;
    for (int32_t c = 0; c < a->n_cuts; c++) {
        if (a->cut[c].dim != b->cut[c].dim || a->cut[c].n_runs != b->cut[c].n_runs ||
            a->cut[c].whole != b->cut[c].whole)
            return false;
        for (int32_t k = 0; k < a->cut[c].n_runs; k++)
            if (a->cut[c].run[k].first != b->cut[c].run[k].first ||
                a->cut[c].run[k].n != b->cut[c].run[k].n)
                return false;
    }
    return true;
}
