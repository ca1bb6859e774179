/* sim/event_queue.h - the future of one simulation, soonest event first.
 *
 * A binary heap ordered by (time_ns, seq). seq is the caller's order among the events of an instant, then the number of pushes, so
 * two events of the same instant and order leave in the order they were pushed: the whole simulation is a function of its inputs.
 * In a pipeline of equal stages ties are the rule, not the exception.
 * Discarded: a calendar queue (its bucket width needs tuning; we expect few events per device).
 *
 * Ownership: the queue lives in the arena it was made from; there is no free.
 * Cost: push and pop O(log n); memory is taken only when the queue is longer than ever before.
 * Errors: none; popping an empty queue is a bug.
 */
#ifndef SIM_EVENT_QUEUE_H
#define SIM_EVENT_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct arena;
struct event_queue; /* opaque */

struct event {
    int64_t time_ns; /* simulated instant, >= 0 */
    uint64_t seq;    /* pushed: the order among events of its instant, below EVENT_ORDERS; then that and the number of pushes */
    int32_t kind;    /* event type and, with index, its target: defined by the caller */
    int32_t index;
    int64_t stamp; /* lets the caller recognise an outdated event */
};

#define EVENT_ORDERS (UINT64_C(1) << 24)

struct event_queue *event_queue_new(struct arena *a,
                                    size_t expected); /* expected: events at once, a hint */
void event_queue_push(struct event_queue *q, struct event e);
struct event event_queue_pop(struct event_queue *q);
size_t event_queue_size(const struct event_queue *q);

#endif
