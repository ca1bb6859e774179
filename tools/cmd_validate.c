/* musher validate: what is predicted against what others measured or computed. */
#include "core/base/arena.h"
#include "tools/cmd.h"
#include "tools/options.h"
#include "tools/validate/collectives.h"
#include "tools/validate/harp.h"
#include "tools/validate/plans.h"
#include "tools/validate/schedules.h"
#include "tools/validate/validate_published.h"

#include <stdio.h>

struct request {
    const char *plans, *db, *models, *schedules, *table, *collectives, *harp;
    bool all_collectives;
};

/* One thing at a time: with --json stdout is one object. */
static enum status count_modes(const struct request *q, struct error *err)
{
    int n = (q->plans != NULL) + (q->schedules != NULL) + (q->table != NULL) +
            (q->collectives != NULL) + (q->harp != NULL) + q->all_collectives;
    if (n > 1)
        return error_set(
            err, ERR_USAGE,
            "--plans, --schedules, --table, --collectives, --harp and --nccl are validated one "
            "at a time");
    if (q->plans && !q->db) return error_set(err, ERR_USAGE, "--plans needs --db DB");
    if (!q->plans && (q->db || q->models))
        return error_set(err, ERR_USAGE, "--db and --models belong to --plans");
    return OK;
}

static enum status validate(struct arena *a, const struct request *q, bool as_json,
                            struct error *err)
{
    const char *folder = NULL;
    TRY(count_modes(q, err));
    if (q->plans) return validate_plans_print(a, q->plans, q->db, q->models, as_json, err);
    if (q->schedules) return validate_schedules(a, q->schedules, as_json, err);
    if (q->harp) return validate_harp(a, q->harp, as_json, err);
    if (q->table) return validate_published(a, q->table, as_json, err);
    if (q->collectives) return validate_collectives(a, q->collectives, as_json, err);
    TRY(published_folder(a, &folder, err));
    if (q->all_collectives) return validate_collectives(a, folder, as_json, err);
    return validate_published(a, folder, as_json, err);
}

enum status cmd_validate(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct request q = {0};
    const struct option options[] = {
        {.name = "table",
         .type = OPTION_TEXT,
         .value = &q.table,
         .unit = "CSV",
         .help = "one table in the format of one in published/; default: all of published/"},
        {.name = "nccl",
         .type = OPTION_FLAG,
         .value = &q.all_collectives,
         .help = "NCCL's model against the collectives measured in published/"},
        {.name = "collectives",
         .type = OPTION_TEXT,
         .value = &q.collectives,
         .unit = "CSV",
         .help = "the same for one table of collectives"},
        {.name = "schedules",
         .type = OPTION_TEXT,
         .value = &q.schedules,
         .unit = "CSV",
         .help = "makespans of named schedules, and lower bounds (tools/validate/schedule_cases.h)"},
        {.name = "harp",
         .type = OPTION_TEXT,
         .value = &q.harp,
         .unit = "DIR",
         .help = "HARP's cases, planned and simulated (tools/validate/harp.h)"},
        {.name = "plans",
         .type = OPTION_TEXT,
         .value = &q.plans,
         .unit = "CSV",
         .help = "plans that were run and measured (tools/validate/plans.h)"},
        {.name = "db",
         .type = OPTION_TEXT,
         .value = &q.db,
         .unit = "DB",
         .help = "of --plans: the database that musher import sailor made"},
        {.name = "models",
         .type = OPTION_TEXT,
         .value = &q.models,
         .unit = "DIR",
         .help = "of --plans: folder of the MODEL.layers.json; default: the database's"},
        {0}};
    const struct command command = {"validate",
                                    "predictions against measurements of others",
                                    options,
                                    {"musher validate", "musher validate --nccl",
                                     "musher validate --plans measured.csv --db sailor.db",
                                     "musher validate --schedules cases.csv",
                                     "musher validate --harp tests/data/harp"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help) st = validate(a, &q, common.json, err);
    arena_free(a);
    return st;
}
