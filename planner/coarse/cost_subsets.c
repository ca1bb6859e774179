#include "planner/coarse/cost_subsets.h"

#include "core/base/arena.h"
#include "planner/coarse/coarse.h"

/* Nodes whose devices all have types in the mask; of each first type the first 1 / part of them. */
static struct cluster *part_of(struct arena *a, const struct cluster *c, uint32_t mask,
                               int32_t part)
{
    struct cluster *out = ARENA_ARRAY(a, struct cluster, 1);
    int32_t *all = ARENA_ARRAY(a, int32_t, (size_t)c->n_types),
            *taken = ARENA_ARRAY(a, int32_t, (size_t)c->n_types);
    *out = *c;
    out->nodes = ARENA_ARRAY(a, struct node_spec, (size_t)c->n_nodes);
    out->devices = ARENA_ARRAY(a, struct device, (size_t)c->n_devices);
    out->n_nodes = out->n_devices = 0;
    for (int32_t n = 0; n < c->n_nodes; n++) all[c->devices[c->nodes[n].first_device].type]++;
    for (int32_t n = 0; n < c->n_nodes; n++) {
        const struct node_spec *node = &c->nodes[n];
        int32_t type = c->devices[node->first_device].type;
        bool in = taken[type] < (all[type] + part - 1) / part;
        for (int32_t d = 0; d < node->n_devices; d++)
            in &= mask >> c->devices[node->first_device + d].type & 1;
        if (!in) continue;
        taken[type]++;
        struct node_spec *x = &out->nodes[out->n_nodes];
        *x = *node;
        x->first_device = out->n_devices;
        for (int32_t d = 0; d < node->n_devices; d++) {
            out->devices[out->n_devices] = c->devices[node->first_device + d];
            out->devices[out->n_devices++].node = out->n_nodes;
        }
        out->n_nodes++;
    }
    return out;
}

enum status cost_subsets_search(struct search_context *t, const struct search_task *task,
                                struct error *err)
{
    const struct cluster *c = task->cluster;
    int32_t before = 0, n_tried;
    if (c->n_types > COST_SUBSETS_TYPES_MAX || !cluster_has_dedicated_links(c)) return OK;
    uint32_t every = (1u << c->n_types) - 1;
    for (uint32_t mask = every; mask; mask--, before = 0)
        for (int32_t k = 0; k < COST_SUBSETS_PARTS && !search_context_over(t); k++) {
            struct search_task part = *task;
            struct cluster *x = part_of(t->arena, c, mask, 1 << k);
            if (x->n_devices < 2 || x->n_devices == before || (mask == every && k == 0)) continue;
            before = x->n_devices;
            part.cluster = x;
            TRY(coarse_search(t, &part, &n_tried, err));
        }
    return OK;
}
