#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/classes.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *plan, *out;
    bool deterministic, all;
};

/* "0-3" of one stage, "0-3, 8-11" of several. */
static const char *layers_text(struct arena *a, const struct program *p, const struct lane *l)
{
    const char *text = "";
    for (int32_t c = 0; c < l->n_stages; c++) {
        const struct program_stage *s = &p->stages[l->stages[c]];
        text = arena_printf(a, "%s%s%d-%d", text, c ? ", " : "", (int)s->first_layer,
                            (int)s->last_layer);
    }
    return text;
}

struct sums { /* over a lane's stages */
    int32_t procedures, operators;
};

static struct sums sums_of(const struct program *p, const struct lane *l)
{
    struct sums x = {0};
    for (int32_t c = 0; c < l->n_stages; c++) {
        x.procedures += p->stages[l->stages[c]].n_procedures;
        x.operators += p->stages[l->stages[c]].n_ops;
    }
    return x;
}

static const char *lane_text(struct arena *a, const struct program *p, int32_t i)
{
    char text[32];
    const struct lane *l = &p->lanes[i];
    struct sums x = sums_of(p, l);
    return arena_printf(a, "layers %s, %d procedures, %d operators, %d runs for %lld calls, %s",
                        layers_text(a, p, l), (int)x.procedures, (int)x.operators,
                        (int)p->orders[l->order].n_runs, (long long)p->orders[l->order].n_calls,
                        units_print_bytes(text, (double)program_lane_bytes(p, i)));
}

static const char *largest_lane(struct arena *a, const void *program, const int32_t *rows,
                                int32_t n)
{
    const struct program *p = program;
    int32_t largest = rows[0];
    for (int32_t i = 1; i < n; i++)
        if (program_lane_bytes(p, rows[i]) > program_lane_bytes(p, largest)) largest = rows[i];
    return arena_printf(a, "the largest, %s: %s", p->devices[largest].name,
                        lane_text(a, p, largest));
}

static void report_text(struct arena *a, const struct plan *plan, const struct program *p, bool all)
{
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)p->n_devices + 1);
    struct print_class *x;
    for (int32_t i = 0; i < p->n_devices; i++) texts[i] = lane_text(a, p, i);
    int32_t n = print_device_classes(a, plan, p, texts, largest_lane, p, all, &x);
    for (int32_t i = 0; i < n; i++) {
        size_t end = strlen(x[i].names);
        const char *colon = end && x[i].names[end - 1] == ':' ? "" : ":";
        const char *count = x[i].n > 1 ? arena_printf(a, " (%d devices)", (int)x[i].n) : "";
        log_info("%s%s %s%s", x[i].names, colon, x[i].text, count);
    }
}

static void report(struct arena *a, const struct plan *plan, const struct program *p,
                   const struct request *q, bool as_json)
{
    struct json j;
    if (!as_json) {
        report_text(a, plan, p, q->all);
        return;
    }
    common_json_begin(&j);
    json_put_text(&j, "program", q->out);
    json_put_int(&j, "channels", p->n_channels);
    json_put_int(&j, "groups", p->n_collectives);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct lane *l = &p->lanes[i];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "id", p->devices[i].name);
        json_put_text(&j, "layers", layers_text(a, p, l));
        json_put_int(&j, "operators", sums_of(p, l).operators);
        json_put_int(&j, "calls", p->orders[l->order].n_calls);
        json_put_int(&j, "bytes", program_lane_bytes(p, i));
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

static enum status lower(struct arena *a, void *request, const struct common *common,
                         struct error *err)
{
    const struct request *q = request;
    struct plan plan;
    struct program program;
    struct file f = {0};
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    TRY(common_plan(a, q->plan, &plan, err));
    plan.deterministic |= q->deterministic;
    if (common->seed) plan.seed = plan.job.seed = (uint64_t)common->seed;
    TRY(common_lower(a, &plan, true, &program, err));
    TRY(file_open(&f, q->out, err));
    program_write(f.stream, &program);
    TRY(file_commit(&f, err));
    report(a, &plan, &program, q, common->json);
    return OK;
}

static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "PROGRAM",
     .writes = true,
     .help = "program file to write, or - for standard output",
     .required = true},
    {.name = "deterministic",
     FLAG_AT(deterministic),
     .help = "sum gradients in the global order of microbatches, so that results are bitwise equal "
             "for every plan"},
    OPTION_ALL,
    {0}};

const struct verb cmd_lower = {
    .name = "lower",
    .summary = "compile a plan to the program that simulate and run interpret",
    .about = "The program states, for every device, its procedures (operators of a stage's "
             "forward, input "
             "gradient, weight gradient and update), its buffers, channels and collectives, and "
             "the order "
             "of its calls. It is checked for deadlock. simulate and run do the same by "
             "themselves; lower "
             "is for looking at a program, or for running it without its plan.",
    .options = options,
    .examples = {"musher lower plan.yaml -o plan.program", "# with the size of every lane",
                 "musher lower plan.yaml -o plan.program --json"},
    REQUEST(0),
    .run = lower,
};
