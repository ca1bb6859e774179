#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/export/sailor.h"
#include "tools/options.h"

#include <string.h>

struct request {
    const char *plan, *format, *out, *zone;
};

static enum status export_plan(struct arena *a, const struct request *q, bool as_json,
                               struct error *err)
{
    struct plan p;
    struct file f = {0};
    if (!q->format || strcmp(q->format, "sailor") != 0)
        return error_set(err, ERR_USAGE, "unknown format '%.60s'; known: sailor",
                         q->format ? q->format : "");
    TRY(common_not_stdout(as_json, "-o", q->out, err));
    TRY(common_plan(a, q->plan, &p, err));
    TRY(file_open(&f, q->out, err));
    enum status st = export_sailor(f.stream, &p, q->zone, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    if (st != OK) return st;
    bool equal = export_sailor_equal(&p);
    if (!equal)
        log_warn("the replicas' shares or numbers differ: Sailor's simulator, which takes equal "
                 "ones for granted, times another plan");
    if (!as_json) return OK;
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "file", q->out);
    json_put_text(&j, "format", q->format);
    json_put_bool(&j, "equal_shares", equal);
    common_json_end(&j);
    return OK;
}

enum status cmd_export(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct request q = {0};
    const struct option options[] = {
        {.name = "PLAN", .type = OPTION_ARGUMENT, .value = &q.plan, .help = "plan.yaml"},
        {.name = "format",
         .type = OPTION_TEXT,
         .value = &q.format,
         .unit = "FORMAT",
         .help = "sailor: the JSON of Sailor's planner"},
        {.name = "out",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &q.out,
         .unit = "FILE",
         .writes = true,
         .help = "file to write; - for stdout"},
        {.name = "zone",
         .type = OPTION_TEXT,
         .value = &q.zone,
         .unit = "ZONE",
         .help = "where all cards are, by Sailor's tables; else " SAILOR_ZONE},
        {0}};
    const struct command command = {"export",
                                    "a plan in the words of other programs",
                                    options,
                                    {"musher export plan.yaml --format sailor -o plan.json",
                                     "musher export plan.yaml --format sailor -o -"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help)
        st = q.out ? export_plan(a, &q, common.json, err)
                   : error_set(err, ERR_USAGE, "export wants -o FILE");
    arena_free(a);
    return st;
}
