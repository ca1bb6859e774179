#include "tools/print/unused.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/cluster/topology.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 6 };

static bool *used_devices(struct arena *a, const struct plan *p)
{
    bool *used = ARENA_ARRAY(a, bool, (size_t)p->cluster.n_devices + 1);
    for (int32_t i = 0; i < p->servers.rule.n; i++) used[p->servers.devices[i]] = true;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
    return used;
}

static void mark_apart(struct arena *a, const struct cluster *c, const int32_t *unused, int32_t n,
                       bool *apart)
{
    int32_t *part = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices + 1);
    bool *reached = ARENA_ARRAY(a, bool, (size_t)topology_parts(a, c, part) + 1);
    for (int32_t d = 0, k = 0; d < c->n_devices; d++)
        if (k < n && unused[k] == d)
            k++;
        else
            reached[part[d]] = true;
    for (int32_t k = 0; k < n; k++) apart[k] = !reached[part[unused[k]]];
}

void unused_find(struct arena *a, const struct cluster *c, const struct plan *p, struct unused *out)
{
    size_t n = (size_t)c->n_devices + 1;
    int32_t *devices = ARENA_ARRAY(a, int32_t, n);
    const bool *used = used_devices(a, p), grouped = p->cluster.n_devices < c->n_devices;
    *out =
        (struct unused){.names = ARENA_ARRAY(a, const char *, n), .apart = ARENA_ARRAY(a, bool, n)};
    for (int32_t d = 0, at = 0; d < c->n_devices;
         d++) { /* the remaining devices keep their order */
        bool there =
            at < p->cluster.n_devices && !strcmp(p->cluster.devices[at].name, c->devices[d].name);
        if (there ? !used[at] : !grouped) devices[out->n++] = d;
        at += there;
    }
    for (int32_t k = 0; k < out->n; k++) out->names[k] = c->devices[devices[k]].name;
    mark_apart(a, c, devices, out->n, out->apart);
}

static void print_some(struct arena *a, const struct unused *x, bool apart, const char *one,
                       const char *several)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)x->n + 1);
    int32_t n = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (x->apart[i] == apart) names[n++] = x->names[i];
    if (!n) return;
    printf("  unused: %s", ranges_of_names(a, names, (size_t)n, SHOWN));
    if (n > 1) printf(" (%d devices)", (int)n);
    printf(": %s\n", n > 1 ? several : one);
}

void unused_print(struct arena *a, const struct unused *x, bool cost)
{
    print_some(a, x, false,
               cost ? "no cheaper plan with it was found" : "no faster plan with it was found",
               cost ? "no cheaper plan with them was found" : "no faster plan with them was found");
    print_some(a, x, true, "no link joins it to the devices of the plan",
               "no link joins them to the devices of the plan");
}
