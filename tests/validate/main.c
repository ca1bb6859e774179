/* The program of `make validate`: predictions beside measurements and results of papers, benchmarks and other planners.
 * usage: build/tests/validate/validate [--table CSV | --nccl | --collectives CSV | --schedules CSV | --harp DIR]
 */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "tests/validate/collectives.h"
#include "tests/validate/harp.h"
#include "tests/validate/published_report.h"
#include "tests/validate/schedules.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <stdio.h>

struct request {
    const char *schedules, *table, *collectives, *harp;
    bool nccl;
};

/* Only one of them, because with --json stdout is one object. */
static enum status validate(struct arena *a, void *request, const struct common *common,
                            struct error *err)
{
    const struct request *q = request;
    bool json = common->json;
    int n = (q->schedules != NULL) + (q->table != NULL) + (q->collectives != NULL) +
            (q->harp != NULL) + q->nccl;
    if (n > 1)
        return error_set(err, ERR_USAGE,
                         "--table, --nccl, --collectives, --schedules and --harp are validated one "
                         "at a time");
    if (q->schedules) return validate_schedules(a, q->schedules, json, err);
    if (q->harp) return validate_harp(a, q->harp, json, err);
    if (q->table) return validate_published(a, q->table, json, err);
    if (q->collectives) return validate_collectives(a, q->collectives, json, err);
    if (q->nccl) return validate_collectives(a, PUBLISHED_FOLDER, json, err);
    return validate_published(a, PUBLISHED_FOLDER, json, err);
}

static const struct option options[] = {
    {.name = "table",
     TEXT_AT(table),
     .unit = "CSV",
     .help = "one table of training steps, in the format of one of " PUBLISHED_FOLDER,
     .preset = "all of that folder"},
    {.name = "nccl",
     FLAG_AT(nccl),
     .help = "NCCL's cost model against the measured collectives of " PUBLISHED_FOLDER},
    {.name = "collectives",
     TEXT_AT(collectives),
     .unit = "CSV",
     .help = "the same for one table of collectives"},
    {.name = "schedules",
     TEXT_AT(schedules),
     .unit = "CSV",
     .help = "makespans of named schedules and lower bounds (tools/schedule/cases.h)"},
    {.name = "harp",
     TEXT_AT(harp),
     .unit = "DIR",
     .help = "HARP's cases, planned and simulated (tests/validate/harp.h)"},
    {0}};

static const struct verb verb = {
    .program = "build/tests/validate/validate",
    .name = "validate",
    .summary = "compare predictions with published measurements",
    .options = options,
    .examples = {"build/tests/validate/validate", "build/tests/validate/validate --nccl --json",
                 "build/tests/validate/validate --harp tests/data/harp"},
    REQUEST(0),
    .run = validate,
};

int main(int argc, char **argv)
{
    struct error err = {0};
    enum status st = cmd_verb_run(&verb, argc, argv, &err);
    if (st != OK) log_error("%s", err.text);
    return st;
}
