#include "tools/print/stated.h"

#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/document/json.h"
#include "core/model/job.h"
#include "profiles/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "165 TFLOP/s", exact: as the file would have it. */
static const char *quantity_text(struct arena *a, enum quantity q, double value)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) BUG("no memory for a number");
    canonical_quantity(out, q, value);
    fclose(out);
    const char *copy = arena_strdup(a, text);
    free(text); /* open_memstream's */
    return copy;
}

struct item {
    const char *key, *text; /* "peak_bf16_flops", "peak bf16 165 TFLOP/s" */
    double value;
};
enum { EVERY_DTYPE = -1 };
enum { ITEMS_MAX = DEVICE_PEAK_COUNT + 3 };

static void add(struct arena *a, struct item *items, int *n, const char *key, const char *name,
                enum quantity q, double value)
{
    if (value > 0)
        items[(*n)++] =
            (struct item){key, arena_printf(a, "%s %s", name, quantity_text(a, q, value)), value};
}

static int items_of(struct arena *a, const struct device_type *t, bool price,
                    struct item items[ITEMS_MAX])
{
    const struct device_rates *r = &t->stated;
    int n = 0;
    for (int p = 0; p < DEVICE_PEAK_COUNT; p++) {
        const char *name = device_peak_name((enum device_peak)p);
        add(a, items, &n, arena_printf(a, "peak_%s_flops", name), arena_printf(a, "peak %s", name),
            QUANTITY_FLOPS, r->peak_flops[p]);
    }
    add(a, items, &n, "memory_Bps", "memory bandwidth", QUANTITY_BYTES_PER_S, r->memory_Bps);
    add(a, items, &n, "power_w", "power", QUANTITY_WATTS, r->power_w);
    if (price && t->priced)
        items[n++] = (struct item){"price_per_h", arena_printf(a, "price %g/h", t->price_per_h),
                                   t->price_per_h};
    return n;
}

static void print_stated_of(struct arena *a, const struct cluster *c, bool prices, struct json *j)
{
    bool open = false;
    for (int32_t t = 0; t < c->n_types; t++) {
        struct item items[ITEMS_MAX];
        int n = items_of(a, &c->types[t], prices, items);
        if (!n) continue;
        if (j && !open) json_put_list(j, "stated");
        open = true;
        if (j) {
            json_put_object_line(j, NULL);
            json_put_text(j, "type", c->types[t].name);
            for (int i = 0; i < n; i++) json_put_double(j, items[i].key, items[i].value);
            json_close(j);
            continue;
        }
        printf("  %s: ", c->types[t].name);
        for (int i = 0; i < n; i++)
            printf("%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", items[i].text);
        printf(" %s\n", TEAM_STATED);
    }
    if (j && open) json_close(j);
}

/* Whether costs in this precision depend on the value. */
static bool priced_by(const struct catalogue_device *d, const struct catalogue_value *v,
                      int precision)
{
    if (precision == EVERY_DTYPE)
        return v != &d->fp64_flops && v != &d->tf32_flops && v != &d->fp8_flops;
    if (v == &d->memory_Bps) return true;
    return v == (precision == DTYPE_fp64   ? &d->fp64_flops
                 : precision == DTYPE_fp16 ? &d->fp16_flops
                 : precision == DTYPE_bf16 ? &d->bf16_flops
                                           : &d->fp32_flops);
}

/* Values of one confidence; word: how they are called. */
static void print_confidence(const struct cluster *c, int precision, const char *word,
                             struct json *j)
{
    bool open = false;
    for (int32_t t = 0; t < c->n_types; t++) {
        struct catalogue_device room;
        const struct catalogue_device *d = NULL;
        if (team_device(&c->types[t], &room, &d, NULL) != OK) continue;
        for (const struct catalogue_column *k = catalogue_columns; k->key; k++) {
            const struct catalogue_value *v = catalogue_value_of(d, k);
            if (!(v->value > 0) || strcmp(v->confidence, word) != 0 ||
                !priced_by(d, v, precision))
                continue;
            if (!j) {
                printf("  %s: %s of %s, %.6g %s, is %s: %s\n", c->types[t].name, k->name, d->id,
                       v->value / k->scale, k->unit, word, v->source);
                continue;
            }
            if (!open) json_put_list(j, word);
            open = true;
            json_put_object_line(j, NULL);
            json_put_text(j, "type", c->types[t].name);
            json_put_text(j, "device", d->id);
            json_put_text(j, "value", k->key);
            json_put_double(j, "number", v->value);
            json_put_text(j, "from", v->source);
            json_close(j);
        }
    }
    if (j && open) json_close(j);
}

void print_experts(struct arena *a, const struct job *job, struct json *json)
{
    const char *line = model_experts_assumed(a, &job->model, job->sequence_length);
    if (line && json)
        json_put_text(json, "experts", line);
    else if (line)
        printf("  experts: %s\n", line);
}

void print_stated(struct arena *a, const struct cluster *c, const struct job *job,
                  struct json *json)
{
    int precision = job ? (int)job->precision : EVERY_DTYPE;
    if (job) print_experts(a, job, json);
    print_stated_of(a, c, precision == EVERY_DTYPE, json);
    print_confidence(c, precision, "derived", json);
    print_confidence(c, precision, "unverified", json);
}
