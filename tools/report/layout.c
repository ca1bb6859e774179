/* The plan as a picture: a row per class of replicas, a box per stage, or per run of equal stages on devices of one type. */
#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "tools/print/classes.h"
#include "tools/report/html.h"
#include "tools/report/report.h"
#include "tools/team/replan.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES_SHOWN = 24, WIDTH = 1000, BOX_HEIGHT = 62, GAP = 4, LETTER = 7, RUNS_SHOWN = 4 };

struct box { /* stages first … last of a replica */
    int32_t first, last, type, devices;
    bool mixed; /* devices of several types */
    const char *settings;
};

static int32_t type_of(const struct plan *p, const struct plan_stage *s, int32_t k)
{
    return p->cluster.devices[plan_stage_device(s, k)].type;
}

static int32_t layers_of(const struct plan_stage *s) { return s->last_layer - s->first_layer + 1; }

static const char *settings(struct arena *a, const struct plan_stage *s)
{
    static const char *const recomputes[] = {
#define X(name, text) text,
        RECOMPUTES(X)
#undef X
    };
    const char *text = s->sharding    ? sharding_kind(a, s->sharding)
                       : s->sequences ? "batch"
                                      : "";
    const char *comma = *text ? ", " : "";
    if (s->recompute)
        text = arena_printf(a, "%s%srecompute %s", text, comma,
                            s->recompute == RECOMPUTE_STAGE ? "stage" : recomputes[s->recompute]);
    if (s->offload) text = arena_printf(a, "%s%sactivations offloaded", text, *text ? ", " : "");
    if (s->zero) text = arena_printf(a, "%s%sZeRO-%d%s", text, *text ? ", " : "", (int)s->zero, s->hybrid_shard ? " inside nodes" : "");
    return text;
}

static struct box box_of(struct arena *a, const struct plan *p, const struct plan_stage *s,
                         int32_t index)
{
    struct box b = {.first = index,
                    .last = index,
                    .type = type_of(p, s, 0),
                    .devices = plan_stage_devices(s),
                    .settings = settings(a, s)};
    for (int32_t k = 1; k < b.devices; k++) b.mixed |= type_of(p, s, k) != b.type;
    return b;
}

static int32_t find_boxes(struct arena *a, const struct plan *p, const struct plan_replica *r,
                          struct box *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_stages; i++) {
        struct box b = box_of(a, p, &r->stages[i], i), *before = n ? &out[n - 1] : NULL;
        if (before && r->n_stages > 12 && before->type == b.type && before->devices == b.devices &&
            !before->mixed && !b.mixed && !strcmp(before->settings, b.settings) &&
            layers_of(&r->stages[i]) == layers_of(&r->stages[before->first]))
            before->last = i;
        else
            out[n++] = b;
    }
    return n;
}

/* The text cut to a width in letters; none if only a letter or two would be left. */
static void write_line(FILE *out, struct arena *a, double x, double y, const char *text,
                       double width)
{
    size_t letters = width > 0 ? (size_t)(width / LETTER) : 0;
    if (letters < 3 || !*text) return;
    fprintf(out, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\">", x, y);
    html_text(out, a, print_cut(a, text, letters + 1)); /* the mark of a cut has three bytes */
    fputs("</text>", out);
}

static const char *device_names(struct arena *a, const struct plan *p, const struct plan_replica *r,
                                const struct box *b)
{
    size_t n = 0;
    const char **names =
        ARENA_ARRAY(a, const char *, (size_t)(b->last - b->first + 1) * (size_t)b->devices);
    for (int32_t i = b->first; i <= b->last; i++)
        for (int32_t k = 0; k < b->devices; k++)
            names[n++] = p->cluster.devices[plan_stage_device(&r->stages[i], k)].name;
    return ranges_of_names(a, names, n, RUNS_SHOWN);
}

static void write_box(FILE *out, struct arena *a, const struct plan *p,
                      const struct plan_replica *r, const struct box *b, bool several, double x,
                      double width)
{
    const struct plan_stage *first = &r->stages[b->first], *last = &r->stages[b->last];
    int32_t stages = b->last - b->first + 1;
    const char *type = b->mixed ? "mixed types" : p->cluster.types[b->type].name,
               *layers =
                   arena_printf(a, "layers %d-%d", (int)first->first_layer, (int)last->last_layer),
               *names = device_names(a, p, r, b),
               *devices = b->devices > 1 ? arena_printf(a, "%d × %s", (int)b->devices, type)
                          : several      ? type
                                         : arena_printf(a, "%s %s", type, names),
               *what = stages > 1 ? arena_printf(a, "%d stages × %s", (int)stages,
                                                 b->devices > 1 ? devices : type)
                                  : devices;
    fprintf(out, "<g><title>");
    html_text(out, a,
              arena_printf(a, "%s; %s; first replica: %s%s%s", layers, what, names,
                           *b->settings ? "; " : "", b->settings));
    fprintf(out, "</title><rect x=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"4\" fill=\"%s\"%s/>",
            x, width, BOX_HEIGHT, b->mixed ? "#B0B8C0" : report_type_colour(b->type),
            first->recompute ? " stroke=\"#D55E00\" stroke-width=\"2\"" : "");
    write_line(out, a, x + 6, 18, layers, width - 8);
    write_line(out, a, x + 6, 35, what, width - 8);
    write_line(out, a, x + 6, 52, b->settings, width - 8);
    fputs("</g>", out);
}

static void write_class(FILE *out, struct arena *a, const struct plan *p,
                        const struct plan_class *c)
{
    const struct plan_replica *r = &p->replicas[c->replicas[0]];
    struct box *boxes = ARENA_ARRAY(a, struct box, (size_t)r->n_stages + 1);
    int32_t n = find_boxes(a, p, r, boxes), layers = 0;
    const char *head =
        c->n > 1
            ? arena_printf(a, "Replicas %s (%d)",
                           ranges_of_numbers(a, c->replicas, (size_t)c->n, RUNS_SHOWN), (int)c->n)
            : arena_printf(a, "Replica %d", (int)c->replicas[0]);
    fputs("<figure><figcaption>", out);
    html_text(out, a,
              arena_printf(a, "%s: %d microbatches%s%s%s, %d stage%s", head, (int)r->microbatches,
                           c->n > 1 ? " each" : "", r->schedule ? ", schedule " : "",
                           r->schedule ? r->schedule : "", (int)r->n_stages,
                           r->n_stages == 1 ? "" : "s"));
    fprintf(out,
            "</figcaption><div class=\"scroll\"><svg class=\"wide\" viewBox=\"0 0 %d %d\" "
            "font-size=\"12\" role=\"img\">",
            WIDTH, BOX_HEIGHT + GAP);
    for (int32_t i = 0; i < n; i++)
        layers += r->stages[boxes[i].last].last_layer - r->stages[boxes[i].first].first_layer + 1;
    /* half of the width by layers, half equally, so that a stage of one layer can be seen */
    double x = 0, room = WIDTH - (double)GAP * (n - 1);
    for (int32_t i = 0; i < n && room > 0; i++) {
        double own =
                   r->stages[boxes[i].last].last_layer - r->stages[boxes[i].first].first_layer + 1,
               width = room * (0.5 * own / layers + 0.5 / n);
        write_box(out, a, p, r, &boxes[i], c->n > 1, x, width);
        x += width + GAP;
    }
    fputs("</svg></div></figure>\n", out);
}

/* What of a replica the picture shows, as a text. */
static const char *shown(struct arena *a, const struct plan *p, const struct plan_replica *r)
{
    struct box *boxes = ARENA_ARRAY(a, struct box, (size_t)r->n_stages + 1);
    int32_t n = find_boxes(a, p, r, boxes);
    const char *text =
        arena_printf(a, "%d %s", (int)r->microbatches, r->schedule ? r->schedule : "");
    for (int32_t i = 0; i < n; i++)
        text = arena_printf(a, "%s|%d-%d %d %d %d %s", text,
                            (int)r->stages[boxes[i].first].first_layer,
                            (int)r->stages[boxes[i].last].last_layer, (int)boxes[i].type,
                            (int)boxes[i].mixed, (int)boxes[i].devices, boxes[i].settings);
    return text;
}

static int by_number(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Classes of replicas that look alike: plan_classes keeps those apart that differ in details. */
static int32_t find_classes(struct arena *a, const struct plan *p, struct plan_class **out)
{
    struct plan_class *all;
    int32_t n = plan_classes(a, p, &all), kept = 0;
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) {
        const char *text = shown(a, p, &p->replicas[all[i].replicas[0]]);
        int32_t k = 0;
        while (k < kept && strcmp(texts[k], text) != 0) k++;
        if (k == kept) {
            texts[kept] = text;
            all[kept++] = all[i];
            continue;
        }
        int32_t *both = ARENA_ARRAY(a, int32_t, (size_t)(all[k].n + all[i].n));
        memcpy(both, all[k].replicas, (size_t)all[k].n * sizeof *both);
        memcpy(both + all[k].n, all[i].replicas, (size_t)all[i].n * sizeof *both);
        all[k].replicas = both, all[k].n += all[i].n;
        qsort(both, (size_t)all[k].n, sizeof *both, by_number);
    }
    *out = all;
    return kept;
}

static void write_unused(FILE *out, struct arena *a, const struct plan *p)
{
    const struct cluster *c = &p->cluster;
    bool *used = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    int32_t n = c->n_devices - replan_mark(p, used), at = 0;
    const char **names = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    if (!n) return;
    for (int32_t d = 0; d < c->n_devices; d++)
        if (!used[d]) names[at++] = c->devices[d].name;
    html_paragraph(out, a, "soft",
                   arena_printf(a, "Not used: %s (%d of %d devices).",
                                ranges_of_names(a, names, (size_t)n, RUNS_SHOWN), (int)n,
                                (int)c->n_devices));
}

void layout_write(FILE *out, struct arena *a, const struct report_plan *x)
{
    struct plan_class *classes;
    int32_t n = find_classes(a, &x->plan, &classes);
    fputs("<h3>Replicas and stages</h3>\n", out);
    html_paragraph(
        out, a, "soft",
        arena_printf(a,
                     "%d replica%s of the model, microbatches of %lld. A row is a class of equal "
                     "replicas, a box a stage (or a run of equal ones); colours are device "
                     "types, an orange border is recomputation.",
                     (int)x->plan.n_replicas, x->plan.n_replicas == 1 ? "" : "s",
                     (long long)x->plan.microbatch));
    write_unused(out, a, &x->plan);
    for (int32_t i = 0; i < n && i < CLASSES_SHOWN; i++) write_class(out, a, &x->plan, &classes[i]);
    if (n > CLASSES_SHOWN)
        html_paragraph(out, a, "soft",
                       arena_printf(a, "and %d more classes of replicas", (int)n - CLASSES_SHOWN));
}
