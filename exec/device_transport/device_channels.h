/* exec/device_transport/device_channels.h - a program's point-to-point channels on streams of their own, with
 * receives posted ahead.
 *
 * A message that the worker orders early waits, with an event of the compute stream, for its turn in its ordered
 * channel group. The group's stream then waits for that event, moves the bytes and records an event of its own.
 * Events are reused in a window that is at least as long as the range of messages still referenced: a sender waits
 * for a message one buffer ring back; a receiver posts a message only after the one receive_ahead before it was
 * consumed.
 */
#ifndef EXEC_DEVICE_TRANSPORT_DEVICE_CHANNELS_H
#define EXEC_DEVICE_TRANSPORT_DEVICE_CHANNELS_H

#include "exec/device_transport/communicators.h"
#include "exec/device_transport/device_transport.h"
#include "exec/device_transport/plan.h"
#include "exec/device_transport/timed_spans.h"
#include "exec/device_transport/watchdog.h"

#include <stdbool.h>
#include <stdint.h>

struct device_channel_group; /* this rank's end of an ordered channel group */
struct device_channel;       /* this rank's end of a channel */

/* All fields belong to device_channels.c. */
struct device_channels {
    struct arena *a;
    const struct device_transport_options *o;
    struct backend *b;
    const struct program *p;
    const struct talks *talks;
    const struct communicators *communicators;
    struct timed_spans *spans;
    struct watchdog *watchdog;
    struct device_channel_group *groups; /* (talks->n_channel_groups) */
    struct device_channel *ends;         /* (n_channels) */
    int64_t begun;                       /* step of message 0 */
};

void device_channels_init(struct device_channels *c, struct arena *a,
                          const struct device_transport_options *o,
                          const struct communicators *communicators, struct timed_spans *spans,
                          struct watchdog *watchdog);
/* Streams and events. */
MUST_CHECK enum status device_channels_open(struct device_channels *c, struct error *err);
/* Posts (sends) message seq after the work issued to the compute stream so far. In the order of numbers. */
MUST_CHECK enum status device_channels_order(struct device_channels *c, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq has ended at this end. */
MUST_CHECK enum status device_channels_wait(struct device_channels *c, int32_t channel, int64_t seq,
                                            struct error *err);
/* Counts completed messages; *in_flight becomes true if one is not complete. */
MUST_CHECK enum status device_channels_count(struct device_channels *c, bool *in_flight,
                                             struct error *err);
/* Writes the name of a message in flight to *why, an incoming one first; nothing if there is none. */
/* Messages are numbered anew, those of step `begun` of the run first; all have ended. */
void device_channels_restart(struct device_channels *c, int64_t begun);
void device_channels_blame(const struct device_channels *c, struct error *why);

#endif
