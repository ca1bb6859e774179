#include "tools/profile/switches.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/cluster/topology.h"

#include <inttypes.h>

struct at_switch {
    int32_t n, link[SWITCH_LINKS], device[SWITCH_LINKS];
    struct link_model pair[SWITCH_LINKS][SWITCH_LINKS]; /* bandwidth_Bps 0: not measured */
};

/* The first device in reach below the link, whose other end is the switch; -1: none. */
static int32_t device_below(const struct profile_links *b, const struct link *l, int32_t of)
{
    for (int k = 0; l->n_ends == 2 && k < 2; k++) {
        if (l->kind[1 - k] != END_SWITCH || l->end[1 - k] != of || l->kind[k] == END_SWITCH) continue;
        int32_t device = l->kind[k] == END_DEVICE ? l->end[k] : b->cluster->nodes[l->end[k]].first_device;
        return profile_reaches(b, device) ? device : -1;
    }
    return -1;
}

static void find_links(const struct profile_links *b, int32_t of, struct at_switch *out)
{
    int32_t more = 0;
    *out = (struct at_switch){.n = 0};
    for (int32_t i = 0; i < b->cluster->n_links; i++) {
        int32_t device = device_below(b, &b->cluster->links[i], of);
        if (device < 0) continue;
        if (out->n == SWITCH_LINKS) {
            more++;
            continue;
        }
        out->link[out->n] = i, out->device[out->n++] = device;
    }
    if (more)
        log_warn("switch %s: %" PRId32 " of its links are measured, %" PRId32 " keep what the cluster file states", b->cluster->switches[of], out->n,
                 more);
}

/* Measures the pair once, if its messages cross these two links and nothing else. */
static enum status measure_pair(struct profile_links *b, struct topology *t, struct at_switch *x, int32_t i, int32_t k, int64_t repeats,
                                const char *folder, struct error *err)
{
    struct route r;
    if (i == k || x->pair[i][k].bandwidth_Bps > 0 || !topology_route(t, x->device[i], x->device[k], &r)) return OK;
    if (r.n_hops != 2 || r.link[0] != x->link[i] || r.link[1] != x->link[k]) return OK;
    const struct link *links = b->cluster->links;
    const char *name = arena_printf(b->arena, "links %s and %s", links[x->link[i]].name, links[x->link[k]].name);
    TRY(profile_link_between(b, x->device[i], x->device[k], name, repeats, folder, &x->pair[i][k], err));
    x->pair[k][i] = x->pair[i][k];
    return OK;
}

/* Of link i from its pairs with its neighbours; false: not all were measured. */
static bool divide(const struct at_switch *x, int32_t i, struct link_model *out)
{
    int32_t next = (i + 1) % x->n, previous = (i + x->n - 1) % x->n;
    const struct link_model *p = &x->pair[i][next], *q = &x->pair[i][previous], *r = &x->pair[previous][next];
    if (!(p->bandwidth_Bps > 0) || !(q->bandwidth_Bps > 0) || (next != previous && !(r->bandwidth_Bps > 0))) return false;
    *out = p->bandwidth_Bps > q->bandwidth_Bps ? *p : *q;
    double latency_s = next == previous ? p->latency_s / 2 : (p->latency_s + q->latency_s - r->latency_s) / 2;
    out->latency_s = latency_s > 0 ? latency_s : 0;
    out->residual = p->residual > q->residual ? p->residual : q->residual;
    return true;
}

enum status profile_switches_measure(struct profile_links *b, int64_t repeats, const char *folder, struct profile *p, struct error *err)
{
    struct topology *t = topology_new(b->arena, b->cluster);
    struct at_switch *x = ARENA_ARRAY(b->arena, struct at_switch, 1);
    if (b->cluster->emulated) return OK;
    for (int32_t s = 0; s < b->cluster->n_switches; s++) {
        find_links(b, s, x);
        for (int32_t i = 0; i < x->n; i++)
            for (int32_t k = 1; k <= 2; k++) TRY(measure_pair(b, t, x, i, (i + k) % x->n, repeats, folder, err));
        for (int32_t i = 0; i < x->n; i++) {
            struct link_model m;
            const char *name = b->cluster->links[x->link[i]].name;
            if (divide(x, i, &m))
                profile_set_link(b->arena, p, name, &m);
            else
                log_warn("link %s cannot be measured by messages to other devices of its switch: its costs stay as the cluster file states them", name);
        }
    }
    return OK;
}
