#include "sim/uncertainty/montecarlo.h"

#include "core/base/arena.h"
#include "core/base/parallel.h"
#include "core/base/units.h"
#include "sim/engine/sim.h"
#include "traces/quantile.h"

#include <math.h>

/* Three numbers per sample and device are kept until all samples are done. */
#define MONTECARLO_MAX_BYTES ((size_t)4 << 30)

/* --- summaries -------------------------------------------------------------------------------- */

static double binomial(int64_t k, int64_t n, double share)
{
    return exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) +
               (double)k * log(share) + (double)(n - k) * log1p(-share));
}

/* The number of samples below the quantile is binomial. low: the largest index x with P(sorted[x] > quantile) =
 * P(at most x below) <= 2.5 %; high: the smallest with P(sorted[x] < quantile) = P(more than x below) <= 2.5 %. */
static struct montecarlo_end end_of(const double *sorted, int64_t n, double share)
{
    double rank = ceil(share * (double)n - 1e-9), at_most = 0;
    int64_t at = rank < 1 ? 0 : (int64_t)rank - 1, low = at, high = at;
    if (at >= n) at = low = high = n - 1;
    for (int64_t i = 0; i <= at; i++) at_most += binomial(i, n, share);
    for (double p = at_most; low >= 0 && p > 0.025; low--) p -= binomial(low, n, share);
    for (double p = at_most; high < n && p < 0.975;) p += binomial(++high, n, share);
    return (struct montecarlo_end){sorted[at], sorted[low < 0 ? 0 : low],
                                   sorted[high < n ? high : n - 1], low >= 0 && high < n};
}

void montecarlo_summarise(double *values, int64_t n, struct montecarlo_summary *out)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    double variance = n > 1 ? squares / (double)(n - 1) : 0;
    quantile(values, (size_t)n, 0.5); /* sorts */
    *out = (struct montecarlo_summary){.mean = mean,
                                       .error = sqrt(variance / (double)n),
                                       .p5 = end_of(values, n, 0.05),
                                       .p50 = end_of(values, n, 0.5),
                                       .p95 = end_of(values, n, 0.95)};
}

/* --- simulations ------------------------------------------------------------------------------ */

struct worker {
    struct arena *lasting, *sample; /* sample: reset after each */
    struct cost *cost;
    int64_t failed; /* smallest index that failed here; -1 */
    enum status status;
    struct error error;
};
struct experiment {
    const struct program *program;
    const struct profile *profile;
    const struct cluster *cluster;
    const struct jitter *jitter;
    const struct montecarlo_options *options;
    struct worker *workers; /* (threads) */
    double *iteration_ns;   /* (samples) */
    double *busy_ns, *idle_ns;
    int64_t *peak_bytes; /* (n_devices, samples) */
};

static void simulate(void *user, int64_t i, int32_t thread)
{
    struct experiment *x = user;
    struct worker *w = &x->workers[thread];
    struct sim_result r;
    struct error err = {0};
    if (w->failed >= 0) return; /* indices only grow, so a later failure cannot be the first */
    arena_reset(w->sample);
    struct sim_options o = {.steps = x->options->steps,
                            .jitter = jitter_sample(w->sample, x->jitter, i)};
    enum status st = sim_run(w->sample, x->program, w->cost, &o, &r, &err);
    if (st != OK) {
        w->failed = i, w->status = st, w->error = err;
        return;
    }
    x->iteration_ns[i] = (double)r.iteration_ns;
    for (int32_t d = 0; d < x->program->n_devices; d++) {
        int64_t at = (int64_t)d * x->options->samples + i;
        x->busy_ns[at] = (double)r.devices[d].busy_ns;
        x->idle_ns[at] = (double)r.devices[d].idle_ns;
        x->peak_bytes[at] = r.devices[d].peak_bytes;
    }
}

static enum status first_failure(const struct experiment *x, struct error *err)
{
    const struct worker *first = NULL;
    for (int32_t i = 0; i < x->options->threads; i++) {
        const struct worker *w = &x->workers[i];
        if (w->failed >= 0 && (!first || w->failed < first->failed)) first = w;
    }
    return first ? error_set(err, first->status, "%s", first->error.text) : OK;
}

static void reduce(struct arena *a, struct experiment *x, struct montecarlo_result *out)
{
    int64_t n = x->options->samples;
    int32_t n_devices = x->program->n_devices;
    double *copy = ARENA_ARRAY(a, double, (size_t)n);
    for (int64_t i = 0; i < n; i++) copy[i] = x->iteration_ns[i];
    *out = (struct montecarlo_result){
        .samples = (int32_t)n,
        .iteration_ns = x->iteration_ns,
        .devices = ARENA_ARRAY(a, struct montecarlo_device, (size_t)n_devices)};
    montecarlo_summarise(copy, n, &out->iteration);
    for (int32_t d = 0; d < n_devices; d++) {
        struct montecarlo_device *y = &out->devices[d];
        for (int64_t i = 0; i < n; i++)
            if (x->peak_bytes[d * n + i] > y->peak_bytes) y->peak_bytes = x->peak_bytes[d * n + i];
        montecarlo_summarise(&x->busy_ns[d * n], n, &y->busy_ns);
        montecarlo_summarise(&x->idle_ns[d * n], n, &y->idle_ns);
    }
}

enum status montecarlo_run(struct arena *a, const struct program *p, const struct profile *f,
                           const struct cluster *c, const struct jitter_model *m, uint64_t seed,
                           const struct montecarlo_options *o, struct montecarlo_result *out,
                           struct error *err)
{
    if (o->samples < 1 || o->threads < 1)
        return error_set(err, ERR_USAGE, "%d samples on %d threads: at least one of each",
                         (int)o->samples, (int)o->threads);
    struct jitter *jitter = NULL;
    size_t n = (size_t)o->samples, cells = n * (size_t)p->n_devices,
           bytes = cells * (2 * sizeof(double) + sizeof(int64_t));
    char one[32], most[32];
    if (bytes > MONTECARLO_MAX_BYTES)
        return error_set(err, ERR_RESOURCE,
                         "%d samples of %d devices take %s of memory; at most %s are allowed: take "
                         "fewer samples",
                         (int)o->samples, (int)p->n_devices, units_print_bytes(one, (double)bytes),
                         units_print_bytes(most, (double)MONTECARLO_MAX_BYTES));
    TRY(jitter_new(a, p, f, c, m, seed, &jitter, err));
    struct experiment x = {.program = p,
                           .profile = f,
                           .cluster = c,
                           .jitter = jitter,
                           .options = o,
                           .workers = ARENA_ARRAY(a, struct worker, (size_t)o->threads),
                           .iteration_ns = ARENA_ARRAY(a, double, n),
                           .busy_ns = ARENA_ARRAY(a, double, cells),
                           .idle_ns = ARENA_ARRAY(a, double, cells),
                           .peak_bytes = ARENA_ARRAY(a, int64_t, cells)};
    for (int32_t i = 0; i < o->threads; i++) {
        struct worker *w = &x.workers[i];
        *w = (struct worker){.lasting = arena_new(), .sample = arena_new(), .failed = -1};
        w->cost = cost_new(w->lasting, f, c);
    }
    parallel_each(o->samples, o->threads, simulate, &x);
    enum status st = first_failure(&x, err);
    if (st == OK) reduce(a, &x, out);
    for (int32_t i = 0; i < o->threads; i++) {
        arena_free(x.workers[i].lasting);
        arena_free(x.workers[i].sample);
    }
    return st;
}
