/* exec/comm/local_internal.h - what ranks of one machine share, and one rank's messages; for exec/comm/local*.c alone. */
#ifndef EXEC_COMM_LOCAL_INTERNAL_H
#define EXEC_COMM_LOCAL_INTERNAL_H

#include "exec/comm/transport.h"

#define LOCAL_PIPE_BYTES (256 << 10)
#define LOCAL_RANKS_MAX 64

enum { LOCAL_NOT_YET, LOCAL_HERE, LOCAL_LEFT }; /* a rank's state */

struct pipe {
    _Atomic uint64_t put, taken; /* bytes so far */
    unsigned char bytes[LOCAL_PIPE_BYTES];
};

struct room {
    _Atomic int32_t size; /* as the first rank said */
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
    int64_t done; /* bytes, the header's first */
    struct comm_ended what;
    bool notified; /* the owner wants to hear of its end */
    struct out *next;
};

struct posted { /* a receive */
    int32_t tag;
    unsigned char *data;
    int64_t bytes;
    struct comm_ended what;
    bool notified, *over; /* over: of a call that waits */
    struct posted *next;
};

struct aside { /* came before it was asked for */
    struct header header;
    unsigned char *data;
    int64_t capacity;
    struct aside *next;
};

struct peer {
    struct out *first, **last;
    struct posted *posted, **posted_last;
    struct aside *aside, **aside_last;
    struct header coming; /* the message that is being taken */
    int64_t done;         /* of it, the header first */
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
    struct comm_ended *ended; /* [ended_first, ended_n) to be told */
    size_t ended_first, ended_n, ended_capacity;
    int64_t looked_ns;
    int32_t dead; /* rank, -1 */
};

static inline struct local *local_of(const struct comm *c) { return c->state; }

/* A message or a receive begins; what: its owner is told of its end by x->ended; over: set then. */
void local_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                const struct comm_ended *what);
void local_receive(struct comm *c, void *to, int64_t bytes, int32_t from, int32_t tag,
                   const struct comm_ended *what, bool *over);
bool local_progress(struct comm *c); /* something moved */

#endif
