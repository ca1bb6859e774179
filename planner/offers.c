#include "planner/offers.h"

#include "core/arena.h"
#include "core/cluster_group.h"
#include "profiles/team.h"

bool offer_possible(const struct cluster *c, int32_t type, int32_t cards)
{
    if (c->types[type].tensor_parallel > 1) return cards == 1;
    for (int32_t n = 0; n < c->n_nodes; n++) {
        int32_t have = 0;
        for (int32_t d = 0; d < c->nodes[n].n_devices; d++)
            have += c->devices[c->nodes[n].first_device + d].type == type;
        if (have && have < cards) return false;
    }
    return true;
}

/* Groups of so many cards a type, node by node. */
static int32_t make_groups(struct arena *a, const struct cluster *c, const int32_t *cards,
                           struct cluster_group *groups)
{
    int32_t n = 0;
    for (int32_t node = 0; node < c->n_nodes; node++)
        for (int32_t t = 0; t < c->n_types; t++) {
            int32_t *member = NULL, have = 0;
            for (int32_t d = 0; d < c->nodes[node].n_devices && cards[t] > 1; d++) {
                int32_t device = c->nodes[node].first_device + d;
                if (c->devices[device].type != t) continue;
                if (!have) member = ARENA_ARRAY(a, int32_t, (size_t)cards[t]);
                member[have++] = device;
                if (have < cards[t]) continue;
                groups[n++] = (struct cluster_group){have, member, false};
                have = 0;
            }
        }
    return n;
}

enum status offer_make(struct arena *a, const struct job *j, const struct cluster *c,
                       const struct profile *p, const int32_t *cards, int32_t n_sizes,
                       struct offer *out, struct error *err)
{
    int32_t *copy = ARENA_ARRAY(a, int32_t, (size_t)c->n_types), *where = NULL, n;
    struct cluster_group *groups = ARENA_ARRAY(a, struct cluster_group, (size_t)c->n_devices);
    for (int32_t t = 0; t < c->n_types; t++) copy[t] = cards[t];
    *out = (struct offer){.cards = copy, .cluster = *c, .job = *j};
    n = make_groups(a, c, cards, groups);
    if (n) TRY(cluster_group(a, c, groups, n, &out->cluster, &where, err));
    out->base_type = ARENA_ARRAY(a, int32_t, (size_t)out->cluster.n_types);
    for (int32_t t = 0; t < out->cluster.n_types; t++) out->base_type[t] = -1;
    for (int32_t d = 0; d < c->n_devices; d++)
        out->base_type[out->cluster.devices[where ? where[d] : d].type] = c->devices[d].type;
    team_share(&out->cluster, &out->job.model);
    out->cost = cost_new(a, p, &out->cluster);
    out->spaces = ARENA_ARRAY(a, struct space, (size_t)n_sizes);
    out->makers = ARENA_ARRAY(a, struct template_maker *, (size_t)n_sizes);
    return device_graph_new(a, &out->cluster, out->cost, &out->graph, err);
}

enum status offer_size(struct arena *a, struct offer *o, int32_t size, int64_t microbatch,
                       const struct lower_options *lower, struct error *err)
{
    if (o->makers[size]) return OK;
    TRY(space_make_on(a, &o->job, &o->cluster, o->cost, o->graph, microbatch, lower,
                      &o->spaces[size], err));
    o->makers[size] = template_maker_new(a, &o->spaces[size], o->graph);
    for (int32_t k = 0; k < o->graph->n_kinds; k++) { /* what was left over on a node */
        int32_t type = o->graph->kinds[k].type, base = o->base_type[type];
        int32_t cards = o->cluster.types[type].tensor_parallel;
        if (o->cards[base] > 1 && cards != o->cards[base]) o->makers[size]->limit[k] = 0;
    }
    return OK;
}
