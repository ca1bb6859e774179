/* exec/device_transport/internal.h - one rank's part in a program's messages between devices; for device_transport*.c alone. */
#ifndef EXEC_DEVICE_TRANSPORT_INTERNAL_H
#define EXEC_DEVICE_TRANSPORT_INTERNAL_H

#include "core/base/arena.h"
#include "core/program/device_memory.h"
#include "exec/device_transport/device_comm.h"
#include "exec/device_transport/device_transport.h"

/* ---- exec/device_transport/plan.c: who talks together, by the program alone ---- */

struct talk {                 /* what becomes a communicator */
    const char *name, *phase; /* phase: while it is made */
    int32_t n;
    const int32_t *device; /* (n) of each of its ranks */
    int32_t max_ctas;      /* as the links say that it goes over; 0, NULL: the library's choice */
    const char *net_name;
    bool clash;                 /* two of them say another net_name: it is NULL */
    bool pairs, gathers, roots; /* what is asked of it besides messages from 0 to 1, or sums */
};

struct
    channel_group { /* channels of two stages whose messages go in one order: by number, then as listed */
    int32_t talk;
    int32_t n;
    int32_t *channel; /* (n) */
};

struct talks {
    int32_t n, n_channel_groups;
    struct talk *talk;
    struct channel_group *channel_group;
    int32_t *channel_group_of; /* (n_channels) -1: not by devices */
    int32_t *place;            /* (n_channels) in its ordered channel group */
    int32_t *talk_of;          /* (n_groups) -1 */
    int32_t **rank_of;         /* (n_groups) of each member in the communicator; NULL */
};

void device_talks(struct arena *a, const struct program *p, const unsigned char *channel,
                  const unsigned char *group, struct talks *out);

enum device_form { DEVICE_FORM_PADDED, DEVICE_FORM_ROOTS, DEVICE_FORM_PAIRS, DEVICE_FORM_ROUNDS };
/* How a meeting goes; all_reduce by ring is PADDED: the library's own, with nothing to pad. */
enum device_form device_form(const struct collective *m);
/* Whether segments k and k + 1 of a sum stand side by side on all members. */
bool device_segments_join(const struct program *p, const struct collective *g, int32_t k);
static inline bool device_segment_is_cut(const struct collective_member *m, int32_t k)
{
    return m->within && m->within[k].n_dims;
}
static inline const struct slot *device_segment(const struct program *p,
                                                const struct collective_member *m, int32_t k)
{
    return &p->stages[m->stage].slots[m->segments[k]];
}
static inline int64_t device_align(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- one rank ---- */

struct communicator {
    const struct talk *talk;
    int32_t rank; /* -1: not this one's */
    void *handle;
};

struct mark { /* something whose span is kept: between two timed events */
    int32_t begin, end;
    struct span span;
};

struct channel_end_device {
    bool mine, sends;
    int32_t peer; /* device */
    struct place place;
    int64_t elements;
    enum dtype dtype;
    int64_t window;
    int32_t *ready, *ended; /* (window) events */
    int64_t given, asked,
        done;    /* numbers below: ordered by the worker, on the stream, seen to have ended */
    char letter; /* of the calls */
};

struct channel_group_end {
    int32_t communicator, stream; /* stream -1: not this rank's */
    int64_t next;                 /* message number … */
    int32_t place; /* … and channel of the ordered channel group, whose turn it is */
};

struct sum_call { /* elements of neighbouring segments, in one call */
    int64_t elements;
    char *at; /* in place; NULL: packed at `scratch` */
    int64_t scratch;
    int32_t first, last; /* segments [first, last) */
};

struct group_end {
    int32_t member, communicator, rank; /* member -1: none of this rank's */
    int32_t ended[2];                   /* events; launch n: n mod 2 */
    int64_t asked, done;                /* launches */
    double weight;
    struct lane_memory const *memory;
    int64_t packed; /* of a segment that is cut and cast: where in the scratch */
    int32_t n_calls;
    struct sum_call *calls;
    struct meeting_places *meeting; /* NULL: a sum */
};

enum {
    PACE = 32, /* kernels and copies of the collective stream to a pace, … */
    PACES = 4  /* … and paces under way */
};

struct device_transport {
    struct arena *a;
    struct device_transport_options o;
    struct backend *b;
    const struct device_comm *comm; /* NULL: this rank has no part */
    const struct program *p;
    struct talks talks;
    struct communicator *communicators; /* (talks.n) */
    struct channel_group_end *channel_groups;
    struct channel_end_device *channels; /* (n_channels) */
    struct group_end *groups;            /* (n_groups) */
    int32_t collective;                  /* stream; -1 */
    int32_t ready; /* event: the compute stream, as far as it was asked when a group was launched */
    int32_t pace[PACES];        /* events of the collective stream; pace n: n mod PACES */
    int32_t at_hand;            /* the group whose launch is being asked for; -1 */
    int64_t in_pace, next_pace; /* what was asked of it in the one at hand, which this is */
    char *scratch, *zeros;
    bool given_up;
    struct error why; /* what everything was given up for; OK: no reason of the transport's own */
    /* silence: how much was asked and had ended when check looked, and when that last changed */
    int64_t changes, seen_changes, silent_since_ns, looked_ns;
    bool under_way;          /* when check looked last */
    int64_t ranks_looked_ns; /* at whether ranks have ended */
    bool rank_ended;         /* one had, then */
    int32_t *free_events;    /* timed */
    size_t n_free, free_capacity;
    struct mark *marks;
    size_t n_marks, marks_capacity;
    struct flat *flats; /* shapes of additions */
};

/* device_transport.c */
/* Adds to what is said of a communicator (ERR_RANK) which rank is gone, where that is known. */
void device_peer_lost(const struct device_transport *t, struct error *err);
MUST_CHECK enum status device_live(const struct device_transport *t, struct error *err);
/* A timed event on a stream where spans are kept; *event -1 else. */
MUST_CHECK enum status device_mark(struct device_transport *t, int32_t stream, int32_t *event,
                                   struct error *err);
void device_keep(struct device_transport *t, int32_t begin, int32_t end, struct span span);
/* y += x, y = 0, y = x in another type: n elements on the collective stream. */
MUST_CHECK enum status device_add(struct device_transport *t, void *y, const void *x, int64_t n,
                                  enum dtype dtype, struct error *err);
MUST_CHECK enum status device_zero(struct device_transport *t, void *y, int64_t n, enum dtype dtype,
                                   struct error *err);
MUST_CHECK enum status device_convert(struct device_transport *t, void *to, enum dtype to_dtype,
                                      const void *from, enum dtype from_dtype, int64_t n,
                                      struct error *err);
MUST_CHECK enum status device_copy(struct device_transport *t, void *to, const void *from,
                                   int64_t bytes, struct error *err);
MUST_CHECK enum status device_region(struct device_transport *t, const struct region *r,
                                     enum dtype dtype, char *whole, char *packed,
                                     enum region_copy how, struct error *err);
/* Before a kernel or a copy is asked of the collective stream, outside the library's groups: who asks for more than (PACES + 1) · PACE
 * of which none has been seen to end waits here, and looks at peers. Compute does not stand behind a sum, so its own pace
 * (exec/worker/async_issue.h) knows nothing of it. */
MUST_CHECK enum status device_pace(struct device_transport *t, struct error *err);

/* exec/device_transport/communicators.c: made, joined, and a first word said; then closed. */
MUST_CHECK enum status device_communicators_open(struct device_transport *t, struct error *err);
void device_communicators_close(struct device_transport *t);
/* Those from `first` on that are there, together. */
void device_communicators_give_up(struct device_transport *t, int32_t first);

/* exec/device_transport/messages.c */
MUST_CHECK enum status device_messages_open(struct device_transport *t, struct error *err);
/* exec/device_transport/sums.c, exec/device_transport/meetings.c */
MUST_CHECK enum status device_sums_open(struct device_transport *t, struct error *err);
void device_meeting_open(struct device_transport *t, int32_t group);
MUST_CHECK enum status device_sum(struct device_transport *t, int32_t group, int64_t step,
                                  struct error *err);
MUST_CHECK enum status device_meet(struct device_transport *t, int32_t group, int64_t seq,
                                   struct error *err);

#endif
