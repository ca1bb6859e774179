/* core/program/program.h - what both machines run: procedures × lanes.
 *
 * A *stage* is the code and the memory layout of one (replica, stage): slots, buffer rings and procedures.
 * A *procedure* is a list of instructions. A *lane* is one device's ordered calls of procedures with
 * a microbatch number. A device owns one stage or several *chunks*: stages of one replica that take turns on its
 * compute stream. Nothing is unrolled: orders are run-length coded, so size does not grow with
 * microbatches. Everything executable is decided here; an interpreter (sim/engine/sim, exec/worker/worker) decides
 * nothing. The file form (program_write/program_read) is ours, line based, and needs no library.
 *
 * Sequence numbers. A stage counts its microbatches over steps: seq = step · microbatches + microbatch.
 * Buffer ring r keeps `count` buffers; sequence number seq lives in buffer seq mod count. Lowering has
 * proved that lifetimes in one buffer never overlap.
 *
 * Meaning of instructions. A lane's compute stream takes the instructions of its calls in order.
 *   COMPUTE op        runs one operator.
 *   RECEIVE channel   the compute stream waits until message seq of the channel is in its slot.
 *   SEND channel      once everything before it on the compute stream has ended, message seq is handed
 *                     to the channel; the compute stream goes on at once.
 *   COLLECTIVE_START c  once everything before it has ended, collective c of this step is handed to the collective stream
 *                     (in order); the compute stream goes on at once.
 *   COLLECTIVE_WAIT c the compute stream waits until this step's collective c has ended; where there are several a step
 *                     (reduce-scatter, all-gather), the one that this device launched last.
 *   LOAD              inputs of this microbatch (enum tensor_input) are put into their slots.
 *   LOSS              the loss slot of this microbatch is recorded: the mean over the stage's sequences, which counts as
 *                     many times as they are; or a device's share of it (shares_loss).
 *   COLLECTIVE c      START and WAIT in one: the compute stream joins collective c of this call and goes on when it has ended.
 *                     Once everything before it has ended, the collective of a tensor (core/collective/collective.h) is handed to
 *                     the collective stream, behind what was handed to it before, and the compute stream waits. Members meet in
 *                     it once for each COLLECTIVE: their k-th of a step meet, and are of the same microbatch.
 *                     A collective without a tensor stands for equal devices that are simulated as one: it starts when the last
 *                     member has come, and takes 2(n−1) steps of the longest chunk over the slowest hop of the ring, on no
 *                     collective stream. Simulated only, so that program files have none.
 * A call starts with an implied wait: before a call of microbatch seq writes a slot of a buffer ring with
 * `sent` (a channel's source), message seq − count of that channel must have left (occupancy over).
 * A message may start to move when it is handed over, its receive is posted, the message before it on
 * the same channel has left (on a fluid link: has started), and the link is free. Its receive is posted when the call that consumed
 * message seq − receive_ahead of the channel has ended (the first receive_ahead: from the start).
 * It occupies the link for bytes / bandwidth and arrives `latency` after that; the source slot is
 * free when the occupancy ends. A channel inside one device (link -1) is a free copy: made at the moment when the
 * message is handed over and its receive is posted, by the same rules.
 *
 * Collectives. COLLECTIVE_START is of a list of segments of each member; after an all-reduce all members have the same bits. A
 * device launches a collective once a step, whichever of its stages is the member. Of a segment only a region may be meant (members'
 * `within`): members who keep a parameter in different shards sum what they have in common. What several members have
 * alike, and not as partial values, one of them brings; the others are silent: their partial values are as if they were 0.
 *   all-reduce by RING: n−1 steps of reduce-scatter and n−1 of all-gather over the members in order; step k: member i sends
 *   to i+1. Chunk c of n holds elements [c·E/n, (c+1)·E/n). In reduce-scatter step k (0-based) member i sends
 *   chunk (i − k) mod n and adds what it receives, chunk (i − 1 − k) mod n; in all-gather step k it sends
 *   chunk (i + 1 − k) mod n and overwrites chunk (i − k) mod n. A member starts step k when its step k−1 has
 *   ended: its own send has left and its receive has arrived. Empty chunks send nothing and take no time.
 *   In half precision each message is rounded, partial values are added in fp32 as they come, and the sum is rounded once more, for
 *   all members alike.
 *   all-reduce by CHAIN (deterministic): member 0 sends its sum to member 1, which adds its microbatches' gradients one
 *   by one in order and sends on …; the last one's result goes back n−1 → n−2 → … → 0, each
 *   member keeping a copy. Members own ascending intervals of microbatches.
 *   reduce-scatter, all-gather by RING (ZeRO): the n−1 steps of reduce-scatter alone, and those of all-gather alone. Every segment is
 *   divided evenly (its elements are a multiple of n): chunk c is the c-th part of each segment, one segment after the
 *   other. Member i owns chunk (i + 1) mod n, where the ring leaves it complete. Reduce-scatter adds that chunk of the sum to
 *   the member's own slots, or leaves it in its place where there are none; what else is in its segments is void
 *   afterwards. All-gather takes a member's chunk from its own slots, or from its place, and all segments end whole and
 *   alike. A device may launch them several times a step, all members equally often: their k-th launches meet.
 *   Collectives of a tensor (COLLECTIVE): see core/collective/collective.h. A device's collective stream takes sums and collectives alike, one after the
 *   other, so that one order of all of them must serve all devices.
 *   all-reduce LOCAL: the members are chunks of one device, which adds their segments in the order of members and gives each the
 *   sum. No links, no time.
 * A ring or chain message counts as handed over and posted when both ends have come to the step.
 * Only messages take time. Adding and copying what they carry is priced at nothing: by the simulator always, and on
 * emulated devices by the executor, whose communication thread does it beside the virtual clocks, at the host's speed
 * and off the compute stream. On real devices it delays its collective by what it takes. ACCUMULATE operators are operators
 * and cost what they cost; a CHAIN that adds microbatches kept separately has none, so that its additions are all free.
 *
 * Steps. Orders describe one step, and every step runs them again: the k-th step's microbatches have sequence numbers
 * k · microbatches and up. `steps` is how many the plan was made for: a default where nobody says how many to simulate
 * or to run. An interpreter takes as many as it is told to, and rounds to no multiple of it.
 */
#ifndef CORE_PROGRAM_PROGRAM_H
#define CORE_PROGRAM_PROGRAM_H

#include "core/base/error.h"
#include "core/collective/collective.h"
#include "core/graph/graph.h"
#include "core/graph/loss_scale.h"
#include "core/graph/op.h"
#include "core/model/job.h"

#include <stdint.h>
#include <stdio.h>

struct arena;

struct program_device {                    /* one lane each, same index */
    const char *name, *type, *host, *kind; /* kind: of the backend that runs it, "host", "cuda" */
    const char *
        gpu; /* what its type is in the catalogue, "H200-SXM"; NULL, "": nothing to compare with */
    int32_t index;      /* local device number on its host */
    int32_t type_index; /* into the cluster's types, for costs */
    double slowdown;    /* > 0 emulated, 0 real */
    int64_t memory_bytes;
    int32_t multiprocessors; /* of a GPU, those that are its own (a green context); 0: all */
};

struct program_link {
    const char *name;
    double bandwidth_Bps, latency_s; /* as stated; 0 where the profile knows */
    bool half_duplex, emulated;
    int32_t sharing; /* enum link_sharing */
    /* operators at both ends take 1 + this times as long while a message moves; infinite: they stop */
    double compute_slowdown;
    /* how NCCL is to use it (core/cluster/cluster.h): 0 and NULL, its choice; of a route, what its hops say together */
    int32_t max_ctas;
    const char *net_name;
    /* A route: n_hops >= 2 links of this list that are no routes, in order of passage in direction 0, and each one's own
     * direction then; 0: a link. It has no bandwidth and no latency of its own. Its hops are behind one another in space,
     * not in time: a message moves on all of them at once, at the rate of the one that gives it least, and arrives the
     * sum of their latencies after it has left. All its hops are shared fairly, by whoever crosses them, even where the
     * cluster says fifo: no order of messages on one hop could be kept on all. */
    int32_t n_hops;
    int32_t *hop, *hop_direction;
    /* One pair's own of the cluster's link `of`, which every two devices have: priced by the types of both. */
    bool paired;
    int32_t of, type[2];
};

enum slot_class {
    SLOT_PARAMETER,
    SLOT_GRADIENT,
    SLOT_STATE,
    SLOT_BUFFER_RING,
    SLOT_SCRATCH,
    SLOT_CLASS_COUNT
};
struct slot { /* one tensor's home on its device */
    const char *name;
    enum slot_class class;
    enum dtype dtype;
    struct shape shape;
    int32_t buffer_ring;         /* class BUFFER_RING, else -1 */
    int64_t offset_bytes; /* in its class's region, or in one buffer of its buffer ring; multiples of 64 */
    int64_t bytes;
    /* PARAMETER, GRADIENT, STATE: index into parameters, else -1 (STATE: which by order m, v) */
    int32_t parameter;
    int32_t input; /* enum tensor_input where LOAD fills it, else -1 */
    /* parameters, their gradients and state, inputs, where a stage is sharded: which part of the whole
     * tensor this is; NULL: all of it */
    const struct tensor_shard *shard;
};

struct buffer_ring {
    int32_t count;        /* buffers, >= 1 */
    int64_t stride_bytes; /* of one buffer */
    int32_t sent;         /* channel whose source it holds, else -1 (then the implied wait) */
    int32_t received;     /* channel whose destination it holds, else -1 */
    /* letters of the procedures between which a buffer lives: 'R' receive, 'F','B','I','W','S' sent */
    enum phase birth, death;
};

struct program_op {
    enum op_kind kind;
    enum phase phase;
    struct op_attrs attrs;
    enum dtype dtype;
    const char *name;
    int32_t layer;
    int32_t n_inputs, n_outputs;
    int32_t input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX]; /* slots of the stage */
    struct op_shapes shapes;
    uint64_t key; /* op_key */
    /* Of an operator that has no slots (a list to be measured) in half precision: bit i: operand i is fp32. Slots say it
     * themselves, and files have their word. */
    uint32_t wide_input, wide_output;
};

#define INSTR_KINDS(X) X(COMPUTE) X(RECEIVE) X(SEND) X(COLLECTIVE_START) X(COLLECTIVE_WAIT) X(LOAD) X(LOSS) X(COLLECTIVE)
enum instr_kind {
#define X(name) INSTR_##name,
    INSTR_KINDS(X)
#undef X
        INSTR_KIND_COUNT
};
struct instr {
    enum instr_kind kind;
    /* COMPUTE: op of the stage; RECEIVE, SEND: channel; COLLECTIVE, COLLECTIVE_START, COLLECTIVE_WAIT: collective; LOAD: -1; LOSS: slot */
    int32_t arg;
};

struct procedure {
    enum phase phase; /* F B I W U */
    /* "", "last" (launches gradient buckets), "check" (of U: gradients are whole and looked at, nothing is updated) */
    const char *variant;
    int32_t n_instrs;
    struct instr *instrs;
};

/* ZeRO: the part of a parameter that a stage updates alone, in slots of one dimension which hold parts of its neighbours
 * and padding as well. Element i of them is the parameter's element i - first, where it has that one. */
struct program_shard {
    int32_t slot, state[2]; /* PARAMETER; STATE m, v (-1 none) */
    int32_t master; /* STATE, fp32, of what slot has in half precision; -1: slot is all there is */
    int64_t first;
};
struct program_parameter {
    const char *name;
    struct shape shape;
    enum tensor_init init;
    double init_std;
    bool decay;
    int32_t slot, gradient[2],
        state[2]; /* slots; gradient per use (-1 none), state m, v (-1 none) */
    int32_t
        master; /* STATE, fp32: what is trained, where slot is a copy in half precision; else -1 */
    /* NULL: not divided. Else slot is -1 where only the shard is kept (zero 3), gradient from zero 2 on, state always. */
    const struct program_shard *shard;
};

struct program_stage {
    int32_t replica, stage, device;
    int32_t first_layer, last_layer;
    /* the replica's share and where it starts in the global batch */
    int32_t microbatches, first_microbatch;
    /* of each microbatch: this stage has so many sequences from the first on, others of its number the rest; 0: all */
    int64_t first_sequence, sequences;
    /* of devices of a sharded stage: recorded is the loss slot times loss_share, and the devices' add up */
    bool shares_loss;
    double loss_share;
    /* STATE, fp32, LOSS_SCALE_NUMBERS: where the program has a loss scale */
    int32_t scale_slot;
    bool recompute;
    /* > 1: equal GPUs that shard every operator and each hold their shard of parameters, gradients, state and
     * collective buffers; buffer rings and scratch are of one GPU */
    int32_t tp;
    int64_t reserve_bytes; /* of one GPU, for others than tensors */
    int32_t n_slots, n_buffer_rings, n_ops, n_procedures, n_parameters;
    struct slot *slots;
    struct buffer_ring *buffer_rings;
    struct program_op *ops;
    struct procedure *procedures;
    struct program_parameter *parameters;
    int64_t class_bytes[SLOT_CLASS_COUNT]; /* regions; BUFFER_RING: sum of count · stride */
    /* staging of collectives: the most that program_collective_staging_bytes says of its groups */
    int64_t buffer_bytes;
};

struct channel {                  /* one tensor from one stage to another */
    int32_t from_stage, to_stage; /* into stages */
    int32_t from_slot, to_slot;
    int32_t link, direction; /* link -1: same device */
    int64_t bytes;
    int32_t receive_ahead;
    bool gradient; /* activation forwards or gradient backwards */
};

/* A lane's order: runs of a repeated body. The k-th repetition of a body calls each entry with microbatch + k. */
struct call {
    int32_t procedure;  /* of the stage */
    int32_t microbatch; /* 0-based within the replica; -1 for U */
    int32_t chunk;      /* which of the lane's stages */
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
    /* (n_stages) ascending: chunk c is stages[c]; every stage is in one lane, its device's */
    int32_t *stages;
};

struct program {
    const char *name;
    uint64_t plan_hash;
    uint64_t seed;
    enum dtype dtype;
    bool emulated, deterministic;
    /* stages' GPUs shard operators in different numbers (core/lower/lower.h): ends of channels and segments of a group's members
     * may differ in size, the largest counts. Simulated only; a program file has none */
    bool uneven;
    int32_t steps; /* a default for how many to take; orders describe one step, all alike */
    int64_t microbatch, sequence_length, vocabulary;
    /* of one image, all its channels; 0: samples are text. An image counts as a sequence, its classes as the vocabulary */
    int64_t pixels;
    int32_t microbatches; /* of the whole step */
    struct optimizer optimizer;
    struct loss_scale loss_scale; /* initial 0: none */
    int32_t n_devices, n_links, n_stages, n_channels, n_collectives, n_orders;
    struct program_device *devices; /* (n_devices) devices with a lane; lanes[i] is devices[i]'s */
    struct lane *lanes;
    struct program_link *links;
    struct program_stage *stages;
    struct channel *channels;
    struct collective *collectives;
    struct order *orders;
};

/* Walks one lane's calls of one step. */
struct cursor {
    const struct order *order;
    int32_t run, repetition, call;
};
void cursor_start(struct cursor *c, const struct order *o);
bool cursor_next(struct cursor *c, struct call *out); /* false at the end of the step */
/* Run-length codes a flat list of calls (found greedily; what cursor_next gives back is the list). */
void order_code(struct arena *a, const struct call *calls, int64_t n, struct order *out);

static inline int32_t buffer_ring_at(const struct buffer_ring *r, int64_t seq)
{
    return (int32_t)(seq % r->count);
}
/* Phases to procedures: index of the procedure with this phase and variant, -1. */
int32_t program_procedure(const struct program_stage *s, enum phase phase, const char *variant);
/* What a device is called where it is told of to people: "m.1", or "m.1 on nodeb" where devices of the program are on several hosts. */
struct device_label {
    char text[160];
};
struct device_label program_device_label(const struct program *p, int32_t device);
/* The host's own memory and kernels; every other device class has a plugin (exec/plugin.h) and memory of its own. */
bool program_device_is_host(const struct program_device *d);
bool program_same_host(const struct program *p, int32_t device, int32_t other);
/* The stage that lane i calls; its microbatch's sequence number is the caller's. */
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
int64_t program_lane_bytes(const struct program *p,
                           int32_t lane); /* of all its stages; saturates */
/* Of segments: whether members pass chunks around, each to the next. */
static inline bool program_collective_rings(const struct collective *g)
{
    return g->algorithm == ALGORITHM_RING && !collective_of_tensor(g);
}
/* Of segments, ZeRO's: whether chunks are parts of each segment, and how often a step they meet is the lanes' affair. */
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
/* What a program may do of segments: gradients all-reduced, ZeRO's parts scattered and gathered. */
static inline bool program_collective_of_segments(enum collective_kind k, enum collective_algorithm w)
{
    if (k == COLLECTIVE_ALL_REDUCE)
        return w == ALGORITHM_RING || w == ALGORITHM_CHAIN || w == ALGORITHM_LOCAL;
    return (k == COLLECTIVE_REDUCE_SCATTER || k == COLLECTIVE_ALL_GATHER) && w == ALGORITHM_RING;
}
/* Whether members may launch it several times a step: their k-th launches meet. */
static inline bool program_collective_repeats(const struct collective *g)
{
    return program_collective_divides(g) || collective_of_tensor(g);
}
/* Whether the instruction hands a collective to the device's collective stream. */
static inline bool instr_launches(const struct program *p, const struct instr *x)
{
    return x->kind == INSTR_COLLECTIVE_START ||
           (x->kind == INSTR_COLLECTIVE && collective_of_tensor(&p->collectives[x->arg]));
}
/* Over which link member i of a tensor collective sends to member k (i+1 by ring); -1: it never does. */
static inline void program_collective_link(const struct collective *m, int32_t i, int32_t k, int32_t *link,
                                   int32_t *direction)
{
    bool ring = m->algorithm == ALGORITHM_RING, sends = collective_sends(m, i, k);
    *link = !sends ? -1 : ring ? m->link[i] : m->pair_link[i * m->n_members + k];
    *direction = !sends ? 0 : ring ? m->direction[i] : m->pair_direction[i * m->n_members + k];
}
/* Elements of a segment of a member, whose stage is s. */
int64_t program_collective_segment_elements(const struct collective_member *m, const struct program_stage *s,
                               int32_t segment);
/* The chunk that member i of n owns. */
static inline int32_t program_collective_own_chunk(int32_t i, int32_t n) { return (i + 1) % n; }
/* Staging of one member of a group, in multiples of 64: what comes in (ring: a chunk; chain: the whole list), then,
 * for a ring where some chunk does not stand in one piece in memory, a chunk that goes out. 0 for a ring of one.
 * Collectives: collective_tensor_staging. */
int64_t program_collective_incoming_bytes(const struct collective *g);
int64_t program_collective_staging_bytes(const struct collective *g, const struct collective_member *m,
                            const struct program_stage *s);
/* Whether a call of f writes a slot of the buffer ring (of s): where it has `sent`, the call waits for room first. */
bool procedure_writes_buffer_ring(const struct program_stage *s, const struct procedure *f, int32_t buffer_ring);
/* Whether the stage's compute stream itself takes this slot's message from its transport (OP_message). */
bool program_stage_carries(const struct program_stage *s, int32_t slot);
/* Which operands are fp32 beside a half dtype, by the slots of the stage; 0 in other precisions. */
void program_op_wide(const struct program_stage *s, struct program_op *op);
/* What one GPU holds of a slot class, or of the collectives' buffers: SLOT_CLASS_COUNT. */
int64_t program_gpu_bytes(const struct program_stage *s, int32_t class);
/* All of them and the reserve. */
int64_t program_stage_bytes(const struct program_stage *s);

/* What a record has, or what it means, changes with the version: a file is read by the musher that wrote its version, and
 * any other says which one the file has. Lowering its plan again makes a new one. */
enum { PROGRAM_VERSION = 6 };
void program_write(FILE *out, const struct program *p);
/* ERR_INPUT with file:line. Checks every index, so that an interpreter may trust what it gets. */
MUST_CHECK enum status program_read(struct arena *a, const char *path, struct program *out,
                                    struct error *err);
/* The same from n bytes at text; name labels messages. */
MUST_CHECK enum status program_parse(struct arena *a, const char *name, const char *text, size_t n,
                                     struct program *out, struct error *err);

/* Token game: runs all lanes without time, with finite buffers. ERR_INPUT "no progress: blocked set: …" that
 * names each blocked lane, its call and what it waits for; also send and receive orders that differ,
 * buffers overwritten while alive, groups met in different orders. O(calls + messages). */
MUST_CHECK enum status program_check(struct arena *a, const struct program *p, struct error *err);

#endif
