/* sim/explain/explain.h - why a steady iteration takes as long as it does.
 *
 * The critical path is walked backwards from the end of the last update of a steady step to the end of the last update of
 * the step before it. Whatever begins, begins because something ended at that very instant: the instruction before it on
 * the same compute stream; a message that arrived, which left when the link had carried it, which began to move when it
 * was handed over, or when its receive was posted, or when the link was free of another message; a message that left and
 * so made room in a buffer ring; a collective, which advances with the slower of two neighbours. The pieces of time that are
 * passed on the way tile the iteration: their sum is iteration_ns to the nanosecond.
 *
 * Nothing is simulated a second time for that: the trace's spans give every instant, the program gives what waits for what
 * (core/program/program.h). Trace and program that do not belong together are noticed, instant by instant (ERR_INPUT).
 * Where the time of a link is shared, a message's time beyond what it would take alone is contention; so is the
 * occupancy of messages that the path's message stood in line behind, from when it was ready. A message in line behind
 * a collective's message is not followed through that collective (collectives keep no spans of single messages): its wait
 * is contention, and the path goes on with its own sender or receiver.
 *
 * What if: each device, link and kind of operator on the path is simulated again with no time and with half its time. The
 * first is a lower bound: with everything else as it is, and in the same order, no speed of this one alone comes below it. A thing
 * that is not on any step's critical path is not tried: with the orders kept, its speed changes nothing.
 * Cost: O(spans log spans) once, and two simulations a candidate. Memory: explain_bytes, beside the trace.
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
    X(compute) X(update) X(transfer) X(latency) X(contention) X(collective) X(skew)
enum explain_kind {
#define X(name) EXPLAIN_##name,
    EXPLAIN_KINDS(X)
#undef X
        EXPLAIN_KIND_COUNT
};
const char *explain_kind_name(enum explain_kind kind);

/* A piece of the critical path, in order of time. compute, update: device, phase and op; skew: the
 * device whose lateness at a collective is waited for (profiles/skew.h); the others: link and the device that receives. */
struct explain_piece {
    enum explain_kind kind;
    enum phase phase;     /* F B I W U of the call; 'S' where there is no call */
    int32_t op;           /* enum op_kind; -1 */
    int32_t device, link; /* of the program; link -1 on a device */
    int64_t begin_ns, end_ns;
};
struct explain_row { /* pieces summed by (kind, phase, op, device or link) */
    enum explain_kind kind;
    enum phase phase;
    int32_t op, device, link; /* device -1 for what a link takes */
    int64_t ns, pieces;
};

/* Why a device's compute stream stands still. start: before the step's first operator, waiting for an activation; drain:
 * for a gradient after the step's last forward; room: for a sent buffer to be free; end: nothing follows. */
#define EXPLAIN_IDLES(X) X(start) X(activation) X(gradient) X(drain) X(room) X(collective) X(end)
enum explain_idle {
#define X(name) EXPLAIN_IDLE_##name,
    EXPLAIN_IDLES(X)
#undef X
        EXPLAIN_IDLE_COUNT
};
const char *explain_idle_name(enum explain_idle idle);

struct explain_device {
    /* of the window; together they are iteration_ns */
    int64_t busy_ns, idle_ns[EXPLAIN_IDLE_COUNT];
    int64_t path_ns;  /* of the window's critical path on this device's compute stream */
    int64_t peers_ns; /* median busy_ns of its peers */
    /* same stage of other replicas; where there is none, the replica's other stages */
    int32_t n_peers;
    bool replica_peers;
};

/* Times between a message's start and its arrival, summed over messages (a collective's: its parts); exposed: while the
 * receiving device stood still and waited for this very message (collective); hidden: the rest. */
struct explain_link {
    int64_t carried_ns, exposed_ns;
    int64_t queued_ns; /* ready messages stood in line for the link; collectives' are not known */
    int64_t path_ns, messages, bytes;
};

struct explain_memory { /* what holds memory at a device's peak */
    const char *name;   /* slot class, or the largest tensor of a buffer ring */
    int64_t buffers;    /* alive; 1 for what is always there */
    int64_t bytes;
};

enum explain_what_kind { EXPLAIN_WHAT_DEVICE, EXPLAIN_WHAT_LINK, EXPLAIN_WHAT_OP };
struct explain_what {
    enum explain_what_kind kind;
    int32_t index;            /* device, link or enum op_kind */
    int64_t path_ns;          /* on the critical path of all steps but the first */
    int64_t free_ns, half_ns; /* iteration where it takes no time, half its time */
};

struct explain {
    int32_t step; /* the one that is explained */
    int64_t begin_ns, end_ns, iteration_ns;
    size_t n_pieces, n_rows;
    struct explain_piece *pieces;
    struct explain_row *rows; /* by falling time */
    int64_t kind_ns[EXPLAIN_KIND_COUNT];
    /* times the path went on because a buffer was freed, a receive posted */
    int64_t rooms, unposted;
    struct explain_device *devices; /* (n_devices) */
    struct explain_link *links;     /* (n_links) */
    int32_t prices[COLLECTIVE_PRICE_COUNT]; /* collectives of the program, by what priced them */
    int32_t busiest;                /* device that computes longest, first among equals */
    int32_t fullest;                /* device whose peak fills most of its memory */
    size_t n_memory_breakdown;
    struct explain_memory
        *memory_breakdown;        /* of the fullest, by falling size; together its peak_bytes */
    size_t n_what, what_left_out; /* filled by explain_what_if */
    struct explain_what *what;    /* by falling gain */
};

/* Host memory that explain_result takes for a trace of so many spans, nearly: records, messages, collectives, the path. */
double explain_bytes(const struct program *p, int32_t steps, double spans);
/* Of a result with its trace. k: the one that it was simulated with (without scale). ERR_INPUT: no trace, or not of this
 * program. Everything is the arena's. */
MUST_CHECK enum status explain_result(struct arena *a, const struct program *p, struct cost *k,
                                      const struct sim_result *r, struct explain *out,
                                      struct error *err);
/* Tries the `most` candidates that are longest on the path, two simulations each of o's steps; what_left_out counts the
 * others. */
MUST_CHECK enum status explain_what_if(const struct program *p, struct cost *k,
                                       const struct sim_options *o, size_t most, struct explain *x,
                                       struct error *err);

#endif
