/* core/plan/plan.h - the decision: who computes which layers of which microbatches in which order.
 *
 * plan.yaml stands alone: it embeds job and cluster and names the profile it was made with.
 *   version: 1
 *   name: found                      # or the baseline's
 *   made_by: {musher: 0.1, profile: 3, seed: 1, predicted_ns: 81250000}   # profile 0: the catalogue's prior
 *   microbatch: 4                    # sequences of one microbatch; one size a plan
 *   deterministic: false             # gradients added in the order of the microbatches, whoever owns them
 *   steps: 1                         # optimizer steps to take where nobody says; every step is alike
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
 * recompute: true, blocks or selective, see enum recompute. zero: 1, 2 or 3, see ZERO_MAX.
 * warmup: forwards in flight, the first backward included (1F1B: stages behind it + 1, the default);
 * microbatches means GPipe. bucket: gradients of a data-parallel group are reduced in buckets of
 * about so many bytes as the last backward yields them; absent: all at once after it.
 * Replica r owns global microbatches [first_r, first_r + microbatches), first_r = sum of the earlier ones.
 * devices: a stage on several devices, which may be of any types and hosts: each takes so many sequences of every
 * microbatch (together all of it), holds all parameters of the stage, and their gradients are summed over the devices
 * (and the replicas) before the update. Such a plan cannot be deterministic: that means the same bits whatever the plan, and
 * a weight gradient's sum over the rows of a microbatch is then in other terms. Nor can one with `sharding:`, even where no
 * index that is summed over is split: products of fewer columns are blocked in other ways by the BLAS (of 540 products of
 * up to 40x96x195 in fp64, 141 had other bits once their columns were computed in two parts), and the input gradient of
 * split columns is a sum over devices.
 * Instead of sequences such a stage may have
 *           sharding: {…}              # core/sharding/sharding.h: the devices share each operator, sharded by an index of it
 * as `- layers: […]`, `devices: […]`, `sharding:` on lines of their own. Then they need not hold all parameters.
 * A device may own several stages of one replica, its chunks: chunk 0 is the first of them in the list. The replica then
 * says who takes turns how, by schedule or orders. Stages whose first devices are one stand on the same devices all.
 * The list is the order of the layers and of a schedule's virtual
 * stages: round robin over the devices for interleaved, there and back for zb-v, v-half, v-min.
 * Ownership: the arena's.
 */
#ifndef CORE_PLAN_PLAN_H
#define CORE_PLAN_PLAN_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "core/sharding/sharding.h"

/* What the backward runs again instead of keeping it. enumerator, name in the file:
 * NONE     nothing
 * STAGE    everything from the stage's input on, at once (`true`): least kept, most alive while it runs
 * BLOCKS   block by block from each block's input; embedding and head are kept (Chen et al. 2016; Megatron-LM's full, uniform)
 * SELECTIVE  attention's scores alone (Korthikanti et al. 2023); only eager attention keeps any */
#define RECOMPUTES(X)                                                                              \
    X(NONE, "false") X(STAGE, "true") X(BLOCKS, "blocks") X(SELECTIVE, "selective")
enum recompute {
#define X(name, text) RECOMPUTE_##name,
    RECOMPUTES(X)
#undef X
};

/* zero (Rajbhandari et al. 2020, "ZeRO"): of what all replicas would hold alike each keeps an n-th.
 * 1  optimizer state: gradients are reduce-scattered, each replica updates its part, parameters are gathered again
 * 2  and gradients: reduce-scattered bucket by bucket in every backward, so that whole ones live in a call alone
 * 3  and parameters: gathered before every use in F and in the backward, one bucket ahead, and dropped behind it
 * The stages of all replicas that hold a layer say the same, from 2 on they have equal numbers of microbatches, at 3 they
 * recompute alike. Devices that share a stage by sequences divide as replicas do. Of devices of a sharded stage those divide
 * who keep the same shard of a parameter and have a partial value of its gradient each, over all replicas; what one alone keeps or all
 * compute alike stays as it is. There 3 is refused: `parameters:` (core/sharding/sharding.h) shards them among all. Replicas that
 * keep a parameter in different shards go with no zero at all: that is refused too. */
enum { ZERO_MAX = 3 };

struct plan_stage {
    int32_t first_layer, last_layer; /* inclusive */
    int32_t device;                  /* of a stage on several devices the first one */
    /* (n_shards) devices of a stage that they share by sequences, and how many of each microbatch each takes, in order
     * from the first sequence on; 0: one device has all */
    int32_t n_shards;
    const int32_t *devices;
    const int64_t *sequences;
    /* NULL: by sequences. How the devices share the stage's operators (core/sharding/sharding.h); sequences is NULL then */
    const struct sharding *sharding;
    int32_t warmup;    /* 0: the default */
    const char *order; /* NULL: from warmup */
    enum recompute recompute;
    int64_t bucket_bytes; /* 0: one bucket after the last backward; zero 3: a layer each */
    int32_t zero; /* 0 … ZERO_MAX: what is divided over the replicas that hold the same layers */
    int32_t receive_ahead; /* >= 1; default 2 */
    int32_t line, column;  /* where the file says so, for messages; 0 where made */
};

struct plan_replica {
    int32_t microbatches, n_stages;
    struct plan_stage *stages;
    const char *schedule; /* NULL: the stages' warmup or order, or orders */
    bool split;           /* schedule: I and W where it leaves that open */
    /* NULL, or (n_stages): of its device at the first stage of each device, NULL elsewhere */
    const char **orders;
    int32_t line, column; /* as a stage's */
};

struct plan {
    const char *name, *file; /* file: for messages, NULL where made */
    int64_t profile_id;
    uint64_t seed;
    int64_t microbatch;
    bool deterministic;
    int32_t steps;
    int32_t n_replicas;
    struct plan_replica *replicas;
    struct job job;
    struct cluster cluster;
    int64_t predicted_ns; /* of one iteration when planned; 0 where unknown */
    int32_t line, column; /* of the replicas in the file, as a stage's */
};

MUST_CHECK enum status plan_read(struct arena *a, const char *path, struct plan *out,
                                 struct error *err);
MUST_CHECK enum status plan_parse(struct arena *a, const struct node *root, const char *folder,
                                  struct plan *out, struct error *err);
void plan_write(FILE *out, struct arena *a, const struct plan *p);
/* Tells the plan's model how many GPUs shard every operator of its devices, as its first stage's device says; lowering
 * asks each stage's own device. */
void plan_share(struct plan *p);
/* Structure against the model's n_layers: layers of each replica contiguous from 0 to n_layers-1, shares
 * add up to global_batch / microbatch, devices exist and belong to one replica, their sequences add up to
 * the microbatch, warmup in 1 … microbatches, orders complete,
 * stages where the schedule wants them. ERR_INPUT. */
MUST_CHECK enum status plan_check(const struct plan *p, int32_t n_layers, struct error *err);
/* Number of devices of a stage, and the k-th; its sequences of a microbatch. */
static inline int32_t plan_stage_devices(const struct plan_stage *s)
{
    return s->n_shards > 0 ? s->n_shards : 1;
}
static inline int32_t plan_stage_device(const struct plan_stage *s, int32_t k)
{
    return s->n_shards > 0 ? s->devices[k] : s->device;
}
static inline int64_t plan_stage_sequences(const struct plan *p, const struct plan_stage *s,
                                           int32_t k)
{
    return s->n_shards > 0 && s->sequences ? s->sequences[k] : p->microbatch;
}
/* Short for people: "2 replicas: 5 × [0-9 a.0 w3 | 10-14 b.0 recompute], 3 × [0-14 c.0 bucket 1 MiB]"; what is
 * not the default is said, and the tensor-parallel degree above 1: "8 × zb-h1 tp 4 [0-9 a.0 | 10-19 a.4]". Of more than
 * PLAN_REPLICAS_ONE_BY_ONE replicas those that differ in their devices alone are a class, of which the layers of the stages, their
 * device type and the ranges of all devices are told: "replicas 0-30: 5 × [h100 tp 4: 0-2 | 3-62 in 15 stages] on 496 devices
 * h0-247.[0,4]". */
const char *plan_describe(struct arena *a, const struct plan *p);
/* The same without its first words, in lines: one a replica, or one a class. */
const char **plan_describe_classes(struct arena *a, const struct plan *p, int32_t *n);
const char *plan_describe_replica(struct arena *a, const struct plan *p, int32_t replica);

enum { PLAN_REPLICAS_ONE_BY_ONE = 8 };
struct
    plan_class { /* replicas that differ in their devices alone, but for device types; ascending */
    int32_t n, *replicas;
};
/* In order of first appearance; of few replicas each is one of its own. Returns their number. */
int32_t plan_classes(struct arena *a, const struct plan *p, struct plan_class **out);
/* Money an hour of all GPUs that the plan uses (`price` of their types); 0 where no type has one. GPUs that are left idle cost
 * nothing: they are somebody else's. O(devices + stages). */
double plan_price_per_h(const struct plan *p);
double plan_cost(const struct plan *p, int64_t ns); /* money of so long */
uint64_t plan_hash(
    struct arena *a,
    const struct plan *p); /* of what is executed: its canonical text without name and made_by */

#endif
