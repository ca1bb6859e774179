/* tools/schedule/search.c - one search per case (three with two chunks), one line per case, a summary. */
#include "tools/schedule/search.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "planner/schedule/find.h"
#include "tools/common.h"
#include "tools/schedule/cases.h"
#include "tools/schedule/halves.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Result of one case in one class of placements. Times in units of 1/scale of the table's. */
struct answer {
    bool fits;
    int64_t makespan, lower_bound;
    int scale;
    const char *binding, *placement;
    struct schedule schedule;
    int64_t *peak;
};
struct summary {
    int32_t cases, fit, proved, compared, better, equal, worse, beaten;
    double *gap; /* (fit) */
    double vs_known;
    bool cut_off;
    const char *first_beaten;
};

/* --- time limit --- */

struct deadline {
    double end_s;
    bool passed;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool too_late(void *user)
{
    struct deadline *d = user;
    if (now_s() > d->end_s) d->passed = true;
    return d->passed;
}

/* --- searches --- */

static enum status find(struct arena *a, const struct schedule_search_options *o,
                        const struct pipeline *p, const struct schedule *shape,
                        struct schedule_found *found, bool *fits, bool *cut_off, struct error *err)
{
    struct deadline deadline = {.end_s = now_s() + o->seconds};
    struct schedule_find_options options = {.seed = o->seed,
                                            .operations = o->operations,
                                            .stop = o->seconds > 0 ? too_late : NULL,
                                            .user = &deadline};
    enum status st = schedule_find(a, p, shape, &options, found, err);
    *fits = st == OK;
    *cut_off |= deadline.passed;
    return st == ERR_INFEASIBLE ? OK : st;
}

static void take(struct answer *x, const struct schedule_found *f, const char *placement)
{
    if (x->fits && x->makespan <= f->makespan_ns) return;
    x->fits = true, x->placement = placement;
    x->makespan = f->makespan_ns, x->schedule = f->schedule, x->peak = f->peak_bytes;
}

static enum status search_one(struct arena *a, const struct schedule_search_options *o,
                              const struct schedule_case *c, struct answer *x, bool *cut_off,
                              struct error *err)
{
    struct schedule shape;
    struct schedule_found found;
    bool fits;
    schedule_shape(a, c->n_stages, 1, c->microbatches, false, &shape);
    TRY(find(a, o, &c->pipeline, &shape, &found, &fits, cut_off, err));
    *x = (struct answer){.scale = 1};
    if (!fits) return OK;
    take(x, &found, "one chunk");
    x->lower_bound = found.bound.lower_bound_ns;
    x->binding = found.bound.stage < 0
                     ? found.bound.term
                     : arena_printf(a, "%s@%" PRId32, found.bound.term, found.bound.stage);
    return OK;
}

static enum status search_halves(struct arena *a, const struct schedule_search_options *o,
                                 const struct schedule_case *c, struct answer *x, bool *cut_off,
                                 struct error *err)
{
    *x = (struct answer){.scale = 2};
    x->lower_bound = schedule_halves_bound(&c->pipeline, c->microbatches, &x->binding);
    for (int v_shaped = 1; v_shaped >= 0; v_shaped--) {
        struct pipeline halves;
        struct schedule shape;
        struct schedule_found found;
        bool fits;
        schedule_halve(a, &c->pipeline, v_shaped, &halves);
        schedule_shape(a, c->n_stages, 2, c->microbatches, v_shaped, &shape);
        TRY(find(a, o, &halves, &shape, &found, &fits, cut_off, err));
        if (fits) take(x, &found, v_shaped ? "v" : "interleaved");
    }
    return OK;
}

/* --- lines --- */

static void write_number(FILE *f, int64_t value, int scale)
{
    fprintf(f, "%" PRId64 "%s", value / scale, value % scale ? ".5" : "");
}

static void write_order(FILE *f, const struct schedule *s)
{
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (d) fputc('|', f);
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
            const struct schedule_op *o = &s->lanes[d].ops[i];
            if (i) fputc(' ', f);
            if (s->n_chunks > 1) fprintf(f, "%" PRId32, o->chunk);
            fprintf(f, "%c%" PRId32, o->phase, o->microbatch);
        }
    }
}

static double gap_of(const struct answer *x)
{
    if (x->makespan == x->lower_bound) return 0; /* both may be 0 */
    return (double)(x->makespan - x->lower_bound) / (double)x->lower_bound;
}

/* makespan, peak_memory, lower_bound, gap, binding, schedule */
static void write_answer(FILE *f, const struct answer *x)
{
    if (!x->fits) {
        fprintf(f, ",,,,,does not fit,");
        return;
    }
    fputc(',', f);
    write_number(f, x->makespan, x->scale);
    for (int32_t d = 0; d < x->schedule.n_devices; d++) {
        fputc(d ? '|' : ',', f);
        write_number(f, x->peak[d], x->scale);
    }
    fputc(',', f);
    write_number(f, x->lower_bound, x->scale);
    fprintf(f, ",%.6f,%s,", gap_of(x), x->binding);
    write_order(f, &x->schedule);
}

static void write_head(FILE *f, int64_t chunks)
{
    fprintf(f, "case,makespan,peak_memory,lower_bound,gap,binding,schedule");
    if (chunks > 1)
        fprintf(f, ",chunks2_placement,chunks2_makespan,chunks2_peak_memory,chunks2_lower_bound,"
                   "chunks2_gap,chunks2_binding,chunks2_schedule");
    fputc('\n', f);
}

static void write_line(FILE *f, const struct schedule_case *c, const struct answer *one,
                       const struct answer *halves)
{
    fprintf(f, "%s", c->name);
    write_answer(f, one);
    if (halves) {
        fprintf(f, ",%s", halves->fits ? halves->placement : "");
        write_answer(f, halves);
    }
    fputc('\n', f);
}

/* --- the summary --- */

static int64_t listed(const struct schedule_case *c, const char **name)
{
    int64_t best = -1;
    for (int k = COLUMN_one_f_one_b; k <= COLUMN_best_known; k++)
        if (c->makespan[k] >= 0 && (best < 0 || c->makespan[k] < best))
            best = c->makespan[k], *name = schedule_column_name((enum schedule_column)k);
    return best;
}

static void add(struct summary *s, const struct schedule_case *c, const struct answer *x)
{
    const char *name = NULL;
    int64_t best = listed(c, &name), bound = c->makespan[COLUMN_lower_bound];
    s->cases++;
    if (!x->fits) return;
    s->gap[s->fit++] = gap_of(x);
    s->proved += x->makespan == x->lower_bound;
    if (bound >= 0 && x->makespan + schedule_cases_rounding(bound) < bound) {
        if (!s->beaten++) s->first_beaten = c->name;
    }
    if (best < 0) return;
    int64_t rounding = schedule_cases_rounding(best);
    s->compared++;
    s->better += x->makespan + rounding < best;
    s->worse += x->makespan > best + rounding;
    if (best > 0) s->vs_known += (double)x->makespan / (double)best - 1;
}

static int compare_gap(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean_gap(const struct summary *s)
{
    double sum = 0;
    for (int32_t i = 0; i < s->fit; i++) sum += s->gap[i];
    return s->fit ? sum / s->fit : 0;
}

/* 95th percentile of the sorted gaps. */
static double gap_p95(const struct summary *s)
{
    return s->fit ? s->gap[(int64_t)(s->fit * 95 + 99) / 100 - 1] : 0;
}

static void print_case(const struct schedule_case *c, const struct answer *x,
                       const struct answer *halves)
{
    const char *name = "";
    int64_t best = listed(c, &name);
    if (!x->fits) {
        printf("%-10s does not fit the memory\n", c->name);
        return;
    }
    bool worse = best >= 0 && x->makespan > best + schedule_cases_rounding(best);
    if (x->makespan == x->lower_bound && !worse && !halves) return;
    printf("%-10s %12" PRId64 "  bound %12" PRId64 "  gap %6.2f %%", c->name, x->makespan,
           x->lower_bound, 100 * gap_of(x));
    if (halves && halves->fits)
        printf("  two chunks %12.1f (%s)  bound %12.1f", (double)halves->makespan / halves->scale,
               halves->placement, (double)halves->lower_bound / halves->scale);
    if (worse) printf("  worse than %s: %" PRId64, name, best);
    printf("\n");
}

static void print_summary(struct summary *s)
{
    printf("%" PRId32 " cases, %" PRId32 " fit the memory, %" PRId32 " proved optimal (%.1f %%); "
           "gap: mean %.3f %%, 95 of 100 within %.2f %%, largest %.2f %%\n",
           s->cases, s->fit, s->proved, s->fit ? 100.0 * s->proved / s->fit : 0, 100 * mean_gap(s),
           100 * gap_p95(s), s->fit ? 100 * s->gap[s->fit - 1] : 0);
    if (s->compared)
        printf("against the best makespan of the table: %" PRId32 " better, %" PRId32
               " equal, %" PRId32 " worse; mean %+.3f %%\n",
               s->better, s->compared - s->better - s->worse, s->worse,
               100 * s->vs_known / s->compared);
    if (s->cut_off) printf("some searches reached --time-limit\n");
}

static void put_summary(const struct summary *s)
{
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "cases", s->cases);
    json_put_int(&j, "fit", s->fit);
    json_put_int(&j, "proved_optimal", s->proved);
    json_put_double(&j, "mean_gap", mean_gap(s));
    json_put_double(&j, "gap_p95", gap_p95(s));
    json_put_double(&j, "largest_gap", s->fit ? s->gap[s->fit - 1] : 0);
    json_put_int(&j, "compared", s->compared);
    json_put_int(&j, "better", s->better);
    json_put_int(&j, "worse", s->worse);
    json_put_int(&j, "bounds_beaten", s->beaten);
    json_put_text(&j, "stopped", s->cut_off ? "time" : "end");
    common_json_end(&j);
}

static enum status run(struct arena *a, const struct schedule_search_options *o,
                       const struct schedule_cases *f, FILE *out, struct summary *s,
                       struct error *err)
{
    bool silent = o->json || (o->out && !strcmp(o->out, "-"));
    s->gap = ARENA_ARRAY(a, double, (size_t)f->n);
    if (out) write_head(out, o->chunks);
    struct arena *scratch = arena_new();
    enum status st = OK;
    for (int32_t i = 0; i < f->n && st == OK; i++) {
        const struct schedule_case *c = &f->cases[i];
        struct answer one, halves;
        st = search_one(scratch, o, c, &one, &s->cut_off, err);
        if (st == OK && o->chunks > 1) st = search_halves(scratch, o, c, &halves, &s->cut_off, err);
        if (st == OK) {
            const struct answer *second = o->chunks > 1 ? &halves : NULL;
            if (out) write_line(out, c, &one, second);
            if (!silent) print_case(c, &one, second);
            add(s, c, &one);
        } else
            st = error_wrap(err, st, "%s:%d: case %s", f->file, c->line, c->name);
        arena_reset(scratch);
    }
    arena_free(scratch);
    return st;
}

enum status schedule_search(struct arena *a, const struct schedule_search_options *o,
                            struct error *err)
{
    struct schedule_cases cases;
    struct summary s = {0};
    struct file f = {0};
    TRY(common_not_stdout(o->json, "--out", o->out, err));
    TRY(schedule_cases_read(a, o->cases, &cases, err));
    if (o->out) TRY(file_open(&f, o->out, err));
    enum status st = run(a, o, &cases, f.stream, &s, err);
    if (st == OK && o->out) st = file_commit(&f, err);
    file_abandon(&f);
    TRY(st);
    qsort(s.gap, (size_t)s.fit, sizeof *s.gap, compare_gap);
    if (o->json)
        put_summary(&s);
    else if (!o->out || strcmp(o->out, "-") != 0)
        print_summary(&s);
    if (s.beaten)
        return error_set(err, ERR_TOLERANCE,
                         "%s: makespans below the table's lower bound in %" PRId32
                         " cases, the first %s",
                         o->cases, s.beaten, s.first_beaten);
    return OK;
}
