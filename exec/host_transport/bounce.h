/* exec/host_transport/bounce.h - messages and collectives of a lane on a device with discrete memory, through pinned memory.
 *
 * The communication thread moves bytes between ranks from and to the host's memory. A lane on a device has a bounce buffer
 * there for every buffer of a channel's ring, and one mirror for the collective that runs: what goes out is copied down
 * before its message is handed over, what came in is copied up before the compute stream may use it. Three streams of their
 * own carry the copies (out, in, collectives), so that none waits behind another kind; each copy waits for an event of the
 * compute stream, and the compute stream waits for the copy's. The mirror has the same pieces as the lane's slots, so sums
 * and collectives are word by word those of a lane on the host.
 * Discarded: copies by the compute thread (they would wait until it looks), and a mirror for each group (gradients twice).
 * Everything but bounce_open, bounce_copied and bounce_given is called by the communication thread; events and streams were made
 * before it began.
 * Errors: of the backend; the first one is kept and told by bounce_progress, since what asks for copies cannot fail.
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

struct bounce_room { /* for a message that is not posted yet */
    int64_t number, at_ns;
    int32_t after; /* event + 1 that its slot is free behind; 0: it is */
};

struct bounce_channel { /* the end of a channel that is this lane's */
    struct place slot;  /* on the device */
    char *pinned;       /* (slot.count, stride); NULL: not by this way */
    int64_t stride, bytes;
    int32_t *copied; /* (slot.count) events: the copy of the message in that buffer has ended */
    bool sends;
    struct bounce_room *rooms; /* (capacity) [first, next) by number */
    int64_t capacity, first, next;
};

struct bounce_leaving { /* a message in flight */
    int32_t channel;
    int64_t number, at_ns;
    int32_t after; /* + 1 */
};

struct bounce_landing { /* a receive whose span ends when its copy does */
    struct span span;
    int32_t event;
};

/* What a collective's mirror has to do with the slots. */
struct bounce_move {
    char *device, *pinned;
    int64_t bytes;
    bool fetch, give; /* down before it, up after it */
};
struct bounce_group {
    int32_t n_moves;
    struct bounce_move *moves;   /* (n_moves) */
    struct place in, out;        /* of a collective, on the device; bytes 0: none */
    int64_t in_bytes, out_bytes; /* of the member's operands */
    char *in_pinned, *out_pinned;
    int32_t given; /* event: everything is back */
    bool used;
};

/* Takes an event back that nobody waits for any more. */
typedef void bounce_release(void *owner, int32_t event);

struct bounce {
    struct arena *a; /* the communication thread's, once it has begun */
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
    int32_t fetched; /* event: what the running collective needs is there */
    bool fetching;
    struct span_list *spans; /* the communication thread's */
    bounce_release *release;
    void *owner;
    enum status failed;
    struct error error;
};

/* Streams and events; channels and groups are the caller's to fill in (pinned, slot, bytes, stride, sends). */
MUST_CHECK enum status bounce_open(struct bounce *b, struct arena *a, const struct program *p,
                                   struct backend *backend, bool timed, struct error *err);
MUST_CHECK enum status bounce_add_channel(struct bounce *b, struct arena *a, int32_t channel,
                                          struct place slot, char *pinned, bool sends,
                                          struct error *err);
MUST_CHECK enum status bounce_add_group(struct bounce *b, int32_t group, struct bounce_group like,
                                        struct error *err);
/* Bytes from one pinned buffer of a channel to the next. */
int64_t bounce_stride(const struct channel *c);

/* Whether this rank's end of a channel (its member of a group) goes this way. */
static inline bool bounce_carries(const struct bounce *b, int32_t channel)
{
    return b && b->channels[channel].pinned;
}
static inline bool bounce_mirrors(const struct bounce *b, int32_t group)
{
    return b && b->groups[group].used;
}

/* after: event + 1 of the compute stream, released when it is of no use any more; 0: at once. */
void bounce_hand(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns);
void bounce_post(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns);
/* A message is in its pinned buffer: up with it. span: of the receive, kept where spans are. */
void bounce_arrived(struct bounce *b, int32_t channel, int64_t number, const struct span *span);
/* Down with what a collective needs; ended when bounce_progress sets fetching to false. Up with what has come of it. */
void bounce_fetch(struct bounce *b, const struct collective_order *o);
void bounce_give(struct bounce *b, const struct collective_order *o);
MUST_CHECK enum status bounce_progress(struct bounce *b, bool *progress, struct error *err);
bool bounce_idle(const struct bounce *b);    /* nothing of ours is in flight */
bool bounce_waiting(const struct bounce *b); /* for an event of the device: look again soon */

/* For the compute thread, once it has been told that the message arrived (the collective ended): the event to wait for. */
int32_t bounce_copied(const struct bounce *b, int32_t channel, int64_t number);
int32_t bounce_given(const struct bounce *b, int32_t group);

#endif
