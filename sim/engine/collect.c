/* Collectives inside calls of folded GPUs: members wait for each other, then for the collective, and continue
 * together. Collectives with messages (core/collective/collective.h) are in collectives.c.
 *
 * No member can reach the next collective of a group before all have left this one, so a count, the latest arrival and the
 * ordinal of the collective are the complete state. Durations are in the code (code.h).
 */
#include "sim/engine/engine.h"

#include "core/base/arena.h"
#include "sim/collective/price.h"

struct gathering {
    int32_t here; /* members that have arrived */
    int64_t latest_ns, end_ns, number;
};

enum status collect_new(struct engine *e, struct cost *k, struct error *err)
{
    const struct program *p = e->program;
    e->gatherings = ARENA_ARRAY(e->arena, struct gathering, (size_t)p->n_collectives);
    e->folded_ns = ARENA_ARRAY(e->arena, int64_t, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        int32_t ranks = g->stands_for ? g->stands_for : g->n_members;
        int64_t bytes = (g->elements + ranks - 1) / ranks * dtype_bytes(g->dtype);
        int64_t slowest = 0;
        for (int32_t m = 0; g->each_call && !collective_of_tensor(g) && ranks > 1 && m < ranks;
             m++) {
            struct cost_link hop;
            TRY(network_price(e->network, k, g->link[m], &hop, err));
            int64_t ns = cost_occupancy_ns(&hop, bytes) + hop.latency_ns;
            if (ns > slowest) slowest = ns;
        }
        int64_t steps = 2 * ((int64_t)ranks - 1);
        if (steps > 0 && slowest > COST_MAX_NS / steps)
            return error_set(err, ERR_INPUT, "collective %s takes more than ten years", g->name);
        int64_t priced =
            g->each_call && !collective_of_tensor(g) ? collective_price_ns(k, p, g) : -1;
        e->folded_ns[i] = priced >= 0 ? priced : steps * slowest;
    }
    return OK;
}

/* All members have arrived. */
static void complete(struct engine *e, int32_t group, int32_t lane, int64_t duration_ns)
{
    struct gathering *m = &e->gatherings[group];
    const struct collective *g = &e->program->collectives[group];
    m->end_ns = m->latest_ns + duration_ns;
    m->number++;
    m->here = 0;
    m->latest_ns = 0;
    e->events++;
    for (int32_t i = 0; i < g->n_members; i++) {
        int32_t other = e->lane_of_stage[g->members[i].stage];
        if (other != lane) engine_wake(e, other);
    }
}

int64_t collect_end(struct engine *e, int32_t lane, const struct code *c)
{
    struct lane_state *l = &e->lanes[lane];
    struct gathering *m = &e->gatherings[c->arg];
    if (l->collective < 0) {
        l->collective = m->number;
        l->met_ns = l->now_ns;
        if (l->now_ns > m->latest_ns) m->latest_ns = l->now_ns;
        if (++m->here == e->program->collectives[c->arg].n_members)
            complete(e, c->arg, lane, c->amount);
    }
    if (m->number == l->collective) return -1;
    if (e->overlap && e->now_ns < m->end_ns) return m->end_ns; /* called again then */
    l->collective = -1;
    if (e->trace) report_same_device_collective(e, lane, c->arg, l->met_ns, m->end_ns);
    return m->end_ns;
}
