#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <stdio.h>

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

static void report_text(struct arena *a, const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++) {
        char text[32];
        const struct lane *l = &p->lanes[i];
        struct sums x = sums_of(p, l);
        log_info("%s: layers %s, %d procedures, %d operators, %d runs for %lld calls, %s",
                 p->devices[i].name, layers_text(a, p, l), (int)x.procedures, (int)x.operators,
                 (int)p->orders[l->order].n_runs, (long long)p->orders[l->order].n_calls,
                 units_print_bytes(text, (double)program_lane_bytes(p, i)));
    }
}

static void report(struct arena *a, const struct program *p, const char *path, bool as_json)
{
    struct json j;
    if (!as_json) {
        report_text(a, p);
        return;
    }
    common_json_begin(&j);
    json_put_text(&j, "program", path);
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

struct request {
    const char *plan, *out;
    bool deterministic;
};

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
    report(a, &program, q->out, common->json);
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
