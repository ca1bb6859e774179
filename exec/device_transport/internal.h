/* exec/device_transport/internal.h - one rank's part in a program's messages and collectives between devices, and which file owns what:
 *
 *   device_transport.c    set up, the check of everything in flight, the end
 *   sums.c, collectives.c    collectives on the collective stream: members, launches, scratch
 *
 * These three alone include this header. What else there is has a struct, a header and an owner of its own:
 *
 *   plan.c                struct talks: who communicates with whom, by the program alone
 *   communicators.c       struct communicators: made, joined, given up, closed
 *   device_channels.c     struct device_channels: messages, each ordered channel group on a stream
 *   paced_stream.c        struct paced_stream: operators and copies beside the library's calls
 *   timed_spans.c         struct timed_spans: spans between two events
 *   watchdog.c            struct watchdog: progress, and ranks that have ended
 */
#ifndef EXEC_DEVICE_TRANSPORT_INTERNAL_H
#define EXEC_DEVICE_TRANSPORT_INTERNAL_H

#include "exec/device_transport/communicators.h"
#include "exec/device_transport/device_channels.h"
#include "exec/device_transport/device_transport.h"
#include "exec/device_transport/paced_stream.h"
#include "exec/device_transport/plan.h"
#include "exec/device_transport/timed_spans.h"
#include "exec/device_transport/watchdog.h"

struct reduce_call { /* elements of neighbouring segments, in one call */
    int64_t elements;
    char *at; /* in place; NULL: packed at `scratch` */
    int64_t scratch;
    int32_t first, last; /* segments [first, last) */
};

struct group_end {
    int32_t member, communicator, rank; /* member -1: none of this rank's */
    int32_t ended[2];                   /* events; launch n: n mod 2 */
    int64_t issued, done;                /* launches: on the stream, seen to have ended */
    double weight;
    struct lane_memory const *memory;
    int64_t packed; /* of a segment that is cut and cast: where in the scratch */
    int32_t n_calls;
    struct reduce_call *calls;
    struct collective_places *collective; /* NULL: a sum */
};

struct device_transport {
    /* device_transport.c */
    struct arena *a;
    struct device_transport_options o;
    struct backend *b;              /* o's */
    const struct program *p;        /* o's */
    const struct device_comm *comm; /* NULL: this rank has no part */
    struct talks talks;
    struct communicators communicators;
    struct device_channels channels;
    int32_t collective;         /* stream; -1 */
    struct paced_stream stream; /* the same one: operators and copies on it */
    struct timed_spans spans;
    struct watchdog watchdog;
    /* sums.c, collectives.c */
    struct group_end *groups; /* (n_groups) */
    int32_t ready; /* event: the compute stream, as far as it was asked when a group was launched */
    int32_t at_hand; /* the group whose launch is being asked for; -1 */
    char *scratch, *zeros;
};

/* sums.c; what is in flight is counted and named as device_channels_count and device_channels_blame do. */
void device_transport_sums_init(struct device_transport *t);
MUST_CHECK enum status device_transport_reduces_open(struct device_transport *t, struct error *err);
void device_transport_sums_close(struct device_transport *t);
MUST_CHECK enum status device_transport_sums_count(struct device_transport *t, bool *in_flight,
                                         struct error *err);
void device_transport_sums_blame(const struct device_transport *t, struct error *why);
MUST_CHECK enum status device_reduce(struct device_transport *t, int32_t group, int64_t step,
                                  struct error *err);
/* collectives.c */
void device_transport_tensor_collective_open(struct device_transport *t, int32_t group);
MUST_CHECK enum status device_transport_tensor_collective(struct device_transport *t, int32_t group, int64_t seq,
                                   struct error *err);

#endif
