#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/export/sailor.h"

#include <string.h>

struct request {
    const char *plan, *format, *out, *zone;
};

static enum status export_plan(struct arena *a, void *request, const struct common *common,
                               struct error *err)
{
    const struct request *q = request;
    bool as_json = common->json;
    struct plan p;
    struct file f = {0};
    if (strcmp(q->format, "sailor") != 0)
        return error_set(err, ERR_USAGE, "unknown format '%.60s'; known: sailor", q->format);
    TRY(common_not_stdout(as_json, "-o", q->out, err));
    TRY(common_plan(a, q->plan, &p, err));
    TRY(file_open(&f, q->out, err));
    enum status st = export_sailor(f.stream, &p, q->zone, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    if (st != OK) return st;
    bool equal = export_sailor_equal(&p);
    if (!equal)
        log_warn("replicas differ in share, or in number by cut: Sailor's simulator assumes equal "
                 "ones, so its time is that of another plan");
    if (!as_json) return OK;
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "file", q->out);
    json_put_text(&j, "format", q->format);
    json_put_bool(&j, "equal_shares", equal);
    common_json_end(&j);
    return OK;
}

static const char *const formats[] = {"sailor", NULL};
static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    {.name = "format",
     TEXT_AT(format),
     .unit = "FORMAT",
     .choices = formats,
     .help = "format to write; sailor: the JSON of Sailor's planner",
     .required = true},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "FILE",
     .writes = true,
     .help = "file to write, or - for standard output",
     .required = true},
    {.name = "zone",
     TEXT_AT(zone),
     .unit = "ZONE",
     .help = "cloud zone of all devices in Sailor's tables, e.g. us-west1-b",
     .preset = SAILOR_ZONE},
    {0}};

const struct verb cmd_export = {
    .name = "export",
    .summary = "write a plan in another planner's format",
    .options = options,
    .examples = {"musher export plan.yaml --format sailor -o plan.json",
                 "musher export plan.yaml --format sailor -o -"},
    REQUEST(0),
    .run = export_plan,
};
