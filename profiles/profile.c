/* Cost lookup, in the order stated by the header. A slowdown multiplies every result, a
 * factor every result that was not measured on that very type.
 *
 * Rows are sorted by (base, key) if ops_sorted, and found by binary search; an unsorted profile
 * is scanned. sim/cost caches the results.
 */
#include "profiles/profile.h"

#include "core/base/arena.h"
#include "profiles/catalogue.h"
#include "profiles/fit.h"
#include "profiles/measured.h"
#include "profiles/op_fits.h"
#include "profiles/team.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_DENSE = -1, KINDS_THIN = -2, KINDS_ALL = -3 }; /* of struct op_scale */

enum status profile_prior(struct arena *a, const struct cluster *c, struct profile *out,
                          struct error *err)
{
    (void)a;
    *out = (struct profile){.cluster = c->name,
                            .machine = "",
                            .note = "prior of the catalogue",
                            .calibrated_on = "",
                            .pace = 1};
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct catalogue_device *d = NULL;
        TRY(catalogue_find(c->types[t].catalogue, &d, err));
    }
    for (int32_t i = 0; i < c->n_links; i++) {
        struct link_model m;
        TRY(profile_link(out, c, i, &m, err));
    }
    return OK;
}

/* --- rows ------------------------------------------------------------------------------------ */

static int by_base_and_key(const struct op_row *row, const char *base, uint64_t key)
{
    int order = strcmp(row->base, base);
    return order ? order : row->key < key ? -1 : row->key > key;
}

static int by_row(const void *a, const void *b)
{
    const struct op_row *x = a, *y = b;
    int order = by_base_and_key(x, y->base, y->key);
    return order ? order : x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

void profile_sort(struct profile *p)
{
    if (p->n_ops && !p->ops_sorted) qsort(p->ops, p->n_ops, sizeof *p->ops, by_row);
    p->ops_sorted = true;
}

const struct op_row *profile_row(const struct profile *p, const char *base, uint64_t key)
{
    if (!p->ops_sorted) {
        for (size_t i = 0; i < p->n_ops; i++)
            if (p->ops[i].key == key && !strcmp(p->ops[i].base, base)) return &p->ops[i];
        return NULL;
    }
    size_t low = 0, high = p->n_ops;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_base_and_key(&p->ops[middle], base, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_ops && !by_base_and_key(&p->ops[low], base, key) ? &p->ops[low] : NULL;
}

double profile_pace_now(const struct profile *p, const char *base, const uint64_t *keys,
                        const double *seconds, size_t n)
{
    enum { LEAST = 4 };
    double ratio[PROFILE_ANCHORS];
    size_t known = 0;
    for (size_t i = 0; i < n && known < PROFILE_ANCHORS; i++) {
        const struct op_row *row = profile_row(p, base, keys[i]);
        if (row && row->seconds > 0 && seconds[i] > 0) ratio[known++] = seconds[i] / row->seconds;
    }
    return known >= LEAST ? quantile_median_double(ratio, known) : 0;
}

/* GPUs combined into one device are measured individually. */
static const char *measured_as(const struct device_type *d)
{
    return d->name;
}

static double factor_of(const struct profile *p, const char *type, enum op_kind kind)
{
    const char *types[] = {type, "*"};
    int32_t kinds[] = {(int32_t)kind, -1};
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < p->n_factors; i++)
                if (p->factors[i].kind == kinds[k] && !strcmp(p->factors[i].type, types[t]))
                    return p->factors[i].factor;
    return 1;
}

static double bytes_of(enum op_kind kind, const struct op_attrs *attrs,
                       const struct op_shapes *shapes, enum dtype t)
{
    return (double)op_bytes_read(kind, attrs, shapes, t) +
           (double)op_bytes_written(kind, attrs, shapes, t);
}

static struct op_prior prior_of(const struct profile *p, const char *base)
{
    for (size_t i = 0; i < p->n_priors; i++)
        if (!strcmp(p->priors[i].base, base)) return p->priors[i];
    return op_prior_default(base);
}

double profile_issue(const struct profile *p, const struct cluster *c, int32_t type,
                     enum op_kind kind, const struct op_attrs *attrs,
                     const struct op_shapes *shapes)
{
    if (!p->n_priors) return 0;
    struct op_prior prior = prior_of(p, c->types[type].catalogue);
    return op_prior_issue_seconds(&prior, kind, attrs, shapes);
}

/* measured: the result is scaled by measurements of the catalogue's device, so that what the file states does not apply. */
static enum status prior_seconds(const struct profile *p, const struct device_type *type,
                                 bool measured, enum op_kind kind, const struct op_attrs *attrs,
                                 const struct op_shapes *shapes, enum dtype t, double *out,
                                 struct error *err)
{
    struct catalogue_device room;
    const struct catalogue_device *d = NULL;
    if (measured)
        TRY(catalogue_find(type->catalogue, &d, err));
    else
        TRY(team_device(type, &room, &d, err));
    struct op_prior prior = prior_of(p, d->id);
    *out = op_prior_seconds(&prior, d, kind, attrs, shapes, t);
    if (isfinite(*out) && *out > 0) return OK;
    return error_set(err, ERR_INPUT,
                     "no cost of %s %s on %s: the catalogue has no source for a "
                     "rate that it needs; state `peak:` or `memory_bandwidth:` of device type "
                     "'%s', or measure it with musher profile",
                     op_kind_name(kind), dtype_name(t), d->id, type->name);
}

static double scale_of(const struct profile *p, const char *base, enum op_kind kind, enum dtype t)
{
    const int32_t kinds[] = {(int32_t)kind, (int32_t)kind,
                             op_fits_kind_is_dense(kind) ? KINDS_DENSE : KINDS_THIN, KINDS_ALL};
    for (int level = 0; level < 4; level++)
        for (size_t i = 0; i < p->n_scales; i++)
            if (p->scales[i].kind == kinds[level] &&
                p->scales[i].dtype == (level ? -1 : (int32_t)t) && !strcmp(p->scales[i].base, base))
                return p->scales[i].scale;
    return 0;
}

/* Work of a shard of the experts over an even one: by the popularity of its experts, or of the fullest shard by the spread of all. If
 * the latter is known, measured rows of such shards are not used. */
static double excess_of(const struct profile *p, enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes)
{
    if (attrs && attrs->load_ppm) return 1e-6 * attrs->load_ppm;
    return p->n_routings ? op_expert_excess(kind, attrs, shapes, p->routings[0].spread) : 1;
}

/* An empty shard launches nothing, so no fit's constant applies. */
static bool makes_nothing(const struct op_shapes *s)
{
    for (int32_t i = 0; i < s->n_outputs; i++)
        if (shape_elements(&s->output[i])) return false;
    return s->n_outputs > 0;
}

/* An update of an offloaded state that was not measured: as long as with the state in the device's memory, or as its transfers. */
static enum status hosted_seconds(const struct profile *p, const struct cluster *c, int32_t type, enum op_kind kind,
                                  const struct op_attrs *attrs, const struct op_shapes *shapes, enum dtype t, double *out,
                                  enum source *source, struct error *err)
{
    const struct device_type *x = &c->types[type];
    const struct catalogue_device *d;
    struct op_attrs own = *attrs;
    own.hosted = false;
    TRY(profile_op_seconds(p, c, type, kind, &own, shapes, t, op_key(kind, &own, shapes, t), out, source, err));
    TRY(catalogue_find(x->catalogue, &d, err));
    struct op_prior prior = prior_of(p, d->id);
    struct catalogue_device stated = *d;
    if (x->host_Bps > 0) stated.pcie_Bps.value = x->host_Bps / prior.wire_efficiency;
    double crossing = op_prior_hosted_seconds(&prior, &stated, kind, attrs, shapes, t);
    if (!(x->host_Bps > 0) && x->slowdown > 0) crossing *= x->slowdown;
    if (isnan(crossing))
        return error_set(err, ERR_INPUT, "device type '%s': offload: optimizer needs a PCIe bandwidth, and the catalogue has none of %s; "
                         "state host_bandwidth, or measure it with musher profile", x->name, d->id);
    if (crossing <= *out) return OK;
    *source = SOURCE_CATALOGUE, *out = crossing;
    return OK;
}

enum status profile_host_bandwidth(const struct profile *p, const struct device_type *t, double *out_Bps, struct error *err)
{
    const struct catalogue_device *d;
    *out_Bps = t->host_Bps;
    if (t->host_Bps > 0) return OK;
    TRY(catalogue_find(t->catalogue, &d, err));
    *out_Bps = d->pcie_Bps.value * prior_of(p, d->id).wire_efficiency;
    if (*out_Bps > 0) return OK;
    return error_set(err, ERR_INPUT, "device type '%s': offload: activations needs a bandwidth to host memory, and the catalogue has no PCIe bandwidth of "
                     "%s; state host_bandwidth", t->name, d->id);
}

/* Benchmarks have equal shares of the tokens. */
static uint64_t even_key(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes, enum dtype t)
{
    struct op_attrs even = *attrs;
    even.load_ppm = 0;
    return op_key(kind, &even, shapes, t);
}

enum status profile_op_seconds(const struct profile *p, const struct cluster *c, int32_t type,
                               enum op_kind kind, const struct op_attrs *attrs,
                               const struct op_shapes *shapes, enum dtype t, uint64_t key,
                               double *out, enum source *source, struct error *err)
{
    const struct device_type *d = &c->types[type];
    double slowdown = d->slowdown > 0 ? d->slowdown : 1, seconds = 0;
    if (op_is_measured(kind)) {
        TRY(measured_op_seconds(p, d, kind, attrs, shapes, t, &seconds, source, err));
        *out = seconds * factor_of(p, measured_as(d), kind);
        return OK;
    }
    char own[256];
    int length = snprintf(own, sizeof own, "type:%s", measured_as(d));
    if (makes_nothing(shapes)) return *source = SOURCE_STATED, *out = 0, OK;
    double excess = excess_of(p, kind, attrs, shapes);
    bool loaded = attrs && attrs->load_ppm;
    const struct op_row *row =
        length < (int)sizeof own && (excess <= 1 || loaded) ? profile_row(p, own, key) : NULL;
    if (row) {
        *source = SOURCE_MEASURED;
        *out = row->seconds * slowdown;
        return OK;
    }
    if (loaded) key = even_key(kind, attrs, shapes, t);
    double tp = attrs && attrs->tp > 1 ? attrs->tp : 1; /* each computes its shard */
    row = tp > 1 ? NULL : profile_row(p, d->catalogue, key);
    if (!row && attrs && attrs->hosted) return hosted_seconds(p, c, type, kind, attrs, shapes, t, out, source, err);
    const struct op_fit *fit = row ? NULL : op_fits_of(p, d->catalogue, kind, attrs, t);
    if (row) {
        *source = SOURCE_MEASURED;
        seconds = row->seconds * excess;
    } else if (fit) {
        *source = SOURCE_FITTED;
        seconds = fit->constant_s + fit->s_per_flop * op_flops(kind, attrs, shapes) * excess / tp +
                  fit->s_per_byte * bytes_of(kind, attrs, shapes, t) / tp;
    } else {
        *source = SOURCE_CATALOGUE;
        double scale = scale_of(p, d->catalogue, kind, t);
        TRY(prior_seconds(p, d, scale > 0, kind, attrs, shapes, t, &seconds, err));
        seconds *= (op_is_product(kind) ? excess : 1) / tp;
        if (scale > 0) {
            *source = SOURCE_FITTED;
            seconds *= scale;
        }
    }
    *out = seconds * slowdown * team_slower(d) * factor_of(p, measured_as(d), kind);
    return OK;
}

bool profile_serves(const struct profile *p, const struct cluster *c)
{
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct catalogue_device *d = NULL;
        bool found = catalogue_find(c->types[t].catalogue, &d, NULL) == OK &&
                     strcmp(d->backend, "host") != 0;
        for (size_t i = 0; i < p->n_ops && !found; i++)
            found = !strcmp(p->ops[i].base, c->types[t].catalogue);
        if (!found) return false;
    }
    for (size_t i = 0; i < p->n_ops; i++) {
        bool found = strcmp(p->ops[i].base, "host") != 0; /* rows of other bases are irrelevant */
        for (int32_t t = 0; t < c->n_types && !found; t++)
            found = !strcmp(p->ops[i].base, c->types[t].catalogue);
        if (!found) return false;
    }
    return true;
}

/* --- scales of the prior --------------------------------------------------------------------- */

struct share { /* of one row: measured ÷ roofline */
    const char *base;
    int32_t kind, dtype;
    double value;
};

static int by_group(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    int order = strcmp(x->base, y->base);
    if (order) return order;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->dtype < y->dtype ? -1 : x->dtype > y->dtype;
}

/* Each usable row contributes to four scales: kind and dtype, kind, bound, all. */
static size_t shares_of(const struct profile *p, struct share *out)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct op_row *row = &p->ops[i];
        const struct catalogue_device *d = NULL;
        if (!strncmp(row->base, "type:", 5) || op_is_measured(row->kind) ||
            catalogue_find(row->base, &d, NULL) != OK)
            continue;
        double value =
            row->seconds / catalogue_roofline_seconds(d, row->flops, row->bytes, row->dtype);
        if (!isfinite(value) || !(value > 0) || !(row->bytes > 0)) continue;
        out[n++] = (struct share){row->base, (int32_t)row->kind, (int32_t)row->dtype, value};
        out[n++] = (struct share){row->base, (int32_t)row->kind, -1, value};
        out[n++] = (struct share){
            row->base, op_fits_kind_is_dense(row->kind) ? KINDS_DENSE : KINDS_THIN, -1, value};
        out[n++] = (struct share){row->base, KINDS_ALL, -1, value};
    }
    return n;
}

void profile_scale_prior(struct arena *a, struct profile *p)
{
    struct arena *scratch = arena_new();
    profile_sort(p);
    struct share *shares = ARENA_ARRAY(scratch, struct share, 4 * p->n_ops);
    double *values = ARENA_ARRAY(scratch, double, 4 * p->n_ops);
    size_t n = shares_of(p, shares), capacity = 0;
    if (n) qsort(shares, n, sizeof *shares, by_group);
    p->scales = NULL;
    p->n_scales = 0;
    for (size_t first = 0, end = 0; first < n; first = end) {
        for (end = first; end < n && !by_group(&shares[first], &shares[end]); end++)
            values[end - first] = shares[end].value;
        p->scales = arena_grow(a, p->scales, p->n_scales, &capacity, sizeof *p->scales);
        p->scales[p->n_scales++] =
            (struct op_scale){shares[first].base, shares[first].kind, shares[first].dtype,
                              quantile_median_double(values, end - first)};
    }
    arena_free(scratch);
}

/* --- links ----------------------------------------------------------------------------------- */

static struct link_row *link_row_for(struct arena *a, struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->n_links; i++)
        if (!strcmp(p->links[i].name, name)) return &p->links[i];
    struct link_row *rows = ARENA_ARRAY(a, struct link_row, p->n_links + 1);
    if (p->n_links) memcpy(rows, p->links, p->n_links * sizeof *rows);
    p->links = rows;
    rows[p->n_links].name = arena_strdup(a, name);
    return &rows[p->n_links++];
}

void profile_set_link(struct arena *a, struct profile *p, const char *name,
                      const struct link_model *m)
{
    link_row_for(a, p, name)->model = *m;
}

enum status profile_fit_link(struct arena *a, struct profile *p, const char *name,
                             const int64_t *bytes, const double *seconds, size_t n,
                             struct error *err)
{
    struct arena *scratch = arena_new();
    double *x = ARENA_ARRAY(scratch, double, n);
    struct fit_line line;
    struct link_model m = {.min_bytes = INT64_MAX, .source = SOURCE_FITTED};
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)bytes[i];
        if (!isfinite(seconds[i]) || seconds[i] <= 0) continue;
        if (bytes[i] < m.min_bytes) m.min_bytes = bytes[i];
        if (bytes[i] > m.max_bytes) m.max_bytes = bytes[i];
    }
    enum status st = fit_relative(x, 1, seconds, n, &line, err);
    arena_free(scratch);
    if (st != OK) return error_wrap(err, st, "link %s", name);
    if (!(line.slope[0] > 0))
        return error_set(err, ERR_INPUT,
                         "link %s: the measured times do not grow with the size of the message",
                         name);
    m.latency_s = line.constant;
    m.bandwidth_Bps = 1 / line.slope[0];
    m.residual = line.residual;
    profile_set_link(a, p, name, &m);
    return OK;
}

/* The slower of the curves of the types at both ends. */
static bool curve_between(const struct profile *p, const struct cluster *c, const struct link *l,
                          struct link_model *out)
{
    int32_t first[2], n[2];
    if (!p->n_links || !c->n_devices || link_of_every_pair(l)) return false;
    for (int k = 0; k < 2; k++) {
        int32_t side = l->n_ends > 1 ? k : 0, end = l->end[side];
        if (l->kind[side] == END_SWITCH) return false;
        first[k] = l->kind[side] == END_DEVICE ? end : c->nodes[end].first_device;
        n[k] = l->kind[side] == END_DEVICE ? 1 : c->nodes[end].n_devices;
    }
    bool any = false;
    for (int32_t i = 0; i < n[0]; i++)
        for (int32_t k = 0; k < n[1]; k++) {
            const struct device *a = &c->devices[first[0] + i], *b = &c->devices[first[1] + k];
            const struct link_ends ends = link_ends_of(a->type, b->type);
            struct link_model m;
            if (!measured_link(p, c, &ends, a->node == b->node, &m)) return false;
            if (!any || m.bandwidth_Bps < out->bandwidth_Bps) *out = m;
            any = true;
        }
    return any;
}

static bool row_of_link(const struct profile *p, const struct link *l, struct link_model *out)
{
    for (size_t i = 0; i < p->n_links; i++) {
        const struct link_row *row = &p->links[i];
        if (strcmp(row->name, l->name) != 0) continue;
        if (row->model.source == SOURCE_STATED && l->bandwidth_Bps > 0) break;
        *out = p->links[i].model;
        return true;
    }
    if (!(l->bandwidth_Bps > 0)) return false;
    *out = (struct link_model){.latency_s = l->latency_s,
                               .bandwidth_Bps = l->bandwidth_Bps,
                               .max_bytes = INT64_MAX,
                               .source = SOURCE_STATED};
    return true;
}

enum status profile_link(const struct profile *p, const struct cluster *c, int32_t link,
                         struct link_model *out, struct error *err)
{
    const struct link *l = &c->links[link];
    if (row_of_link(p, l, out) || curve_between(p, c, l, out)) return OK;
    return error_set(err, ERR_INPUT,
                     "link %s has no bandwidth: state it in the cluster file or measure it "
                     "with musher profile",
                     l->name);
}

enum status profile_link_of(const struct profile *p, const struct cluster *c, int32_t link,
                            const struct link_ends *ends, struct link_model *out, struct error *err)
{
    const struct link *l = &c->links[link];
    if (!link_of_every_pair(l)) return profile_link(p, c, link, out, err);
    if (row_of_link(p, l, out) || measured_link(p, c, ends, l->kind[0] == END_INSIDE, out))
        return OK;
    return error_set(err, ERR_INPUT,
                     "link %s has no bandwidth, and the profile no curve between '%s' and '%s'",
                     l->name, c->types[ends->type[0]].name, c->types[ends->type[1]].name);
}
