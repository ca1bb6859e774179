/* exec/worker/channel_ends.h - channels as the compute thread sees them: SEND, RECEIVE and the implied waits of a lane.
 *
 * Messages go in the order of their numbers, whatever the order of the calls: what comes early is kept until its turn. Between two
 * chunks of this device there is one end for both: a message is copied when it is handed over and its receive is posted.
 */
#ifndef EXEC_WORKER_CHANNEL_ENDS_H
#define EXEC_WORKER_CHANNEL_ENDS_H

#include "core/base/error.h"

#include <stdint.h>

struct async_issue;
struct chunks;
struct device_clock;
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
    struct channel_end *at; /* (n_channels) */
};

/* Memory is open. */
void channel_ends_open(struct channel_ends *x, struct rank *r, const struct chunks *c,
                       struct transports *t, struct async_issue *ahead, struct device_clock *clock);
/* The receives that may be posted from the start. */
MUST_CHECK enum status channel_ends_post_first(struct channel_ends *x, struct error *err);
/* The call that consumed message seq has ended: room for the one receive_ahead later. */
MUST_CHECK enum status channel_ends_post_next(struct channel_ends *x, int32_t channel, int64_t seq,
                                              struct error *err);
MUST_CHECK enum status channel_ends_send(struct channel_ends *x, int32_t channel, int64_t seq,
                                         struct error *err);
MUST_CHECK enum status channel_ends_receive(struct channel_ends *x, int32_t channel, int64_t seq,
                                            struct error *err);
/* Until the message that a ring's buffer held before seq has left; ring: with `sent`. */
MUST_CHECK enum status channel_ends_wait_for_room(struct channel_ends *x,
                                                  const struct buffer_ring *buffer_ring,
                                                  int64_t seq, struct error *err);

#endif
