#include "tools/print/metrics.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEMBER_WIDTH = 10 };

/* --- text --- */

static void print_rate_line(const struct metrics *m)
{
    char tokens[32], samples[32];
    char computed[32], note[96] = "";
    if (m->applied > 0 && m->applied < 1)
        snprintf(note, sizeof note, " of applied gradients; with dropped ones %s samples/s", units_print_count(computed, m->samples_per_s / m->applied));
    units_print_count(samples, m->samples_per_s);
    if (m->images)
        printf("  %-*s %s images/s%s\n", MEMBER_WIDTH, "rate", samples, note);
    else
        printf("  %-*s %s tokens/s, %s samples/s%s\n", MEMBER_WIDTH, "rate",
               units_print_count(tokens, m->tokens_per_s), samples, note);
}

static void print_use_line(const struct metrics *m)
{
    char peak[32];
    const char *unknown = m->no_flops ? m->no_flops : m->no_peak;
    if (unknown) {
        printf("  %-*s unknown: %s\n", MEMBER_WIDTH, "MFU", unknown);
        return;
    }
    int digits = m->mfu < 0.0995 ? 2 : 1;
    printf("  %-*s %.*f %%, HFU %.*f %% of %s, the %s peak of %lld %s\n", MEMBER_WIDTH, "MFU", digits,
           100 * m->mfu, digits, 100 * m->hfu, units_print_flops(peak, m->peak_flops), m->precision,
           (long long)m->devices, m->devices == 1 ? "device" : "devices");
}

/* Of an unpriced cluster only where the catalogue lists every type: one's own GPUs have no price. */
static void print_cost_line(const struct metrics *m)
{
    if (m->no_price && !m->priced) return;
    if (m->no_price)
        printf("  %-*s unknown: %s\n", MEMBER_WIDTH, "cost", m->no_price);
    else
        printf("  %-*s %.4g per iteration, %.6g per hour, in %s\n", MEMBER_WIDTH, "cost", m->cost,
               m->price_per_h,
               m->listed ? "USD at the catalogue's on-demand prices"
                         : "the currency of the cluster's prices");
}

static const char *days_text(struct arena *a, double days)
{
    return days < 0.095 ? arena_printf(a, "%.2g hours", days * 24)
                        : arena_printf(a, "%.3g days", days);
}

/* Three digits below a thousand, else whole numbers. */
static const char *amount(struct arena *a, double x)
{
    return x < 1000 ? arena_printf(a, "%.3g", x) : arena_printf(a, "%.0f", x);
}

static void print_run_line(struct arena *a, const struct metrics *m)
{
    char count[32];
    if (!m->run.tokens) return;
    printf("  %-*s %s %s in %.0f iterations: %s", MEMBER_WIDTH, "run",
           units_print_count(count, (double)m->run.tokens), m->images ? "images" : "tokens",
           m->run.steps, days_text(a, m->run.days));
    if (m->no_price)
        printf(", cost unknown (%s)", m->no_price);
    else
        printf(", cost %s%s", amount(a, m->run.cost), m->listed ? " USD" : "");
    if (m->no_power)
        printf(", energy unknown (%s)\n", m->no_power);
    else
        printf(", %s kWh\n", amount(a, m->run.kwh));
}

static void print_device_types(const struct metrics *m)
{
    int width = 11;
    for (int32_t i = 0; i < m->n_classes; i++) {
        int n = (int)strlen(m->classes[i].type);
        if (n > width) width = n;
    }
    if (m->simulated)
        printf("  %-*s  devices     busy  messages  collectives   bubble  imbalance  peak memory\n",
               width, "device type");
    else
        printf("  %-*s  devices  memory\n", width, "device type");
    for (int32_t i = 0; i < m->n_classes; i++) {
        const struct metrics_class *x = &m->classes[i];
        char peak[32], limit[64];
        printf("  %-*s  %7lld", width, x->type, (long long)x->devices);
        if (m->simulated)
            printf("  %5.1f %%  %6.1f %%  %9.1f %%  %5.1f %%  %7.1f %%", 100 * x->busy,
                   100 * x->wait[SIM_WAIT_messages], 100 * x->wait[SIM_WAIT_collectives],
                   100 * x->wait[SIM_WAIT_bubble], 100 * x->wait[SIM_WAIT_imbalance]);
        printf("  %s of %s%s\n", units_print_bytes(peak, (double)x->peak_bytes),
               units_print_capacity(limit, (double)x->memory_bytes),
               x->peak_bytes > x->memory_bytes ? ", DOES NOT FIT" : "");
    }
    if (m->by_replicas)
        puts("  (busy and waits: one replica of each class, without the traffic of the others)");
}

void print_metrics(struct arena *a, const struct metrics *m)
{
    if (m->failed) {
        printf("  rates unknown: %s\n", m->failed);
        return;
    }
    print_rate_line(m);
    print_use_line(m);
    print_cost_line(m);
    print_run_line(a, m);
    print_device_types(m);
}

const char *print_rate(struct arena *a, const struct job *job, int64_t iteration_ns)
{
    char text[32];
    const struct metrics_rate r = metrics_rate(job, iteration_ns);
    return arena_printf(a, "%s %s/s",
                        units_print_count(text, r.images ? r.samples_per_s : r.tokens_per_s),
                        r.images ? "images" : "tokens");
}

/* --- JSON --- */

void print_rate_json(struct json *j, const struct job *job, int64_t iteration_ns)
{
    const struct metrics_rate r = metrics_rate(job, iteration_ns);
    json_put_double(j, r.images ? "samples_per_s" : "tokens_per_s",
                    r.images ? r.samples_per_s : r.tokens_per_s);
}

static void put(struct json *j, const char *key, double value, bool known)
{
    if (known)
        json_put_double(j, key, value);
    else
        json_put_null(j, key);
}

static void put_run(struct json *j, const struct metrics *m)
{
    if (!m->run.tokens) {
        json_put_null(j, "run");
        return;
    }
    json_put_object_line(j, "run");
    json_put_int(j, m->images ? "images" : "tokens", m->run.tokens);
    json_put_double(j, "steps", m->run.steps);
    json_put_double(j, "days", m->run.days);
    put(j, "cost", m->run.cost, !m->no_price);
    put(j, "kwh", m->run.kwh, !m->no_power);
    json_close(j);
}

static void put_class(struct json *j, const struct metrics *m, const struct metrics_class *x)
{
    json_put_object_line(j, NULL);
    json_put_text(j, "type", x->type);
    json_put_int(j, "devices", x->devices);
    put(j, "busy", x->busy, m->simulated);
    for (int w = 0; w < SIM_WAIT_COUNT; w++) put(j, sim_wait_name((enum sim_wait)w), x->wait[w], m->simulated);
    json_put_int(j, "peak_bytes", x->peak_bytes);
    json_put_int(j, "memory_bytes", x->memory_bytes);
    json_close(j);
}

void print_metrics_json(struct json *j, const struct metrics *m)
{
    const char *const unknown[] = {m->no_flops, m->no_peak, m->no_price, m->no_power};
    bool used = !m->no_flops && !m->no_peak;
    json_put_object(j, "metrics");
    if (m->failed) {
        json_put_text(j, "failed", m->failed);
        json_close(j);
        return;
    }
    json_put_int(j, "samples", m->samples);
    json_put_double(j, "samples_per_s", m->samples_per_s);
    if (!m->images) json_put_double(j, "tokens_per_s", m->tokens_per_s);
    if (m->applied > 0 && m->applied < 1) json_put_double(j, "applied", m->applied);
    put(j, "model_flops", m->model_flops, !m->no_flops);
    put(j, "hardware_flops", m->hardware_flops, !m->no_flops);
    json_put_int(j, "n_devices", m->devices);
    put(j, "peak_flops", m->peak_flops, !m->no_peak);
    put(j, "mfu", m->mfu, used);
    put(j, "hfu", m->hfu, used);
    put(j, "price_per_h", m->price_per_h, !m->no_price);
    put(j, "cost", m->cost, !m->no_price);
    if (m->no_price)
        json_put_null(j, "price_source");
    else
        json_put_text(j, "price_source", m->listed ? "catalogue" : "cluster");
    put(j, "power_w", m->power_w, !m->no_power);
    put_run(j, m);
    json_put_list(j, "devices");
    for (int32_t i = 0; i < m->n_classes; i++) put_class(j, m, &m->classes[i]);
    json_close(j);
    json_put_bool(j, "by_replicas", m->by_replicas);
    json_put_list_line(j, "unknown");
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (unknown[i]) json_put_text(j, NULL, unknown[i]);
    json_close(j);
    json_close(j);
}

/* --- the length of a run --- */

enum status print_run_length(const struct run_length *r, const struct job *job, int64_t *out,
                             struct error *err)
{
    bool images = model_pixels(&job->model) > 0;
    const char *text = images ? r->images : r->tokens, *key = images ? "images" : "tokens";
    *out = 0;
    if (images ? r->tokens : r->images)
        return error_set(err, ERR_USAGE, "model %.80s is trained on %s: give --%s", job->model.name,
                         key, key);
    if (!text || job_run_tokens(text, out)) return OK;
    return error_set(err, ERR_USAGE, "--%s: '%.40s' " JOB_NO_COUNT, key, text);
}
