#include "tools/print/kernels.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "traces/kernels.h"

#include <stdio.h>

enum { NAMES_SHOWN = 3 };

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void put_kind(struct json *j, const struct kernels_kind *k, bool kernels)
{
    json_put_object(j, NULL);
    json_put_text(j, "kind", k->kind ? k->kind : "");
    json_put_int(j, "operators", k->operators);
    json_put_int(j, "ns", k->ns);
    if (kernels) {
        json_put_int(j, "kernels", k->kernels);
        json_put_int(j, "busy_ns", k->busy_ns);
        json_put_list(j, "named");
        for (size_t i = 0; i < k->n_named; i++) {
            json_put_object_line(j, NULL);
            json_put_text(j, "name", k->named[i].name);
            json_put_int(j, "n", k->named[i].n);
            json_put_int(j, "ns", k->named[i].ns);
            json_close(j);
        }
        json_close(j);
    }
    json_close(j);
}

static void put(struct json *j, const struct kernels *x, bool kernels)
{
    if (kernels) json_put_int(j, "kernels_lost", x->lost);
    json_put_list(j, "operators");
    for (size_t i = 0; i < x->n_kinds; i++) put_kind(j, &x->kinds[i], kernels);
    json_close(j);
}

/* "norm_rows<float> 12 x 3.1 us, …": the longest kernels, each with its count an operator and its time. */
static void print_named(const struct kernels_kind *k)
{
    char text[32];
    for (size_t i = 0; i < k->n_named && i < NAMES_SHOWN; i++) {
        const struct kernels_named *x = &k->named[i];
        printf("%s%.72s %lld x %s", i ? ", " : "  ", x->name, (long long)x->n,
               units_print_ns(text, x->ns / x->n));
    }
    if (k->n_named > NAMES_SHOWN) printf(" and %d more", (int)(k->n_named - NAMES_SHOWN));
}

static void print_kind(const struct kernels_kind *k, bool kernels)
{
    char whole[32], none[32] = "";
    if (k->kind)
        printf("  %-24s %8lld %11s", k->kind, (long long)k->operators, units_print_ns(whole, k->ns));
    else
        printf("  %-24s %8s %11s", "between operators", "", units_print_ns(whole, k->busy_ns));
    if (kernels && k->kind)
        printf(" %7.1f %% %11s", 100 * share(k->busy_ns, k->ns),
               units_print_ns(none, k->ns - k->busy_ns));
    else if (kernels)
        printf(" %9s %11s", "", "");
    if (kernels) print_named(k);
    putchar('\n');
}

void print_kernels(struct arena *a, const struct trace *t, struct json *out)
{
    struct kernels x;
    kernels_of_trace(a, t, &x);
    if (out) {
        put(out, &x, t->kernels);
        return;
    }
    printf("  %-24s %8s %11s", "operator", "spans", "time");
    if (t->kernels) printf(" %9s %11s  %s", "kernels", "none runs", "of them, number and time each");
    putchar('\n');
    for (size_t i = 0; i < x.n_kinds; i++) print_kind(&x.kinds[i], t->kernels);
    if (x.lost)
        printf("  %lld kernels or copies were lost by the profiler: times of kernels are too small\n",
               (long long)x.lost);
}
