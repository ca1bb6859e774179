#include "tools/strategy/islands.h"

#include "core/base/arena.h"
#include "tools/team/edit.h"

#include <stdlib.h>
#include <string.h>

struct joining {
    const struct cluster *c;
    int32_t *group; /* (nodes, then switches) representative, or itself (disjoint sets) */
};

static int32_t group_of(struct joining *j, int32_t vertex)
{
    while (j->group[vertex] != vertex) vertex = j->group[vertex] = j->group[j->group[vertex]];
    return vertex;
}

static int32_t vertex_of(const struct cluster *c, const struct link *l, int k)
{
    return l->kind[k] == END_SWITCH ? c->n_nodes + l->end[k] : l->kind[k] == END_NODE ? l->end[k] : c->devices[l->end[k]].node;
}

static void join(struct joining *j, const struct link *l)
{
    for (int32_t n = 1; !l->n_ends && n < j->c->n_nodes; n++) j->group[group_of(j, n)] = group_of(j, 0);
    if (l->n_ends == 2) j->group[group_of(j, vertex_of(j->c, l, 0))] = group_of(j, vertex_of(j->c, l, 1));
}

static bool between_nodes(const struct link *l) { return l->n_ends == 2 || (!l->n_ends && l->kind[0] == END_ACROSS); }

static int by_bandwidth(const void *x, const void *y)
{
    const struct link *a = *(const struct link *const *)x, *b = *(const struct link *const *)y;
    return (a->bandwidth_Bps < b->bandwidth_Bps) - (a->bandwidth_Bps > b->bandwidth_Bps);
}

/* The present sets as a division. false: one, or too many. */
static bool divide(struct arena *a, struct joining *j, struct islands *out)
{
    const struct cluster *c = j->c;
    int32_t vertices = c->n_nodes + c->n_switches, *number = ARENA_ARRAY(a, int32_t, (size_t)vertices),
            *of = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices);
    out->n = 0;
    for (int32_t d = 0; d < c->n_devices; d++) {
        int32_t *at = &number[group_of(j, c->devices[d].node)];
        if (!*at) *at = ++out->n;
        of[d] = *at - 1;
    }
    out->of = of;
    return out->n > 1 && out->n <= ISLANDS_MAX;
}

int32_t islands_divisions(struct arena *a, const struct cluster *c, struct islands **out)
{
    int32_t n = 0, n_links = 0;
    struct joining j = {c, ARENA_ARRAY(a, int32_t, (size_t)(c->n_nodes + c->n_switches))};
    const struct link **link = ARENA_ARRAY(a, const struct link *, (size_t)c->n_links + 1);
    *out = ARENA_ARRAY(a, struct islands, (size_t)c->n_links + 1);
    for (int32_t v = 0; v < c->n_nodes + c->n_switches; v++) j.group[v] = v;
    for (int32_t i = 0; i < c->n_links; i++)
        if (c->links[i].bandwidth_Bps > 0 && between_nodes(&c->links[i])) link[n_links++] = &c->links[i];
    qsort(link, (size_t)n_links, sizeof *link, by_bandwidth);
    for (int32_t i = 0, next; i < n_links; i = next) {
        struct islands x = {.between_Bps = link[i]->bandwidth_Bps};
        bool differs = divide(a, &j, &x) && (!n || (*out)[n - 1].n != x.n);
        if (differs) (*out)[n++] = x;
        for (next = i; next < n_links && link[next]->bandwidth_Bps == link[i]->bandwidth_Bps; next++) join(&j, link[next]);
        /* links of another bandwidth that a switch joins count when the switch is reached: the division stays */
        if (!differs && n && (*out)[n - 1].n == x.n) (*out)[n - 1].between_Bps = x.between_Bps;
    }
    return n;
}

/* Of the present links those whose switches have another link, until all have. */
static void prune(struct arena *a, struct cluster *c)
{
    int32_t *degree = ARENA_ARRAY(a, int32_t, (size_t)c->n_switches + 1), before;
    struct link *links = arena_copy(a, c->links, (size_t)c->n_links * sizeof *links);
    c->links = links;
    do {
        before = c->n_links, c->n_links = 0;
        memset(degree, 0, (size_t)c->n_switches * sizeof *degree);
        for (int32_t i = 0; i < before; i++)
            for (int k = 0; k < links[i].n_ends; k++)
                if (links[i].kind[k] == END_SWITCH) degree[links[i].end[k]]++;
        for (int32_t i = 0; i < before; i++) {
            bool leads = true;
            for (int k = 0; k < links[i].n_ends; k++) leads &= links[i].kind[k] != END_SWITCH || degree[links[i].end[k]] > 1;
            if (leads) links[c->n_links++] = links[i];
        }
    } while (c->n_links < before);
}

void islands_part(struct arena *a, const struct cluster *c, const struct islands *x, int32_t island, struct cluster *out)
{
    bool *keep = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    for (int32_t d = 0; d < c->n_devices; d++) keep[d] = x->of[d] == island;
    team_part(a, c, keep, out);
    prune(a, out);
}

static bool same_type(const struct cluster *x, const struct cluster *y, int32_t device)
{
    return x->devices[device].node == y->devices[device].node &&
           !strcmp(x->types[x->devices[device].type].name, y->types[y->devices[device].type].name);
}

/* twin: (switches of x) the switch of y for each, + 1; 0: not met yet */
static bool same_link(const struct link *x, const struct link *y, int32_t *twin)
{
    bool same = x->bandwidth_Bps == y->bandwidth_Bps && x->latency_s == y->latency_s && x->half_duplex == y->half_duplex &&
                x->blocking == y->blocking && x->sharing == y->sharing && x->n_ends == y->n_ends && x->stated == y->stated &&
                x->compute_slowdown == y->compute_slowdown;
    for (int k = 0; k < x->n_ends && same; k++) {
        bool is_switch = x->kind[k] == END_SWITCH;
        if (is_switch && !twin[x->end[k]]) twin[x->end[k]] = y->end[k] + 1;
        same = x->kind[k] == y->kind[k] && (is_switch ? twin[x->end[k]] - 1 : x->end[k]) == y->end[k];
    }
    return same;
}

bool islands_alike(struct arena *scratch, const struct cluster *x, const struct cluster *y)
{
    int32_t *twin = ARENA_ARRAY(scratch, int32_t, (size_t)x->n_switches + 1);
    if (x->n_devices != y->n_devices || x->n_nodes != y->n_nodes || x->n_links != y->n_links) return false;
    for (int32_t d = 0; d < x->n_devices; d++)
        if (!same_type(x, y, d)) return false;
    for (int32_t i = 0; i < x->n_links; i++)
        if (!same_link(&x->links[i], &y->links[i], twin)) return false;
    return true;
}
