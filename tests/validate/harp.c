#include "tests/validate/harp.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/search.h"
#include "tools/common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

/* --- what is computed --- */

/* The first is the complete class: any cut, any order of the devices, unused devices, the ceiling rule. O(pipelines). */
static enum status ablate(struct arena *a, const struct harp_team *t, int32_t *n,
                          struct harp_ablation **out, struct error *err)
{
    static const struct harp_ablation rows[] = {
        {.name = "any cut, any order, ceiling rule",
         .class = {.rule = SCHEDULE_H1F1B, .any_order = true}},
        {.name = "the same, nothing pruned",
         .class = {.rule = SCHEDULE_H1F1B, .any_order = true, .exhaustive = true}},
        {.name = "nodes in the file's order", .class = {.rule = SCHEDULE_H1F1B}},
        {.name = "16 coarse layers",
         .class = {.rule = SCHEDULE_H1F1B, .any_order = true, .coarse = 16}},
        {.name = "8 coarse layers",
         .class = {.rule = SCHEDULE_H1F1B, .any_order = true, .coarse = 8}},
        {.name = "6 coarse layers",
         .class = {.rule = SCHEDULE_H1F1B, .any_order = true, .coarse = 6}},
        {.name = "H-1F1B as published",
         .class = {.rule = SCHEDULE_H1F1B_PUBLISHED, .any_order = true}},
        {.name = "eager 1F1B", .class = {.rule = SCHEDULE_EAGER, .any_order = true}},
        {.name = "1F1B", .class = {.rule = SCHEDULE_1F1B, .any_order = true}}};
    *n = (int32_t)(sizeof rows / sizeof *rows);
    *out = ARENA_ARRAY(a, struct harp_ablation, (size_t)*n);
    for (int32_t i = 0; i < *n; i++) {
        (*out)[i] = rows[i];
        TRY(harp_model_search(a, t, &rows[i].class, &(*out)[i].result, err));
    }
    return OK;
}

struct found { /* the planner's result of a case, without HARP's restrictions */
    struct search_result r;
    const char *why;     /* reason if there is no plan; NULL */
    int64_t pipeline_ns; /* the first ablation's pipeline, as a plan */
    double cpu_s;
};

struct report {
    struct harp_cases cases;
    int32_t n_sweep, n_ablations;
    struct harp_sweep *sweep;
    struct harp_ablation **ablation; /* (cases.n) */
    struct found *found;             /* (cases.n) */
};

static enum status plan_case(struct arena *a, const struct harp_team *t,
                             const struct harp_pipeline *best, struct found *out, struct error *err)
{
    struct search_options o = {.top = 1, .evaluations = 2000};
    struct error why = {0};
    struct plan plan;
    struct sim_result r;
    struct program program;
    clock_t begin = clock();
    enum status st = search_plans(a, &t->job, &t->cluster, &t->profile, &o, &out->r, &why);
    out->cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT)
        return error_set(err, st, "%s", why.text);
    if (st != OK) out->why = arena_strdup(a, why.text);
    harp_model_plan(a, t, best, &plan);
    TRY(common_simulate(a, &plan, &t->profile, &(struct sim_options){.detail = SIM_STAGE}, &r,
                        &program, err));
    out->pipeline_ns = r.iteration_ns;
    return OK;
}

static enum status compute(struct arena *a, const char *folder, struct report *out,
                           struct error *err)
{
    TRY(harp_cases_read(a, folder, &out->cases, err));
    TRY(harp_sweep_read(a, folder, &out->n_sweep, &out->sweep, err));
    out->ablation = ARENA_ARRAY(a, struct harp_ablation *, (size_t)out->cases.n);
    out->found = ARENA_ARRAY(a, struct found, (size_t)out->cases.n);
    for (int32_t i = 0; i < out->cases.n; i++) {
        const struct harp_team *t = &out->cases.cases[i].team;
        TRY(ablate(a, t, &out->n_ablations, &out->ablation[i], err));
        TRY(plan_case(a, t, &out->ablation[i][0].result.best, &out->found[i], err));
    }
    return OK;
}

static double error_of(const struct harp_case *x)
{
    return 1e-9 * (double)x->iteration_ns / x->measured_s - 1;
}

/* "22 on v w3, 30 on a w1" */
static const char *layers_text(struct arena *a, const struct harp_team *t,
                               const struct harp_pipeline *p)
{
    const char *text = "";
    for (int32_t s = 0; s < p->n; s++)
        text = arena_printf(a, "%s%s%d on %s w%d", text, s ? ", " : "",
                            (int)(p->last[s] - (s ? p->last[s - 1] : -1)),
                            t->cluster.nodes[p->node[s]].name, (int)p->warmup[s]);
    return text;
}

/* --- text --- */

static void print_cases(struct arena *a, const struct harp_cases *c)
{
    printf("HARP's cases, simulated; every operator takes %.4f times the catalogue's prior, a "
           "constant sought on %s alone\n",
           c->pace, c->cases[0].name);
    for (int32_t i = 0; i < c->n; i++) {
        const struct harp_case *x = &c->cases[i];
        printf("  %-12s measured %.3f s, simulated %.3f s (%+.1f %%%s): %s; GPUs share %s\n",
               x->name, x->measured_s, 1e-9 * (double)x->iteration_ns, 100 * error_of(x),
               i ? "" : ", in sample", layers_text(a, &x->team, &x->published),
               x->team.sharing == HARP_OPERATORS ? "operators" : "sequences");
        printf("  %-12s timed by sim/pipeline/static %.3f s; best of its class %.3f s, %s: at most %d "
               "layers apart\n",
               "", 1e-9 * (double)x->published.iteration_ns,
               1e-9 * (double)x->best.best.iteration_ns, layers_text(a, &x->team, &x->best.best),
               (int)x->apart);
        printf("  %-12s peak of a GPU, measured and simulated, GB:", "");
        for (int32_t s = 0; s < x->published.n; s++)
            printf("%s %.3f %.3f", s ? "," : "", x->peak_GB[s], 1e-9 * (double)x->peak_bytes[s]);
        printf("\n");
    }
}

static void print_sweep(const struct harp_sweep *x, int32_t n)
{
    printf(
        "their 2.6B plan on links of other bandwidths: s an iteration, known and simulated\n  %6s",
        "Gbps");
    for (int k = 0; k < HARP_RULES; k++) printf(" %17s", HARP_RULE_NAME[k]);
    printf("\n");
    for (int32_t i = 0; i < n; i++) {
        printf("  %6g", x[i].Gbps);
        for (int k = 0; k < HARP_RULES; k++)
            printf("   %6.1f %8.3f", x[i].published_s[k], 1e-9 * (double)x[i].simulated_ns[k]);
        printf("\n");
    }
}

static void print_ablations(struct arena *a, const struct report *r, int32_t i)
{
    const struct harp_case *x = &r->cases.cases[i];
    printf("%s, simulated: the best of each class of pipelines, everything computed again\n",
           x->name);
    printf("  %-34s %9s %7s %10s %8s\n", "", "s", "slower", "pipelines", "timed");
    for (int32_t k = 0; k < r->n_ablations; k++) {
        const struct harp_ablation *b = &r->ablation[i][k];
        printf("  %-34s %9.3f %5.1f %% %10" PRId64 " %8" PRId64 "  %s\n", b->name,
               1e-9 * (double)b->result.best.iteration_ns,
               100 * ((double)b->result.best.iteration_ns /
                          (double)r->ablation[i][0].result.best.iteration_ns -
                      1),
               b->result.pipelines, b->result.timed, layers_text(a, &x->team, &b->result.best));
    }
}

static void print_found(struct arena *a, const struct report *r, int32_t i)
{
    const struct harp_case *x = &r->cases.cases[i];
    const struct search_result *s = &r->found[i].r;
    char text[32];
    if (r->found[i].why) {
        printf("%s: not planned: %s\n", x->name, r->found[i].why);
        return;
    }
    double first = (double)s->plans[0].iteration_ns;
    printf("%s, simulated: the planner's plan beside theirs and the presets\n", x->name);
    printf("  %-18s %10s         %s\n", "found", units_print_ns(text, s->plans[0].iteration_ns),
           plan_describe(a, &s->plans[0].plan));
    printf("  %-18s %10s  %5.2f  %s\n", "best of its class",
           units_print_ns(text, r->found[i].pipeline_ns), (double)r->found[i].pipeline_ns / first,
           layers_text(a, &x->team, &r->ablation[i][0].result.best));
    printf("  %-18s %10s  %5.2f  %s\n", "as they ran it", units_print_ns(text, x->iteration_ns),
           (double)x->iteration_ns / first, layers_text(a, &x->team, &x->published));
    for (int32_t k = 0; k < s->n_baselines; k++) {
        const struct search_baseline *b = &s->baselines[k];
        if (b->iteration_ns == INT64_MAX)
            printf("  %-18s %10s         %.150s\n", b->name, "-", b->why);
        else
            printf("  %-18s %10s  %5.2f  %s\n", b->name, units_print_ns(text, b->iteration_ns),
                   (double)b->iteration_ns / first, plan_describe(a, &b->plan));
    }
}

/* --- JSON --- */

static void put_case(struct arena *a, struct json *j, const struct report *r, int32_t i)
{
    const struct harp_case *x = &r->cases.cases[i];
    const struct search_result *s = &r->found[i].r;
    json_put_object(j, NULL);
    json_put_text(j, "case", x->name);
    json_put_double(j, "measured_s", x->measured_s);
    json_put_int(j, "iteration_ns", x->iteration_ns);
    json_put_double(j, "error", error_of(x));
    json_put_bool(j, "in_sample", i == 0);
    json_put_text(j, "published", layers_text(a, &x->team, &x->published));
    json_put_text(j, "best_of_class", layers_text(a, &x->team, &x->best.best));
    json_put_int(j, "layers_apart", x->apart);
    json_put_list(j, "peaks");
    for (int32_t k = 0; k < x->published.n; k++) {
        json_put_object_line(j, NULL);
        json_put_double(j, "measured_bytes", 1e9 * x->peak_GB[k]);
        json_put_int(j, "simulated_bytes", x->peak_bytes[k]);
        json_close(j);
    }
    json_close(j);
    json_put_list(j, "ablations");
    for (int32_t k = 0; k < r->n_ablations; k++) {
        const struct harp_ablation *b = &r->ablation[i][k];
        json_put_object_line(j, NULL);
        json_put_text(j, "class", b->name);
        json_put_int(j, "iteration_ns", b->result.best.iteration_ns);
        json_put_int(j, "pipelines", b->result.pipelines);
        json_put_int(j, "timed", b->result.timed);
        json_put_text(j, "best", layers_text(a, &x->team, &b->result.best));
        json_close(j);
    }
    json_close(j);
    if (r->found[i].why) {
        json_put_text(j, "not_planned", r->found[i].why);
        json_close(j);
        return;
    }
    json_put_int(j, "pipeline_ns", r->found[i].pipeline_ns);
    json_put_int(j, "found_ns", s->plans[0].iteration_ns);
    json_put_text(j, "found", plan_describe(a, &s->plans[0].plan));
    json_put_list(j, "baselines");
    for (int32_t k = 0; k < s->n_baselines; k++) {
        json_put_object_line(j, NULL);
        json_put_text(j, "name", s->baselines[k].name);
        if (s->baselines[k].iteration_ns == INT64_MAX)
            json_put_null(j, "iteration_ns");
        else
            json_put_int(j, "iteration_ns", s->baselines[k].iteration_ns);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}

static void print_json(struct arena *a, const struct report *r)
{
    struct json j;
    double cpu_s = 0;
    common_json_begin(&j);
    json_put_double(&j, "pace", r->cases.pace);
    json_put_text(&j, "fitted_on", r->cases.cases[0].name);
    json_put_list(&j, "cases");
    for (int32_t i = 0; i < r->cases.n; i++) put_case(a, &j, r, i);
    json_close(&j);
    json_put_list(&j, "sweep");
    for (int32_t i = 0; i < r->n_sweep; i++) {
        json_put_object_line(&j, NULL);
        json_put_double(&j, "Gbps", r->sweep[i].Gbps);
        for (int k = 0; k < HARP_RULES; k++)
            json_put_int(&j, HARP_RULE_NAME[k], r->sweep[i].simulated_ns[k]);
        json_close(&j);
    }
    json_close(&j);
    json_put_object_line(&j, "timing"); /* outside "same inputs, same bytes" */
    for (int32_t i = 0; i < r->cases.n; i++) cpu_s += r->found[i].cpu_s;
    json_put_double(&j, "plan_cpu_s", cpu_s);
    json_close(&j);
    common_json_end(&j);
}

enum status validate_harp(struct arena *a, const char *folder, bool as_json, struct error *err)
{
    struct report r = {0};
    TRY(compute(a, folder, &r, err));
    if (as_json) {
        print_json(a, &r);
        return OK;
    }
    print_cases(a, &r.cases);
    print_sweep(r.sweep, r.n_sweep);
    for (int32_t i = 0; i < r.cases.n; i++) print_ablations(a, &r, i);
    for (int32_t i = 0; i < r.cases.n; i++) print_found(a, &r, i);
    for (int32_t i = 0; i < r.cases.n; i++)
        printf("CPU seconds, %s: pruned %.3f, not pruned %.3f, planner %.2f\n",
               r.cases.cases[i].name, r.ablation[i][0].result.cpu_s, r.ablation[i][1].result.cpu_s,
               r.found[i].cpu_s);
    return OK;
}
