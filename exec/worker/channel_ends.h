/* exec/worker/channel_ends.h - channels on the compute thread: SEND, RECEIVE and the implied waits of a lane.
 *
 * Messages leave in the order of their numbers, whatever the order of the calls: an early one is kept until its turn.
 * Two chunks of one device share one end: the message is copied once it is handed over and its receive is posted.
 */
#ifndef EXEC_WORKER_CHANNEL_ENDS_H
#define EXEC_WORKER_CHANNEL_ENDS_H

#include "core/base/error.h"

#include <stdint.h>

struct async_issue;
struct chunks;
struct device_clock;
struct progress;
struct rank;
struct buffer_ring;
struct transports;

struct channel_end; /* of one channel */

/* All fields belong to channel_ends.c. */
struct channel_ends {
    struct rank *r;
    struct transports *t;
    struct async_issue *ahead;
    struct device_clock *clock;
    const struct progress *progress;
    struct channel_end *at; /* (n_channels) */
};

/* After the chunks' memory is open. */
void channel_ends_open(struct channel_ends *x, struct rank *r, const struct chunks *c,
                       struct transports *t, struct async_issue *ahead, struct device_clock *clock, const struct progress *g);
/* Messages are numbered anew; none is under way. */
void channel_ends_restart(struct channel_ends *x);
/* Posts the receives that need no earlier message to be consumed. */
MUST_CHECK enum status channel_ends_post_first(struct channel_ends *x, struct error *err);
/* The call that consumed message seq has ended: posts the receive of message seq + receive_ahead. */
MUST_CHECK enum status channel_ends_post_next(struct channel_ends *x, int32_t channel, int64_t seq,
                                              struct error *err);
MUST_CHECK enum status channel_ends_send(struct channel_ends *x, int32_t channel, int64_t seq,
                                         struct error *err);
MUST_CHECK enum status channel_ends_receive(struct channel_ends *x, int32_t channel, int64_t seq,
                                            struct error *err);
/* Waits until the previous message in this buffer of the ring has left; buffer_ring has `sent`. */
MUST_CHECK enum status channel_ends_wait_for_room(struct channel_ends *x,
                                                  const struct buffer_ring *buffer_ring,
                                                  int64_t seq, struct error *err);

#endif
