/* exec/comm/transport.h - a way for ranks to talk; for exec/comm/comm*.c alone. */
#ifndef EXEC_COMM_TRANSPORT_H
#define EXEC_COMM_TRANSPORT_H

#include "exec/comm/comm.h"

#include <stdatomic.h>
#include <stddef.h>

struct bell;
struct comm_transport {
    const char *name;
    /* Fills in rank, size, one_host, started and state; ERR_RANK, ERR_INPUT. */
    enum status (*join)(struct comm *c, struct error *err);
    void (*leave)(struct comm *c); /* what is still in flight is dropped */
    void (*end_all)(struct comm *c, int code);
    void (*end)(void); /* of the process: what is left of the library; NULL: nothing is */
    void (*barrier)(struct comm *c);
    void (*broadcast)(struct comm *c, void *p, int64_t bytes, int32_t root);
    int64_t (*max)(struct comm *c, int64_t value);
    void (*sum)(struct comm *c, double *values, int64_t n);
    void *(*gather)(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total);
    int64_t (*clock_offset)(struct comm *c); /* asked of ranks that are not all on one host */
    void (*send)(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                 struct comm_ended what);
    void (*receive)(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag,
                    struct comm_ended what);
    enum status (*poll)(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                        struct error *err);
};

/* exec/comm/watch.c: around each call that waits for other ranks, one inside another being one; all have joined; the board, NULL: taken
 * away. What its thread reads of a comm is written there, or while nobody waits. */
void comm_watch_begin(struct comm *c, const char *what);
void comm_watch_end(struct comm *c);
void comm_watch_met(struct comm *c);
void comm_watch_patiently(struct comm *c, bool begins); /* rank 0 may be at work: without a board no time limit holds */
void comm_watch_board(struct comm *c, struct bell *bells);

extern const struct comm_transport comm_by_local;
extern const struct comm_transport comm_by_mpi __attribute__((weak)); /* absent where not linked */

struct bell { /* and what a rank shows of itself: the board of exec/comm/watch.c */
    _Atomic uint32_t rung;
    _Atomic uint32_t asleep;
    _Atomic int64_t life_ns;  /* CLOCK_MONOTONIC, when it was last heard of */
    _Atomic int64_t waits_ns; /* since when it has been in a call of all ranks; 0: in none */
    _Atomic int32_t pid;
    char padding[36]; /* a cache line each */
};
_Static_assert(sizeof(struct bell) == 64, "a cache line each");

struct comm {
    struct arena *a;
    const struct comm_transport *transport;
    void *state; /* the way's own */
    int32_t rank, size, n_sends;
    bool one_host, started;
    bool met;                 /* all have joined */
    bool patient;             /* comm_watch_patiently */
    int64_t limit_ns;         /* a silent rank is gone after that */
    const char *phase;        /* what all ranks are at, for errors */
    const char *const *names; /* (size) of their devices, NULL: none */
    struct bell own, *bells;  /* (size) shared, or NULL */
    void *shared;
    size_t shared_bytes;
};

#endif
