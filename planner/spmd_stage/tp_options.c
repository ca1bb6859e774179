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

int32_t tp_options_numbers(const struct job *j, const struct cluster *c, const struct profile *p,
                           bool no_sharding, int32_t numbers[TP_NUMBERS_MAX])
{
    const struct measured_model *m = j->model.measured;
    int32_t n = 0, most = 1;
    for (int32_t t = 0; t < c->n_types; t++)
        if (cluster_most_on_node(c, t) > most) most = cluster_most_on_node(c, t);
    for (int32_t i = 0; m && i < m->n_tp && n < TP_NUMBERS_MAX; i++)
        if (measured_everywhere(c, p, m->tp[i])) numbers[n++] = m->tp[i];
    for (int32_t i = 1; !m && i <= most && n < TP_NUMBERS_MAX; i *= 2)
        if (i == 1 || !no_sharding) numbers[n++] = i;
    if (!n) numbers[n++] = 1; /* lowering reports what is missing */
    return n;
}
