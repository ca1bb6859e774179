/* tools/validate/plans_errors.c - errors of predicted rows: of each row, and their summary. */
#include "core/base/arena.h"
#include "tools/validate/plans.h"
#include "traces/quantile.h"

#include <math.h>

double validated_error(const struct validated_row *r, enum validated which)
{
    return r->why || !(r->measured_s[which] > 0) ? NAN : r->seconds / r->measured_s[which] - 1;
}

double validated_memory_error(const struct validated_row *r, enum validated which)
{
    return r->why || !(r->measured_bytes[which] > 0)
               ? NAN
               : (double)r->bytes / r->measured_bytes[which] - 1;
}

/* Ranks from 1, ties share their mean. */
static void ranks(const double *x, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t less = 0, equal = 0;
        for (int32_t k = 0; k < n; k++) less += x[k] < x[i], equal += x[k] == x[i];
        out[i] = less + (equal + 1) / 2.0;
    }
}

/* Spearman: Pearson's correlation of the ranks; 0 for fewer than two. */
static double rank_correlation(struct arena *a, const double *x, const double *y, int32_t n)
{
    double *p = ARENA_ARRAY(a, double, (size_t)n + 1), *q = ARENA_ARRAY(a, double, (size_t)n + 1);
    double xy = 0, xx = 0, yy = 0, mean = (n + 1) / 2.0;
    ranks(x, n, p), ranks(y, n, q);
    for (int32_t i = 0; i < n; i++) {
        xy += (p[i] - mean) * (q[i] - mean);
        xx += (p[i] - mean) * (p[i] - mean);
        yy += (q[i] - mean) * (q[i] - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

void validated_sum_up(struct arena *a, const struct validated_row *rows, int32_t n,
                      struct validated_summary *s)
{
    double *predicted = ARENA_ARRAY(a, double, (size_t)n + 1),
           *measured = ARENA_ARRAY(a, double, (size_t)n + 1),
           *errors = ARENA_ARRAY(a, double, (size_t)n + 1);
    int32_t timed[VALIDATED_N] = {0}, weighed[VALIDATED_N] = {0}, pairs = 0;
    *s = (struct validated_summary){.rows = n};
    for (int32_t i = 0; i < n; i++) {
        const struct validated_row *r = &rows[i];
        if (r->why) continue;
        s->predicted++;
        for (int w = 0; w < VALIDATED_N; w++) {
            double time = validated_error(r, (enum validated)w),
                   memory = validated_memory_error(r, (enum validated)w);
            if (!isnan(time)) s->time[w] += fabs(time), timed[w]++;
            if (!isnan(memory)) s->memory[w] += fabs(memory), weighed[w]++;
        }
        double error = validated_error(r, VALIDATED_MEAN),
               memory = validated_memory_error(r, VALIDATED_MEAN);
        if (!isnan(memory)) s->memory_bias += memory, s->weighed++;
        if (isnan(error)) continue;
        if (r->measured_s[VALIDATED_MAIN] > 0 && r->measured_s[VALIDATED_OTHER] > 0)
            s->noise += fabs(r->measured_s[VALIDATED_OTHER] / r->measured_s[VALIDATED_MAIN] - 1),
                pairs++;
        errors[s->timed] = fabs(error);
        predicted[s->timed] = r->seconds, measured[s->timed] = r->measured_s[VALIDATED_MEAN];
        s->time_bias += error, s->timed++;
    }
    for (int w = 0; w < VALIDATED_N; w++) {
        if (timed[w]) s->time[w] /= timed[w];
        if (weighed[w]) s->memory[w] /= weighed[w];
    }
    if (pairs) s->noise /= pairs;
    if (s->weighed) s->memory_bias /= s->weighed;
    if (!s->timed) return;
    s->time_bias /= s->timed;
    s->time_rank = rank_correlation(a, predicted, measured, s->timed);
    s->time_p90 = quantile(errors, (size_t)s->timed, 0.9);
}
