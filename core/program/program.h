/* core/program/program.h - the program: what the simulator and the executor both run, procedures × lanes.
 *
 * A *stage* holds the code and the memory layout of one (replica, stage): slots, buffer rings and procedures. A *procedure* is a list of instructions. A *lane*
 * is one device's instruction stream: ordered calls of procedures, each with a microbatch number. A device owns one stage, or several *chunks* (virtual stages
 * of one replica), which share its compute stream. Orders are run-length coded and never unrolled, so the size of a program does not grow with the number of
 * microbatches. Lowering makes all decisions; the interpreters (sim/engine/sim, exec/worker/worker) make none. The file format (program_write, program_read) is
 * line based and needs no library.
 *
 * Sequence numbers. A stage numbers its microbatches over all steps: seq = step · microbatches + microbatch. A buffer ring has `count` buffers; sequence number
 * seq uses buffer seq mod count. Lowering has proved that lifetimes within one buffer never overlap.
 *
 * Instructions. The compute stream of a lane executes the instructions of its calls in order.
 *   COMPUTE op        Runs one operator.
 *   RECEIVE channel   The compute stream waits until message seq of the channel is in its slot.
 *   SEND channel      Message seq is issued to the channel when all earlier work of the compute stream has ended; the
 *                     compute stream continues at once.
 *   COLLECTIVE_START c  Collective c of this step is enqueued on the collective stream (in order) when all earlier work of the
 *                     compute stream has ended; the compute stream continues at once.
 *   COLLECTIVE_WAIT c The compute stream waits until collective c of this step has ended. If the device launches it several times
 *                     a step (reduce-scatter, all-gather), the latest launch counts.
 *   LOAD              The inputs of this microbatch (enum tensor_input) are copied into their slots.
 *   OFFLOAD, FETCH    Activations of this microbatch are copied to host memory; the compute stream waits until they are back
 *                     (core/program/offload.h).
 *   LOSS              The loss slot of this microbatch is recorded: the mean over the stage's sequences, weighted by their
 *                     number; or a device's share of it (shares_loss).
 *   COLLECTIVE c      START and WAIT in one. A collective of a tensor (core/collective/collective.h) is enqueued on the collective
 *                     stream behind earlier collectives, when all earlier work of the compute stream has ended; the compute stream
 *                     waits for its end. Each COLLECTIVE is one launch: the k-th launches of all members in a step form
 *                     one execution and belong to the same microbatch.
 *                     A collective without a tensor models equal devices that are simulated as one: it starts when the last
 *                     member has arrived, takes 2(n−1) steps of the longest chunk over the slowest hop of the ring, and occupies no
 *                     collective stream. It is simulated only; program files contain none.
 * Periods. A procedure with a period P > 0 and an offset o > 0 is executed only in the steps number o, o + P, o + 2P …, counted from 1 over the whole training;
 * in all other steps its calls do nothing. Local SGD exchanges parameters between islands in such procedures (core/program/period.h), and an island that makes
 * fewer updates than others has its updates in such procedures. The collectives that they launch are `repeated`; one that was launched in an earlier step is
 * awaited like one of this step.
 * Ahead. The calls of a procedure F "ahead" are of the following step (core/program/ahead.h).
 * Parameter servers (core/model/parameter_server.h). Every worker is a replica of one stage. Its U sends its gradients, each to the server of the parameter, over channels `by_step`: message c is of step c. It then receives
 * the parameters. A server's lane calls U, with BSP the only one: it receives all gradients of a step, adds them in the order of the workers, updates, and
 * sends the parameters to all. Else it calls two procedures U for each worker in turn, "push" and "pull": push receives a worker's gradients and updates; pull
 * copies the parameters to the slots of these gradients and sends them. The order of the lane is that of equal workers, which the deadlock check plays; the
 * interpreters call a push when all its messages have arrived, with the worker's own step as the message number, and a pull as soon as the mode allows it
 * (core/program/server_order.h). A call starts with an implied wait: before a call of microbatch seq writes a slot of a buffer ring with `sent` (a channel's
 * source), message seq − count of that channel must have left (end of its link occupancy). A message starts when it has been issued, its receive is posted, the
 * previous message of the same channel has left (on a fluid link: has started), and the link is free. Its receive is posted when the call that consumed message
 * seq − receive_ahead of the channel has ended (the first receive_ahead: from the start). It occupies the link for bytes / bandwidth and arrives `latency`
 * later; the source slot is free at the end of the occupancy. A channel within one device (link -1) is a free copy, made when the message has been issued and
 * its receive is posted, by the same rules.
 *
 * Collectives of segments. COLLECTIVE_START operates on a list of segments (slots) of each member; after an all-reduce all members hold the same bits. A device
 * launches a collective once a step, whichever of its stages is the member. A member's `within` limits a segment to a region: members with different shards of
 * a parameter reduce the intersection of their shards. If several members hold the same non-partial value, one contributes it and the others (`silent`)
 * contribute zero.
 *   all-reduce by RING: n−1 steps of reduce-scatter and n−1 of all-gather over the members in order; step k: member i sends
 *   to i+1. Chunk c of n holds elements [c·E/n, (c+1)·E/n). In reduce-scatter step k (0-based) member i sends
 *   chunk (i − k) mod n and adds what it receives, chunk (i − 1 − k) mod n; in all-gather step k it sends
 *   chunk (i + 1 − k) mod n and overwrites chunk (i − k) mod n. A member starts step k when its step k−1 has
 *   ended: its own send has left and its receive has arrived. Empty chunks send nothing and take no time.
 *   In half precision each message is rounded, partial values are accumulated in fp32, and the result is rounded once more,
 *   identically on all members.
 *   all-reduce by HIERARCHICAL, HALVING_DOUBLING or DOUBLE_TREE: the rounds of core/collective/collective.h over the list of segments,
 *   on whole segments only. Messages are rounded as a ring's; a sum that is complete is rounded by its owner before it is sent.
 *   all-reduce by CHAIN (deterministic): member 0 sends its gradient to member 1, which adds the gradients of its microbatches one
 *   by one in order and sends the result on; the last member's result returns n−1 → n−2 → … → 0, each
 *   member keeping a copy. Members own ascending intervals of microbatches.
 *   reduce-scatter and all-gather by RING (ZeRO): n−1 steps each. Every segment is divided evenly (its elements are a multiple of
 *   n): chunk c is the c-th n-th of each segment, one segment after the other. Member i owns chunk (i + 1) mod n, the one that
 *   the ring completes there. Reduce-scatter adds the reduced chunk to the member's `own` slots, or leaves it in place if there
 *   are none; the rest of its segments is undefined afterwards. All-gather reads a member's chunk from its `own` slots, or in place;
 *   afterwards all members hold complete, equal segments. Devices may launch both several times a step, all members equally often;
 *   the k-th launches form one execution.
 *   all-reduce LOCAL: the members are chunks of one device, which adds their segments in the order of members and writes the
 *   result to each. No links, no time.
 * A device has one collective stream. It runs gradient all-reduces and collectives of tensors one after the other, so one order of all of them must be valid on
 * every device. A ring or chain message counts as issued and posted when both ends have reached its step.
 * Only messages take time. The additions and copies of a collective cost nothing in the simulator and on emulated devices, because the executor's communication
 * thread does them off the compute stream, at the host's speed, without advancing the virtual clocks.
 * On real devices they delay the collective. ACCUMULATE operators cost time as every operator does; a CHAIN that adds microbatches kept separately contains
 * none, so its additions are free.
 *
 * Steps. Orders describe one step, and every step runs them again: the microbatches of step k have sequence numbers from k · microbatches on. `steps` is the
 * number of steps the plan was made for, used if no other number is given; an interpreter runs exactly the number of steps it is given.
 */
#ifndef CORE_PROGRAM_PROGRAM_H
#define CORE_PROGRAM_PROGRAM_H

#include "core/base/error.h"
#include "core/collective/collective.h"
#include "core/graph/graph.h"
#include "core/graph/loss_scale.h"
#include "core/graph/op.h"
#include "core/model/job.h"
#include "core/model/parameter_server.h"

#include <stdint.h>
#include <stdio.h>

struct arena;

struct program_device {                    /* one lane each, same index */
    const char *name, *type, *host, *kind; /* kind: backend, "host" or "cuda" */
    const char *gpu; /* catalogue name of its type, "H200-SXM"; NULL, "": unknown, not checked against the GPU found */
    int32_t index;      /* local device number on its host */
    int32_t type_index; /* into the cluster's types, for costs */
    double slowdown;    /* > 0 emulated, 0 real */
    int64_t memory_bytes;
    int32_t multiprocessors; /* of a GPU: size of its green context; 0: all multiprocessors */
    double host_Bps;         /* of copies to and from host memory, each direction, as stated; 0: from the profile */
};

struct program_link {
    const char *name;
    double bandwidth_Bps, latency_s; /* as stated; 0: from the profile */
    bool half_duplex, emulated;
    int32_t sharing; /* enum link_sharing */
    /* factor - 1 by which operators at both ends slow down while a message moves; infinite: they stop */
    double compute_slowdown;
    /* NCCL settings (core/cluster/cluster.h); 0 and NULL: NCCL's default; of a route, those of its hops combined */
    int32_t max_ctas;
    const char *net_name;
    /* A route: n_hops >= 2 plain links of this list, in order of passage in direction 0, and the direction of each; 0: a
     * link. A route has no bandwidth and no latency of its own. A message occupies all hops at once (cut-through), at
     * the rate of the most contended one, and arrives the sum of their latencies after it has left. All hops are shared fairly
     * by all traffic, even if the cluster states fifo, because no order of messages on one hop could be kept on all. */
    int32_t n_hops;
    int32_t *hop, *hop_direction;
    const char *ends[2]; /* names of the devices that a route joins */
    /* sim/engine/fold, else NULL: (n_hops) equal messages on this hop, at the same time, that one message on the route stands
     * for. Such a route may have one hop. */
    const int32_t *hop_messages;
    double pace_Bps; /* sim/engine/ring_flow, of the route of a ring: its rate without other traffic; else 0 */
    /* one pair's instance of the cluster's link `of` (`every:`), priced by the device types of both ends and, of stages on several GPUs,
     * by their numbers of GPUs and how many of these send at once (core/lower/links.c) */
    bool paired;
    int32_t of, type[2], gpus[2], gpus_at_once;
};

enum slot_class {
    SLOT_PARAMETER,
    SLOT_GRADIENT,
    SLOT_STATE,
    SLOT_FEEDBACK, /* of compression: program_parameter.feedback */
    SLOT_BUFFER_RING,
    SLOT_SCRATCH,
    SLOT_CLASS_COUNT
};
struct slot { /* storage of one tensor on its device */
    const char *name;
    enum slot_class class;
    enum dtype dtype;
    struct shape shape;
    int32_t buffer_ring;         /* class BUFFER_RING, else -1 */
    /* ZeRO: 1 + index into its stage's own_chunk: the stage has that chunk, as large as the slot; 0: not in chunks */
    int32_t own;
    /* in its class's region, or in one buffer of its buffer ring; a multiple of 64. Of a chunk: that of chunk 0
     * (program_slot_offset) */
    int64_t offset_bytes;
    int64_t bytes;
    /* PARAMETER, GRADIENT, STATE: index into parameters, else -1; the STATE slots of a parameter are m, v in order */
    int32_t parameter;
    int32_t input; /* enum tensor_input that LOAD copies here, else -1 */
    /* in a sharded stage, of parameters, gradients, state and inputs: which shard of the full tensor this is; NULL: all of
     * it */
    const struct tensor_shard *shard;
};

struct buffer_ring {
    int32_t count;        /* buffers, >= 1 */
    int64_t stride_bytes; /* of one buffer */
    int32_t sent;         /* channel whose source slot is in it, else -1 (then no implied wait) */
    int32_t received;     /* channel whose destination slot is in it, else -1 */
    /* phases that begin and end a buffer's lifetime: R receive, F, B, I, W, S sent; both H: of the stage's offload */
    enum phase birth, death;
};
/* Activations in host memory (core/program/offload.h): rings of the stage, and buffers in host memory; count 0: none. */
struct offload {
    int32_t out, in, count;
};

/* About a kilobyte. What a fold, a price and the memory of a device read of every operator is in its first cache line. */
struct program_op {
    enum op_kind kind;
    enum phase phase;
    uint64_t key; /* op_key */
    enum dtype dtype;
    int32_t layer;
    const char *name;
    int32_t n_inputs, n_outputs;
    /* half precision, operators without slots (lists to be measured): bit i: operand i is fp32. Otherwise the slots' dtypes
     * decide. */
    uint32_t wide_input, wide_output;
    int32_t input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX]; /* slots of the stage */
    struct op_attrs attrs;
    struct op_shapes shapes;
};

#define INSTR_KINDS(X) \
    X(COMPUTE) X(RECEIVE) X(SEND) X(COLLECTIVE_START) X(COLLECTIVE_WAIT) X(LOAD) X(LOSS) X(COLLECTIVE) X(OFFLOAD) X(FETCH)
enum instr_kind {
#define X(name) INSTR_##name,
    INSTR_KINDS(X)
#undef X
        INSTR_KIND_COUNT
};
struct instr {
    enum instr_kind kind;
    /* COMPUTE: op of the stage; RECEIVE, SEND: channel; COLLECTIVE, COLLECTIVE_START, COLLECTIVE_WAIT: collective; LOSS: slot; else -1 */
    int32_t arg;
};

struct procedure {
    enum phase phase; /* F B I W U */
    /* "", "last" (launches gradient buckets), "check" (of U, with several chunks on a device: tests the complete
     * gradients for overflow, or sums PowerSGD's second factors, or squares for the noise scale; updates
     * nothing);
     * of local SGD, with a period: "reduce" launches the gradient buckets of an island that does not update in every step, in the place of
     * "last"; behind U "delta" computes the change of the parameters and launches its sums, "outer" applies it; with
     * a delay "sum" awaits the sums and puts them into the gradients, before "outer"; "ahead" of F */
    const char *variant;
    int32_t period;      /* executed in every period-th step; 0: in every step */
    int32_t offset;      /* the first of them, counted from 1; 0 without a period */
    int32_t n_instrs;
    struct instr *instrs;
};

enum { FEEDBACK_OUTER = 2 * ENCODING_STATES_MAX, FEEDBACK_SLOTS = 3 * ENCODING_STATES_MAX };
enum { PROGRAM_OUTER_SLOTS = 3 };

/* ZeRO: the shard of a parameter that this stage updates, in one-dimensional slots that also hold shards of neighbouring
 * parameters and padding. Element i of the slots is element i - first of the parameter, if it has that index. */
struct program_shard {
    int32_t slot, state[2]; /* PARAMETER; STATE m, v (-1 none) */
    int32_t outer[PROGRAM_OUTER_SLOTS]; /* STATE, as a parameter's */
    int32_t master; /* STATE, fp32 master of a half-precision slot; -1: none */
    int32_t own;    /* as of a slot */
    int64_t first;  /* if own is not 0, on the stage with chunk 0 (program_shard_first) */
};
struct program_parameter {
    const char *name;
    struct shape shape;
    enum tensor_init init;
    double init_std;
    bool decay;
    int32_t slot, gradient[2],
        state[2]; /* slots; gradient per use (-1 none), state m, v (-1 none) */
    int32_t master; /* STATE, fp32 master copy if slot is in half precision; else -1 */
    /* STATE, local SGD: 1 + the slot of the parameter after the last exchange (the anchor), of the outer optimizer's velocity, and of the
     * sum of changes of a delayed exchange; 0: none */
    int32_t outer[PROGRAM_OUTER_SLOTS];
    int32_t fragment; /* in whose turn it is exchanged; 0 without local SGD */
    int32_t previous; /* PARAMETER, 1 + slot of the version before the last update, which F and backward read; 0: none, they read `slot` */
    /* What compression keeps from step to step: 1 + slot, 0: none; two of each use's gradient, then two of the parameter's changes in
     * local SGD: FEEDBACK, the device's feedback (core/graph/encoding.h); of PowerSGD its error, then GRADIENT, the second factor */
    int32_t feedback[FEEDBACK_SLOTS];
    /* NULL: not sharded by ZeRO. Else slot is -1 if only the shard is kept (zero 3), gradient from zero 2 on, state always. */
    const struct program_shard *shard;
};

enum { GRADIENT_SQUARES = 2 };

struct program_stage {
    int32_t replica, stage, device;
    /* whose parameters these are in a checkpoint: the replica's island, with local SGD; 1 + replica of a parameter server's worker; else 0 */
    int32_t island;
    int32_t server; /* 1 + number of the parameter server; it has one microbatch, no layers of its own, and replica 0; 0: none */
    int32_t first_layer, last_layer;
    /* the replica's share of the global batch, and its first microbatch */
    int32_t microbatches, first_microbatch;
    /* this stage's interval of the sequences of each microbatch, if devices divide it; sequences 0: all */
    int64_t first_sequence, sequences;
    /* devices of a sharded stage: each records its loss slot times loss_share, and the records add up */
    bool shares_loss;
    double loss_share;
    int32_t scale_slot; /* STATE, fp32, LOSS_SCALE_NUMBERS elements, if the program has a loss scale */
    /* GRADIENT, one element each, of a program with gradient_noise: the sum of the squares of this replica's gradients, in front of the
     * gradient all-reduces, and of their sums over all replicas, behind them */
    int32_t squares_slot[GRADIENT_SQUARES];
    int32_t clip_slot; /* GRADIENT, of a program with max_grad_norm: norm of the step's gradients, factor of `clip` by which updates multiply */
    bool recompute;
    bool offloads; /* class STATE is in page-locked host memory (`offload: optimizer`, core/cluster/cluster.h) */
    int64_t reserve_bytes; /* unavailable to tensors */
    int32_t n_slots, n_buffer_rings, n_ops, n_procedures, n_parameters;
    /* Stages that differ in their devices only share slots, operators, parameters and instructions (core/lower/equal_stages.h); no reader
     * may change them in place. */
    struct slot *slots;
    struct buffer_ring *buffer_rings; /* the stage's own */
    struct program_op *ops;
    struct procedure *procedures; /* the stage's own */
    struct program_parameter *parameters;
    const int32_t *own_chunk; /* ZeRO: by slot.own - 1; NULL: none */
    struct offload offload;
    int64_t class_bytes[SLOT_CLASS_COUNT]; /* bytes of each region; BUFFER_RING: sum of count · stride */
    /* staging of collectives: the largest program_collective_staging_bytes of its collectives */
    int64_t buffer_bytes;
};

struct channel {                  /* one tensor from one stage to another */
    int32_t from_stage, to_stage; /* into stages */
    int32_t from_slot, to_slot;
    int32_t link, direction; /* link -1: same device */
    int64_t bytes;
    int32_t receive_ahead;
    bool gradient; /* backward, carries a gradient; else forward, an activation */
    bool by_step;  /* of a parameter server: a message a step, outside of buffer rings; else one for each microbatch */
};

/* A lane's order: runs of a repeated body. The k-th repetition of a body calls each entry with microbatch + k. */
struct call {
    int32_t procedure;  /* of the stage */
    int32_t microbatch; /* 0-based within the replica; -1 for U */
    int32_t chunk;      /* index into the lane's stages */
};
struct order_run {
    int32_t repeat, n_calls;
    struct call *calls;
};
struct order {
    int32_t n_runs;
    struct order_run *runs;
    int64_t n_calls; /* of one step, all runs expanded */
};
struct lane {
    int32_t order;
    int32_t n_stages; /* >= 1 */
    /* (n_stages) ascending: chunk c is stages[c]; every stage is in exactly one lane, that of its device */
    int32_t *stages;
};

struct program {
    const char *name;
    uint64_t plan_hash;
    uint64_t seed;
    enum dtype dtype;
    bool emulated, deterministic;
    int32_t steps; /* default number of steps */
    int64_t microbatch, sequence_length, vocabulary;
    /* of one image, all channels; 0: samples are text. An image counts as a sequence, its classes as the vocabulary */
    int64_t pixels;
    int32_t microbatches; /* of the global batch */
    int32_t n_experts, n_expert_blocks; /* of a block; of the plan's `experts`, without tokens in a file: operators have loads */
    const struct expert_block *expert_blocks;
    struct optimizer optimizer;
    struct outer_optimizer outer; /* local SGD; every 0: none */
    struct parameter_server server; /* n 0: none */
    struct loss_scale loss_scale; /* initial 0: none */
    bool gradient_noise;          /* its stages have squares_slot; the plan's gradient_noise_scale */
    int32_t n_devices, n_links, n_stages, n_channels, n_collectives, n_orders;
    struct program_device *devices; /* (n_devices) devices with a lane; lanes[i] is devices[i]'s */
    struct lane *lanes;
    struct program_link *links;
    struct program_stage *stages;
    struct channel *channels;
    struct collective *collectives;
    struct order *orders;
};

/* Iterates over one lane's calls of one step. */
struct cursor {
    const struct order *order;
    int32_t run, repetition, call;
};
void cursor_start(struct cursor *c, const struct order *o);
bool cursor_next(struct cursor *c, struct call *out); /* false at the end of the step */
/* Run-length codes a flat list of calls, greedily; cursor_next returns the same list. */
void order_code(struct arena *a, const struct call *calls, int64_t n, struct order *out);

/* Messages of a channel in one step. */
static inline int32_t program_channel_messages(const struct program *p, const struct channel *c)
{
    return c->by_step ? 1 : p->stages[c->from_stage].microbatches;
}
static inline int32_t buffer_ring_at(const struct buffer_ring *r, int64_t seq) { return (int32_t)(seq % r->count); }
/* Whether a procedure is executed in a step, counted from 0 over the whole training. */
static inline bool procedure_runs(const struct procedure *f, int64_t step)
{
    return !f->period || (step + 1 >= f->offset && (step + 1 - f->offset) % f->period == 0);
}
/* Index of the procedure with this phase and variant; -1: none. */
int32_t program_procedure(const struct program_stage *s, enum phase phase, const char *variant);
/* A device's label in messages: "m.1", or "m.1 on nodeb" if the program spans several hosts. */
struct device_label {
    char text[160];
};
struct device_label program_device_label(const struct program *p, int32_t device);
/* Whether the device computes with the host's kernels in host memory; every other class has a plugin (exec/plugin.h) and its own memory. */
bool program_device_is_host(const struct program_device *d);
bool program_same_host(const struct program *p, int32_t device, int32_t other);
/* Offset of a slot of the stage. */
static inline int64_t program_slot_offset(const struct program_stage *s, const struct slot *x)
{
    return x->offset_bytes + (x->own ? s->own_chunk[x->own - 1] * x->bytes : 0);
}
/* The value of `first` of the ZeRO shard of a parameter of the stage. */
static inline int64_t program_shard_first(const struct program_stage *s,
                                          const struct program_shard *x)
{
    return x->first - (x->own ? s->own_chunk[x->own - 1] * shape_elements(&s->slots[x->slot].shape) : 0);
}
/* The stage of a call of lane `lane`; the microbatch's sequence number is left to the caller. */
static inline struct program_stage *program_called(const struct program *p, int32_t lane,
                                                   const struct call *c)
{
    return &p->stages[p->lanes[lane].stages[c->chunk]];
}
/* Devices that launch a collective, each once a step. */
static inline int32_t program_collective_launches(const struct collective *g)
{
    return g->algorithm == ALGORITHM_LOCAL ? 1 : g->n_members;
}
int32_t program_islands(const struct program *p); /* of local SGD; without 1. O(stages) */
/* Instructions of all procedures. O(procedures). */
int64_t program_instrs(const struct program *p);
int64_t program_lane_bytes(const struct program *p, int32_t lane); /* of all its stages; saturates */
/* All-reduce, reduce-scatter or all-gather of segments by RING. */
static inline bool program_collective_rings(const struct collective *g)
{
    return g->algorithm == ALGORITHM_RING && !collective_of_tensor(g);
}
/* ZeRO's reduce-scatter or all-gather: chunks are shards of each segment, launched any number of times a step. */
static inline bool program_collective_divides(const struct collective *g)
{
    return program_collective_rings(g) && g->kind != COLLECTIVE_ALL_REDUCE;
}
static inline bool program_collective_scatters(const struct collective *g)
{
    return program_collective_rings(g) && g->kind == COLLECTIVE_REDUCE_SCATTER;
}
static inline bool program_collective_gathers(const struct collective *g)
{
    return program_collective_rings(g) && g->kind == COLLECTIVE_ALL_GATHER;
}
/* The kinds and algorithms that a program has of segments: gradient all-reduce, ZeRO's reduce-scatter and all-gather. */
static inline bool program_collective_of_segments(enum collective_kind k, enum collective_algorithm w)
{
    if (k == COLLECTIVE_ALL_REDUCE) return w == ALGORITHM_CHAIN || w == ALGORITHM_LOCAL || collective_in_calls(k, w);
    return (k == COLLECTIVE_REDUCE_SCATTER || k == COLLECTIVE_ALL_GATHER) && w == ALGORITHM_RING;
}
/* Its messages are those of collective_round: of tensors, and all-reduces of segments by other algorithms than ring, chain, local. */
static inline bool program_collective_in_rounds(const struct collective *g)
{
    bool own = g->algorithm == ALGORITHM_RING || g->algorithm == ALGORITHM_CHAIN || g->algorithm == ALGORITHM_LOCAL;
    return collective_of_tensor(g) || !own;
}
/* Whether members may launch it several times a step, or in some steps only; their k-th launches form one execution. */
static inline bool program_collective_repeats(const struct collective *g)
{
    return program_collective_divides(g) || collective_of_tensor(g) || g->repeated;
}
/* Whether the instruction enqueues a collective on the device's collective stream. */
static inline bool instr_launches(const struct program *p, const struct instr *x)
{
    return x->kind == INSTR_COLLECTIVE_START ||
           (x->kind == INSTR_COLLECTIVE && collective_of_tensor(&p->collectives[x->arg]));
}
/* Link over which member i of a collective in rounds sends to member k (i+1 by ring); -1: it never does. */
static inline void program_collective_link(const struct collective *m, int32_t i, int32_t k, int32_t *link,
                                   int32_t *direction)
{
    bool ring = m->algorithm == ALGORITHM_RING, sends = collective_sends(m, i, k);
    *link = !sends ? -1 : ring ? m->link[i] : m->pair_link[i * m->n_members + k];
    *direction = !sends ? 0 : ring ? m->direction[i] : m->pair_direction[i * m->n_members + k];
}
/* Elements of a member's segment; s is the member's stage. */
int64_t program_collective_segment_elements(const struct collective_member *m, const struct program_stage *s,
                               int32_t segment);
/* The chunk that the ring completes on member i of n. */
static inline int32_t program_collective_own_chunk(int32_t i, int32_t n) { return (i + 1) % n; }
/* Staging of a member, in multiples of 64 bytes: the incoming message (ring: a chunk; chain: the whole list) and, for a ring, or rounds,
 * with a chunk that is not contiguous in memory, an outgoing one. 0 for a ring of one.
 * Collectives of tensors: collective_tensor_staging. */
int64_t program_collective_incoming_bytes(const struct collective *g);
int64_t program_collective_staging_bytes(const struct collective *g, const struct collective_member *m,
                            const struct program_stage *s);
/* Whether a call of f writes a slot of the buffer ring (of s): if the ring has `sent`, the call waits for a free buffer first. */
bool procedure_writes_buffer_ring(const struct program_stage *s, const struct procedure *f, int32_t buffer_ring);
/* Whether the compute stream of the stage itself copies this slot's message (OP_message). */
bool program_stage_carries(const struct program_stage *s, int32_t slot);
/* Sets wide_input and wide_output from the dtypes of the stage's slots; 0 outside half precision. */
void program_op_wide(const struct program_stage *s, struct program_op *op);
/* Bytes of a slot class on the device, or of collective staging: class SLOT_CLASS_COUNT. */
int64_t program_class_bytes(const struct program_stage *s, int32_t class);
int64_t program_host_bytes(const struct program_stage *s); /* page-locked, of offloaded optimizer state and activations */
/* Sum over all classes, staging and the reserve, on the device. */
int64_t program_stage_bytes(const struct program_stage *s);

/* A program file is readable only by the musher version that wrote its format; others report its version. Lowering the plan again makes a new one. */
enum { PROGRAM_VERSION = 14 };
void program_write(FILE *out, const struct program *p);
/* ERR_INPUT with file:line. Checks every index, so that interpreters need no checks. */
MUST_CHECK enum status program_read(struct arena *a, const char *path, struct program *out, struct error *err);
/* The same from n bytes at text; name is the file name in messages. */
MUST_CHECK enum status program_parse(struct arena *a, const char *name, const char *text, size_t n,
                                     struct program *out, struct error *err);

/* Deadlock check (token game): executes all lanes without time, with finite buffers. ERR_INPUT: "deadlock: …" with
 * each blocked lane, its call and the awaited event; also send and receive orders that differ,
 * buffers overwritten while alive, collectives launched in different orders. O(calls + messages). */
MUST_CHECK enum status program_check(struct arena *a, const struct program *p, struct error *err);

#endif
