#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"

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

static enum status lower(struct arena *a, const char *path, const char *out, bool deterministic,
                         int64_t seed, bool as_json, struct error *err)
{
    struct plan plan;
    struct program program;
    struct file f = {0};
    TRY(common_not_stdout(as_json, "-o", out, err));
    TRY(common_plan(a, path, &plan, err));
    plan.deterministic |= deterministic;
    if (seed) plan.seed = plan.job.seed = (uint64_t)seed;
    TRY(common_lower(a, &plan, true, &program, err));
    TRY(file_open(&f, out, err));
    program_write(f.stream, &program);
    TRY(file_commit(&f, err));
    report(a, &program, out, as_json);
    return OK;
}

enum status cmd_lower(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    const char *path = NULL, *out = NULL;
    bool deterministic = false;
    const struct option options[] = {
        {.name = "PLAN", .type = OPTION_ARGUMENT, .value = &path, .help = "plan.yaml"},
        {.name = "out",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &out,
         .unit = "PROGRAM",
         .writes = true,
         .help = "file to write"},
        {.name = "deterministic",
         .type = OPTION_FLAG,
         .value = &deterministic,
         .help = "add gradients in the order of microbatches, whoever owns them"},
        {0}};
    const struct command command = {
        "lower",
        "the program of a plan: procedures and lanes",
        options,
        {"musher lower plan.yaml -o plan.program", "musher lower plan.yaml -o p --json"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help)
        st = out ? lower(a, path, out, deterministic, common.seed, common.json, err)
                 : error_set(err, ERR_USAGE, "lower wants -o PROGRAM");
    arena_free(a);
    return st;
}
