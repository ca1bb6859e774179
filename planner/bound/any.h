/* planner/bound/any.h - what no plan of a job on a cluster beats, however it parts layers, devices and the batch.
 *
 * Device classes g, N_g of each; layers l; a batch of B samples. Let x_lg be the samples that devices of class g take
 * through layer l, z_lg the part of the update of layer l that they do. A device is busy with one thing at a time, so
 *   compute   min T:  Σ_g x_lg = B,  Σ_g z_lg = 1 for every l;  Σ_l w_lg x_lg + u_lg z_lg <= N_g T for every g
 * with w_lg the least device time a sample of layer l takes on class g over all microbatch sizes and all tensor-parallel degrees
 * that share it, u_lg that of its update. (Σ z >= 1 also where optimizer state is sharded; replicas only do it more often.)
 *   latency   some sample goes through all layers and back between two updates, alone or in a microbatch: Σ_l least F + I of any
 *             number of them, then W of layer 0.
 *   cut       devices in two parts A | B, and the links between them carry C bytes a second in both directions together. Then
 *             either one part does all (compute, restricted);
 *             or both hold all layers: gradients of all parameters cross, T >= 2 bytes / C;
 *             or one part, say B, lacks a layer: whatever sample it works on crosses twice, as an activation and as its
 *             gradient: y >= Σ_{g in B} x_lg for every l, (L - 1) y >= Σ_{l, g in B} x_lg, 2 y (bytes a sample at the narrowest place) <= C T;
 *             and T is at least the least of these.
 *   shared    plans with sharded stages (core/sharding/sharding.h) may do less than that: no device needs a whole layer, so
 *             neither latency nor cuts hold as they stand. For them compute alone is claimed, on the assumption that the parts
 *             of an operator together take no less than their part of the whole takes.
 *   cost      a device is paid for the whole iteration that it is used in, so at least for the time it is busy:
 *             min Σ_g price_g (Σ_l w_lg x_lg + u_lg z_lg); where plans are at most T_most long, Σ_l … <= N_g T_most for every g.
 * The linear programs go to GLPK; what is handed out is not their value but the bound that their row prices prove by weak
 * duality, summed here (Neumaier and Shcherbina 2004), so that no tolerance of the solver can make it false.
 * What is assumed: an iteration ends with updates that the next one's forwards wait for; devices compute one operator at a
 * time; gradient all-reduces need their bytes across a cut once in each direction (where a table or NCCL's model prices collectives,
 * sim/collective/price.h, those bytes count 0).
 *
 * Layers that cost the same are one row, so 400 layers of a regular model are about five; devices are counts.
 */
#ifndef PLANNER_BOUND_ANY_H
#define PLANNER_BOUND_ANY_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct bound_any; /* opaque: offers and cuts taken so far */

/* count: (n_classes) devices (single GPUs) of each class; copied. */
struct bound_any *bound_any_new(struct arena *a, int32_t n_layers, int32_t n_classes,
                                const int64_t *count, int64_t global_batch);

/* From here on, before any offer: for plans with sharded stages too (above). */
void bound_any_sharded(struct bound_any *b);
bool bound_any_is_sharded(const struct bound_any *b);

/* One way of doing a layer on a class: `tp` of them together take `samples` through it in these times. Offered for every
 * microbatch size, number of GPUs, and share of a sharded microbatch; the least counts. A class that is offered no way
 * cannot hold the layer. Times must add up: a stage of several layers takes at least the sum of its layers' offers. */
struct bound_offer {
    int32_t tp;
    int64_t samples;
    double forward_ns, input_ns, weight_ns, update_ns;
};
void bound_any_offer(struct bound_any *b, int32_t device_class, int32_t layer,
                     const struct bound_offer *o);

/* Fewest samples of any offer so far; INT64_MAX before the first. */
int64_t bound_any_fewest(const struct bound_any *b);

/* Bytes of the layer's parameters (that are summed over replicas), and of what leaves it for the next one a sample; least of all
 * calls. Cuts are ignored where some layer was told neither. */
void bound_any_traffic(struct bound_any *b, int32_t layer, double parameter_bytes,
                       double activation_bytes);

/* Two parts of the cluster: here[g] of class g in one, the rest in the other. both_ways_Bps: what links between them carry in both
 * directions together, at most. name: for the binding term, kept. */
void bound_any_cut(struct bound_any *b, const int64_t *here, double both_directions_Bps,
                   const char *name);

struct bound_certificate {
    int64_t lower_bound_ns;
    /* "compute of all devices", "latency of one microbatch", "cut of lan: ..." */
    const char *binding;
    const char *class_text; /* the plans that it holds for */
    double lower_cost;      /* money an iteration, of the same plans; 0: no prices */
};
/* price_per_h: (n_classes) of one device, in any money; copied. A bound on cost is made as well, of plans whose iteration takes at
 * most so long (0: any). */
void bound_any_prices(struct bound_any *b, const double *price_per_h, double most_ns);
/* Money: price an hour times so long. */
double bound_money(double price_per_h, double ns);

/* ERR_INFEASIBLE: a layer that no class can hold. Texts are the arena's. Cost: one linear program of (classes + distinct layers)
 * rows, and four more for every distinct cut that could bind. */
MUST_CHECK enum status bound_any_solve(struct bound_any *b, struct bound_certificate *out,
                                       struct error *err);

/* (T - lower bound) / lower bound; infinite where the bound is 0. */
double bound_gap(int64_t iteration_ns, int64_t lower_bound_ns);
double bound_cost_gap(double cost, double lower_cost);

#endif
