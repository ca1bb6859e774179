#include "tools/print/links.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"

#include <string.h>

enum { RUNS_SHOWN = 4 };

const char *links_sharing(enum link_sharing s)
{
    return s == LINK_FLUID ? "fluid" : s == LINK_FAIR ? "fair" : "fifo";
}

static const char *ends_of(struct arena *a, const struct cluster *c, const struct print_class *x,
                           int i)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)x->n);
    for (int32_t k = 0; k < x->n; k++) names[k] = cluster_link_end(c, &c->links[x->rows[k]], i);
    size_t n = 0;
    for (int32_t k = 0; k < x->n; k++) /* a switch stands at many links */
        if (!k || strcmp(names[k], names[n - 1]) != 0) names[n++] = names[k];
    return ranges_of_names(a, names, n, RUNS_SHOWN);
}

const char *links_ends(struct arena *a, const struct cluster *c, const struct print_class *x)
{
    const char *first = ends_of(a, c, x, 0);
    if (c->links[x->rows[0]].n_ends < 2) return first;
    return arena_printf(a, "%s - %s", first, ends_of(a, c, x, 1));
}

int32_t links_classes(struct arena *a, const struct cluster *c, bool all, struct print_class **out)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)c->n_links + 1),
               **texts = ARENA_ARRAY(a, const char *, (size_t)c->n_links + 1);
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *l = &c->links[i];
        char rate[32], latency[32];
        names[i] = l->name;
        texts[i] = arena_printf(a, "%s, %s, %s duplex, %s",
                                l->stated ? units_print_bytes_per_s(rate, l->bandwidth_Bps)
                                          : "not stated: to be measured",
                                units_print_ns(latency, units_ns_from_s(l->latency_s)),
                                l->half_duplex ? "half" : "full", links_sharing(l->sharing));
    }
    return print_classes(a, c->n_links, names, texts, all, out);
}
