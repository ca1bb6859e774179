/* tests/support/spmd_models.h - a job on all devices of a cluster as a planner/spmd/spmd question; for suites and benches. */
#ifndef TESTS_SUPPORT_SPMD_MODELS_H
#define TESTS_SUPPORT_SPMD_MODELS_H

#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "planner/spmd/spmd.h"
#include "planner/topology/device_graph.h"
#include "profiles/team.h"

struct spmd_model {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct graph *g;
    struct device_graph *devices;
    struct sharding s;
    struct spmd_question q;
};

static inline struct cost_link spmd_model_hop(const void *of, int32_t from, int32_t to)
{
    const struct spmd_model *m = of;
    return *device_graph_link(m->devices, from, to);
}

/* Speeds of types from the time of the training graph on one device: (n_types). */
static inline enum status spmd_model_speeds(const struct spmd_model *m, double *out,
                                            struct error *err)
{
    for (int32_t t = 0; t < m->cluster.n_types; t++) {
        double sum = 0;
        for (int32_t i = 0; i < m->g->n_ops; i++) {
            const struct graph_op *x = &m->g->ops[i];
            struct program_op op = {.kind = x->kind, .phase = x->phase, .attrs = x->attrs};
            int64_t ns;
            graph_op_shapes(m->g, x, &op.shapes);
            op.n_inputs = x->n_inputs, op.n_outputs = x->n_outputs;
            op.dtype = m->g->dtype, op.name = x->name;
            op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
            TRY(cost_op(m->q.cost, t, &op, &ns, err));
            sum += (double)ns;
        }
        out[t] = 1 / sum;
    }
    return OK;
}

/* One axis, proportional ratios, no memory limit, one microbatch; the caller may change ratios and sizes. */
static inline enum status spmd_model_new(struct arena *a, const char *job, const char *cluster,
                                         int64_t microbatch, struct spmd_model **out,
                                         struct error *err)
{
    struct spmd_model *m = *out = ARENA_ARRAY(a, struct spmd_model, 1);
    TRY(job_read(a, job, &m->job, err));
    TRY(cluster_read(a, cluster, &m->cluster, err));
    TRY(team_complete(&m->cluster, err));
    TRY(profile_prior(a, &m->cluster, &m->profile, err));
    TRY(lower_graph(a, &m->job, microbatch, &m->g, err));
    TRY(gradient_build(m->g, (double)microbatch / (double)m->job.global_batch, err));
    struct cost *cost = cost_new(a, &m->profile, &m->cluster);
    TRY(device_graph_new(a, &m->cluster, cost, &m->devices, err));
    int32_t n = m->cluster.n_devices, *type = ARENA_ARRAY(a, int32_t, (size_t)n),
            *node = ARENA_ARRAY(a, int32_t, (size_t)n);
    double *ratios = ARENA_ARRAY(a, double, (size_t)n);
    bool *bus = ARENA_ARRAY(a, bool, (size_t)n);
    for (int32_t d = 0; d < n; d++)
        type[d] = m->cluster.devices[d].type, node[d] = m->cluster.devices[d].node;
    for (int32_t d = 0; d < n; d++)
        for (int32_t k = 0; k < n; k++)
            if (k != d && node[k] == node[d] &&
                !device_graph_route(m->devices, d, k, type[d], type[k])->own)
                bus[d] = true;
    m->s = (struct sharding){
        .n_devices = n, .n_axes = 1, .mesh = {n, 1}, .n_ratios = 1, .ratios = ratios};
    m->q = (struct spmd_question){.g = m->g,
                                  .last_layer = m->g->n_layers - 1,
                                  .s = &m->s,
                                  .cost = cost,
                                  .type = type,
                                  .hop = spmd_model_hop,
                                  .of = m,
                                  .node = node,
                                  .bus = bus,
                                  .microbatches = (int32_t)(m->job.global_batch / microbatch),
                                  .in_flight = 1,
                                  .optimizer = &m->job.optimizer,
                                  .algorithms = 1U << ALGORITHM_RING | 1U << ALGORITHM_PAIRS};
    double *speed = ARENA_ARRAY(a, double, (size_t)m->cluster.n_types);
    TRY(spmd_model_speeds(m, speed, err));
    for (int32_t d = 0; d < n; d++) ratios[d] = speed[type[d]];
    return OK;
}

#endif
