#include "tools/profile/report.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "profiles/op_fits.h"
#include "tools/common.h"
#include "tools/profile/collectives.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>

/* Median error of the parent's fits against the new measurements. */
static double fit_error_of(const struct profile_bench *b, bool bias)
{
    double *values = ARENA_ARRAY(b->arena, double, b->n_fit_off + 1);
    for (size_t i = 0; i < b->n_fit_off; i++)
        values[i] = bias ? b->fit_off[i] : fabs(b->fit_off[i]);
    return quantile_median_double(values, b->n_fit_off);
}

static void report_json(const struct profile *p, const struct profile_bench *b,
                        const struct fit_error *errors, size_t n_errors)
{
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "profile_id", p->id);
    json_put_int(&j, "parent_id", p->parent);
    json_put_int(&j, "operators", (int64_t)p->n_ops);
    json_put_int(&j, "operators_seen", b->list.seen);
    json_put_int(&j, "operators_measured", (int64_t)b->n_measured);
    if (b->pace > 0) json_put_double(&j, "machine_pace", b->pace);
    if (b->n_fit_off) {
        json_put_double(&j, "fit_error", fit_error_of(b, false));
        json_put_double(&j, "fit_error_bias", fit_error_of(b, true));
    }
    json_put_list(&j, "shapes_left_out");
    for (size_t i = 0; i < n_errors; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "kind", op_kind_name(errors[i].kind));
        json_put_int(&j, "rows", errors[i].rows);
        json_put_double(&j, "error_by_kind", errors[i].by_kind);
        json_put_double(&j, "error_by_orientation", errors[i].by_orientation);
        json_close(&j);
    }
    json_close(&j);
    json_put_list(&j, "links");
    for (size_t i = 0; i < p->n_links; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", p->links[i].name);
        json_put_double(&j, "latency_s", p->links[i].model.latency_s);
        json_put_double(&j, "bandwidth_Bps", p->links[i].model.bandwidth_Bps);
        json_put_double(&j, "residual", p->links[i].model.residual);
        json_put_text(&j, "source", source_name(p->links[i].model.source));
        if (p->links[i].model.source == SOURCE_STATED)
            json_put_double(&j, "checked_within", profile_link_off(&b->links, p->links[i].name));
        json_close(&j);
    }
    json_close(&j);
    profile_sizes_json(&j, &b->links);
    profile_collectives_json(&j, p);
    profile_copies_json(&j, &b->gpus);
    common_json_end(&j);
}

static void report_links(const struct profile *p, const struct profile_bench *b)
{
    for (size_t i = 0; i < p->n_links; i++) {
        char latency[32], rate[32];
        printf("  link %-10s %s + bytes / %s, ", p->links[i].name,
               units_print_ns(latency, units_ns_from_s(p->links[i].model.latency_s)),
               units_print_bytes_per_s(rate, p->links[i].model.bandwidth_Bps));
        if (p->links[i].model.source == SOURCE_STATED)
            printf("stated (emulated); checked: as stated within %.1f %%\n",
                   100 * profile_link_off(&b->links, p->links[i].name));
        else
            printf("measured, residual %.1f %%\n", 100 * p->links[i].model.residual);
    }
    profile_sizes_print(&b->links);
}

void profile_report(const struct profile *p, const struct profile_bench *b, size_t n_plans,
                    bool as_json)
{
    struct fit_error *errors = NULL;
    size_t n_errors = op_fits_errors(b->arena, p, &errors);
    if (as_json) {
        report_json(p, b, errors, n_errors);
        return;
    }
    if (n_plans)
        printf("profile %lld: %zu of %zu unique operators of %zu plans measured, %zu fits\n",
               (long long)p->id, b->n_measured, b->list.n, n_plans, p->n_fits + p->n_oriented);
    else
        printf("profile %lld: %zu unique operators of %d measured, %zu fits\n  layers     %s\n",
               (long long)p->id, p->n_ops, (int)b->list.seen, p->n_fits + p->n_oriented,
               b->list.layers);
    if (n_plans && b->pace > 0)
        printf("  this machine takes %.2f times as long as when the profile was measured: new rows "
               "are scaled to the profile's pace\n",
               b->pace);
    if (n_plans && b->n_fit_off)
        printf("  the parent's fits are off by %.1f %% from these rows, %+.1f %% with sign "
               "(medians)\n",
               100 * fit_error_of(b, false), 100 * fit_error_of(b, true));
    for (size_t i = 0; i < n_errors; i++)
        printf("  fit %-11s leave-one-out error %.1f %% by kind, %.1f %% by orientation (median of "
               "%d)\n",
               op_kind_name(errors[i].kind), 100 * errors[i].by_kind,
               100 * errors[i].by_orientation, (int)errors[i].rows);
    if (b->links.off) report_links(p, b);
    if (b->n_collectives) profile_collectives_print(p);
    profile_copies_print(&b->gpus);
}
