#include "core/base/arena.h"
#include "core/base/units.h"
#include "sim/explain/footprint.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/stated.h"
#include "tools/print/classes.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *plan, *reserve;
    int64_t zero, shards;
    double share;
    bool all;
};

static void print_holders(const struct footprint *f)
{
    char text[32];
    for (int32_t i = 0; i < f->n; i++)
        printf("  %-26s %12s%s%s\n", f->memory_breakdown[i].name,
               units_print_bytes(text, (double)f->memory_breakdown[i].bytes),
               *f->memory_breakdown[i].why ? "  " : "", f->memory_breakdown[i].why);
}

/* "needs 24.3 GiB of 80 GiB: activations 18 GiB, optimizer state 3.52 GiB, gradients 1.17 GiB": the three largest entries, summed by
 * name. */
static const char *in_short(struct arena *a, const struct footprint *f)
{
    char needs[32], has[64], text[32];
    int32_t n = 0;
    struct footprint_entry *sums = ARENA_ARRAY(a, struct footprint_entry, (size_t)f->n + 1);
    for (int32_t i = 0; i < f->n; i++) {
        int32_t k = 0;
        while (k < n && strcmp(sums[k].name, f->memory_breakdown[i].name) != 0) k++;
        if (k == n) sums[n++] = (struct footprint_entry){.name = f->memory_breakdown[i].name};
        sums[k].bytes += f->memory_breakdown[i].bytes;
        for (; k > 0 && sums[k - 1].bytes < sums[k].bytes; k--) {
            struct footprint_entry held = sums[k];
            sums[k] = sums[k - 1], sums[k - 1] = held;
        }
    }
    const char *line =
        arena_printf(a, "needs %s of %s%s", units_print_bytes(needs, (double)f->total_bytes),
                     units_print_capacity(has, (double)f->memory_bytes),
                     f->total_bytes > f->memory_bytes ? " and DOES NOT FIT" : "");
    for (int32_t i = 0; i < n && i < 3; i++)
        line = arena_printf(a, "%s%s %s %s", line, i ? "," : ":", sums[i].name,
                            units_print_bytes(text, (double)sums[i].bytes));
    return line;
}

static bool fuller(const struct footprint *x, const struct footprint *y)
{
    return (double)x->total_bytes * (double)y->memory_bytes >
           (double)y->total_bytes * (double)x->memory_bytes;
}

static const char *fullest_in_short(struct arena *a, const void *user, const int32_t *rows,
                                    int32_t n)
{
    const struct footprint *f = user;
    int32_t fullest = rows[0];
    for (int32_t i = 1; i < n; i++)
        if (fuller(&f[rows[i]], &f[fullest])) fullest = rows[i];
    return arena_printf(a, "the fullest, %s, %s", f[fullest].device, in_short(a, &f[fullest]));
}

/* The breakdown of the fullest device, then a line a device or, of many devices, a class. */
static void print_text(struct arena *a, const struct plan *plan, const struct program *p,
                       const struct footprint *f, bool all)
{
    int32_t n = p->n_devices;
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    struct print_class *x;
    if (all || n == 1) {
        for (int32_t d = 0; d < n; d++) {
            printf("%s %s\n", f[d].device, footprint_verdict(a, &f[d]));
            print_holders(&f[d]);
        }
        return;
    }
    int32_t fullest = 0;
    for (int32_t d = 0; d < n; d++) {
        texts[d] = in_short(a, &f[d]);
        if (fuller(&f[d], &f[fullest])) fullest = d;
    }
    int32_t classes = print_device_classes(a, plan, p, texts, fullest_in_short, f, false, &x);
    if (classes < n) printf("%d devices in %d class%s; ", (int)n, (int)classes, classes == 1 ? "" : "es");
    puts("the fullest device:");
    printf("%s %s\n", f[fullest].device, texts[fullest]);
    print_holders(&f[fullest]);
    printf("every %s (--all: what each device holds):\n", classes < n ? "class" : "device");
    print_class_lines(x, classes, "devices");
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
        json_put_list(&j, "memory_breakdown");
        for (int32_t i = 0; i < f[d].n; i++) {
            json_put_object_line(&j, NULL);
            json_put_text(&j, "name", f[d].memory_breakdown[i].name);
            json_put_int(&j, "bytes", f[d].memory_breakdown[i].bytes);
            json_put_text(&j, "why", f[d].memory_breakdown[i].why);
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
    char hint[UNITS_HINT];
    if (q->reserve && !units_parse_bytes(q->reserve, &reserve))
        return error_set(err, ERR_USAGE, "--reserve: '%s' is not a size such as 3.5 GB%s",
                         q->reserve, units_hint(hint, QUANTITY_BYTES, q->reserve));
    if (!(reserve >= 0 && reserve < 1e18))
        return error_set(err, ERR_USAGE, "--reserve: '%s' is out of range", q->reserve);
    o.reserve_bytes = (int64_t)reserve;
    TRY(common_plan(a, q->plan, &plan, err));
    TRY(common_lower(a, &plan, false, &program, err));
    struct footprint *f = ARENA_ARRAY(a, struct footprint, (size_t)program.n_devices);
    TRY(footprint_stages(a, &program, &o, f, err));
    if (common->json)
        print_json(f, program.n_devices);
    else {
        print_experts(a, &plan.job, NULL);
        print_text(a, &plan, &program, f, q->all);
    }
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
     .needs = "zero",
     .help = "devices that --zero shards over, e.g. 8"},
    {.name = "share",
     DOUBLE_AT(share),
     .unit = "X",
     .min = 0,
     .max = 1,
     .needs = "zero",
     .help = "fraction of the sharded state on this device if shards are unequal, e.g. 0.25",
     .preset = "0: 1 / --shards"},
    {.name = "reserve",
     TEXT_AT(reserve),
     .unit = "SIZE",
     .help = "memory of the framework beside its tensors, e.g. '3.5 GB'",
     .preset = "0"},
    OPTION_ALL,
    {0}};

const struct verb cmd_memory = {
    .name = "memory",
    .summary = "break down the device memory of a plan",
    .about =
        "For every device: parameters, gradients, optimizer state, activations, buffers of "
        "messages and collectives, scratch of operators, and what CUDA and NCCL take, each with "
        "its reason, and whether the sum fits. The sum is what a run allocates for the whole step. "
        "The peak memory of simulate and show is the same or smaller, because not all buffers are "
        "live at the same time.",
    .options = options,
    .examples = {"musher memory plan.yaml", "# with the optimizer state sharded over 8 devices",
                 "musher memory plan.yaml --zero 1 --shards 8 --reserve '3.5 GB'"},
    REQUEST(.shards = 1),
    .run = memory,
};
