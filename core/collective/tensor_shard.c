#include "core/collective/tensor_shard.h"

#include "core/base/arena.h"

struct shape tensor_shard_whole(const struct shape *shape, const struct tensor_shard *shard)
{
    struct shape s = *shape;
    for (int32_t c = 0; shard && c < shard->n_cuts; c++)
        s.dim[shard->cut[c].dim] = shard->cut[c].whole;
    return s;
}

/* Indices of dimension 0 of the named tensor, one run for each that order moves to another neighbour. */
static void reorder(struct arena *a, struct region *r, const int32_t *order)
{
    int64_t all = r->shape.dim[0], n = 0;
    bool cut = r->n_dims && r->dim[0].dimension == 0;
    int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)all), *count = ARENA_ARRAY(a, int64_t, (size_t)all);
    for (int32_t k = 0; k < (cut ? r->dim[0].n_runs : 1); k++) {
        int64_t begin = cut ? r->dim[0].first[k] : 0, end = begin + (cut ? r->dim[0].count[k] : all);
        for (int64_t i = begin; i < end; i++) {
            if (n && first[n - 1] + count[n - 1] == order[i])
                count[n - 1]++;
            else
                first[n] = order[i], count[n++] = 1;
        }
    }
    if (!cut) {
        for (int32_t d = r->n_dims++; d > 0; d--) r->dim[d] = r->dim[d - 1];
        r->dim[0].dimension = 0;
    }
    r->dim[0].n_runs = (int32_t)n, r->dim[0].first = first, r->dim[0].count = count;
}

struct region tensor_shard_region(struct arena *a, const struct shape *shape,
                                  const struct tensor_shard *shard)
{
    struct region r = {.shape = tensor_shard_whole(shape, shard)};
    for (int32_t d = 0; d < shape->rank; d++)
        for (int32_t c = 0; c < shard->n_cuts; c++) {
            if (shard->cut[c].dim != d) continue;
            int32_t n = shard->cut[c].n_runs;
            int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)n),
                    *count = ARENA_ARRAY(a, int64_t, (size_t)n);
            for (int32_t k = 0; k < n; k++)
                first[k] = shard->cut[c].run[k].first, count[k] = shard->cut[c].run[k].n;
            r.dim[r.n_dims].dimension = d, r.dim[r.n_dims].n_runs = n;
            r.dim[r.n_dims].first = first, r.dim[r.n_dims++].count = count;
        }
    if (shard->order) reorder(a, &r, shard->order);
    return r;
}

bool tensor_shard_valid(const struct shape *shape, const struct tensor_shard *shard)
{
    if (shard->n_cuts < 0 || shard->n_cuts > CUTS_MAX) return false;
    for (int32_t c = 0; c < shard->n_cuts; c++) {
        int64_t at = 0, n = 0;
        int32_t dim = shard->cut[c].dim;
        if (dim < 0 || dim >= shape->rank || shard->cut[c].n_runs < 1 ||
            shard->cut[c].n_runs > RUNS_MAX || (c && shard->cut[0].dim == dim))
            return false;
        for (int32_t k = 0; k < shard->cut[c].n_runs; k++) {
            const struct run *r = &shard->cut[c].run[k];
            if (r->first < at || r->n < 0 || r->n > shard->cut[c].whole - r->first) return false;
            at = r->first + r->n, n += r->n;
        }
        if (n != shape->dim[dim]) return false;
    }
    return true;
}

bool tensor_shard_equal(const struct tensor_shard *a, const struct tensor_shard *b)
{
    if (a->n_cuts != b->n_cuts || a->order != b->order) return false;
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

int64_t tensor_shard_part_overlap(const struct shape *whole, const struct tensor_shard *x,
                                  const struct tensor_shard *y)
{
    int64_t n = 1;
    for (int32_t d = 0; d < whole->rank; d++) {
        const struct run all = {0, whole->dim[d]}, *a = &all, *b = &all;
        int32_t na = 1, nb = 1;
        for (int32_t c = 0; c < x->n_cuts; c++)
            if (x->cut[c].dim == d) a = x->cut[c].run, na = x->cut[c].n_runs;
        for (int32_t c = 0; c < y->n_cuts; c++)
            if (y->cut[c].dim == d) b = y->cut[c].run, nb = y->cut[c].n_runs;
        int64_t sum = 0;
        for (int32_t i = 0; i < na; i++)
            for (int32_t k = 0; k < nb; k++) {
                int64_t first = a[i].first > b[k].first ? a[i].first : b[k].first,
                        end = a[i].first + a[i].n;
                if (b[k].first + b[k].n < end) end = b[k].first + b[k].n;
                sum += end > first ? end - first : 0;
            }
        n *= sum;
    }
    return n;
}
