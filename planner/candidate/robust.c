#include "planner/candidate/robust.h"

#include "core/base/arena.h"
#include "sim/engine/sim.h"

/* The cluster with a node for each device, or for each stage of several. */
static void part_nodes(struct arena *a, const struct plan *p, struct cluster *c)
{
    int32_t n = 0, *first = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices);
    for (int32_t i = 0; i < c->n_devices; i++) first[i] = i;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            for (int32_t k = 0; x->sharding && k < x->n_shards; k++)
                if (x->devices[k] == x->devices[0] + k) first[x->devices[k]] = x->devices[0];
        }
    struct node_spec *nodes = ARENA_ARRAY(a, struct node_spec, (size_t)c->n_devices);
    struct device *devices = ARENA_ARRAY(a, struct device, (size_t)c->n_devices);
    for (int32_t i = 0; i < c->n_devices; i++) {
        devices[i] = c->devices[i];
        if (first[i] == i)
            nodes[n++] = (struct node_spec){.name = devices[i].name,
                                            .host = c->nodes[c->devices[i].node].host,
                                            .first_device = i};
        devices[i].node = n - 1, devices[i].index = nodes[n - 1].n_devices++;
    }
    c->nodes = nodes, c->n_nodes = n, c->devices = devices;
}

/* The first step alone, from rest. */
static enum status measure(struct arena *a, const struct program *program, struct cost *k,
                           int64_t *out_ns, struct error *err)
{
    static const double nothing[OP_KIND_COUNT] = {0};
    const struct sim_scale idle = {.kind = nothing};
    struct sim_options o = {.steps = 1, .detail = SIM_STAGE};
    struct sim_result r;
    int64_t worked = 0;
    TRY(sim_run(a, program, k, &o, &r, err));
    for (int32_t i = 0; i < program->n_devices; i++)
        if (r.devices[i].worked_ns > worked) worked = r.devices[i].worked_ns;
    o.scale = &idle;
    TRY(sim_run(a, program, k, &o, &r, err));
    *out_ns = worked + ROBUST_SUMS * r.iteration_ns;
    return OK;
}

enum status robust_ns(const struct search_context *t, const struct profile *p,
                      const struct plan *plan, int64_t *out_ns, struct error *err)
{
    struct arena *a = arena_new();
    struct plan separate = *plan;
    struct lower_options o = *t->lower;
    struct program program;
    struct error why = {0};
    o.check_memory = false, o.timed_only = true;
    if (cluster_has_dedicated_links(&separate.cluster)) part_nodes(a, plan, &separate.cluster);
    *out_ns = INT64_MAX;
    enum status st = lower_plan(a, &separate, &o, &program, &why);
    if (st == OK) st = measure(a, &program, cost_new(a, p, &separate.cluster), out_ns, &why);
    if (st == ERR_INPUT || st == ERR_INFEASIBLE) st = OK; /* no route between two of its nodes */
    arena_free(a);
    return st == OK ? OK : error_set(err, st, "%s", why.text);
}

static void move_first(struct incumbents *k, int32_t at)
{
    struct search_plan plan = k->plans[at];
    uint64_t layout = k->layout[at];
    for (; at > 0; at--) k->plans[at] = k->plans[at - 1], k->layout[at] = k->layout[at - 1];
    k->plans[0] = plan, k->layout[0] = layout;
}

enum status robust_first(struct search_context *t, const struct profile *p, bool *moved,
                         struct error *err)
{
    struct incumbents *k = &t->incumbents;
    const struct search_options *o = t->o;
    bool free = o->objective == OBJECTIVE_TIME && !(o->min_rate > 0) && !(o->max_cost > 0);
    *moved = false;
    if (!free || o->fastest || !k->n || !k->plans[0].plan.job.model.measured) return OK;
    int64_t best = INT64_MAX, limit = robust_limit_ns(k->plans[0].iteration_ns);
    int32_t first = 0;
    for (int32_t i = 0; i < k->n && i < INCUMBENTS_MIN && !search_context_stopped(t); i++) {
        int64_t ns;
        if (k->plans[i].iteration_ns > limit) break;
        TRY(robust_ns(t, p, &k->plans[i].plan, &ns, err));
        if (ns < best) best = ns, first = i;
    }
    move_first(k, first);
    *moved = first > 0;
    return OK;
}
