#include "tools/print/classes.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/plan/plan.h"
#include "core/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_SHOWN = 6 };

static int by_text(const void *a, const void *b, void *texts)
{
    const char *const *t = texts;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    int order = strcmp(t[i], t[j]);
    return order ? order : i < j ? -1 : 1;
}

static int by_first(const void *a, const void *b)
{
    const struct print_class *x = a, *y = b;
    return x->rows[0] < y->rows[0] ? -1 : 1;
}

int32_t print_classes(struct arena *a, int32_t n, const char *const *names,
                      const char *const *texts, bool all, struct print_class **out)
{
    int32_t *order = ARENA_ARRAY(a, int32_t, (size_t)n + 1), found = 0;
    struct print_class *classes = ARENA_ARRAY(a, struct print_class, (size_t)n + 1);
    const char **members = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    bool fold = !all && n > PRINT_ROWS_ONE_BY_ONE;
    for (int32_t i = 0; i < n; i++) order[i] = i;
    if (fold) qsort_r(order, (size_t)n, sizeof *order, by_text, (void *)texts);
    for (int32_t i = 0, end; i < n; i = end) {
        struct print_class *x = &classes[found++];
        for (end = i + 1; fold && end < n && !strcmp(texts[order[i]], texts[order[end]]);) end++;
        *x = (struct print_class){.text = texts[order[i]], .n = end - i, .rows = order + i};
        for (int32_t k = 0; k < x->n; k++) members[k] = names[x->rows[k]];
        x->names = x->n > 1 ? ranges_of_names(a, members, (size_t)x->n, RUNS_SHOWN) : members[0];
    }
    if (found) qsort(classes, (size_t)found, sizeof *classes, by_first);
    *out = classes;
    return found;
}

/* What the devices of a class have in common, from the finest division to the coarsest: a class of replicas and in it a stage, or a device type,
 * or nothing more. */
enum fineness { BY_STAGE, BY_TYPE, BY_REPLICAS };

/* The part of its class of replicas in which a device lies. */
static int32_t part_of(const struct program *p, int32_t device, enum fineness by)
{
    if (by == BY_REPLICAS) return 0;
    return by == BY_TYPE ? p->devices[device].type_index
                         : p->stages[p->lanes[device].stages[0]].stage;
}

static const char *part_name(struct arena *a, const struct program *p, int32_t device,
                             enum fineness by)
{
    if (by == BY_REPLICAS) return "";
    return by == BY_TYPE ? arena_printf(a, ", %s", p->devices[device].type)
                         : arena_printf(a, ", stage %d", (int)part_of(p, device, by));
}

struct dividing {
    const struct plan_class *replicas;
    const int32_t *class_of; /* (n_replicas) */
    const struct program *p;
    enum fineness by;
};

static int32_t class_of(const struct dividing *q, int32_t device)
{
    return q->class_of[q->p->stages[q->p->lanes[device].stages[0]].replica];
}

static int by_part(const void *a, const void *b, void *user)
{
    const struct dividing *q = user;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    int32_t order = class_of(q, i) - class_of(q, j);
    if (!order) order = part_of(q->p, i, q->by) - part_of(q->p, j, q->by);
    return order ? order : i - j;
}

/* One class of rows for each part of a class of replicas. */
static int32_t divide(struct arena *a, const struct dividing *q, print_merge *merge,
                      const void *user, struct print_class *classes)
{
    int32_t n = q->p->n_devices, found = 0;
    int32_t *order = ARENA_ARRAY(a, int32_t, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_part, (void *)q);
    for (int32_t i = 0, end; i < n; i = end) {
        const struct plan_class *x = &q->replicas[class_of(q, order[i])];
        int32_t part = part_of(q->p, order[i], q->by);
        for (end = i; end < n && class_of(q, order[end]) == class_of(q, order[i]) &&
                      part_of(q->p, order[end], q->by) == part;)
            end++;
        struct print_class *c = &classes[found++];
        *c = (struct print_class){.rows = order + i, .n = end - i};
        c->names = arena_printf(a, "replica%s %s%s:", x->n == 1 ? "" : "s",
                                ranges_of_numbers(a, x->replicas, (size_t)x->n, RUNS_SHOWN),
                                part_name(a, q->p, order[i], q->by));
        c->text = merge(a, user, c->rows, c->n);
    }
    return found;
}

/* The finest division of at most PRINT_CLASSES_MOST classes; else the coarsest. */
static int32_t by_replicas(struct arena *a, const struct plan *plan, const struct program *p,
                           print_merge *merge, const void *user, struct print_class **out)
{
    struct plan_class *x;
    int32_t n = plan_classes(a, plan, &x), found = 0;
    int32_t *of = ARENA_ARRAY(a, int32_t, (size_t)plan->n_replicas + 1);
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < x[k].n; i++) of[x[k].replicas[i]] = k;
    *out = ARENA_ARRAY(a, struct print_class, (size_t)p->n_devices + 1);
    for (int by = BY_STAGE; by <= BY_REPLICAS; by++) {
        found = divide(a, &(struct dividing){x, of, p, (enum fineness)by}, merge, user, *out);
        if (found <= PRINT_CLASSES_MOST) break;
    }
    return found;
}

int32_t print_device_classes(struct arena *a, const struct plan *plan, const struct program *p,
                             const char *const *texts, print_merge *merge, const void *user,
                             bool all, struct print_class **out)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)p->n_devices + 1);
    for (int32_t i = 0; i < p->n_devices; i++) names[i] = p->devices[i].name;
    int32_t n = print_classes(a, p->n_devices, names, texts, all, out);
    if (all || p->n_devices <= PRINT_ROWS_ONE_BY_ONE || n <= PRINT_CLASSES_MOST) return n;
    return by_replicas(a, plan, p, merge, user, out);
}

void print_class_lines(const struct print_class *x, int32_t n, const char *what)
{
    for (int32_t i = 0; i < n; i++) {
        printf("  %-10s %s", x[i].names, x[i].text);
        if (x[i].n > 1) printf(" (%d %s)", (int)x[i].n, what);
        putchar('\n');
    }
}

const char *print_cut(struct arena *a, const char *text, size_t most)
{
    size_t n = strlen(text);
    if (n <= most) return text;
    for (n = most - 3; n && (text[n] & 0xC0) == 0x80;) n--;
    return arena_printf(a, "%s…", arena_strndup(a, text, n));
}
