#include "planner/spmd_stage/tp_options.h"

#include "core/model/measured.h"
#include "profiles/measured.h"

/* Whether every type of which a node has as many GPUs was measured on n, and some node has. */
static bool measured_everywhere(const struct cluster *c, const struct profile *p, int32_t n)
{
    bool possible = false;
    for (int32_t t = 0; t < c->n_types; t++) {
        if (cluster_most_on_node(c, t) < n) continue;
        if (!measured_on(p, c->types[t].catalogue, n)) return false;
        possible = true;
    }
    return possible;
}

bool tp_options_offered(int32_t n, int32_t per_node)
{
    int32_t power = 1;
    while (power <= per_node / 2) power *= 2;
    return n <= per_node && (!(n & (n - 1)) || per_node % n == 0 || n == per_node - power ||
                             n == (per_node + 1) / 2 || n == per_node / 2);
}

/* Of a type on any node. */
static bool offered(const struct cluster *c, int32_t n)
{
    for (int32_t i = 0; i < c->n_nodes; i++)
        for (int32_t t = 0; t < c->n_types; t++) {
            int32_t here = 0;
            for (int32_t d = 0; d < c->nodes[i].n_devices; d++)
                here += c->devices[c->nodes[i].first_device + d].type == t;
            if (tp_options_offered(n, here)) return true;
        }
    return false;
}

int32_t tp_options_numbers(const struct job *j, const struct cluster *c, const struct profile *p,
                           bool no_sharding, int32_t numbers[TP_NUMBERS_MAX])
{
    const struct measured_model *m = j->model.measured;
    int32_t n = 0, most = 1;
    for (int32_t t = 0; t < c->n_types; t++)
        if (cluster_most_on_node(c, t) > most) most = cluster_most_on_node(c, t);
    for (int32_t i = 0; m && i < m->n_tp && n < TP_NUMBERS_MAX; i++)
        if (measured_everywhere(c, p, m->tp[i])) numbers[n++] = m->tp[i];
    for (int32_t i = 1; !m && i <= most && n < TP_NUMBERS_MAX; i++)
        if (i == 1 || (!no_sharding && offered(c, i))) numbers[n++] = i;
    if (!n) numbers[n++] = 1; /* lowering reports what is missing */
    return n;
}
