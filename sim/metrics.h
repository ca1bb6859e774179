/* sim/metrics.h - what a plan gives: rates, utilisation, memory, use of devices, and the days, cost and energy of a training run.
 *
 * Definitions. T is the iteration time, S the sequences (of an image model: images) of a step, L the sequence length.
 *   samples/s        S / T; tokens/s: S L / T, all positions count
 *   model FLOPs      of one step: forward and backward of the model's graph, each operator once, by the FLOP counts of
 *                    core/graph/op_rows.inc (a multiply-add is 2), without the update. Attention counts the pairs of query and key
 *                    that its mask leaves (causal: half of them), two products in the forward and four in the backward. Products
 *                    of experts count the routed rows, not empty slots. `musher show JOB` prints the same per token.
 *   hardware FLOPs   what the devices execute in forward and backward: the operators of the plan's program, as often as they are
 *                    called. In addition to the model FLOPs these are recomputed forwards, the scores that attention's backward
 *                    computes again, masked pairs of eager attention, what a fused kernel computes again, and operators that several devices compute
 *                    alike.
 *   peak             sum over the GPUs that the plan uses of the dense peak at the job's precision; an emulated device counts its
 *                    slowed-down peak. GPUs of the cluster that the plan does not use do not count.
 *   MFU              model FLOPs / (T peak), model FLOPs utilisation (Chowdhery et al. 2022, PaLM, appendix B). PaLM's formula
 *                    6 N + 12 layers heads head_dim L per token counts products only and all pairs of attention, so it differs.
 *   HFU              hardware FLOPs / (T peak), hardware FLOPs utilisation
 *   use of a device  the shares of T in which its compute stream is busy with operators, waits for exposed communication (messages,
 *                    collectives) or is idle (bubble, imbalance); enum sim_wait in sim/engine/sim.h defines them. A row is the
 *                    mean over the used GPUs of one type; the shares of a row add up to 1.
 *   peak memory      the largest live memory of a device of the type, of one GPU, beside the type's memory. A run allocates as much or more
 *                    (`musher memory`), because buffers have their place for the whole step and do not all live at one time
 *   cost             sum of the `price` of the used GPUs (per hour, in the currency of the cluster file) x time; of a cluster file
 *                    without any price, of the catalogue's on-demand prices (USD), where it lists one for every used type
 *   energy           sum of the `power` of the used GPUs x time: GPUs under load only, without hosts, network and cooling
 *   run              steps = tokens / (S L) rounded up; days = steps T: without failures, restarts and checkpoints, which
 *                    `musher goodput` adds
 *
 * JSON: the object `metrics`. samples (of a step), samples_per_s, tokens_per_s (text models), model_flops and
 * hardware_flops (of a step), n_devices, peak_flops (FLOP/s), mfu, hfu, price_per_h, cost (of a step), power_w; `run` (null without
 * --tokens): tokens or images, steps, days, cost, kwh; price_source (cluster or catalogue); `devices`, one entry a type: type, devices, busy, messages,
 * collectives, bubble, imbalance (shares), peak_bytes, memory_bytes. What is unknown is null, and `unknown` lists why.
 * by_replicas: the use of devices is that of one replica of each class, simulated without the traffic of the others.
 */
#ifndef SIM_METRICS_H
#define SIM_METRICS_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* Model FLOPs of one sequence (or image). 0: measured layers, which have no FLOPs. */
struct metrics_flops {
    double forward, backward;
};
MUST_CHECK enum status metrics_model_flops(const struct job *j, struct metrics_flops *out,
                                           struct error *err);

/* Samples/s and, of a text model, tokens/s (of images 0) at this iteration time; 0 for a time of 0. */
struct metrics_rate {
    bool images;
    double samples_per_s, tokens_per_s;
};
struct metrics_rate metrics_rate(const struct job *j, int64_t iteration_ns);

struct metrics_class { /* the used devices of one type */
    const char *type;
    int64_t devices;
    /* shares of the iteration, means over the GPUs; 0 without a simulation */
    double busy, wait[SIM_WAIT_COUNT];
    int64_t peak_bytes, memory_bytes;
};

struct metrics_run {
    int64_t tokens; /* or images; 0: no run is stated */
    double steps, days, cost, kwh;
};

struct metrics {
    const char *
        failed; /* the plan could not be lowered or simulated, and nothing else is filled; NULL: it could */
    bool images, simulated, by_replicas;
    const char *precision;
    int64_t iteration_ns, samples, devices;
    double samples_per_s, tokens_per_s; /* applied */
    double applied; /* share of the computed samples; 0: not stated */
    double model_flops, hardware_flops, peak_flops, mfu, hfu;
    double price_per_h, cost, power_w;
    /* What is unknown, for a message ("no price of v100"); NULL: nothing. mfu and hfu need flops and peak. priced, powered: some
     * type that the plan uses has a price, or power. */
    const char *no_flops, *no_peak, *no_price, *no_power;
    bool priced, powered, listed; /* listed: price_per_h and cost are of the catalogue's prices */
    struct metrics_run run;
    int32_t n_classes;
    struct metrics_class *classes; /* in the order of the cluster's types */
};

struct metrics_input {
    const struct plan *plan;
    const struct program
        *program; /* of the plan, or some of its replicas (sim/engine/representatives.h) */
    /* (n_devices of program) result of its simulation, NULL: none; and its iteration time */
    const struct sim_device *devices;
    int64_t simulated_ns;
    const int32_t
        *stands_for;      /* (n_devices of program) devices that each represents; NULL: itself */
    int64_t iteration_ns; /* of the plan, > 0 */
    int64_t tokens;       /* of the run, or images; 0: the job's own number, if it states one */
    double applied;       /* sim_result's, of whose samples rates, MFU and run are; 0: all are */
};
/* O(instructions of the program + operators of the model). Allocates in the arena. */
MUST_CHECK enum status metrics_of(struct arena *a, const struct metrics_input *in,
                                  struct metrics *out, struct error *err);

#endif
