/* exec/comm/local_internal.h - shared memory of the ranks of one host, and one rank's messages; for
 * exec/comm/local*.c only. */
#ifndef EXEC_COMM_LOCAL_INTERNAL_H
#define EXEC_COMM_LOCAL_INTERNAL_H

#include "exec/comm/launch_local.h"
#include "exec/comm/transport.h"

#define LOCAL_PIPE_BYTES (256 << 10)

enum { LOCAL_NOT_YET, LOCAL_HERE, LOCAL_LEFT }; /* a rank's state */

struct pipe {
    _Atomic uint64_t put, taken; /* bytes so far */
    unsigned char bytes[LOCAL_PIPE_BYTES];
};

struct room {
    _Atomic int32_t size; /* set by the first rank */
    _Atomic int32_t joined;
    _Atomic int32_t state[LOCAL_RANKS_MAX];
    struct pipe pipe[]; /* (size, size) from, to */
};

struct header {
    int32_t tag, magic;
    int64_t bytes;
};

struct out { /* a message in flight */
    struct header header;
    const unsigned char *data;
    int64_t done; /* bytes, header first */
    struct comm_ended what;
    bool notified; /* comm_poll reports the end */
    struct out *next;
};

struct posted { /* a receive */
    int32_t tag;
    unsigned char *data;
    int64_t bytes;
    struct comm_ended what;
    bool notified, *over; /* over: set at the end, for a blocking call */
    struct posted *next;
};

struct aside { /* arrived before its receive was posted */
    struct header header;
    unsigned char *data;
    int64_t capacity;
    struct aside *next;
};

struct peer {
    struct out *first, **last;
    struct posted *posted, **posted_last;
    struct aside *aside, **aside_last;
    struct header coming; /* the message being received */
    int64_t done;         /* bytes of it, header first */
    struct posted *into;  /* NULL: aside */
    struct aside *arriving;
};

struct local {
    struct arena *a;
    struct room *room;
    size_t room_bytes;
    int fd;
    struct peer *peers; /* (size) */
    struct out *spare_out;
    struct posted *spare_posted;
    struct aside *spare_aside;
    struct comm_ended *ended; /* [ended_first, ended_n) not yet reported */
    size_t ended_first, ended_n, ended_capacity;
    int64_t looked_ns;
    int32_t dead; /* rank, -1 */
};

static inline struct local *local_of(const struct comm *c) { return c->state; }

/* Starts a message or a receive. `what` is reported by comm_poll at the end; over: set at the end. */
void local_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                const struct comm_ended *what);
void local_receive(struct comm *c, void *to, int64_t bytes, int32_t from, int32_t tag,
                   const struct comm_ended *what, bool *over);
bool local_progress(struct comm *c); /* true: some bytes moved */
void local_drop(struct comm *c, int32_t to); /* ends all messages to a rank that is gone, as if sent */

#endif
