/* exec/host_transport/bounce.h - bounce buffers: messages and collectives of a discrete device through pinned host
 * memory.
 *
 * The communication thread moves bytes between ranks from and to host memory. A discrete device has a pinned bounce
 * buffer for every buffer of a channel's ring, and one pinned staging area for the running collective. Outgoing data
 * is copied down before its message is handed over; incoming data is copied up before the compute stream uses it.
 * Three streams carry the copies (out, in, collectives), so that one direction does not delay another. Each copy
 * waits for an event of the compute stream, and the compute stream waits for the copy's event. Staging has the same
 * pieces as the device's slots, so results are bit for bit those of a host lane. Rejected: copies issued by the
 * compute thread (they would wait until it polls); a staging area per group (gradients twice). Thread: the
 * communication thread, except bounce_open, bounce_copied and bounce_given; events and streams exist before it
 * starts. Errors: the backend's. The first one is kept and returned by bounce_progress, because the functions that
 * issue copies return none.
 */
#ifndef EXEC_HOST_TRANSPORT_BOUNCE_H
#define EXEC_HOST_TRANSPORT_BOUNCE_H

#include "core/program/program.h"
#include "exec/backend.h"
#include "exec/host_transport/collective.h"
#include "exec/host_transport/memory.h"
#include "exec/host_transport/spans.h"
#include "exec/host_transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct bounce_room { /* a message that is not posted yet */
    int64_t number, at_ns;
    int32_t after; /* event + 1 after which its slot is free; 0: free now */
};

struct bounce_channel { /* this lane's end of a channel */
    struct place slot;  /* on the device */
    char *pinned;       /* (slot.count, stride); NULL: another transport */
    int64_t stride, bytes;
    int32_t *copied; /* (slot.count) events: end of the copy of that buffer */
    bool sends;
    struct bounce_room *rooms; /* (capacity) [first, next) by number */
    int64_t capacity, first, next;
};

struct bounce_leaving { /* an outgoing message in flight */
    int32_t channel;
    int64_t number, at_ns;
    int32_t after; /* event + 1 */
};

struct bounce_landing { /* a receive whose span ends with its copy */
    struct span span;
    int32_t event;
};

/* A piece of a collective's staging and its place in the slots. */
struct bounce_move {
    char *device, *pinned;
    int64_t bytes;
    bool fetch, give; /* copy down before the collective; copy up after it */
};
struct bounce_group {
    int32_t n_moves;
    struct bounce_move *moves;   /* (n_moves) */
    struct place in, out;        /* of a collective inside calls, on the device; bytes 0: none */
    int64_t in_bytes, out_bytes; /* of the member's operands */
    char *in_pinned, *out_pinned;
    int32_t given; /* event: all results are copied up */
    bool used;
};

/* Returns an event that is no longer used. */
typedef void bounce_release(void *owner, int32_t event);

struct bounce {
    struct arena *a; /* the communication thread's, after its start */
    struct backend *backend;
    struct wires *wires;
    const struct program *p;
    int32_t out, in, collective; /* streams */
    bool emulated, timed;
    struct bounce_channel *channels; /* (n_channels) */
    struct bounce_group *groups;     /* (n_groups) */
    struct bounce_leaving *leaving;  /* (capacity) [first, next) */
    int64_t leaving_capacity, leaving_first, leaving_next;
    struct bounce_landing *landing; /* likewise; only where timed */
    int64_t landing_capacity, landing_first, landing_next;
    int32_t fetched; /* event: the inputs of the running collective are copied down */
    bool fetching;
    struct span_list *spans; /* the communication thread's */
    bounce_release *release;
    void *owner;
    enum status failed;
    struct error error;
};

/* Streams and events; the caller fills in channels and groups (pinned, slot, bytes, stride, sends). */
MUST_CHECK enum status bounce_open(struct bounce *b, struct arena *a, const struct program *p,
                                   struct backend *backend, bool timed, struct error *err);
MUST_CHECK enum status bounce_add_channel(struct bounce *b, struct arena *a, int32_t channel,
                                          struct place slot, char *pinned, bool sends,
                                          struct error *err);
MUST_CHECK enum status bounce_add_group(struct bounce *b, int32_t group, struct bounce_group like,
                                        struct error *err);
/* Bytes from one pinned buffer of a channel to the next. */
int64_t bounce_stride(const struct channel *c);

/* Whether this rank's end of a channel (its member of a group) uses bounce buffers. */
static inline bool bounce_carries(const struct bounce *b, int32_t channel)
{
    return b && b->channels[channel].pinned;
}
static inline bool bounce_mirrors(const struct bounce *b, int32_t group)
{
    return b && b->groups[group].used;
}

/* after: event + 1 of the compute stream, released after use; 0: no wait. */
void bounce_hand(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns);
void bounce_post(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns);
/* A message is in its pinned buffer: issues the copy up. span: of the receive, recorded if spans are kept. */
void bounce_arrived(struct bounce *b, int32_t channel, int64_t number, const struct span *span);
/* fetch: issues the copies down for a collective; done when bounce_progress sets fetching to false. give: the copies
 * up of its results. */
void bounce_fetch(struct bounce *b, const struct collective_order *o);
void bounce_give(struct bounce *b, const struct collective_order *o);
MUST_CHECK enum status bounce_progress(struct bounce *b, bool *progress, struct error *err);
bool bounce_idle(const struct bounce *b);    /* no work in flight */
bool bounce_waiting(const struct bounce *b); /* waiting for a device event: poll again soon */

/* For the compute thread, after the message arrived (the collective ended): the event to wait for. */
int32_t bounce_copied(const struct bounce *b, int32_t channel, int64_t number);
int32_t bounce_given(const struct bounce *b, int32_t group);

#endif
