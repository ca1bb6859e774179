/* Calibration: medians of runs, compared with the parent's costs.
 *
 * Everything is at slowdown 1: a span of an emulated device is slowdown × CPU time, so it is divided by the slowdown of its
 * device; profile_op_seconds multiplies by it again. A factor is the ratio of a type to
 * its base; its reference is the base's own row of the same key, never a row of an earlier
 * calibration, so that a second calibration on the same runs changes nothing.
 * The first step of a run warms up and is excluded (trace_first_counted_step).
 * Ownership: next's arrays are the arena's; its texts are the parent's and the traces', which must live as long.
 */
#include "profiles/calibrate.h"

#include "core/base/units.h"
#include "profiles/calibrate_internal.h"
#include "profiles/fit.h"
#include "profiles/op_fits.h"
#include "profiles/skew.h"
#include "profiles/team.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MIN = 3, SECANTS = 2 };
static const double pace_min = 0.5, pace_max = 2, pace_exact = 1e-6;

/* --- spans ----------------------------------------------------------------------------------- */

static int32_t type_index(const struct cluster *c, const char *name)
{
    for (int32_t t = 0; t < c->n_types; t++)
        if (!strcmp(c->types[t].name, name)) return t;
    return -1;
}

/* The header's iteration beside the ends of the steps. They differ by little, with parameter servers by less than the
 * factor of what is credible: a larger one is another unit. */
static enum status check_iteration(const struct calibrating *s, const struct trace *t)
{
    int64_t measured = 0;
    for (size_t i = 0; i < t->n_spans && !measured; i++)
        if (t->spans[i].kind == SPAN_STEP) measured = trace_iteration(t);
    if (s->force || measured <= 0 || t->iteration_ns <= 0 || calibrate_credible((double)t->iteration_ns / (double)measured))
        return OK;
    return error_set(s->err, ERR_INPUT,
                     "the run of %s states an iteration of %lld ns, but its steps end %lld ns apart: check the unit of its times "
                     "(--force takes it as it is)",
                     t->plan, (long long)t->iteration_ns, (long long)measured);
}

static enum status collect_run(struct calibrating *s, const struct trace *t)
{
    TRY(check_iteration(s, t));
    int32_t from = trace_first_counted_step(t);
    int32_t *types = ARENA_ARRAY(s->scratch, int32_t, (size_t)t->n_devices);
    for (int32_t d = 0; d < t->n_devices; d++) {
        types[d] = type_index(s->cluster, t->devices[d].type);
        if (types[d] < 0)
            return error_set(
                s->err, ERR_INPUT,
                "the run of %s used a device of type %s, which cluster %s does not have", t->plan,
                t->devices[d].type, s->cluster->name);
    }
    int64_t counted = 0, without_time = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        if (x->kind != SPAN_COMPUTE || x->step < from) continue;
        counted++, without_time += x->end_ns <= x->begin_ns;
        double slowdown = t->devices[x->device].slowdown > 0 ? t->devices[x->device].slowdown : 1;
        struct sample y = {types[x->device], x->key, OP_KIND_COUNT,
                           units_s_from_ns(x->end_ns - x->begin_ns) / slowdown, x->bytes};
        if (!op_kind_parse(x->name, &y.kind) || !isfinite(y.seconds) || y.seconds <= 0) {
            s->out->spans_dropped++;
            continue;
        }
        s->samples = arena_grow(s->scratch, s->samples, s->n_samples, &s->sample_capacity,
                                sizeof *s->samples);
        s->samples[s->n_samples++] = y;
    }
    /* Single ones are a clock's; of most operators they leave nothing to learn from. */
    if (2 * without_time > counted)
        return error_set(s->err, ERR_INPUT, "the run of %s: %lld of %lld operators behind the first step end when or before they begin: its clock or the unit of its times is wrong",
                         t->plan, (long long)without_time, (long long)counted);
    return OK;
}

static int by_type_and_key(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->type != y->type) return x->type < y->type ? -1 : 1;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* --- (1) rows -------------------------------------------------------------------------------- */

/* The parent's row of the operator with this key, from any base. */
static const struct op_row *relative(const struct calibrating *s, const struct device_type *type,
                                     uint64_t key)
{
    const struct op_row *row = profile_row(s->parent, type->catalogue, key);
    for (size_t i = 0; !row && i < s->parent->n_ops; i++)
        if (s->parent->ops[i].key == key) row = &s->parent->ops[i];
    return row;
}

/* The time of an operator on experts depends on its layer's router, and therefore on the layers that a type happened to
 * run. Differences between layers are not properties of the type. Its row is the mean over all calls on
 * all types of the same base, so that no assignment of layers makes a type look cheap. */
static double mean_over_types(const struct calibrating *s, const struct sample *x)
{
    const char *catalogue = s->cluster->types[x->type].catalogue;
    double sum = 0;
    size_t n = 0;
    for (int32_t t = 0; t < s->cluster->n_types; t++) {
        if (strcmp(s->cluster->types[t].catalogue, catalogue) != 0) continue;
        size_t first = 0, end = s->n_samples; /* the first sample that is not before (t, key) */
        while (first < end) {
            size_t middle = first + (end - first) / 2;
            const struct sample *y = &s->samples[middle];
            if (y->type < t || (y->type == t && y->key < x->key))
                first = middle + 1;
            else
                end = middle;
        }
        for (; first < s->n_samples; first++, n++) {
            const struct sample *y = &s->samples[first];
            if (y->type != t || y->key != x->key) break;
            sum += y->seconds;
        }
    }
    return sum / (double)n;
}

/* The operator's cost on the type before this calibration, in seconds: that of its base's row; of an operator without one, that of the row of an
 * earlier calibration. 0: no row, or no work, so that its time is call overhead only. */
static double seconds_before(const struct calibrating *s, const struct device_type *type, const struct op_row *base, uint64_t key)
{
    if (base) return base->seconds > 0 && op_fits_row_has_work(base) ? base->seconds * team_slower(type) : 0;
    const struct op_row *own = profile_row(s->parent, arena_printf(s->scratch, "type:%s", type->name), key);
    return own && own->seconds > 0 ? own->seconds : 0;
}

/* One (type, key) with n samples, sorted. */
static void add_row(struct calibrating *s, const struct sample *x, size_t n)
{
    const struct device_type *type = &s->cluster->types[x->type];
    struct profile *next = &s->out->next;
    double *seconds = ARENA_ARRAY(s->scratch, double, n);
    double total = 0;
    for (size_t i = 0; i < n; i++) total += seconds[i] = x[i].seconds;
    const struct op_row *like = relative(s, type, x->key),
                        *base = profile_row(s->parent, type->catalogue, x->key);
    struct op_row row = {.base = arena_printf(s->a, "type:%s", type->name),
                         .key = x->key,
                         .kind = x->kind,
                         .dtype = like ? like->dtype : DTYPE_fp32,
                         .flops = like ? like->flops : 0,
                         .bytes = like ? like->bytes : (double)x->bytes,
                         .text = like ? like->text : op_kind_name(x->kind),
                         .seconds = op_gates_input(x->kind) < 0 ? quantile_median_double(seconds, n)
                                                                : mean_over_types(s, x),
                         .spread = fit_spread(seconds, n),
                         .samples = (int32_t)n,
                         .provenance = s->provenance};
    double before = seconds_before(s, type, base, x->key);
    if (!s->force && before > 0 && !calibrate_credible(row.seconds / before)) {
        s->out->n_rows_left_out++;
        s->out->spans_dropped += (int64_t)n;
    } else {
        next->ops = arena_grow(s->a, next->ops, next->n_ops, &s->row_capacity, sizeof *next->ops);
        next->ops[next->n_ops++] = row;
        s->out->spans_used += (int64_t)n;
    }
    /* The time of an empty shard is no evidence for non-empty ones. */
    if (!base || !(before > 0)) return;
    s->ratios =
        arena_grow(s->scratch, s->ratios, s->n_ratios, &s->ratio_capacity, sizeof *s->ratios);
    s->ratios[s->n_ratios++] = (struct ratio){.type = x->type,
                                              .kind = x->kind,
                                              .value = row.seconds / before,
                                              .seconds = total};
}

static void keep_parent_rows(struct calibrating *s)
{
    struct profile *next = &s->out->next, made = *next;
    profile_sort(&made);
    for (size_t i = 0; i < s->parent->n_ops; i++) {
        const struct op_row *row = &s->parent->ops[i];
        if (profile_row(&made, row->base, row->key)) continue;
        next->ops = arena_grow(s->a, next->ops, next->n_ops, &s->row_capacity, sizeof *next->ops);
        next->ops[next->n_ops++] = *row;
    }
    next->ops_sorted = false;
    profile_sort(next);
}

static void make_rows(struct calibrating *s)
{
    if (s->n_samples) qsort(s->samples, s->n_samples, sizeof *s->samples, by_type_and_key);
    for (size_t first = 0, end = 0; first < s->n_samples; first = end) {
        const struct sample *x = &s->samples[first];
        for (end = first + 1; end < s->n_samples; end++)
            if (s->samples[end].type != x->type || s->samples[end].key != x->key) break;
        if (end - first >= SAMPLES_MIN) add_row(s, x, end - first);
    }
    keep_parent_rows(s);
}

/* --- (4) experts ------------------------------------------------------------------------------ */

/* A spread that moves too far is left out, and the parent's stays. */
static bool spread_credible(struct calibrating *s, double before, double now)
{
    bool credible = s->force || !(before > 0) || calibrate_credible(now / before);
    s->out->n_rows_left_out += !credible;
    return credible;
}

static void learn_routing(struct calibrating *s)
{
    struct profile *next = &s->out->next;
    double *values = NULL, sum = 0, most;
    size_t count = 0, capacity = 0;
    int32_t n = 0;
    for (size_t i = 0; i < s->n_runs; i++) {
        const struct trace *t = s->runs[i];
        const int32_t from = trace_first_counted_step(t);
        for (const struct span *x = t->spans; x < t->spans + t->n_spans; x++) {
            if (x->step < from || !x->uneven_ppm) continue;
            values = arena_grow(s->scratch, values, count, &capacity, sizeof *values);
            values[count++] = 1e-6 * x->uneven_ppm;
        }
    }
    if (!count) return;
    most = s->force ? INFINITY : credible_most * quantile_median_double(values, count);
    for (size_t i = 0; i < count; i++)
        if (values[i] <= most) sum += values[i], n++;
    if (!spread_credible(s, next->n_routings ? next->routings[0].spread : 0, sqrt(sum / n))) return;
    next->routings = ARENA_ARRAY(s->a, struct routing_row, 1);
    next->n_routings = 1;
    next->routings[0] = (struct routing_row){"experts", sqrt(sum / n), n, s->provenance};
}

/* --- (5) skew ---------------------------------------------------------------------------------- */

static void learn_skew(struct calibrating *s)
{
    struct profile learned = {0}, *next = &s->out->next;
    skew_learn(s->a, s->runs, s->n_runs, s->provenance, &learned);
    if (!learned.n_skews || !spread_credible(s, next->n_skews ? next->skews[0].spread : 0, learned.skews[0].spread)) return;
    next->skews = learned.skews;
    next->n_skews = 1;
}

/* --- (6) pace -------------------------------------------------------------------------------- */

/* measured ÷ predicted of each run. */
static enum status predict_all(struct calibrating *s, const struct profile *p, calibrate_predict *predict, void *user, double *ratio)
{
    for (size_t i = 0; i < s->n_runs; i++) {
        int64_t predicted = 0, measured = s->runs[i]->iteration_ns;
        if (measured <= 0)
            return error_set(s->err, ERR_INPUT, "the run of %s has no complete step",
                             s->runs[i]->plan);
        TRY(predict(user, s->index ? s->index[i] : i, p, &predicted, s->err));
        if (predicted <= 0)
            return error_set(s->err, ERR_INPUT, "the predicted iteration of %s is not above 0",
                             s->runs[i]->plan);
        ratio[i] = (double)measured / (double)predicted;
    }
    return OK;
}

static double median_error(const struct calibrating *s, const double *ratio)
{
    double *errors = ARENA_ARRAY(s->scratch, double, s->n_runs);
    for (size_t i = 0; i < s->n_runs; i++)
        errors[i] = fabs(1 / ratio[i] - 1); /* |predicted − measured| ÷ measured */
    return quantile_median_double(errors, s->n_runs);
}

static double *copied(const struct calibrating *s, const double *values)
{
    double *copy = ARENA_ARRAY(s->scratch, double, s->n_runs);
    memcpy(copy, values, s->n_runs * sizeof *copy);
    return copy;
}

static double within(double pace) { return fmin(fmax(pace, pace_min), pace_max); }

/* Messages do not scale with the pace, so it is found by iteration: first as if they did, then by the secant through the first two. */
static enum status find_pace(struct calibrating *s, calibrate_predict *predict, void *user)
{
    double *ratio = ARENA_ARRAY(s->scratch, double, s->n_runs), *pace = &s->out->next.pace;
    double tried = *pace = 1, left, left_before;
    TRY(predict_all(s, &s->out->next, predict, user, ratio));
    left_before = log(quantile_median_double(copied(s, ratio), s->n_runs));
    *pace = within(exp(left_before));
    TRY(predict_all(s, &s->out->next, predict, user, ratio));
    for (int i = 0; i < SECANTS; i++) {
        left = log(quantile_median_double(copied(s, ratio), s->n_runs));
        double slope = (left - left_before) / (*pace - tried);
        if (fabs(left) < pace_exact || !isfinite(slope) || slope >= 0) break;
        left_before = left;
        tried = *pace;
        *pace = within(tried - left / slope);
        TRY(predict_all(s, &s->out->next, predict, user, ratio));
    }
    s->out->error_after = median_error(s, ratio);
    double left_over = quantile_median_double(ratio, s->n_runs);
    if (s->force || calibrate_credible(left_over)) return OK;
    return error_set(s->err, ERR_INPUT,
                     "the runs' iterations are %.3g times what their operators and messages explain, outside %g ... %g: check the unit "
                     "of their times (--force takes them as they are)",
                     left_over, 1 / credible_most, credible_most);
}

/* --- all ------------------------------------------------------------------------------------- */

const char *calibrate_run_name(struct arena *a, const struct trace *t)
{
    return arena_printf(a, "%s (%lld ns)", t->plan, (long long)t->iteration_ns);
}

static const char *names_of_runs(struct arena *a, struct trace *const *runs, size_t n)
{
    const char *names = "";
    for (size_t i = 0; i < n; i++)
        names = arena_printf(a, "%s%s%s", names, i ? ", " : "", calibrate_run_name(a, runs[i]));
    return names;
}

/* Whether the parent, or an ancestor of it, was calibrated on the run. */
static bool seen_before(struct calibrating *s, const struct trace *t)
{
    const struct profile *p = s->parent;
    const char *name = calibrate_run_name(s->scratch, t);
    bool seen = p->calibrated_on && strstr(p->calibrated_on, name);
    for (size_t i = 0; i < p->n_ops && !seen; i++)
        seen = p->ops[i].provenance && strstr(p->ops[i].provenance, name);
    for (size_t i = 0; i < p->n_factors && !seen; i++)
        seen = p->factors[i].provenance && strstr(p->factors[i].provenance, name);
    return seen;
}

/* All results except the errors, from the runs of the state. */
static enum status learn(struct calibrating *s, calibrate_predict *predict, void *user)
{
    struct profile *next = &s->out->next;
    *next = *s->parent;
    next->id = 0;
    next->parent = s->parent->id;
    next->calibrated_on = names_of_runs(s->a, s->runs, s->n_runs);
    next->ops = NULL;
    next->factors = NULL;
    next->n_ops = next->n_factors = 0;
    next->ops_sorted = false;
    s->provenance = arena_printf(s->a, "run:%s", next->calibrated_on);
    for (size_t i = 0; i < s->n_runs; i++) TRY(collect_run(s, s->runs[i]));
    make_rows(s);
    TRY(calibrate_factors(s));
    TRY(calibrate_links(s));
    learn_routing(s);
    learn_skew(s);
    profile_scale_prior(s->a, next);
    return find_pace(s, predict, user);
}

static bool same_plan(const struct trace *x, const struct trace *y)
{
    return x->plan_hash == y->plan_hash && !strcmp(x->plan, y->plan);
}

/* Held-out error: runs of one plan, predicted by a calibration on all others. */
static enum status hold_out(const struct calibrating *all, const struct trace *plan, calibrate_predict *predict, void *user, double *errors, size_t *n)
{
    struct calibration c = {0};
    struct calibrating s = {.a = all->scratch,
                            .scratch = all->scratch,
                            .parent = all->parent,
                            .cluster = all->cluster,
                            .out = &c,
                            .force = true, /* the calibration on all runs rejects what is not credible */
                            .err = all->err};
    struct trace **runs = ARENA_ARRAY(s.scratch, struct trace *, all->n_runs);
    size_t *index = ARENA_ARRAY(s.scratch, size_t, all->n_runs);
    for (size_t i = 0; i < all->n_runs; i++)
        if (!same_plan(all->runs[i], plan)) {
            index[s.n_runs] = all->index ? all->index[i] : i;
            runs[s.n_runs++] = all->runs[i];
        }
    s.runs = runs;
    s.index = index;
    TRY(learn(&s, predict, user));
    for (size_t i = 0; i < all->n_runs; i++) {
        int64_t predicted = 0;
        if (!same_plan(all->runs[i], plan)) continue;
        TRY(predict(user, i, &c.next, &predicted, s.err));
        errors[(*n)++] = fabs((double)predicted / (double)all->runs[i]->iteration_ns - 1);
    }
    return OK;
}

static enum status hold_out_each(struct calibrating *s, calibrate_predict *predict, void *user)
{
    double *errors = ARENA_ARRAY(s->scratch, double, s->n_runs);
    size_t n = 0;
    for (size_t i = 0; i < s->n_runs; i++) {
        bool first = true, others = false;
        for (size_t k = 0; k < s->n_runs; k++) {
            if (!same_plan(s->runs[k], s->runs[i]))
                others = true;
            else if (k < i)
                first = false;
        }
        if (first && others) TRY(hold_out(s, s->runs[i], predict, user, errors, &n));
    }
    return s->out->error_after_held_out = n ? quantile_median_double(errors, n) : NAN, OK;
}

static enum status calibrate_all(struct calibrating *s, calibrate_predict *predict, void *user)
{
    double *ratio = ARENA_ARRAY(s->scratch, double, s->n_runs);
    TRY(predict_all(s, s->parent, predict, user, ratio));
    s->out->error_before = median_error(s, ratio);
    for (size_t i = 0; i < s->n_runs; i++) s->out->n_seen_before += seen_before(s, s->runs[i]);
    TRY(learn(s, predict, user));
    return hold_out_each(s, predict, user);
}

enum status calibrate(struct arena *a, const struct profile *parent, const struct cluster *c, struct trace *const *runs, size_t n_runs, bool force,
                      calibrate_predict *predict, void *user, struct calibration *out, struct error *err)
{
    if (!n_runs) return error_set(err, ERR_INPUT, "no runs to calibrate on");
    *out = (struct calibration){0};
    struct calibrating s = {.a = a,
                            .scratch = arena_new(),
                            .parent = parent,
                            .cluster = c,
                            .runs = runs,
                            .n_runs = n_runs,
                            .force = force,
                            .out = out,
                            .err = err};
    enum status st = calibrate_all(&s, predict, user);
    arena_free(s.scratch);
    return st;
}
