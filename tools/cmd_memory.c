#include "core/base/arena.h"
#include "core/base/units.h"
#include "sim/explain/footprint.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <stdio.h>

struct request {
    const char *plan, *reserve;
    int64_t zero, shards;
    double share;
};

static void print_text(struct arena *a, const struct footprint *f, int32_t n)
{
    char text[32];
    for (int32_t d = 0; d < n; d++) {
        printf("%s %s\n", f[d].device, footprint_verdict(a, &f[d]));
        for (int32_t i = 0; i < f[d].n; i++)
            printf("  %-26s %12s%s%s\n", f[d].holders[i].name,
                   units_print_bytes(text, (double)f[d].holders[i].bytes),
                   *f[d].holders[i].why ? "  " : "", f[d].holders[i].why);
    }
}

static void print_json(const struct footprint *f, int32_t n)
{
    struct json j;
    common_json_begin(&j);
    json_put_list(&j, "devices");
    for (int32_t d = 0; d < n; d++) {
        json_put_object(&j, NULL);
        json_put_text(&j, "id", f[d].device);
        json_put_int(&j, "total_bytes", f[d].total_bytes);
        json_put_int(&j, "memory_bytes", f[d].memory_bytes);
        json_put_bool(&j, "fits", f[d].total_bytes <= f[d].memory_bytes);
        json_put_list(&j, "holders");
        for (int32_t i = 0; i < f[d].n; i++) {
            json_put_object_line(&j, NULL);
            json_put_text(&j, "name", f[d].holders[i].name);
            json_put_int(&j, "bytes", f[d].holders[i].bytes);
            json_put_text(&j, "why", f[d].holders[i].why);
            json_close(&j);
        }
        json_close(&j);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

static enum status memory(struct arena *a, void *request, const struct common *common,
                          struct error *err)
{
    const struct request *q = request;
    struct plan plan;
    struct program program;
    struct footprint_options o = {
        .zero = (int32_t)q->zero, .shards = (int32_t)q->shards, .share = q->share};
    double reserve = 0;
    if (q->reserve && !units_parse_bytes(q->reserve, &reserve))
        return error_set(err, ERR_USAGE, "--reserve: '%s' is no size such as 3.5 GB", q->reserve);
    if (!(reserve >= 0 && reserve < 1e18))
        return error_set(err, ERR_USAGE, "--reserve: '%s' is out of range", q->reserve);
    o.reserve_bytes = (int64_t)reserve;
    TRY(common_plan(a, q->plan, &plan, err));
    TRY(common_lower(a, &plan, false, &program, err));
    struct footprint *f = ARENA_ARRAY(a, struct footprint, (size_t)program.n_devices);
    TRY(footprint_stages(a, &program, &o, f, err));
    if (common->json)
        print_json(f, program.n_devices);
    else
        print_text(a, f, program.n_devices);
    return OK;
}

static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    {.name = "zero",
     INT_AT(zero),
     .unit = "N",
     .min = 0,
     .max = 3,
     .help = "hypothetical ZeRO stage: 1 shards the optimizer state, 2 also gradients, 3 also "
             "parameters",
     .preset = "0: as PLAN states"},
    {.name = "shards",
     INT_AT(shards),
     .unit = "N",
     .min = 1,
     .max = 1e6,
     .help = "devices that --zero shards over, e.g. 8"},
    {.name = "share",
     DOUBLE_AT(share),
     .unit = "X",
     .min = 0,
     .max = 1,
     .help = "fraction of the sharded state on this device if shards are unequal, e.g. 0.25",
     .preset = "0: 1 / --shards"},
    {.name = "reserve",
     TEXT_AT(reserve),
     .unit = "SIZE",
     .help = "memory of the framework beside its tensors, e.g. '3.5 GB'",
     .preset = "0"},
    {0}};

const struct verb cmd_memory = {
    .name = "memory",
    .summary = "break down the device memory of a plan",
    .about =
        "For every device: parameters, gradients, optimizer state, activations, buffers of "
        "messages and collectives, scratch of operators, and what CUDA and NCCL take, each with "
        "its reason, and whether the sum fits.",
    .options = options,
    .examples = {"musher memory plan.yaml", "# with the optimizer state sharded over 8 devices",
                 "musher memory plan.yaml --zero 1 --shards 8 --reserve '3.5 GB'"},
    REQUEST(.shards = 1),
    .run = memory,
};
