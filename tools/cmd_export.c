#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/export/export.h"
#include "tools/export/sailor.h"

#include <string.h>

struct request {
    const char *plan, *format, *out;
    struct export_request about;
};

static const char *const formats[] = {
#define X(name, text, help) text,
    EXPORTERS(X)
#undef X
        NULL};

static enum status (*const run[])(FILE *out, const struct plan *p, const struct export_request *q,
                                  struct export_note *note, struct error *err) = {
#define X(name, text, help) export_##name,
    EXPORTERS(X)
#undef X
};

static enum status find(const char *word, size_t *out, struct error *err)
{
    for (*out = 0; formats[*out]; ++*out)
        if (!strcmp(formats[*out], word)) return OK;
    char hint[NEAREST_HINT];
#define X(name, text, help) " " text
    return error_set(err, ERR_USAGE, "unknown format '%.60s'; known:" EXPORTERS(X) "%s", word,
                     nearest_name_hint(word, formats, hint));
#undef X
}

static enum status export_plan(struct arena *a, void *request, const struct common *common,
                               struct error *err)
{
    const struct request *q = request;
    struct export_note note = {0};
    struct plan p;
    struct file f = {0};
    size_t format;
    TRY(find(q->format, &format, err));
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    TRY(common_plan(a, q->plan, &p, err));
    TRY(file_open(&f, q->out, err));
    enum status st = run[format](f.stream, &p, &q->about, &note, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    if (st != OK) return st;
    if (note.key && !note.holds) log_warn("%s", note.warning);
    if (!common->json) return OK;
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "file", q->out);
    json_put_text(&j, "format", q->format);
    if (note.key) json_put_bool(&j, note.key, note.holds);
    common_json_end(&j);
    return OK;
}

static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    {.name = "format",
     TEXT_AT(format),
     .unit = "FORMAT",
     .choices = formats,
     .help = "format to write:"
#define X(name, text, help) "\n" text ": " help
     EXPORTERS(X)
#undef X
         ,
     .required = true},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "FILE",
     .writes = true,
     .help = "file to write, or - for standard output",
     .required = true},
    {.name = "zone",
     TEXT_AT(about.zone),
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
