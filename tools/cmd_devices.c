#include "core/base/arena.h"
#include "profiles/catalogue.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <stdio.h>
#include <string.h>

static void print_json(void)
{
    struct json j;
    common_json_begin(&j);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        json_put_object(&j, NULL);
        json_put_text(&j, "id", d->id);
        json_put_text(&j, "backend", d->backend);
        json_put_int(&j, "compute_capability", d->compute_capability);
        if (d->scale_up) json_put_text(&j, "scale_up", d->scale_up);
        if (d->pcie_generation) json_put_int(&j, "pcie_generation", d->pcie_generation);
        for (const struct catalogue_column *c = catalogue_columns; c->key; c++) {
            const struct catalogue_value *v = catalogue_value_of(d, c);
            if (v->value <= 0) continue;
            json_put_object_line(&j, c->key);
            json_put_double(&j, "value", v->value);
            json_put_text(&j, "source", v->source);
            json_put_text(&j, "date", v->date);
            json_put_text(&j, "confidence", v->confidence);
            json_close(&j);
        }
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

/* A star marks a value that its vendor does not state, a question mark an unverified value. */
static void cell(const struct catalogue_value *v, double unit)
{
    const char *mark = !(v->value > 0)                         ? " "
                       : !strcmp(v->confidence, "derived")    ? "*"
                       : !strcmp(v->confidence, "unverified") ? "?"
                                                              : " ";
    if (v->value > 0)
        printf(" %7.5g%s", v->value / unit, mark);
    else
        printf(" %7s ", "-");
}

static void print_text(void)
{
    static const char *const heads[] = {"GB",      "GB/s",    "fp64 TF", "fp32 TF", "tf32 TF",
                                        "fp16 TF", "bf16 TF", "fp8 TF",  "link",    "bridge",
                                        "PCIe",    "W",       "USD/h",   NULL};
    printf("%-20s %-7s", "id", "backend");
    for (const char *const *head = heads; *head; head++) printf(" %7s ", *head);
    puts("  peaks are dense; links: GB/s of one direction; *: derived; ?: from memory; --json: sources");
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        printf("%-20s %-7s", d->id, d->backend);
        for (size_t k = 0; heads[k]; k++)
            cell(catalogue_value_of(d, &catalogue_columns[k]), catalogue_columns[k].scale);
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
    .about =
        "The catalogue holds memory, bandwidths, peak FLOP/s and power from data sheets, and "
        "on-demand prices. Device types of a cluster file refer to it by `device:`; what they "
        "state themselves (peak, memory_bandwidth, power, memory) goes before it. A star marks "
        "a value that was derived because its vendor states none, a question mark one that was written from memory of the "
        "vendor's document. With --json every value has "
        "its source, date and confidence.",
    .options = options,
    .examples = {"musher devices", "# with the source of every value", "musher devices --json"},
    .run = devices,
};
