/* tests/validate/schedules.c - cases timed and compared, a row each, text or JSON. */
#include "tests/validate/schedules.h"

#include "core/base/arena.h"
#include "sim/pipeline/zero_bubble.h"
#include "tools/common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    enum schedule_kind kind;
    enum validated_kind made;
} tried[] = {
#define X(name, kind, made) {#name, SCHEDULE_##kind, made},
    TIMED_SCHEDULES(X)
#undef X
};

static const struct {
    enum schedule_column column;
    enum timed_schedule ours;
} exact[TIMED_EXACT] = {{COLUMN_one_f_one_b, TIMED_one_f_one_b},
                        {COLUMN_h1f1b_published, TIMED_h1f1b_published},
                        {COLUMN_zero_bubble_heuristic, TIMED_zero_bubble_heuristic}};

static bool same_makespan(int64_t ours, int64_t written)
{
    if (ours < 0 || written < 0) return ours == written;
    return llabs(ours - written) <= schedule_cases_rounding(written);
}

static enum status try_zero_bubble(struct arena *a, const struct schedule_case *c, bool thorough,
                                   int64_t *out, struct error *err)
{
    struct schedule s;
    enum status st = zero_bubble_make(a, &c->pipeline, c->microbatches, thorough, &s, out, err);
    if (st != ERR_INFEASIBLE) return st;
    *out = -1;
    return OK;
}

/* *out -1: the schedule exceeds a stage's memory. */
static enum status try_schedule(struct arena *a, const struct schedule_case *c, int which,
                                int64_t *out, struct error *err)
{
    const struct pipeline *p = &c->pipeline;
    size_t n = (size_t)c->n_stages;
    if (tried[which].made >= BY_HEURISTIC)
        return try_zero_bubble(a, c, tried[which].made == BY_ALL_HEURISTICS, out, err);
    double *time = ARENA_ARRAY(a, double, n), *transfer = ARENA_ARRAY(a, double, n);
    for (size_t s = 0; s < n; s++) {
        const struct pipeline_stage *x = &p->stages[s];
        time[s] = (double)(x->forward_ns + x->input_ns + x->weight_ns);
        transfer[s] = (double)p->links[s].latency_ns[0];
    }
    struct schedule_spec spec = {.kind = tried[which].kind,
                                 .n_devices = c->n_stages,
                                 .n_microbatches = c->microbatches,
                                 .split = tried[which].made == BY_NAME_SPLIT,
                                 .time = time,
                                 .transfer = transfer};
    struct schedule s;
    struct static_timer *t;
    TRY(schedule_make(a, &spec, &s, err));
    TRY(pipeline_check(p, &s, err));
    TRY(static_new(a, &s, &t, err));
    int64_t *peak = ARENA_ARRAY(a, int64_t, n);
    if (!static_time(t, p, out)) BUG("latencies contend");
    if (!static_memory(t, p, peak)) *out = -1;
    return OK;
}

enum status validate_case(const struct schedule_cases *f, const struct schedule_case *c,
                          struct validated_case *out, struct error *err)
{
    *out = (struct validated_case){.bound_holds = true, .best = -1};
    struct arena *scratch = arena_new();
    enum status st = OK;
    for (int k = 0; k < TIMED_COUNT && st == OK; k++) {
        st = try_schedule(scratch, c, k, &out->makespan[k], err);
        arena_reset(scratch);
        if (st != OK || out->makespan[k] < 0) continue;
        if (out->best < 0 || out->makespan[k] < out->makespan[out->best]) out->best = k;
        int64_t bound = c->makespan[COLUMN_lower_bound];
        if (out->makespan[k] + schedule_cases_rounding(bound) < bound) out->bound_holds = false;
    }
    arena_free(scratch);
    if (st != OK) return error_wrap(err, st, "%s:%d: case %s", f->file, c->line, c->name);
    for (int i = 0; i < TIMED_EXACT; i++)
        out->agrees[i] = !f->has[exact[i].column] ||
                         same_makespan(out->makespan[exact[i].ours], c->makespan[exact[i].column]);
    return OK;
}

/* --- what is printed --- */

struct summary {
    int32_t cases, compared[TIMED_EXACT], differ[TIMED_EXACT], unfit[TIMED_EXACT], beaten, optimal,
        as_best;
    double gap_sum, known_sum; /* best of ours over lower bound, over best known */
    int32_t gaps, knowns;
    double gap_max;
    const char *first_wrong;
};

static void add(struct summary *s, const struct schedule_cases *f, const struct schedule_case *c,
                const struct validated_case *v)
{
    s->cases++;
    for (int i = 0; i < TIMED_EXACT; i++) {
        if (!f->has[exact[i].column]) continue;
        s->compared[i]++;
        if (c->makespan[exact[i].column] < 0) s->unfit[i]++;
        if (!v->agrees[i]) s->differ[i]++;
    }
    s->beaten += !v->bound_holds;
    bool right = v->bound_holds;
    for (int i = 0; i < TIMED_EXACT; i++) right = right && v->agrees[i];
    if (!s->first_wrong && !right) s->first_wrong = c->name;
    if (v->best < 0) return;
    double best = (double)v->makespan[v->best];
    int64_t bound = c->makespan[COLUMN_lower_bound], known = c->makespan[COLUMN_best_known];
    if (bound > 0) {
        double gap = best / (double)bound - 1;
        s->gap_sum += gap, s->gaps++;
        if (gap > s->gap_max) s->gap_max = gap;
        s->optimal += best <= (double)bound;
    }
    if (known > 0) s->known_sum += best / (double)known - 1, s->knowns++;
    if (known > 0 && best <= (double)known) s->as_best++;
}

static void put_makespan(struct json *j, const char *key, int64_t ns)
{
    if (ns < 0)
        json_put_null(j, key);
    else
        json_put_int(j, key, ns);
}

static void put_case(struct json *j, const struct schedule_cases *f, const struct schedule_case *c,
                     const struct validated_case *v)
{
    json_put_object(j, NULL);
    json_put_text(j, "case", c->name);
    json_put_object_line(j, "ours");
    for (int k = 0; k < TIMED_COUNT; k++) put_makespan(j, tried[k].name, v->makespan[k]);
    json_close(j);
    json_put_object_line(j, "file");
    for (int k = 0; k < SCHEDULE_COLUMN_COUNT; k++)
        if (f->has[k])
            put_makespan(j, schedule_column_name((enum schedule_column)k), c->makespan[k]);
    json_close(j);
    json_put_object_line(j, "agrees");
    for (int i = 0; i < TIMED_EXACT; i++)
        if (f->has[exact[i].column])
            json_put_bool(j, schedule_column_name(exact[i].column), v->agrees[i]);
    json_close(j);
    if (f->has[COLUMN_lower_bound]) json_put_bool(j, "bound_holds", v->bound_holds);
    json_put_text(j, "best", v->best < 0 ? NULL : tried[v->best].name);
    json_close(j);
}

static void put_summary(struct json *j, const struct summary *s)
{
    json_put_object(j, "summary");
    json_put_int(j, "cases", s->cases);
    for (int i = 0; i < TIMED_EXACT; i++) {
        json_put_object_line(j, schedule_column_name(exact[i].column));
        json_put_int(j, "compared", s->compared[i]);
        json_put_int(j, "unfit", s->unfit[i]);
        json_put_int(j, "differ", s->differ[i]);
        json_close(j);
    }
    json_put_int(j, "bounds_beaten", s->beaten);
    json_put_int(j, "at_the_bound", s->optimal);
    json_put_int(j, "at_best_known", s->as_best);
    if (s->gaps) {
        json_put_double(j, "mean_gap_to_bound", s->gap_sum / s->gaps);
        json_put_double(j, "largest_gap_to_bound", s->gap_max);
    }
    if (s->knowns) json_put_double(j, "mean_gap_to_best_known", s->known_sum / s->knowns);
    json_close(j);
}

static void print_makespan(int64_t ns)
{
    if (ns < 0)
        printf(" %10s", "-");
    else
        printf(" %10" PRId64, ns);
}

static void print_head(const struct schedule_cases *f)
{
    printf("%-8s", "case");
    for (int k = 0; k < TIMED_COUNT; k++) printf(" %10.10s", tried[k].name);
    printf(" |");
    for (int k = 0; k < SCHEDULE_COLUMN_COUNT; k++)
        if (f->has[k]) printf(" %10.10s", schedule_column_name((enum schedule_column)k));
    printf("   (left: ours; -: does not fit; right: the file's)\n");
}

static void print_case(const struct schedule_cases *f, const struct schedule_case *c,
                       const struct validated_case *v)
{
    printf("%-8s", c->name);
    for (int k = 0; k < TIMED_COUNT; k++) print_makespan(v->makespan[k]);
    printf(" |");
    for (int k = 0; k < SCHEDULE_COLUMN_COUNT; k++)
        if (f->has[k]) print_makespan(c->makespan[k]);
    for (int i = 0; i < TIMED_EXACT; i++)
        if (!v->agrees[i]) printf("  %s differs", schedule_column_name(exact[i].column));
    if (!v->bound_holds) printf("  bound beaten");
    printf("\n");
}

static void print_summary(const struct summary *s)
{
    printf("%" PRId32 " cases", s->cases);
    for (int i = 0; i < TIMED_EXACT; i++)
        if (s->compared[i])
            printf("; %s: %" PRId32 " of %" PRId32 " exact (%" PRId32 " do not fit)",
                   schedule_column_name(exact[i].column), s->compared[i] - s->differ[i],
                   s->compared[i], s->unfit[i]);
    printf("; %" PRId32 " bounds beaten\n", s->beaten);
    if (s->gaps)
        printf("best of ours over the lower bound: mean %.2f %%, largest %.2f %%, equal in %" PRId32
               " of %" PRId32 "\n",
               100 * s->gap_sum / s->gaps, 100 * s->gap_max, s->optimal, s->gaps);
    if (s->knowns)
        printf("best of ours over the best known: mean %.2f %%, equal in %" PRId32 " of %" PRId32
               "\n",
               100 * s->known_sum / s->knowns, s->as_best, s->knowns);
}

static enum status run_cases(const struct schedule_cases *f, struct json *j, struct summary *sum,
                             struct error *err)
{
    for (int32_t i = 0; i < f->n; i++) {
        struct validated_case v;
        TRY(validate_case(f, &f->cases[i], &v, err));
        if (j)
            put_case(j, f, &f->cases[i], &v);
        else
            print_case(f, &f->cases[i], &v);
        add(sum, f, &f->cases[i], &v);
    }
    return OK;
}

enum status validate_schedules(struct arena *a, const char *csv, bool json, struct error *err)
{
    struct schedule_cases f;
    struct summary sum = {0};
    struct json j;
    TRY(schedule_cases_read(a, csv, &f, err));
    if (json) {
        common_json_begin(&j);
        json_put_text(&j, "file", csv);
        json_put_list(&j, "cases");
    } else
        print_head(&f);
    enum status st = run_cases(&f, json ? &j : NULL, &sum, err);
    if (json) {
        json_close(&j);
        put_summary(&j, &sum);
        common_json_end(&j);
    } else
        print_summary(&sum);
    TRY(st);
    if (sum.first_wrong)
        return error_set(
            err, ERR_TOLERANCE,
            "%s: differs from one_f_one_b in %" PRId32 " cases, from h1f1b_published in %" PRId32
            ", from zero_bubble_heuristic in %" PRId32 "; lower bounds beaten in %" PRId32
            "; first in case %s",
            csv, sum.differ[0], sum.differ[1], sum.differ[2], sum.beaten, sum.first_wrong);
    return OK;
}
