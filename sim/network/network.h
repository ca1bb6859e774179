/* sim/network/network.h - who may use which link when.
 *
 * A resource is one direction of a full-duplex link or the whole of a half-duplex one. A message occupies it for its
 * bytes ÷ bandwidth and arrives `latency` after that.
 * FIFO: messages become ready in order of time (the event queue's), so the passage of a message is known as soon as it
 * is ready: it starts when the link is free of all that were ready before. No event marks its end.
 * Fair: the messages on the resource share it equally, as a fluid (sim/network/flows.h).
 * Routes: a message occupies all links of its route at once; it has the same rate on all of them, max-min fair beside all
 * others, and arrives the sum of their latencies after it has left. A link that a route of the program crosses is fair for
 * everybody. Its occupancy is that of the slowest link, in whole nanoseconds: alone, it takes exactly so long.
 * A fair message's end is rounded once, to the nearest nanosecond, when it is told.
 * Latency is a property of the way, not of the queue: it never delays the next message.
 * Cost: FIFO O(1) a message, fair as sim/network/flows.h.
 */
#ifndef SIM_NETWORK_NETWORK_H
#define SIM_NETWORK_NETWORK_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "sim/cost.h"
#include "sim/event_queue.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct network; /* opaque */

struct passage {
    int64_t start_ns, left_ns, arrival_ns; /* left: occupancy over */
};

/* flow_event: the kind of the events that the network pushes for itself. link_scale: factors on each link's occupancy and
 * latency (sim_scale's), NULL: 1. */
struct network *network_new(struct arena *a, const struct program *p, struct event_queue *q,
                            int32_t flow_event, const double *link_scale);
/* One more owner that may have a message on this way (one at a time, at most so many bytes); *out_resource: -1 for link
 * -1, a free copy. All join before network_start. ERR_INPUT: link without cost, or a message too long to be shared fairly. */
MUST_CHECK enum status network_join(struct network *n, struct cost *k, int32_t link,
                                    int32_t direction, int64_t bytes, int32_t *out_resource,
                                    struct error *err);
/* A link's price with its scale, for who uses it outside the network. */
MUST_CHECK enum status network_price(struct network *n, struct cost *k, int32_t link,
                                     struct cost_link *out, struct error *err);
void network_start(struct network *n, struct arena *a);
int64_t network_occupancy_ns(const struct network *n, int32_t resource, int64_t bytes);
/* Whether one owner alone sends here, first in first out: then a passage follows from the owner's own messages, and no
 * event is needed to keep them in order. After network_start. */
bool network_alone(const struct network *n, int32_t resource);
/* A message is ready now. true: its passage is known. false: it starts now and ends by an event. */
bool network_ready(struct network *n, int32_t owner, int32_t resource, int64_t occupancy_ns,
                   int64_t now_ns, struct passage *out);
/* A flow event has come: true where a message leaves, with its owner and passage. */
bool network_flow(struct network *n, const struct event *e, int32_t *owner, struct passage *out);

#endif
