/* Estimation of the three levels of jitter.h from spans.
 *
 * Every execution is divided by the median of its own operator on its own device in its own run, so that only noise remains and no
 * difference between operators, devices or runs. A call's factor C is Σ time ÷ Σ median of its operators, a step's S the
 * same over its calls. Levels are nested: var C within a step contains the own level ÷ effective number of operators, var S
 * the call level ÷ effective number of calls; each is subtracted, bottom up (the moment estimators of nested variance components,
 * with weights: Searle, Casella, McCulloch, Variance Components, ch. 5).
 */
#include "sim/jitter.h"

#include "core/base/arena.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRAGGLER_STEPS_MIN = 8 }; /* fewer steps do not determine a median */
static const double straggler_min = 1.1, straggler_deviations = 8;

struct seen { /* one executed operator */
    int32_t device, step, stage, phase, microbatch, op, type,
        kind; /* device: counted over all runs */
    double ns, usual_ns;
};
struct called {
    int32_t device, step, type;
    double ns, usual_ns, own; /* own: variance contributed by its operators */
};
struct stepped {
    int32_t device, step, type;
    double factor, noise; /* noise: variance contributed by its calls */
    bool slow;
};
struct moments {
    double sum, weight;
    bool seen;
};
struct fit {
    struct arena *a;
    struct jitter_model *model;
    size_t n_seen, capacity, n_calls, n_steps;
    struct seen *seen;
    struct called *calls;
    struct stepped *steps;
    double *starts; /* of devices whose run has an excluded first step */
    size_t n_starts;
};

static int32_t order_of(const int32_t *x, const int32_t *y, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int by_operator(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return order_of((const int32_t[]){x->device, x->stage, x->phase, x->op, x->step, x->microbatch},
                    (const int32_t[]){y->device, y->stage, y->phase, y->op, y->step, y->microbatch},
                    6);
}

static int by_call(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return order_of((const int32_t[]){x->device, x->step, x->stage, x->phase, x->microbatch, x->op},
                    (const int32_t[]){y->device, y->step, y->stage, y->phase, y->microbatch, y->op},
                    6);
}

/* --- collecting ------------------------------------------------------------------------------- */

static enum status collect(struct fit *f, const struct cluster *c, const struct trace *t,
                           int32_t first_device, struct error *err)
{
    const int32_t from = trace_first_counted_step(t);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        enum op_kind kind = OP_KIND_COUNT;
        int32_t type = 0;
        if (x->kind != SPAN_COMPUTE || x->end_ns <= x->begin_ns || !op_kind_parse(x->name, &kind))
            continue;
        while (type < c->n_types && strcmp(c->types[type].name, t->devices[x->device].type) != 0)
            type++;
        if (type == c->n_types)
            return error_set(err, ERR_INPUT,
                             "the run of %s used a device of type %s, which cluster %s does not "
                             "have",
                             t->plan, t->devices[x->device].type, c->name);
        f->seen = arena_grow(f->a, f->seen, f->n_seen, &f->capacity, sizeof *f->seen);
        f->seen[f->n_seen++] = (struct seen){first_device + x->device,
                                             x->step - from,
                                             x->stage,
                                             x->phase,
                                             x->microbatch,
                                             x->op,
                                             type,
                                             (int32_t)kind,
                                             (double)(x->end_ns - x->begin_ns),
                                             0};
    }
    return OK;
}

/* Excluded steps (negative) are divided by the others' medians. */
static void find_usual(struct fit *f)
{
    double *values = ARENA_ARRAY(f->a, double, f->n_seen);
    qsort(f->seen, f->n_seen, sizeof *f->seen, by_operator);
    for (size_t first = 0, end; first < f->n_seen; first = end) {
        const struct seen *x = &f->seen[first];
        size_t n = 0;
        for (end = first; end < f->n_seen; end++) {
            const struct seen *y = &f->seen[end];
            if (y->device != x->device || y->stage != x->stage || y->phase != x->phase ||
                y->op != x->op)
                break;
            if (y->step >= 0) values[n++] = y->ns;
        }
        double usual = quantile_median_double(values, n);
        for (size_t i = first; i < end; i++) f->seen[i].usual_ns = usual;
    }
    size_t kept = 0;
    for (size_t i = 0; i < f->n_seen; i++)
        if (f->seen[i].usual_ns > 0) f->seen[kept++] = f->seen[i];
    f->n_seen = kept;
    if (kept) qsort(f->seen, f->n_seen, sizeof *f->seen, by_call);
}

static size_t end_of_call(const struct fit *f, size_t first)
{
    size_t end = first + 1;
    const struct seen *x = &f->seen[first];
    for (; end < f->n_seen; end++) {
        const struct seen *y = &f->seen[end];
        if (y->device != x->device || y->step != x->step || y->stage != x->stage ||
            y->phase != x->phase || y->microbatch != x->microbatch)
            break;
    }
    return end;
}

static struct called sum_of_call(const struct fit *f, size_t first, size_t end)
{
    struct called c = {
        .device = f->seen[first].device, .step = f->seen[first].step, .type = f->seen[first].type};
    for (size_t i = first; i < end; i++) c.ns += f->seen[i].ns, c.usual_ns += f->seen[i].usual_ns;
    return c;
}

/* --- the own level ---------------------------------------------------------------------------- */

static double variance_of(const struct moments *m)
{
    return m->weight > 1e-12 ? m->sum / m->weight : 0;
}

static void fit_own(struct fit *f)
{
    struct moments *m =
        ARENA_ARRAY(f->a, struct moments, (size_t)f->model->n_types * OP_KIND_COUNT);
    for (size_t first = 0, end; first < f->n_seen; first = end) {
        end = end_of_call(f, first);
        if (f->seen[first].step < 0) continue;
        struct called c = sum_of_call(f, first, end);
        double squares = 0, factor = c.ns / c.usual_ns;
        for (size_t i = first; i < end; i++) squares += pow(f->seen[i].usual_ns / c.usual_ns, 2);
        for (size_t i = first; i < end; i++) {
            const struct seen *x = &f->seen[i];
            struct moments *k = &m[x->type * OP_KIND_COUNT + x->kind];
            double share = x->usual_ns / c.usual_ns, off = x->ns / x->usual_ns / factor - 1;
            k->seen = true;
            k->sum += share * off * off;
            k->weight += share * (1 - 2 * share + squares);
        }
    }
    for (int32_t i = 0; i < f->model->n_types * OP_KIND_COUNT; i++)
        if (m[i].seen)
            f->model->types[i / OP_KIND_COUNT].own_cv[i % OP_KIND_COUNT] = sqrt(variance_of(&m[i]));
}

static void make_calls(struct fit *f)
{
    f->calls = ARENA_ARRAY(f->a, struct called, f->n_seen);
    for (size_t first = 0, end; first < f->n_seen; first = end) {
        end = end_of_call(f, first);
        struct called c = sum_of_call(f, first, end);
        for (size_t i = first; i < end; i++) {
            const struct seen *x = &f->seen[i];
            c.own += pow(x->usual_ns / c.usual_ns * f->model->types[x->type].own_cv[x->kind], 2);
        }
        f->calls[f->n_calls++] = c;
    }
}

/* --- the call level --------------------------------------------------------------------------- */

static size_t end_of_step(const struct fit *f, size_t first)
{
    size_t end = first + 1;
    while (end < f->n_calls && f->calls[end].device == f->calls[first].device &&
           f->calls[end].step == f->calls[first].step)
        end++;
    return end;
}

static void fit_calls(struct fit *f)
{
    struct moments *m = ARENA_ARRAY(f->a, struct moments, (size_t)f->model->n_types),
                   *own = ARENA_ARRAY(f->a, struct moments, (size_t)f->model->n_types);
    for (size_t first = 0, end; first < f->n_calls; first = end) {
        double ns = 0, usual = 0, squares = 0;
        end = end_of_step(f, first);
        if (f->calls[first].step < 0) continue;
        for (size_t i = first; i < end; i++) ns += f->calls[i].ns, usual += f->calls[i].usual_ns;
        for (size_t i = first; i < end; i++) squares += pow(f->calls[i].usual_ns / usual, 2);
        for (size_t i = first; i < end; i++) {
            const struct called *c = &f->calls[i];
            double share = c->usual_ns / usual, off = c->ns / c->usual_ns / (ns / usual) - 1;
            double weight = share * (1 - 2 * share + squares);
            m[c->type].sum += share * off * off;
            m[c->type].weight += weight;
            own[c->type].sum += weight * c->own;
            own[c->type].weight += weight;
        }
    }
    for (int32_t t = 0; t < f->model->n_types; t++) {
        if (!f->model->types[t].fitted) continue;
        double variance = variance_of(&m[t]) - variance_of(&own[t]);
        f->model->types[t].call_cv = variance > 0 ? sqrt(variance) : 0;
    }
}

static void make_steps(struct fit *f)
{
    f->steps = ARENA_ARRAY(f->a, struct stepped, f->n_calls);
    for (size_t first = 0, end; first < f->n_calls; first = end) {
        double ns = 0, usual = 0, noise = 0;
        end = end_of_step(f, first);
        const struct called *c = &f->calls[first];
        const double call = f->model->types[c->type].call_cv;
        for (size_t i = first; i < end; i++) ns += f->calls[i].ns, usual += f->calls[i].usual_ns;
        for (size_t i = first; i < end; i++)
            noise += pow(f->calls[i].usual_ns / usual, 2) * (call * call + f->calls[i].own);
        f->steps[f->n_steps++] =
            (struct stepped){c->device, c->step, c->type, ns / usual, noise, false};
    }
}

/* --- steps: stragglers, start, and the rest --------------------------------------------------- */

/* Marks the slow ones of n counted steps of one device, and adds their slowdowns to *slow. */
static void mark_slow(struct fit *f, struct stepped *s, size_t n, double usual,
                      struct moments *slow, size_t *stretches)
{
    double *away = ARENA_ARRAY(f->a, double, n);
    for (size_t i = 0; i < n; i++) away[i] = fabs(s[i].factor - usual);
    double cv = jitter_cv_of_spread(1.4826 * quantile_median_double(away, n) / usual);
    for (size_t i = 0; i < n && n >= STRAGGLER_STEPS_MIN; i++) {
        s[i].slow = s[i].factor > straggler_min * usual &&
                    s[i].factor > usual * (1 + straggler_deviations * cv);
        if (!s[i].slow) continue;
        slow->sum += s[i].factor / usual;
        slow->weight++;
        *stretches += !(i > 0 && s[i - 1].slow && s[i - 1].step == s[i].step - 1);
    }
}

static void add_step_variance(const struct stepped *s, size_t n, struct moments *m,
                              struct moments *noise)
{
    double mean = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!s[i].slow) mean += s[i].factor, kept++;
    if (kept < 2) return;
    mean /= kept;
    m->weight += kept - 1;
    for (size_t i = 0; i < n; i++) {
        if (s[i].slow) continue;
        m->sum += pow(s[i].factor / mean - 1, 2);
        noise->sum += s[i].noise;
        noise->weight++;
    }
}

static void fit_steps(struct fit *f)
{
    struct jitter_model *model = f->model;
    struct moments *m = ARENA_ARRAY(f->a, struct moments, (size_t)model->n_types),
                   *noise = ARENA_ARRAY(f->a, struct moments, (size_t)model->n_types);
    struct moments slow = {0};
    double *values = ARENA_ARRAY(f->a, double, f->n_steps), counted = 0;
    size_t stretches = 0;
    f->starts = ARENA_ARRAY(f->a, double, f->n_steps);
    for (size_t first = 0, end = 0; first < f->n_steps; first = end) {
        size_t from = first, n = 0;
        while (end < f->n_steps && f->steps[end].device == f->steps[first].device) end++;
        while (from < end && f->steps[from].step < 0) from++;
        for (size_t i = from; i < end; i++) values[n++] = f->steps[i].factor;
        double usual = quantile_median_double(values, n);
        if (!n) continue;
        if (from > first && f->steps[from - 1].step == -1)
            f->starts[f->n_starts++] = f->steps[from - 1].factor / usual;
        mark_slow(f, &f->steps[from], n, usual, &slow, &stretches);
        add_step_variance(&f->steps[from], n, &m[f->steps[first].type],
                          &noise[f->steps[first].type]);
        counted += (double)n;
    }
    for (int32_t t = 0; t < model->n_types; t++) {
        if (!model->types[t].fitted) continue;
        double variance = variance_of(&m[t]) - variance_of(&noise[t]);
        model->types[t].step_cv = variance > 0 ? sqrt(variance) : 0;
    }
    if (slow.weight > 0) {
        model->straggler_share = slow.weight / counted;
        model->straggler_factor = slow.sum / slow.weight;
        model->straggler_steps = (int32_t)lround(slow.weight / (double)stretches);
    }
    if (f->n_starts) {
        double start = quantile_median_double(f->starts, f->n_starts);
        model->start_factor = start > 1 ? start : 1;
        model->start_steps = 1;
    }
}

/* --- links ------------------------------------------------------------------------------------ */

static bool counts(const struct span *x, int32_t from)
{
    return x->kind == SPAN_SEND && x->op >= 0 && x->step >= from;
}

/* Messages of one channel of a run have equal size and link. link[c]: of the cluster; -1: unknown. */
static void add_run(struct fit *f, const struct cluster *c, const struct trace *t,
                    struct moments *m)
{
    int32_t n = 0, from = trace_first_counted_step(t);
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_SEND && t->spans[i].op >= n) n = t->spans[i].op + 1;
    struct moments *channels = ARENA_ARRAY(f->a, struct moments, (size_t)n);
    int32_t *link = ARENA_ARRAY(f->a, int32_t, (size_t)n);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        if (!counts(x, from)) continue;
        if (!channels[x->op].seen) {
            link[x->op] = c->n_links - 1;
            while (link[x->op] >= 0 && strcmp(c->links[link[x->op]].name, x->name) != 0)
                link[x->op]--;
        }
        channels[x->op].seen = true;
        channels[x->op].sum += (double)(x->end_ns - x->begin_ns);
        channels[x->op].weight++;
    }
    for (int32_t i = 0; i < n; i++)
        if (channels[i].seen && link[i] >= 0) m[link[i]].weight += channels[i].weight - 1;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        if (!counts(x, from) || link[x->op] < 0 || !(channels[x->op].sum > 0)) continue;
        double mean = channels[x->op].sum / channels[x->op].weight;
        m[link[x->op]].sum += pow((double)(x->end_ns - x->begin_ns) / mean - 1, 2);
    }
}

static void fit_links(struct fit *f, const struct cluster *c, struct trace *const *runs,
                      size_t n_runs)
{
    double *fitted = ARENA_ARRAY(f->a, double, (size_t)c->n_links);
    struct moments *m = ARENA_ARRAY(f->a, struct moments, (size_t)c->n_links);
    size_t n = 0;
    if (c->emulated) return;
    for (size_t r = 0; r < n_runs; r++)
        if (!runs[r]->emulated) add_run(f, c, runs[r], m);
    for (int32_t l = 0; l < c->n_links; l++)
        if (m[l].weight > 0) f->model->link_cv[l] = fitted[n++] = sqrt(variance_of(&m[l]));
    if (n) f->model->hop_cv = quantile_median_double(fitted, n);
}

enum status jitter_fit(const struct cluster *c, struct trace *const *runs, size_t n_runs,
                       struct jitter_model *m, struct error *err)
{
    struct fit f = {.a = arena_new(), .model = m};
    enum status st = OK;
    int32_t device = 0;
    for (size_t i = 0; i < n_runs && st == OK; i++) {
        st = collect(&f, c, runs[i], device, err);
        device += runs[i]->n_devices;
    }
    if (st == OK && !f.n_seen)
        st = error_set(err, ERR_INPUT, "no spans of operators to learn the jitter from");
    if (st == OK) {
        for (size_t i = 0; i < f.n_seen; i++) m->types[f.seen[i].type].fitted = true;
        find_usual(&f);
        fit_own(&f);
        make_calls(&f);
        fit_calls(&f);
        make_steps(&f);
        fit_steps(&f);
        fit_links(&f, c, runs, n_runs);
    }
    arena_free(f.a);
    return st;
}
