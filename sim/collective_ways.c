#include "sim/collective_ways.h"

#include "core/arena.h"

struct collective_ways {
    const struct cluster *cluster;
    struct program program;
};

struct collective_ways *collective_ways_new(struct arena *a, const struct cluster *c)
{
    struct collective_ways *w = ARENA_ARRAY(a, struct collective_ways, 1);
    w->cluster = c;
    w->program.n_links = c->n_links;
    w->program.links = ARENA_ARRAY(a, struct program_link, (size_t)c->n_links);
    for (int32_t i = 0; i < c->n_links; i++)
        w->program.links[i] = (struct program_link){.name = c->links[i].name,
                                                    .bandwidth_Bps = c->links[i].bandwidth_Bps,
                                                    .latency_s = c->links[i].latency_s,
                                                    .half_duplex = c->links[i].half_duplex,
                                                    .emulated = c->emulated,
                                                    .sharing = (int32_t)c->links[i].sharing};
    return w;
}

bool collective_way(struct collective_ways *w, int32_t from, int32_t to, int32_t *link,
                    int32_t *direction)
{
    *link = -1, *direction = 0;
    if (from == to) return true;
    *link = cluster_link(w->cluster, from, to, direction);
    return *link >= 0;
}

const struct program *collective_ways_program(const struct collective_ways *w)
{
    return &w->program;
}

enum status collective_way_cost(struct collective_ways *w, struct cost *k, int32_t from, int32_t to,
                                struct cost_link *out, struct error *err)
{
    int32_t link, direction;
    *out = (struct cost_link){.bandwidth_Bps = 1};
    if (!collective_way(w, from, to, &link, &direction))
        return error_set(err, ERR_INPUT, "there is no link between %s and %s",
                         w->cluster->devices[from].name, w->cluster->devices[to].name);
    return link < 0 ? OK : cost_link(k, link, out, err);
}
