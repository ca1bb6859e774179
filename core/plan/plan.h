/* core/plan/plan.h - a plan: the assignment of layers and microbatches to devices, and the order of execution.
 *
 * plan.yaml is self-contained: it embeds job and cluster and names the profile it was made with.
 *   version: 1
 *   name: found                      # or the baseline's
 *   made_by: {musher: 0.1, profile: 3, seed: 1, predicted_ns: 81250000}   # profile 0: the catalogue's prior
 *   microbatch: 4                    # sequences of one microbatch; one size a plan
 *   deterministic: false             # accumulate gradients in microbatch order, for equal bits with any assignment
 *   steps: 1                         # default number of optimizer steps; all steps are alike, but for local SGD's exchanges
 *   compression: {gradients: bf16, outer: {kind: top-k, fraction: 0.01}}   # struct plan_compression
 *   gradient_noise_scale: true   # measured by a run; struct plan
 *   weight_versions: 2           # pipelines without a flush (PipeDream-2BW); struct plan
 *   local_sgd: {every: 16, islands: [[0, 1], [2, 3]], outer: nesterov, lr: 0.7, momentum: 0.9,     # struct plan_local_sgd
 *               fragments: 4, delay: 2, alpha: 0.5}
 *   parameter_server: {servers: [s.0, s.1], mode: ssp, bound: 3, rate: inverse, drop_above: 8}   # struct plan_servers
 *   experts: [{block: 0, order: [3, 0, 1, 2], tokens: [90, 40, 12, 70]}]    # struct expert_block (core/model/model.h)
 *   replicas:
 *     - microbatches: 6              # this replica's share of the global batch
 *       stages:
 *         - {layers: [0, 9], device: a.0, warmup: 3}           # layers first … last, inclusive
 *         - {layers: [10, 14], device: b.0, recompute: true, bucket: 1 MiB, receive_ahead: 2}
 *         - {layers: …, device: …, order: "F0 F1 B0 F2 B1 B2"}   # instead of warmup; F, B or I and W
 *         - {layers: […], devices: [b.1, c.1, d.1], sequences: [2, 1, 1]}     # instead of device
 *     - microbatches: 4
 *       schedule: zb-v               # a name of core/plan/schedule.h, instead of warmup and order; split: true splits B
 *       orders: {c.0: "0F0 1F0 1I0 1W0 0I0 …", …}     # or: the order of each device, a chunk before each letter; also as one
 *                                    # text, devices in the order of their first stages, '|' between them
 *       stages: [{layers: …, device: c.0}, {layers: …, device: d.0}, {layers: …, device: d.0}, {layers: …, device: c.0}]
 *   job: {…}
 *   cluster: {…}
 * recompute: true, blocks or selective, see enum recompute; recompute_blocks: of blocks, the first so many. zero: 1, 2 or 3, see ZERO_MAX.
 * offload: activations: what the forward keeps for the backward waits in host memory (core/program/offload.h); what the stage receives or
 * sends stays on the device. With recompute: blocks, what is not recomputed.
 * warmup: forwards in flight, including that of the first backward (1F1B: number of later stages + 1, the default);
 * warmup: microbatches is GPipe. bucket: the gradient all-reduce runs in buckets of about this many bytes, as the last
 * backward produces them; absent: one bucket after the last backward.
 * Replica r owns global microbatches [first_r, first_r + microbatches), first_r = sum over the earlier replicas.
 * experts: of a model with experts. order: the expert at each place of a block's parameters and gates, so that a stage with
 * `shard: experts` gives any experts to any device, by ratios. It is the same for all replicas; checkpoints, initial values and the counts
 * of traces have the model's own order, so the training is the same. tokens: the popularity that operators of shards are priced by.
 * devices: a stage on several devices, of any types and hosts. Each takes `sequences` of every
 * microbatch (together all of it) and holds all parameters of the stage; a gradient all-reduce over the devices
 * (and the replicas) precedes the update. Such a plan cannot be deterministic, because deterministic means equal bits for every plan,
 * and this division groups the sum of a weight gradient over the rows of a microbatch differently. A plan with `sharding:` cannot
 * either, even if no summed index is sharded: the BLAS blocks products of fewer columns differently (of 540 products of
 * up to 40x96x195 in fp64, 141 changed bits when their columns were computed in two parts), and the input gradient of
 * sharded columns is a sum over devices.
 * Instead of sequences such a stage may have
 *           sharding: {…}              # core/sharding/sharding.h: the devices share each operator, sharded by one of its indices
 * as `- layers: […]`, `devices: […]`, `sharding:` on separate lines. Its devices need not hold all parameters.
 * A device may own several stages of one replica, its chunks (virtual stages): chunk 0 is the first of them in the list. The
 * replica then needs a schedule or orders. Stages with the same first device must have the same devices.
 * The list is in the order of the layers and of a schedule's virtual
 * stages: round robin over the devices for interleaved, there and back for zb-v, v-half, v-min.
 * Ownership: the arena's.
 */
#ifndef CORE_PLAN_PLAN_H
#define CORE_PLAN_PLAN_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "core/model/parameter_server.h"
#include "core/sharding/sharding.h"

/* Activation recomputation: what the backward recomputes instead of keeping. Enumerator, name in the file:
 * NONE     nothing
 * STAGE    everything, from the stage's input, at once (`true`): least memory between passes, most during the recomputation
 * BLOCKS   block by block from each block's input; embedding and head are kept (Chen et al. 2016; Megatron-LM's full, uniform)
 *          with recompute_blocks only so many (Megatron-LM's full, block)
 * SELECTIVE  attention's scores only (Korthikanti et al. 2023); only eager attention keeps any */
#define RECOMPUTES(X)                                                                              \
    X(NONE, "false") X(STAGE, "true") X(BLOCKS, "blocks") X(SELECTIVE, "selective")
enum recompute {
#define X(name, text) RECOMPUTE_##name,
    RECOMPUTES(X)
#undef X
};

/* zero (Rajbhandari et al. 2020, "ZeRO"): each of n replicas keeps an n-th of what all would hold alike.
 * 1  optimizer state: gradients are reduce-scattered, each replica updates its shard, parameters are all-gathered
 * 2  and gradients: reduce-scattered bucket by bucket in every backward, so full gradients exist within one call only
 * 3  and parameters: all-gathered before every use in F and in the backward, one bucket ahead, and freed after it
 * All replicas' stages of a layer state the same level; from 2 on they have equal numbers of microbatches, at 3 equal
 * recomputation. Devices that share a stage by sequences count as replicas. In a sharded stage the owner group of a parameter is
 * all devices, over all replicas, that keep the same shard of it and each have a partial value of its gradient; what one device keeps
 * alone or all compute alike is not divided. Level 3 is an error there, because `parameters:` (core/sharding/sharding.h) shards
 * parameters over all devices. Replicas that keep a parameter in different shards allow no level: also an error.
 * hybrid_shard (PyTorch's HYBRID_SHARD, HSDP; MiCS, Zhang et al. 2022): the shards are of GPUs of one node, and every node, or every
 * equal part of one, has all of them (core/lower/hybrid.h). Gradients are reduce-scattered inside a node, each shard is all-reduced
 * between nodes, and parameters are all-gathered inside a node: a hierarchical all-reduce that never leaves a node with more than its
 * shards. The state takes 1/g of its memory, g GPUs of a node, in place of 1/n. */
enum { ZERO_MAX = 3 };

struct plan_stage {
    int32_t first_layer, last_layer; /* inclusive */
    int32_t device;                  /* of a stage on several devices, the first */
    /* (n_shards) devices that share the stage by sequences, and the number of sequences of each microbatch on each, in order
     * from the first sequence on; n_shards 0: one device has all */
    int32_t n_shards;
    const int32_t *devices;
    const int64_t *sequences;
    /* how the devices share the stage's operators (core/sharding/sharding.h), sequences is then NULL; NULL: by sequences */
    const struct sharding *sharding;
    int32_t warmup;    /* 0: the default */
    const char *order; /* NULL: from warmup */
    enum recompute recompute;
    int32_t recompute_blocks; /* of BLOCKS: the stage's first ones, the others are kept; 0: all */
    bool offload;             /* of activations */
    int64_t bucket_bytes; /* 0: one bucket after the last backward; zero 3: a bucket per layer */
    int32_t zero; /* 0 … ZERO_MAX */
    bool hybrid_shard; /* of zero > 0 */
    /* of the gradient all-reduces whose devices fit, with hybrid_shard of those between nodes; the others, of ZeRO, of codes, and of
     * parameters that replicas shard differently are rings. One that collective_in_calls. All replicas' stages of a layer state the same */
    enum collective_algorithm all_reduce;
    int32_t receive_ahead; /* >= 1; default 2 */
    int32_t line, column;  /* in the file, for messages; 0: not read from a file */
};

struct plan_replica {
    int32_t microbatches, n_stages;
    struct plan_stage *stages;
    const char *schedule; /* NULL: the stages' warmup or order, or orders */
    bool split;           /* schedule: separate I and W, if the schedule leaves the choice */
    /* NULL, or (n_stages): order of a device at its first stage, NULL at the others */
    const char **orders;
    int32_t line, column; /* as a stage's */
};

/* Local SGD (Stich 2019; DiLoCo, Douillard et al. 2023): gradients are added inside each island of replicas only; every `every` steps
 * the mean change of the parameters, each island weighted by its samples, is the gradient of the outer optimizer, which gives all
 * islands the same parameters again. The inner optimizer's state stays each island's own. This is not the same training as one with
 * every gradient added in every step, except with every: 1, SGD and the average.
 * Unequal numbers of local steps: `every: [16, 8]` states the updates of each island between two exchanges. All islands have the same
 * number of steps, the largest of these numbers, which the others divide; an island of 8 updates in every second step.
 * Streaming: core/lower/fragments.c divides the layers into fragments. */
struct plan_local_sgd {
    struct outer_optimizer outer; /* every 0: none */
    int32_t n_islands;
    const int32_t *island; /* (n_replicas) */
};

/* Messages of sums between devices. bf16, fp16 (PyTorch DDP's bf16_compress_hook, Horovod's Compression.fp16): each message is rounded to
 * this type, sums are fp32; fp16 overflows above 65,504. Codes (core/graph/encoding.h): every device encodes its own term, parameter by
 * parameter, all gather the codes, and each decodes and adds them, in one order. PowerSGD: sums of two factors (core/lower/factors.h).
 * Another training than without. */
enum compression {
    COMPRESSION_NONE,
    COMPRESSION_BF16,
    COMPRESSION_FP16,
    COMPRESSION_INT8, /* this and those behind are codes */
    COMPRESSION_FP8_E4M3,
    COMPRESSION_FP8_E5M2,
    COMPRESSION_SIGN,
    COMPRESSION_TOP_K,
    COMPRESSION_RANDOM_K,
    COMPRESSION_POWER_SGD /* no code: sums of factors */
};
enum compression_between { BETWEEN_DEVICES, BETWEEN_NODES }; /* all messages, or those that cross nodes */
struct compressor {
    enum compression kind;
    enum compression_between between;
    /* codes and POWER_SGD; else 0 */
    enum encoding_feedback feedback;
    bool stochastic; /* INT8, FP8 */
    int32_t block;   /* elements, 1 … ENCODING_BLOCK_MAX */
    double fraction; /* TOP_K, RANDOM_K: of a block's elements, (0, 1] */
    int32_t rank;    /* POWER_SGD */
};
struct plan_compression {
    /* gradient all-reduces, of halves ZeRO's reduce-scatters; not exchanges of tied parameters inside a replica. Between nodes: of
     * hybrid_shard the all-reduces between parts (core/lower/hybrid.h) */
    struct compressor gradients;
    struct compressor outer; /* changes of parameters, of local SGD */
    /* messages between stages on different devices: activations, and their gradients. Without feedback; halves are codes there */
    struct compressor forward, backward;
};
enum compression_of { COMPRESSION_OF_GRADIENTS, COMPRESSION_OF_OUTER, COMPRESSION_OF_FORWARD, COMPRESSION_OF_BACKWARD, COMPRESSIONS };
static inline const struct compressor *plan_compressor(const struct plan_compression *x, enum compression_of of)
{
    const struct compressor *const all[] = {&x->gradients, &x->outer, &x->forward, &x->backward};
    return all[of];
}

/* Replicas of one stage on one device are workers of a parameter server. Each pushes its gradients, weighted by its share of the
 * samples, and pulls parameters in every step; `steps` counts the pushes of each worker. */
struct plan_servers {
    struct parameter_server rule; /* n 0: none */
    const int32_t *devices;       /* (rule.n) of the cluster, none with a stage */
};

struct plan {
    const char *name, *file; /* file: for messages, NULL if the plan was not read from one */
    int64_t profile_id;
    uint64_t seed;
    int64_t microbatch;
    bool deterministic;
    int32_t steps;
    struct plan_local_sgd local_sgd;
    struct plan_compression compression;
    /* A run measures the squares of every replica's gradients and of their sum, from which it estimates the gradient noise scale
     * (exec/gradient_noise.h). The training is the same. */
    bool gradient_noise_scale;
    /* 2: PipeDream-2BW (Narayanan et al. 2021). All forwards and backwards of step t use the parameters W(t-1), and its update gives
     * W(t+1) = W(t) - update by the gradient at W(t-1), W(-1) = W(0): gradients are delayed by one step, so no pipeline is flushed
     * between steps. 1 and 0: synchronous. */
    int32_t weight_versions;
    struct plan_servers servers;
    int32_t n_replicas;
    struct plan_replica *replicas;
    struct job job;
    struct cluster cluster;
    int64_t predicted_ns; /* of one step, by the planner; 0: unknown */
    int32_t line, column; /* of the replicas in the file, as a stage's */
};

MUST_CHECK enum status plan_read(struct arena *a, const char *path, struct plan *out,
                                 struct error *err);
MUST_CHECK enum status plan_parse(struct arena *a, const struct node *root, const char *folder,
                                  struct plan *out, struct error *err);
void plan_write(FILE *out, struct arena *a, const struct plan *p);
/* Checks the plan against the model's n_layers: layers of each replica contiguous from 0 to n_layers-1, shares
 * add up to global_batch / microbatch, devices exist and belong to one replica, their sequences add up to
 * the microbatch, warmup in 1 … microbatches, orders complete,
 * stages in the order that the schedule requires. ERR_INPUT. */
MUST_CHECK enum status plan_check(const struct plan *p, int32_t n_layers, struct error *err);
/* Number of islands, 1 without local SGD, and that of a replica; microbatches a step of an island's replicas. */
static inline int32_t plan_islands(const struct plan *p)
{
    return p->local_sgd.outer.every ? p->local_sgd.n_islands : 1;
}
static inline int32_t plan_island(const struct plan *p, int32_t replica)
{
    return p->local_sgd.outer.every ? p->local_sgd.island[replica] : 0;
}
int64_t plan_island_microbatches(const struct plan *p, int32_t island);
static inline bool plan_delays_gradients(const struct plan *p) { return p->weight_versions > 1; }
/* Number of devices of a stage, and the k-th; its sequences of a microbatch. */
static inline int32_t plan_stage_devices(const struct plan_stage *s)
{
    return s->n_shards > 0 ? s->n_shards : 1;
}
static inline int32_t plan_stage_device(const struct plan_stage *s, int32_t k)
{
    return s->n_shards > 0 ? s->devices[k] : s->device;
}
/* Whether other devices hold the stage's parameters too, so that ZeRO can divide its state. */
static inline bool plan_stage_replicated(const struct plan *p, const struct plan_stage *s)
{
    return p->n_replicas > 1 || plan_stage_devices(s) > 1;
}
static inline int64_t plan_stage_sequences(const struct plan *p, const struct plan_stage *s,
                                           int32_t k)
{
    return s->n_shards > 0 && s->sequences ? s->sequences[k] : p->microbatch;
}
/* One line: "8 replicas of 32 microbatches, zero 1: layers 0-42 on 1 h100 | 43-67 on 2 a100 (sequence)". Replicas that differ in
 * their devices only are one class, classes are separated by "; ". Settings (schedule, order, warm-up count, recomputation, ZeRO level,
 * bucket) are printed where they differ from the default, those of all stages before the layers. Consecutive stages with equal
 * devices and settings stand together: "0-4, 5-60 in 7 stages on 8 a100 each". Devices are GPUs by type; those of a class of one
 * replica are ranges of names in the order of the stages, unless these are long. In parentheses: how the GPUs of a stage share
 * its work: the sequences of a microbatch on each device ("batch 4+2"), or what the sharding
 * amounts to (sharding_kind); "sharded (tensor)" in front if all stages do. */
const char *plan_describe(struct arena *a, const struct plan *p);
/* "every 16 steps between 2 islands of replicas, outer SGD with Nesterov momentum, lr 0.7, momentum 0.9"; NULL: no local SGD. */
/* Whether the training is the one with every gradient added, to rounding: every: 1, SGD and the average. */
bool plan_local_sgd_equivalent(const struct outer_optimizer *o, const struct optimizer *inner);
const char *plan_describe_local_sgd(struct arena *a, const struct outer_optimizer *o, int32_t n_islands);
/* "stale synchronous, bound 3 on 2 servers, rate lr / (staleness + 1)"; NULL: no parameter server. */
const char *plan_describe_servers(struct arena *a, const struct parameter_server *x);
/* "no flush, 2 weight versions (PipeDream-2BW)"; NULL: one version. */
const char *plan_describe_versions(struct arena *a, const struct plan *p);
/* "gradients summed in bf16", "activations sent as top-k of 1 % in blocks of 65536"; NULL: no compression. */
const char *plan_describe_compressor(struct arena *a, const struct plan_compression *x, enum compression_of of);
/* Why it has no effect: "all of them are bf16 without it", "no two devices add gradients"; NULL: it may have one. What is stated is
 * true of every program of the plan. */
const char *plan_compressor_idle(const struct plan *p, enum compression_of of);
bool plan_compressor_codes(const struct compressor *x);
/* "top-k:0.01:65536", what makes a code or factors, in the names of what they keep from step to step. */
const char *plan_compressor_label(struct arena *a, const struct compressor *x);
/* For tensors of dtype t; kind ENCODING_NONE unless the compressor is a code, as halves are of fp32 messages of pipelines. */
struct encoding plan_compressor_code(const struct plan_compression *x, enum compression_of of, enum dtype t);
/* The same, one line per class, in the order of plan_classes. *common, unless common is NULL: what all of several classes have,
 * ", sharded (tensor), zero 1", and the lines do not repeat; else "". */
const char **plan_describe_classes(struct arena *a, const struct plan *p, int32_t *n,
                                   const char **common);
/* "replica 3 of 32 microbatches: layers 0-42 on h0.3 | …": every stage by itself, every device by name. */
const char *plan_describe_replica(struct arena *a, const struct plan *p, int32_t replica);

struct
    plan_class { /* replicas, ascending, that differ in their devices but not in device types */
    int32_t n, *replicas;
};
/* Classes in order of first appearance. Returns their number. */
int32_t plan_classes(struct arena *a, const struct plan *p, struct plan_class **out);
/* Devices of all replicas of a class as ranges of names, "h0-247.[0,4]"; *n: their number. */
const char *plan_class_devices(struct arena *a, const struct plan *p, const struct plan_class *x,
                               size_t *n);
/* Price per hour of all GPUs that the plan uses (`price` of their types); 0: unknown, because a type has none, or
 * free. Idle GPUs cost nothing. O(devices + stages). */
double plan_price_per_h(const struct plan *p);
double plan_cost(const struct plan *p, int64_t ns); /* price of ns */
bool plan_priced(const struct plan *p); /* whether all types that the plan uses have a price, which may be 0 */
uint64_t plan_hash(
    struct arena *a,
    const struct plan *p); /* of the canonical text without name and made_by */

#endif
