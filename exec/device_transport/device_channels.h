/* exec/device_transport/device_channels.h - a program's channels on streams of their own, receives ahead of time.
 *
 * What the worker orders early stands with an event of the compute stream until its turn in the ordered channel group has come; then the
 * ordered channel group's stream waits for that event, moves the bytes and leaves an event of its own. Events are used in turns of a window
 * that is never shorter than what may be looked back at: a sender asks for room of a message that lies a buffer ring's buffers back,
 * a receiver posts a message only when the one receive_ahead before it was consumed.
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
};

void device_channels_init(struct device_channels *c, struct arena *a,
                          const struct device_transport_options *o,
                          const struct communicators *communicators, struct timed_spans *spans,
                          struct watchdog *watchdog);
/* Streams and events. */
MUST_CHECK enum status device_channels_open(struct device_channels *c, struct error *err);
/* Message seq is posted (sent) once what the compute stream was asked so far has ended. In the order of numbers. */
MUST_CHECK enum status device_channels_order(struct device_channels *c, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq has ended at this end. */
MUST_CHECK enum status device_channels_wait(struct device_channels *c, int32_t channel, int64_t seq,
                                            struct error *err);
/* Counts what has ended; *under_way becomes true where something has not. */
MUST_CHECK enum status device_channels_count(struct device_channels *c, bool *in_flight,
                                             struct error *err);
/* Names a message that is in flight in *why, one that comes in first; nothing where there is none. */
void device_channels_blame(const struct device_channels *c, struct error *why);

#endif
