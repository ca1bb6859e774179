/* sim/network/network.h - contention on links: start, end and arrival of every message.
 *
 * A resource is one direction of a full-duplex link, or both directions of a half-duplex one. A message occupies it for its
 * bytes ÷ bandwidth and arrives `latency` after that.
 * FIFO: messages become ready in order of time (those of one instant in the caller's order), so a message's times are known as soon as it is ready: it
 * starts when the link is free of all messages that were ready before. No event marks its end.
 * Fair: concurrent messages share the resource equally, as a fluid (sim/network/flows.h).
 * Routes: a message occupies all links of its route at once, with the same max-min fair rate on all of them, and arrives the sum
 * of their latencies after it has left. A link on any route of the program is fair for all messages. The occupancy of a
 * route is that of its slowest link, in whole nanoseconds: exactly the duration of a lone message.
 * A route of a folded program (program_link.hop_messages) carries several equal messages at once on some hops; each of them
 * counts when a hop is shared.
 * A fair message's end is rounded once, to the nearest nanosecond, when it is reported.
 * Latency belongs to the route, not to the queue: it never delays the next message.
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

/* flow_event: event kind that the network pushes for its own use. link_scale: factors on each link's occupancy and latency
 * (sim_scale.link), NULL: 1. */
struct network *network_new(struct arena *a, const struct program *p, struct event_queue *q,
                            int32_t flow_event, const double *link_scale);
/* Registers one more owner with at most one message at a time on this link, of at most `bytes`; *out_resource: -1 for link
 * -1, a free copy. All join before network_start. ERR_INPUT: link without cost, or a message too long for fair sharing. */
MUST_CHECK enum status network_join(struct network *n, struct cost *k, int32_t link,
                                    int32_t direction, int64_t bytes, int32_t *out_resource,
                                    struct error *err);
/* A link's scaled price, for users outside the network. */
MUST_CHECK enum status network_price(struct network *n, struct cost *k, int32_t link,
                                     struct cost_link *out, struct error *err);
void network_start(struct network *n, struct arena *a);
int64_t network_occupancy_ns(const struct network *n, int32_t resource, int64_t bytes);
/* true: exactly one owner sends here, FIFO. A message's times then follow from the owner's own messages, and no event is
 * needed to order them. Call after network_start. */
bool network_alone(const struct network *n, int32_t resource);
/* A message is ready now. true: its passage is known. false: it starts now and ends by an event. */
bool network_ready(struct network *n, int32_t owner, int32_t resource, int64_t occupancy_ns,
                   int64_t now_ns, struct passage *out);
/* Several owners send here, FIFO: of messages that become ready in the same nanosecond the caller decides which one is first. */
bool network_queues(const struct network *n, int32_t resource);
/* Call once before network_ready for a message of this order at a resource with a queue. true: in the same nanosecond a message of
 * a higher order went before. */
bool network_overtaken(struct network *n, int32_t resource, uint64_t order, int64_t now_ns);
/* Claims are reservations of links, each with a number, for messages whose times the caller computes ahead of the events
 * (sim/engine/ahead.c). A message of another owner that becomes ready on a reserved link of fair shares ends the reservation first:
 * `broken` is called, and has to release all links of the claim. */
typedef void network_break(void *with, int32_t claimant, int64_t now_ns);
void network_claims(struct network *n, network_break *broken, void *with); /* once, after network_start */
/* Reservation of a FIFO resource; claimant -1 ends it. While it lasts the caller updates the instant at which the queue is free. */
void network_claim_queue(struct network *n, int32_t resource, int32_t claimant);
bool network_queue_claimed(const struct network *n, int32_t resource);
int64_t *network_queue_free_ns(struct network *n, int32_t resource);
/* Whether messages share the resource fairly; else it is a queue. */
bool network_fair(const struct network *n, int32_t resource);
/* Links that a message on a fair resource uses, each once, below 2 * n_links of the program. */
const int32_t *network_links(const struct network *n, int32_t resource, int32_t *n_links);
/* The owner's message, and no other one, moves on the fair resource: it has not ended in an earlier call. */
bool network_moves(const struct network *n, int32_t owner, int32_t resource);
/* No other message moves on these links, and none of them is claimed; own: the links that messages of the claimant's own use.
 * Messages that have ended by now do not move, whether reported or not. */
bool network_claimable(struct network *n, const int32_t *links, int32_t n_links, int32_t own, int64_t now_ns);
void network_claim(struct network *n, const int32_t *links, int32_t n_links, int32_t claimant);
void network_release(struct network *n, const int32_t *links, int32_t n_links);
/* Bytes of a message as a flow, and its end if it is alone. */
double network_bytes(const struct network *n, int32_t resource, int64_t occupancy_ns);
int64_t network_alone_end(const struct network *n, int32_t resource, double bytes, int64_t since_ns);
int64_t network_latency(const struct network *n, int32_t resource);
/* Takes a message that moves there back out, with the bytes that are left; puts one in that had so many at since_ns. */
double network_withdraw(struct network *n, int32_t resource, int64_t now_ns);
void network_resume(struct network *n, int32_t owner, int32_t resource, double bytes,
                    int64_t since_ns, int64_t now_ns);
/* Handles a flow event; true if a message leaves: its owner and times. */
bool network_flow(struct network *n, const struct event *e, int32_t *owner, struct passage *out);

#endif
