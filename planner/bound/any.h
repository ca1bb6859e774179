/* planner/bound/any.h - dual bound of every plan of a job on a cluster, for any partition of layers, devices and batch.
 *
 * Device classes g with N_g devices each; layers l; a batch of B samples. x_lg: samples that class g takes through layer l;
 * z_lg: fraction of layer l's update on class g. A device does one operation at a time, so
 *   compute   min T:  Σ_g x_lg = B,  Σ_g z_lg = 1 for every l;  Σ_l w_lg x_lg + u_lg z_lg <= N_g T for every g
 * w_lg: least device time of a sample in layer l on class g over all microbatch sizes and numbers of GPUs a stage; u_lg: the
 * same of the layer's update. (Σ z >= 1 also holds with sharded optimizer state; replicas only repeat updates.)
 *   latency   Between two updates some sample passes all layers forward and back, alone or in a microbatch: Σ_l of the least
 *             F + I for any number of samples, then W of layer 0.
 *   cut       Devices in two sets A | B whose links carry C bytes a second in both directions together. T is at least the least of
 *             three cases: one set does all the work (compute, restricted);
 *             both sets hold all layers: the gradients of all parameters cross, T >= 2 bytes / C;
 *             one set, say B, lacks a layer: every sample that it processes crosses twice, as an activation and as its gradient:
 *             y >= Σ_{g in B} x_lg for every l, (L - 1) y >= Σ_{l, g in B} x_lg, 2 y (bytes per sample at the narrowest cut) <= C T.
 *   memory    Activations in flight, parameters and optimizer state, or recomputation (planner/bound/memory.h).
 *   messages  As cut, of several disjoint parts of the cluster at once (planner/bound/messages.h).
 *   sharded   In plans with sharded stages (core/sharding/sharding.h) the shards of an operator together take at least their
 *             fraction of the whole operator's time, so compute holds as stated. If every sharded stage lies on one node, a
 *             sample is at most as many times as fast as a node has devices, so latency, and times in flight, are divided by that
 *             number; and cuts hold as stated, because no cut divides a node, so a layer of a stage is on one side of it. If sharded
 *             stages extend over nodes, compute alone holds.
 *   cost      A device is paid for the whole iteration in which it is used, so at least for its busy time:
 *             min Σ_g price_g (Σ_l w_lg x_lg + u_lg z_lg); if plans are limited to T_max, Σ_l … <= N_g T_max for every g.
 * GLPK solves the linear programs. The result is not the solver's objective but the bound that its dual values prove by weak
 * duality, computed here (Neumaier and Shcherbina 2004), so that no solver tolerance can invalidate it. Assumptions: an
 * iteration ends with updates for which the next iteration's forwards wait; a device computes one operator at a time; a
 * gradient all-reduce sends its bytes across a cut once in each direction (if a table or NCCL's model prices collectives,
 * sim/collective/price.h, those bytes count 0).
 *
 * Equal layers form one row, so 400 layers of a regular model give about five rows; devices are counts.
 */
#ifndef PLANNER_BOUND_ANY_H
#define PLANNER_BOUND_ANY_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct bound_any; /* opaque: offers and cuts added so far */

/* count: (n_classes) devices (single GPUs) of each class; copied. */
struct bound_any *bound_any_new(struct arena *a, int32_t n_layers, int32_t n_classes,
                                const int64_t *count, int64_t global_batch);

/* The stages of the plans that a bound covers, each class within the next. */
enum bound_stages {
    BOUND_STAGES_WHOLE,   /* no stage shards operators */
    BOUND_STAGES_ON_NODE, /* stages may shard operators over devices of one node */
    BOUND_STAGES_ANY      /* over any devices */
};
/* Extends the bound to plans with sharded stages (above). most: devices of such a stage, at most. Call before the first offer. */
void bound_any_sharded(struct bound_any *b, enum bound_stages stages, int64_t most);
bool bound_any_is_sharded(const struct bound_any *b);

/* Offer: `tp` devices of a class together take `samples` through a layer in these times. Made for every microbatch size,
 * number of GPUs a stage and shard of a microbatch; the least per sample counts. A class without an offer cannot hold the
 * layer. Precondition: a stage of several layers takes at least the sum of its layers' offers. */
struct bound_offer {
    int32_t tp;
    int64_t samples;
    double forward_ns, input_ns, weight_ns, update_ns;
    double again_ns; /* recomputation of the forward, at least */
};
void bound_any_offer(struct bound_any *b, int32_t device_class, int32_t layer,
                     const struct bound_offer *o);

/* Fewest samples of any offer so far; INT64_MAX: none yet. */
int64_t bound_any_fewest(const struct bound_any *b);

/* Samples of a microbatch in the plans that the bound covers; without a call memory is not bounded. */
void bound_any_size(struct bound_any *b, int64_t microbatch);
/* Least memory of the layer, all devices together: activations per sample that are kept if they are not recomputed, and
 * parameters, gradients and optimizer state, once. The minimum over all calls counts. */
void bound_any_kept(struct bound_any *b, int32_t layer, double kept_bytes, double state_bytes);
/* bytes: (n_classes) of one device, for tensors. pool: (n_classes) classes of one number may share stages. Copied. */
void bound_any_memory(struct bound_any *b, const double *bytes, const int32_t *pool);

/* Bytes of the layer's parameter gradients in an all-reduce, and of its output per sample; the minimum over all calls counts.
 * Cuts are ignored unless every layer has been given. */
void bound_any_traffic(struct bound_any *b, int32_t layer, double parameter_bytes,
                       double activation_bytes);

/* A cut of the cluster: here[g] devices of class g on one side, the rest on the other. both_directions_Bps: upper bound of the
 * bandwidth of all links between the sides, both directions together. name: for `binding`; not copied. */
void bound_any_cut(struct bound_any *b, const int64_t *here, double both_directions_Bps,
                   const char *name);

/* Disjoint parts of the cluster, `times` of each kind: devices of each class (n_classes) and bandwidth of all links that leave
 * a part, both directions together. The messages between them bound the time (planner/bound/messages.h) of the same plans as
 * cuts. parts and name: not copied. */
struct bound_any_part {
    const int64_t *count;
    double Bps;
    int64_t times;
};
void bound_any_parts(struct bound_any *b, const struct bound_any_part *parts, int32_t n,
                     const char *name);

struct bound_certificate {
    int64_t lower_bound_ns;
    /* "compute of all devices", "latency of one microbatch", "bandwidth of link lan, between ...", "messages between ...",
     * "memory of all devices: ...", "compute of all devices, in microbatches that fit in their memory" */
    const char *binding;
    const char *class_text; /* the plans for which the bound holds */
    double lower_cost;      /* money per iteration, for the same plans; 0: no prices */
};
/* Adds a lower bound of cost, for plans with iterations of at most most_ns (0: any). price_per_h: (n_classes) of one device,
 * in any currency; copied. */
void bound_any_prices(struct bound_any *b, const double *price_per_h, double most_ns);
/* Money: price per hour times ns. */
double bound_money(double price_per_h, double ns);

/* ERR_INFEASIBLE: no class can hold some layer. Texts live in the arena. Cost: one linear program of (classes + distinct
 * layers) rows, and four more for every distinct cut that could bind. */
MUST_CHECK enum status bound_any_solve(struct bound_any *b, struct bound_certificate *out,
                                       struct error *err);

/* Optimality gap: (T - lower bound) / lower bound; infinite if the bound is 0. */
double bound_gap(int64_t iteration_ns, int64_t lower_bound_ns);
double bound_cost_gap(double cost, double lower_cost);

#endif
