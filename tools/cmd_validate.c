#include "core/base/arena.h"
#include "tools/cmd.h"
#include "tools/validate/plans.h"

struct request {
    const char *plans, *db, *models;
};

static enum status validate(struct arena *a, void *request, const struct common *common,
                            struct error *err)
{
    const struct request *q = request;
    return validate_plans_print(a, q->plans, q->db, q->models, common->json, err);
}

static const struct option options[] = {
    {.name = "plans",
     TEXT_AT(plans),
     .unit = "CSV",
     .help = "table of measured plans, one per line",
     .required = true},
    {.name = "db",
     TEXT_AT(db),
     .unit = "DB",
     .help = "profile database with the measured layers and links, as import sailor writes it",
     .required = true},
    {.name = "models",
     TEXT_AT(models),
     .unit = "DIR",
     .help = "folder of the model tables MODEL.layers.json",
     .preset = "the folder of --db"},
    {0}};

const struct verb cmd_validate = {
    .name = "validate",
    .summary = "compare predictions with your own measurements of plans",
    .about =
        "Each row of the table becomes a plan, which is simulated. The output states the error of "
        "iteration time and peak memory of every row, their means, and the rank correlation. "
        "Nothing "
        "is fitted to the rows.\n\n"
        "Columns, in any order:\n"
        "  model                  name of the model table; or set: a path with it\n"
        "  layers_per_stage       layers of each stage, e.g. 5|7|7|7\n"
        "  gpu_per_stage_replica  GPU types of the replicas of each stage, e.g.\n"
        "                         A100-40+V100-16|GH-96+GH-96\n"
        "  tp                     tensor-parallel degree: 4; 4|2 by stage; 4+2|4+2 by\n"
        "                         stage and replica\n"
        "  mbs, gbs               sequences of a microbatch, of a step\n"
        "  pp, dp, nodes          stages, replicas, nodes; checked if given\n"
        "  real_s_main, real_s_other\n"
        "                         measured seconds of an iteration, of two runs; optional\n"
        "  max_mem_bytes_main, max_mem_bytes_other\n"
        "                         measured peak memory of the fullest GPU; optional\n"
        "  file                   name of the row; optional",
    .options = options,
    .examples = {"musher import sailor sailor --db sailor.db",
                 "musher validate --plans measured.csv --db sailor.db"},
    REQUEST(0),
    .run = validate,
};
