#include "core/arena.h"
#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"

#include <stdio.h>

static void report(const struct program *p, const char *path, bool as_json)
{
    if (!as_json) {
        for (int32_t i = 0; i < p->n_devices; i++) {
            char text[32];
            const struct program_stage *s = &p->stages[p->lanes[i].stage];
            log_info("%s: layers %d-%d, %d procedures, %d operators, %d runs for %lld calls, %s",
                     p->devices[i].name, (int)s->first_layer, (int)s->last_layer,
                     (int)s->n_procedures, (int)s->n_ops, (int)p->orders[p->lanes[i].order].n_runs,
                     (long long)p->orders[p->lanes[i].order].n_calls,
                     units_print_bytes(text, (double)program_stage_bytes(s)));
        }
        return;
    }
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "program", path);
    json_put_int(&j, "channels", p->n_channels);
    json_put_int(&j, "groups", p->n_groups);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct program_stage *s = &p->stages[p->lanes[i].stage];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "id", p->devices[i].name);
        json_put_int(&j, "operators", s->n_ops);
        json_put_int(&j, "calls", p->orders[p->lanes[i].order].n_calls);
        json_put_int(&j, "bytes", program_stage_bytes(s));
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
    report(&program, out, as_json);
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
