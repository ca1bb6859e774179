#include "tools/print/replicas.h"

#include "core/base/arena.h"
#include "tools/print/classes.h"
#include "tools/wrap.h"

#include <stdio.h>

enum { HANG = 2 };

static void paragraph(const char *text, int at, int indent)
{
    wrap_text(stdout, text, at, indent, wrap_width());
    putchar('\n');
}

static void below(const char *text, int indent)
{
    printf("%*s", indent, "");
    paragraph(text, indent, indent + HANG);
}

static void print_devices(struct arena *a, const struct plan *p, const struct plan_class *x,
                          int indent)
{
    size_t n;
    const char *names = plan_class_devices(a, p, x, &n);
    if (x->n == 1 && n <= PRINT_ROWS_ONE_BY_ONE) return; /* the line above names them */
    below(arena_printf(a, "on %zu device%s %s", n, n == 1 ? "" : "s", names), indent);
}

void print_replicas(struct arena *a, const struct plan *p, struct print_replicas how)
{
    struct plan_class *classes;
    int32_t n;
    const char *common, **lines = plan_describe_classes(a, p, &n, &common);
    plan_classes(a, p, &classes);
    if (how.all && p->n_replicas > 1) {
        paragraph(arena_printf(a, "%d replicas", (int)p->n_replicas), how.at, how.indent);
        for (int32_t i = 0; i < p->n_replicas; i++)
            below(plan_describe_replica(a, p, i), how.indent);
        return;
    }
    if (n == 1) {
        paragraph(how.all ? plan_describe_replica(a, p, 0) : lines[0], how.at, how.indent);
        if (how.devices && !how.all) print_devices(a, p, &classes[0], how.indent);
        return;
    }
    paragraph(arena_printf(a, "%d replicas in %d classes%s", (int)p->n_replicas, (int)n, common),
              how.at, how.indent);
    for (int32_t i = 0; i < n && i < PRINT_CLASSES_MOST; i++) {
        below(lines[i], how.indent);
        if (how.devices) print_devices(a, p, &classes[i], how.indent + HANG);
    }
    if (n > PRINT_CLASSES_MOST)
        printf("%*sand %d more classes of replicas (musher show --all)\n", how.indent, "",
               (int)(n - PRINT_CLASSES_MOST));
}
