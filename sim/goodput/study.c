/* Repeated runs, the best checkpoint interval, and the closed forms for comparison. */
#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "core/base/parallel.h"
#include "core/base/units.h"

#include <math.h>

const char *goodput_part_name(enum goodput_part p)
{
    static const char *const names[] = {
#define X(name, help) #name,
        GOODPUT_PARTS(X)
#undef X
    };
    return names[p];
}

const char *goodput_part_help(enum goodput_part p)
{
    static const char *const helps[] = {
#define X(name, help) help,
        GOODPUT_PARTS(X)
#undef X
    };
    return helps[p];
}

/* --- many walks ------------------------------------------------------------------------------- */

struct study {
    const struct goodput_job *job;
    int64_t interval_ns;
    uint64_t seed;
    struct arena **arenas; /* (threads), reset by each walk */
    size_t width;          /* numbers of a tally */
    double *rows;          /* (samples, width) */
    struct error *errors;  /* (samples); code OK: none */
};

/* A tally as a row of numbers, and back, so that totals are one loop. */
static size_t flatten(const struct goodput_job *j, struct goodput_tally *t, double *row, bool back)
{
    size_t n = 0;
#define PUT(x)                                                                                     \
    do {                                                                                           \
        if (back)                                                                                  \
            (x) = row[n];                                                                          \
        else if (row)                                                                              \
            row[n] = (x);                                                                          \
        n++;                                                                                       \
    } while (0)
    PUT(t->elapsed_ns);
    for (int p = 0; p < GOODPUT_PART_COUNT; p++) PUT(t->part_ns[p]);
    PUT(t->checkpoints);
    PUT(t->memory_checkpoints);
    PUT(t->replans);
    PUT(t->preemptions);
    PUT(t->reconfigurations);
    for (size_t i = 0; i < j->n_causes; i++) PUT(t->failures[i]);
    for (size_t i = 0; i <= j->n_causes; i++) PUT(t->cause_ns[i]);
#undef PUT
    return n;
}

static void walk(void *user, int64_t i, int32_t thread)
{
    struct study *s = user;
    struct goodput_tally t;
    arena_reset(s->arenas[thread]);
    struct error err = {0};
    if (goodput_walk(s->arenas[thread], s->job, s->interval_ns, s->seed, i, &t, &err) != OK)
        s->errors[i] = err;
    else
        flatten(s->job, &t, &s->rows[(size_t)i * s->width], false);
}

static enum status reduce(struct arena *a, struct study *s, int32_t samples,
                          struct goodput_result *out, struct error *err)
{
    double *goodput = ARENA_ARRAY(a, double, (size_t)samples),
           *mean = ARENA_ARRAY(a, double, s->width);
    for (int32_t i = 0; i < samples; i++) {
        const double *row = &s->rows[(size_t)i * s->width];
        if (s->errors[i].code != OK)
            return error_set(err, s->errors[i].code, "%s", s->errors[i].text);
        for (size_t k = 0; k < s->width; k++) mean[k] += row[k] / samples;
        goodput[i] = row[0] > 0 ? row[1 + GOODPUT_useful] / row[0] : 0;
    }
    *out =
        (struct goodput_result){.interval_ns = s->interval_ns,
                                .mean = {.failures = ARENA_ARRAY(a, double, s->job->n_causes),
                                         .cause_ns = ARENA_ARRAY(a, double, s->job->n_causes + 1)}};
    flatten(s->job, &out->mean, mean, true);
    montecarlo_summarise(goodput, samples, &out->goodput);
    return OK;
}

enum status goodput_study(struct arena *a, const struct goodput_job *job, int64_t interval_ns,
                          uint64_t seed, int32_t samples, int32_t threads,
                          struct goodput_result *out, struct error *err)
{
    if (samples < 1 || threads < 1)
        return error_set(err, ERR_USAGE, "%d samples on %d threads: at least one of each",
                         (int)samples, (int)threads);
    struct arena *scratch = arena_new();
    struct goodput_tally none = {.failures = ARENA_ARRAY(scratch, double, job->n_causes),
                                 .cause_ns = ARENA_ARRAY(scratch, double, job->n_causes + 1)};
    struct study s = {.job = job, .interval_ns = interval_ns, .seed = seed};
    s.width = flatten(job, &none, NULL, false);
    s.arenas = ARENA_ARRAY(scratch, struct arena *, (size_t)threads);
    s.rows = ARENA_ARRAY(scratch, double, (size_t)samples *s.width);
    s.errors = ARENA_ARRAY(scratch, struct error, (size_t)samples);
    for (int32_t i = 0; i < threads; i++) s.arenas[i] = arena_new();
    parallel_each(samples, threads, walk, &s);
    enum status st = reduce(a, &s, samples, out, err);
    for (int32_t i = 0; i < threads; i++) arena_free(s.arenas[i]);
    arena_free(scratch);
    return st;
}

/* --- the best interval ------------------------------------------------------------------------ */

enum { GOLDEN_STUDIES = 18 };

enum status goodput_best(struct arena *a, const struct goodput_job *job, int64_t first_ns,
                         int64_t last_ns, uint64_t seed, int32_t samples, int32_t threads,
                         struct goodput_result *out, struct error *err)
{
    const double share = (sqrt(5) - 1) / 2;
    double low = log((double)first_ns), high = log((double)last_ns);
    double x[2] = {high - share * (high - low), low + share * (high - low)};
    struct goodput_result r[2];
    for (int i = 0; i < 2; i++)
        TRY(goodput_study(a, job, llround(exp(x[i])), seed, samples, threads, &r[i], err));
    for (int i = 0; i < GOLDEN_STUDIES; i++) {
        int worse = r[0].goodput.mean < r[1].goodput.mean ? 0 : 1;
        if (worse)
            high = x[1], x[1] = x[0], r[1] = r[0], x[0] = high - share * (high - low);
        else
            low = x[0], x[0] = x[1], r[0] = r[1], x[1] = low + share * (high - low);
        int at = worse ? 0 : 1;
        TRY(goodput_study(a, job, llround(exp(x[at])), seed, samples, threads, &r[at], err));
    }
    *out = r[r[0].goodput.mean < r[1].goodput.mean];
    return OK;
}

/* --- closed forms ----------------------------------------------------------------------------- */

double goodput_mtbf(const struct goodput_job *job)
{
    double rate = 0;
    for (size_t i = 0; i < job->n_causes; i++) rate += 1 / job->causes[i].mtbf_s;
    return 1 / rate;
}

double goodput_slowdown_restless(double t, double C, double R, double M)
{
    return isfinite(M) ? M * exp(R / M) * expm1((t + C) / M) / t : (t + C) / t;
}

/* (1 − u) e^(u + C/M) falls from e^(C/M) >= 1 at u = t/M = 0 to 0 at 1. */
double goodput_optimum(double C, double M)
{
    double low = 0, high = 1;
    if (!isfinite(M)) return INFINITY;
    for (int i = 0; i < 100; i++) {
        double u = (low + high) / 2;
        if ((1 - u) * exp(u + C / M) > 1)
            low = u;
        else
            high = u;
    }
    return M * (low + high) / 2;
}
