#include "tools/print/goodput.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/model/checkpoint_interval.h"
#include "tools/common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { CAUSES_SHOWN = 6 };

static const char *span_text(char buffer[32], double s)
{
    if (!isfinite(s))
        snprintf(buffer, 32, "never");
    else if (s < 1e-9)
        snprintf(buffer, 32, "0 s");
    else if (s < 120)
        snprintf(buffer, 32, "%.3g s", s);
    else if (s < 7200)
        snprintf(buffer, 32, "%.3g min", s / 60);
    else if (s < 2 * 86400)
        snprintf(buffer, 32, "%.3g h", s / 3600);
    else
        snprintf(buffer, 32, "%.4g days", s / 86400);
    return buffer;
}

/* The closed form has no detection, background copy, repair or withdrawals; its restart is the total cost of an interruption. */
static double closed_form(const struct goodput_report *s, double t)
{
    double R = units_s_from_ns(s->job.detect_ns + s->job.restart_ns);
    return 1 / goodput_slowdown_restless(t, s->C, R, s->M);
}

static void print_causes(struct arena *a, const struct goodput_report *s)
{
    const struct goodput_tally *m = &s->best.mean;
    size_t n = s->job.n_causes + 1;
    bool *printed = ARENA_ARRAY(a, bool, n);
    for (int shown = 0; shown < CAUSES_SHOWN; shown++) {
        size_t at = n;
        for (size_t i = 0; i < n; i++)
            if (!printed[i] && m->cause_ns[i] > 0 && (at == n || m->cause_ns[i] > m->cause_ns[at]))
                at = i;
        if (at == n) return;
        printed[at] = true;
        if (at < s->job.n_causes)
            printf("  %-32s %8.1f times %6.2f %%\n", s->job.causes[at].name, m->failures[at],
                   100 * m->cause_ns[at] / m->elapsed_ns);
        else
            printf("  %-32s %8.1f times %6.2f %%\n", "preempted or added devices",
                   m->preemptions + m->reconfigurations, 100 * m->cause_ns[at] / m->elapsed_ns);
    }
}

void goodput_report_text(struct arena *a, const struct goodput_report *s)
{
    char x[32], y[32], z[32], w[32];
    const struct goodput_job *j = &s->job;
    int64_t devices = 0;
    for (int32_t t = 0; t < j->n_types; t++) devices += j->devices[t];
    printf("%" PRId64 " devices for %s, interrupted %s%s, checkpoint %s, restart %s; %d samples\n",
           devices, span_text(x, units_s_from_ns(j->horizon_ns)), isfinite(s->M) ? "every " : "",
           span_text(y, s->M), span_text(z, s->C), span_text(w, units_s_from_ns(j->restart_ns)),
           (int)s->samples);
    if (j->memory_interval_ns)
        printf("  checkpoints in memory every %s, restart from them %s; the closed form is of those on storage alone\n",
               span_text(x, units_s_from_ns(j->memory_interval_ns)), span_text(y, units_s_from_ns(j->memory_restart_ns)));
    printf("  %-10s %8s %18s %12s %10s %12s\n", "interval", "goodput", "5 ... 95 %", "checkpoints",
           "work lost", "closed form");
    for (size_t i = 0; i < s->n; i++) {
        const struct goodput_result *r = &s->results[i];
        printf("  %-10s %6.2f %% %7.2f ... %5.2f %% %10.2f %% %8.2f %% %10.2f %%\n",
               span_text(x, units_s_from_ns(r->interval_ns)), 100 * r->goodput.mean,
               100 * r->goodput.p5.value, 100 * r->goodput.p95.value,
               100 * r->mean.part_ns[GOODPUT_checkpoint] / r->mean.elapsed_ns,
               100 * r->mean.part_ns[GOODPUT_lost] / r->mean.elapsed_ns,
               100 * closed_form(s, units_s_from_ns(r->interval_ns)));
    }
    if (s->best.goodput.p95.value < 0.001) {
        printf("goodput 0: the job is stopped before it can save anything, at every interval\n");
        return;
    }
    printf("best: every %s, goodput %.2f %% (%.2f ... %.2f %%); Young %s, Daly %s, optimum of the "
           "closed form %s\n",
           span_text(x, units_s_from_ns(s->best.interval_ns)), 100 * s->best.goodput.mean,
           100 * s->best.goodput.p5.value, 100 * s->best.goodput.p95.value,
           span_text(y, checkpoint_interval_young(s->C, s->M)), span_text(z, checkpoint_interval_daly(s->C, s->M)),
           span_text(w, goodput_optimum(s->C, s->M)));
    for (int p = 0; p < GOODPUT_PART_COUNT; p++)
        if (s->best.mean.part_ns[p] > 0)
            printf("  %-32s %21.2f %%\n", goodput_part_help((enum goodput_part)p),
                   100 * s->best.mean.part_ns[p] / s->best.mean.elapsed_ns);
    print_causes(a, s);
}

static void put_result(struct json *j, const char *key, const struct goodput_report *s,
                       const struct goodput_result *r)
{
    json_put_object(j, key);
    json_put_double(j, "interval_s", units_s_from_ns(r->interval_ns));
    json_put_object_line(j, "goodput");
    json_put_double(j, "p5", r->goodput.p5.value);
    json_put_double(j, "p50", r->goodput.p50.value);
    json_put_double(j, "p95", r->goodput.p95.value);
    json_put_double(j, "mean", r->goodput.mean);
    json_put_double(j, "standard_error", r->goodput.error);
    json_close(j);
    json_put_double(j, "closed_form", closed_form(s, units_s_from_ns(r->interval_ns)));
    json_put_object_line(j, "parts");
    for (int p = 0; p < GOODPUT_PART_COUNT; p++)
        json_put_double(j, goodput_part_name((enum goodput_part)p),
                        r->mean.part_ns[p] / r->mean.elapsed_ns);
    json_close(j);
    json_put_double(j, "checkpoints", r->mean.checkpoints);
    if (s->job.memory_interval_ns) json_put_double(j, "memory_checkpoints", r->mean.memory_checkpoints);
    json_put_double(j, "replans", r->mean.replans);
    json_put_double(j, "preemptions", r->mean.preemptions);
    json_put_double(j, "reconfigurations", r->mean.reconfigurations);
    json_close(j);
}

void goodput_report_json(const struct goodput_report *s)
{
    struct json j;
    common_json_begin(&j);
    json_put_double(&j, "horizon_s", units_s_from_ns(s->job.horizon_ns));
    json_put_int(&j, "samples", s->samples);
    json_put_double(&j, "mtbf_s", s->M);
    json_put_double(&j, "checkpoint_s", s->C);
    json_put_double(&j, "young_s", checkpoint_interval_young(s->C, s->M));
    json_put_double(&j, "daly_s", checkpoint_interval_daly(s->C, s->M));
    json_put_double(&j, "optimum_s", goodput_optimum(s->C, s->M));
    json_put_list(&j, "devices");
    for (int32_t t = 0; t < s->left.n_types; t++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "type", s->left.types[t]);
        json_put_int(&j, "devices", s->left.devices[t]);
        json_put_int(&j, "spares", s->left.spares[t]);
        json_close(&j);
    }
    json_close(&j);
    json_put_list(&j, "intervals");
    for (size_t i = 0; i < s->n; i++) put_result(&j, NULL, s, &s->results[i]);
    json_close(&j);
    put_result(&j, "best", s, &s->best);
    json_put_list(&j, "causes");
    for (size_t i = 0; i < s->job.n_causes; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", s->job.causes[i].name);
        json_put_double(&j, "mtbf_s", s->job.causes[i].mtbf_s);
        json_put_double(&j, "failures", s->best.mean.failures[i]);
        json_put_double(&j, "share", s->best.mean.cause_ns[i] / s->best.mean.elapsed_ns);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}
