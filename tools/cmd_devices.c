#include "core/base/arena.h"
#include "core/base/units.h"
#include "profiles/catalogue.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <stdio.h>

struct column {
    const char *key;
    const struct catalogue_value *value;
};

static void put_value(struct json *j, struct column c)
{
    if (c.value->value <= 0) return;
    json_put_object_line(j, c.key);
    json_put_double(j, "value", c.value->value);
    json_put_text(j, "source", c.value->source);
    json_put_text(j, "date", c.value->date);
    json_put_text(j, "confidence", c.value->confidence);
    json_close(j);
}

static void print_json(void)
{
    struct json j;
    common_json_begin(&j);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        const struct column columns[] = {
            {"memory_bytes", &d->memory_bytes}, {"memory_Bps", &d->memory_Bps},
            {"fp64_flops", &d->fp64_flops},     {"fp32_flops", &d->fp32_flops},
            {"fp16_flops", &d->fp16_flops},     {"bf16_flops", &d->bf16_flops},
            {"fp8_flops", &d->fp8_flops},       {"nvlink_Bps", &d->nvlink_Bps},
            {"pcie_Bps", &d->pcie_Bps},         {"watts", &d->watts},
        };
        json_put_object(&j, NULL);
        json_put_text(&j, "id", d->id);
        json_put_text(&j, "backend", d->backend);
        json_put_int(&j, "compute_capability", d->compute_capability);
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) put_value(&j, columns[k]);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

static void cell(const struct catalogue_value *v, double unit)
{
    if (v->value > 0)
        printf(" %8.5g", v->value / unit);
    else
        printf(" %8s", "-");
}

static void print_text(void)
{
    printf("%-20s %-7s %8s %8s %8s %8s %8s %8s %8s   dense peaks: upper bounds, see --json for "
           "sources\n",
           "id", "backend", "GB", "GB/s", "fp32 TF", "fp16 TF", "bf16 TF", "NVLink", "PCIe");
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        printf("%-20s %-7s", d->id, d->backend);
        cell(&d->memory_bytes, 1e9);
        cell(&d->memory_Bps, 1e9);
        cell(&d->fp32_flops, 1e12);
        cell(&d->fp16_flops, 1e12);
        cell(&d->bf16_flops, 1e12);
        cell(&d->nvlink_Bps, 1e9);
        cell(&d->pcie_Bps, 1e9);
        printf("\n");
    }
}

static enum status devices(struct arena *a, void *request, const struct common *common,
                           struct error *err)
{
    (void)a, (void)request, (void)err;
    if (common->json)
        print_json();
    else
        print_text();
    return OK;
}

static const struct option options[] = {{0}};

const struct verb cmd_devices = {
    .name = "devices",
    .summary = "list the catalogue of device types",
    .about = "The catalogue holds memory, bandwidths and peak FLOP/s from data sheets. Device "
             "types of a "
             "cluster file refer to it by `device:`. With --json every value has its source, "
             "date and "
             "confidence.",
    .options = options,
    .examples = {"musher devices", "# with the source of every value", "musher devices --json"},
    .run = devices,
};
