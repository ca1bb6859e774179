#include "sim/uncertainty/loading.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/jitter.h"

#include <inttypes.h>

static enum status check(const struct loading *l, struct error *err)
{
    if (l->loaders < 1 || l->prefetch < 1 || l->load_ns < 0 || !(l->cv >= 0 && l->cv <= 10))
        return error_set(err, ERR_USAGE,
                         "%" PRId32 " loaders, %" PRId32 " batches ahead, %" PRId64
                         " ns a batch, CV %g: must be >= 1, >= 1, >= 0 and 0 ... 10",
                         l->loaders, l->prefetch, l->load_ns, l->cv);
    return OK;
}

static int32_t first_free(const double *free_ns, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (free_ns[i] < free_ns[best]) best = i;
    return best;
}

enum status loading_walk(const struct loading *l, const double *step_ns, int64_t n, int64_t steps,
                         uint64_t seed, struct loading_result *out, struct error *err)
{
    TRY(check(l, err));
    if (n < 1 || steps < 1) return error_set(err, ERR_USAGE, "no steps");
    struct arena *scratch = arena_new();
    double *free_ns = ARENA_ARRAY(scratch, double, (size_t)l->loaders),
           *begun = ARENA_ARRAY(scratch, double, (size_t)l->prefetch); /* of the last steps */
    double end = 0, waited = 0, counted_from = 0;
    const int64_t warm = steps / 10;
    *out = (struct loading_result){0};
    for (int64_t k = 0; k < steps; k++) {
        int32_t loader = first_free(free_ns, l->loaders);
        double *slot = &begun[k % l->prefetch]; /* step k − prefetch, whose slot batch k reuses */
        double from = free_ns[loader] > *slot ? free_ns[loader] : *slot;
        double normal = l->cv > 0 ? rng_normal(seed, 2, (uint64_t)k) : 0;
        double ready = from + (double)l->load_ns * jitter_factor(l->cv, normal);
        double begin = ready > end ? ready : end;
        free_ns[loader] = ready;
        if (k == 0) out->first_ns = (int64_t)begin;
        if (k == warm) counted_from = end;
        if (k >= warm) waited += begin - end;
        *slot = begin;
        end = begin + step_ns[k % n];
    }
    out->step_ns = (end - counted_from) / (double)(steps - warm);
    out->waiting = end > counted_from ? waited / (end - counted_from) : 0;
    arena_free(scratch);
    return OK;
}

enum status loading_enough(const struct loading *l, const double *step_ns, int64_t n, int64_t steps,
                           uint64_t seed, double share, int32_t most, int32_t *out,
                           struct error *err)
{
    *out = 0;
    TRY(check(l, err));
    for (int32_t w = 1; w <= most; w++) {
        struct loading more = *l;
        struct loading_result r;
        more.loaders = w;
        int64_t ahead = ((int64_t)l->prefetch * w + l->loaders - 1) / l->loaders;
        more.prefetch = ahead > w + 1 ? (int32_t)ahead : w + 1;
        TRY(loading_walk(&more, step_ns, n, steps, seed, &r, err));
        if (r.waiting >= share) continue;
        *out = w;
        break;
    }
    return OK;
}
