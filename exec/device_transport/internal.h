/* exec/device_transport/internal.h - state of one rank's device transport, and which file owns which part:
 *
 *   device_transport.c    set-up, the check of all work in flight, close
 *   gradient_reduce.c, tensor_collective.c    the collective stream: members, launches, scratch
 *
 * Only these three files include this header. The rest has a struct, a header and an owner each:
 *
 *   plan.c                struct talks: the communicators, derived from the program
 *   communicators.c       struct communicators: create, join, abort, close
 *   device_channels.c     struct device_channels: messages, one stream per ordered channel group
 *   paced_stream.c        struct paced_stream: operators and copies beside the library's calls
 *   timed_spans.c         struct timed_spans: spans between two events
 *   watchdog.c            struct watchdog: progress, and dead ranks
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

struct reduce_call { /* adjacent segments reduced by one call */
    int64_t elements;
    char *at; /* in place; NULL: packed at `scratch` */
    int64_t scratch;
    int32_t first, last; /* segments [first, last) */
};

struct group_end {
    int32_t member, communicator, rank; /* member -1: this rank is not a member */
    int32_t ended[2];                   /* events; launch n: n mod 2 */
    int64_t issued, done;                /* launches: issued to the stream; known to have ended */
    double weight;
    struct lane_memory const *memory;
    int64_t packed; /* of a segment that is cut and cast: its offset in the scratch */
    int32_t n_calls;
    struct reduce_call *calls;
    struct collective_places *collective; /* NULL: a gradient all-reduce */
};

struct device_transport {
    /* device_transport.c */
    struct arena *a;
    struct device_transport_options o;
    struct backend *b;              /* o's */
    const struct program *p;        /* o's */
    const struct device_comm *comm; /* NULL: this rank is in no communicator */
    struct talks talks;
    struct communicators communicators;
    struct device_channels channels;
    int32_t collective;         /* stream; -1 */
    struct paced_stream stream; /* operators and copies on the same stream */
    struct timed_spans spans;
    struct watchdog watchdog;
    /* gradient_reduce.c, tensor_collective.c */
    struct group_end *groups; /* (n_groups) */
    int32_t ready; /* event of the compute stream at the launch of a group */
    int32_t at_hand; /* the group being launched; -1 */
    char *scratch, *zeros;
};

/* gradient_reduce.c. count and blame have the contracts of device_channels_count and device_channels_blame. */
void device_transport_sums_init(struct device_transport *t);
MUST_CHECK enum status device_transport_reduces_open(struct device_transport *t, struct error *err);
void device_transport_sums_close(struct device_transport *t);
MUST_CHECK enum status device_transport_sums_count(struct device_transport *t, bool *in_flight,
                                         struct error *err);
void device_transport_sums_blame(const struct device_transport *t, struct error *why);
MUST_CHECK enum status device_reduce(struct device_transport *t, int32_t group, int64_t step,
                                  struct error *err);
/* tensor_collective.c; rounds: all rounds of the collective over `vector`, in the wire dtype, each a group of one send and one receive;
 * incoming: room for the largest message */
MUST_CHECK enum status device_transport_rounds(struct device_transport *t, int32_t group, char *vector, char *incoming,
                                               struct error *err);
void device_transport_tensor_collective_open(struct device_transport *t, int32_t group);
MUST_CHECK enum status device_transport_tensor_collective(struct device_transport *t, int32_t group, int64_t seq,
                                   struct error *err);

#endif
