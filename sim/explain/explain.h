/* sim/explain/explain.h - critical path of a steady iteration, the use of devices and links, and what-if.
 *
 * The critical path is traced backwards from the end of the last update of a steady step to the end of the last update of the
 * previous step. Each activity begins at the instant at which another one ends: the previous instruction of the same compute
 * stream; an arriving message, which left when the link had carried it, and started when it was handed over, when its receive
 * was posted, or when the link was free of another message; a message that left and so freed a buffer of a buffer ring; a
 * collective, which advances with the slower of two neighbours. The pieces of time on the path tile the iteration: their sum is
 * iteration_ns to the nanosecond.
 *
 * The path needs no second simulation: the trace's spans give every instant, the program gives the dependencies
 * (core/program/program.h). A trace that does not belong to the program is detected, instant by instant (ERR_INPUT).
 * On a fairly shared link, a message's time beyond its time alone is contention. So is the occupancy of the messages that were
 * queued before the path's message, from the instant at which it was ready. A message queued behind a collective's message is
 * not traced through that collective, because collectives have no spans of single messages: its wait is contention, and the
 * path continues with its own sender or receiver.
 *
 * What-if: each device, link and operator kind on the path is simulated again at zero duration and at half duration. The first
 * is a lower bound: with everything else unchanged and in the same order, no speed of this one alone gives less. Candidates on
 * no step's critical path are skipped, because with the orders kept their speed changes nothing.
 * Cost: O(spans log spans) once, and two simulations per candidate. Memory: explain_bytes, in addition to the trace.
 */
#ifndef SIM_EXPLAIN_EXPLAIN_H
#define SIM_EXPLAIN_EXPLAIN_H

#include "core/base/error.h"
#include "core/graph/phase.h"
#include "core/program/program.h"
#include "sim/collective/price.h"
#include "sim/engine/sim.h"

#include <stddef.h>
#include <stdint.h>

struct arena;

#define EXPLAIN_KINDS(X)                                                                           \
    X(compute) X(update) X(transfer) X(latency) X(contention) X(collective) X(skew) X(offload)
enum explain_kind {
#define X(name) EXPLAIN_##name,
    EXPLAIN_KINDS(X)
#undef X
        EXPLAIN_KIND_COUNT
};
const char *explain_kind_name(enum explain_kind kind);

/* A piece of the critical path, in order of time. compute, update: device, phase and op; skew: the late device of a collective
 * (profiles/skew.h); offload: a device that waits for a copy of activations to or from host memory; the others: link and receiving device. */
struct explain_piece {
    enum explain_kind kind;
    enum phase phase;     /* F B I W U of the call; 'S' without a call */
    int32_t op;           /* enum op_kind; -1 */
    int32_t device, link; /* of the program; link -1 on a device */
    int64_t begin_ns, end_ns;
};
struct explain_row { /* pieces added up by (kind, phase, op, device or link) */
    enum explain_kind kind;
    enum phase phase;
    int32_t op, device, link; /* device -1 for time on a link */
    int64_t ns, pieces;
};

struct explain_device {
    /* of a steady step, as the simulation counts them (sim/engine/sim.h): busy without communication on the compute stream itself;
     * the sum of both is iteration_ns */
    int64_t busy_ns, wait_ns[SIM_WAIT_COUNT];
    int64_t path_ns;  /* of the window's critical path on this device's compute stream */
    int64_t peers_ns; /* median busy_ns of its peers */
    /* same stage of other replicas; where there is none, the replica's other stages */
    int32_t n_peers;
    bool replica_peers;
};

/* Times between a message's start and its arrival, added up over messages (of a collective: its parts). exposed: the receiving
 * device was idle and waited for this message or collective; hidden: the rest. */
struct explain_link {
    int64_t carried_ns, exposed_ns;
    int64_t queued_ns; /* ready messages waited in the link's queue; not known for collectives */
    int64_t path_ns, messages, bytes;
};

struct explain_memory { /* one entry of the memory at a device's peak */
    const char *name;   /* slot class, or the largest tensor of a buffer ring */
    int64_t buffers;    /* live at the peak; 1 for resident memory */
    int64_t bytes;
};

enum explain_what_kind { EXPLAIN_WHAT_DEVICE, EXPLAIN_WHAT_LINK, EXPLAIN_WHAT_OP };
struct explain_what {
    enum explain_what_kind kind;
    int32_t index;            /* device, link or enum op_kind */
    int64_t path_ns;          /* on the critical path of all steps but the first */
    int64_t free_ns, half_ns; /* iteration at zero duration, at half duration */
};

struct explain {
    int32_t step;  /* the explained step; with local SGD the last of `steps` steps, which ends with an exchange */
    int32_t steps; /* else 1 */
    int64_t begin_ns, end_ns; /* of these steps */
    int64_t iteration_ns;     /* of one step; with local SGD the mean over a period */
    size_t n_pieces, n_rows;
    struct explain_piece *pieces;
    struct explain_row *rows; /* by descending time */
    int64_t kind_ns[EXPLAIN_KIND_COUNT];
    /* path segments that began because a buffer was freed, or a receive was posted */
    int64_t rooms, unposted;
    struct explain_device *devices; /* (n_devices) */
    struct explain_link *links;     /* (n_links) */
    int32_t prices[COLLECTIVE_PRICE_COUNT]; /* collectives of the program, by what priced them */
    int32_t busiest;                /* device with the longest compute time, first among equals */
    int32_t fullest;                /* device with the highest ratio of peak to memory */
    size_t n_memory_breakdown;
    struct explain_memory
        *memory_breakdown;        /* of the fullest, by descending size; the sum is its peak_bytes */
    size_t n_what, what_left_out; /* filled by explain_what_if */
    struct explain_what *what;    /* by descending gain */
};

/* Approximate host memory of explain_result for a trace of `spans` spans: records, messages, collectives, the path. */
double explain_bytes(const struct program *p, int32_t steps, double spans);
/* Explains a result that has a trace. k: the costs of its simulation (without scale). ERR_INPUT: no trace, or one of another
 * program. Allocates in the arena. */
MUST_CHECK enum status explain_result(struct arena *a, const struct program *p, struct cost *k,
                                      const struct sim_result *r, struct explain *out,
                                      struct error *err);
/* Simulates the `most` candidates that are longest on the path, twice each, with o's steps; what_left_out counts the others. */
MUST_CHECK enum status explain_what_if(const struct program *p, struct cost *k,
                                       const struct sim_options *o, size_t most, struct explain *x,
                                       struct error *err);

#endif
