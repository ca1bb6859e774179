#include "tools/print/use.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/print/classes.h"

static double busy_percent(const struct sim_device *d)
{
    int64_t whole = d->busy_ns + d->idle_ns;
    return whole ? 100.0 * (double)d->busy_ns / (double)whole : 0.0;
}

/* From the least to the most of them. */
static const char *range_of(struct arena *a, const void *user, const int32_t *rows, int32_t n)
{
    const struct sim_device *d = user;
    int32_t idlest = rows[0], busiest = rows[0], least = rows[0], most = rows[0];
    char low[32], high[32];
    for (int32_t i = 1; i < n; i++) {
        if (busy_percent(&d[rows[i]]) < busy_percent(&d[idlest])) idlest = rows[i];
        if (busy_percent(&d[rows[i]]) > busy_percent(&d[busiest])) busiest = rows[i];
        if (d[rows[i]].peak_bytes < d[least].peak_bytes) least = rows[i];
        if (d[rows[i]].peak_bytes > d[most].peak_bytes) most = rows[i];
    }
    return arena_printf(a, "busy %.1f to %.1f %%, peak memory %s to %s", busy_percent(&d[idlest]),
                        busy_percent(&d[busiest]),
                        units_print_bytes(low, (double)d[least].peak_bytes),
                        units_print_bytes(high, (double)d[most].peak_bytes));
}

void print_use(struct arena *a, const struct plan *plan, const struct program *p,
               const struct sim_result *r, bool all)
{
    const char **texts = ARENA_ARRAY(a, const char *, (size_t)p->n_devices + 1);
    struct print_class *x;
    char peak[32];
    for (int32_t i = 0; i < p->n_devices; i++)
        texts[i] = arena_printf(a, "busy %5.1f %%, peak memory %s", busy_percent(&r->devices[i]),
                                units_print_bytes(peak, (double)r->devices[i].peak_bytes));
    int32_t n = print_device_classes(a, plan, p, texts, range_of, r->devices, all, &x);
    print_class_lines(x, n, "devices");
}
