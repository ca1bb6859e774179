/* What the predictions rest on: the source of every cost, and how far off it is known to be. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "profiles/catalogue.h"
#include "profiles/op_prior.h"
#include "sim/collective/price.h"
#include "tools/common.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <stdlib.h>
#include <string.h>

/* Errors that were measured: docs/measurements.md has commands, dates and machines. */
#define ERROR_PRIOR                                                                                \
    "not measured with these constants: every type gets one share of its peak, so the relative "   \
    "speed of types is as uncertain as "                                                           \
    "that. With constants fitted for A100, iterations of Megatron-LM are 5.9 % off and vTrain's "  \
    "7.1 % (2026-11-22)"
#define ERROR_EMULATED                                                                             \
    "plans on emulated devices, not calibrated on: 4.7 to 5.6 % off (median) before calibration, " \
    "0.9 to 3.6 % after (2026-11-21)"
#define ERROR_NCCL                                                                                 \
    "216 collectives of four GPU types: 20.8 % off (median), from 64 MiB on 10.5 % (2026-11-22)"

static void fact(FILE *out, struct arena *a, const char *what, const char *source,
                 const char *error)
{
    html_row(out);
    html_cell(out, a, what, false);
    html_cell(out, a, source, false);
    html_cell(out, a, error, false);
    html_row_end(out);
}

static int by_number(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Measured rows of a type, by its own name or by the catalogue's, and their median spread. */
static size_t measured(struct arena *a, const struct profile *p, const struct device_type *t,
                       double *spread)
{
    const char *own = arena_printf(a, "type:%s", t->name);
    double *all = ARENA_ARRAY(a, double, p->n_ops + 1);
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        if (!strcmp(p->ops[i].base, own) || !strcmp(p->ops[i].base, t->catalogue))
            all[n++] = p->ops[i].spread;
    qsort(all, n, sizeof *all, by_number);
    *spread = n ? all[n / 2] : 0;
    return n;
}

static const struct catalogue_value *peak_value(const struct catalogue_device *d, enum dtype t)
{
    const struct catalogue_value *v = t == DTYPE_fp64   ? &d->fp64_flops
                                      : t == DTYPE_bf16 ? &d->bf16_flops
                                      : t == DTYPE_fp16 ? &d->fp16_flops
                                                        : &d->fp32_flops;
    return v->value > 0 ? v : &d->fp16_flops; /* catalogue_peak_flops derives fp32 from it */
}

/* "989 TFLOP/s x 0.6 in bf16 (source, 2026-08, high), memory 3.35 TB/s x 0.8 (…)" */
static const char *prior_text(struct arena *a, const struct profile *p, const struct device_type *t,
                              enum dtype dtype)
{
    const struct catalogue_device *d;
    struct op_prior prior = op_prior_default(t->catalogue);
    char rate[32];
    if (catalogue_find(t->catalogue, &d, NULL) != OK) return "not in the catalogue";
    for (size_t i = 0; i < p->n_priors; i++)
        if (!strcmp(p->priors[i].base, t->catalogue)) prior = p->priors[i];
    const struct catalogue_value *peak = peak_value(d, dtype), *memory = &d->memory_Bps;
    return arena_printf(
        a,
        "roofline: peak %.4g TFLOP/s in %s × %g (%s, %s, confidence %s), memory %s × %g "
        "(%s, %s, confidence %s)",
        1e-12 * catalogue_peak_flops(d, dtype), dtype_name(dtype), prior.flops_efficiency,
        peak->source ? peak->source : "no source", peak->date ? peak->date : "-",
        peak->confidence ? peak->confidence : "-", units_print_bytes_per_s(rate, memory->value),
        prior.memory_efficiency, memory->source ? memory->source : "no source",
        memory->date ? memory->date : "-", memory->confidence ? memory->confidence : "-");
}

static void write_type(FILE *out, struct arena *a, const struct report *r,
                       const struct report_plan *x, const struct device_type *t)
{
    double spread;
    size_t n = measured(a, r->profile, t, &spread);
    const char *what = arena_printf(a, "Operators on %s (%s)", t->name, t->catalogue),
               *prior = prior_text(a, r->profile, t, x->plan.job.precision),
               *error = x->plan.cluster.emulated ? ERROR_EMULATED : ERROR_PRIOR;
    if (n)
        fact(out, a, what,
             arena_printf(a, "%zu measured operators (%s); others by fits, else by %s", n,
                          common_profile_label(a, r->profile), prior),
             arena_printf(a, "median spread of the samples %.1f %%%s%s", 100 * spread,
                          x->plan.cluster.emulated ? "; " : "",
                          x->plan.cluster.emulated ? ERROR_EMULATED : ""));
    else
        fact(out, a, what, prior, error);
}

static void write_links(FILE *out, struct arena *a, const struct report *r,
                        const struct report_plan *x)
{
    const struct cluster *c = &x->plan.cluster;
    int32_t stated = 0, fitted = 0;
    for (int32_t i = 0; i < c->n_links; i++) {
        bool known = false;
        for (size_t k = 0; k < r->profile->n_links && !known; k++)
            known = !strcmp(r->profile->links[k].name, c->links[i].name);
        fitted += known;
        stated += !known && c->links[i].stated;
    }
    fact(out, a, "Links",
         arena_printf(a, "%d as stated in the cluster's file, %d measured", (int)stated,
                      (int)fitted),
         stated ? "as far off as the statement: data sheets state peaks" : "of the profile");
    for (int k = 0; k < COLLECTIVE_PRICE_COUNT; k++)
        if (x->why.prices[k])
            fact(out, a, "Collectives",
                 arena_printf(a, "%d priced by %s", (int)x->why.prices[k],
                              collective_price_name((enum collective_price)k)),
                 k == COLLECTIVE_PRICE_NCCL ? ERROR_NCCL : "as the links");
}

void assumptions_write(FILE *out, struct arena *a, const struct report *r)
{
    static const char *const heads[] = {"What", "Assumed, with source", "Known error"};
    html_section(out, a, "assumptions", "Assumptions",
                 "Predictions are no measurements. Errors are of docs/measurements.md.");
    html_table(out, a, heads, 3);
    for (int32_t i = 0; i < r->n_plans; i++) {
        const struct report_plan *x = &r->plans[i];
        const struct cluster *c = &x->plan.cluster;
        bool *used = ARENA_ARRAY(a, bool, (size_t)c->n_types + 1);
        if (i && x->same_cluster) continue;
        for (int32_t d = 0; d < c->n_devices; d++) used[c->devices[d].type] = true;
        for (int32_t t = 0; t < c->n_types; t++)
            if (used[t]) write_type(out, a, r, x, &c->types[t]);
        write_links(out, a, r, x);
    }
    const struct model *m = &r->plans[0].plan.job.model;
    if (m->n_expert_blocks)
        fact(out, a, "Experts", "tokens routed as a run's trace counted", "of the plan");
    else if (m->experts)
        fact(out, a, "Experts",
             r->profile->n_routings ? "imbalance of routing as measured" : "balanced routing",
             r->profile->n_routings ? "of the profile" : "real routing is less even, and slower");
    fact(out, a, "Steps", "all alike: no jitter, no stragglers, data always ready, no checkpoints",
         "simulate --samples and --loaders, and goodput, add them");
    html_table_end(out);
    html_section_end(out);
}
