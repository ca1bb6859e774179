/* exec/comm/transport.h - interface of a transport between ranks (MPI, local); for exec/comm/comm*.c only. */
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
    void (*leave)(struct comm *c); /* messages in flight are dropped */
    void (*end_all)(struct comm *c, int code);
    void (*end)(void); /* at the end of the process: finalises the library; NULL: nothing to do */
    void (*barrier)(struct comm *c);
    void (*broadcast)(struct comm *c, void *p, int64_t bytes, int32_t root);
    int64_t (*max)(struct comm *c, int64_t value);
    void (*max_begin)(struct comm *c, int64_t value); /* NULL: the transport has none */
    bool (*max_ended)(struct comm *c, int64_t *value);
    void (*sum)(struct comm *c, double *values, int64_t n);
    void *(*gather)(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total);
    int64_t (*clock_offset)(struct comm *c); /* called only if the ranks are on several hosts */
    void (*send)(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag,
                 struct comm_ended what);
    void (*receive)(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag,
                    struct comm_ended what);
    enum status (*poll)(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                        struct error *err);
};

/* exec/comm/watch.c: begin and end bracket each call that waits for other ranks (nested calls count as one); met: all
 * ranks have joined; board: shared state, NULL: removed. The watch thread reads fields of struct comm, so they are
 * written there or while no call waits. */
void comm_watch_begin(struct comm *c, const char *what);
void comm_watch_end(struct comm *c);
void comm_watch_met(struct comm *c);
void comm_watch_patiently(struct comm *c, bool begins); /* rank 0 may be working: no time limit without a board */
void comm_watch_board(struct comm *c, struct bell *bells);

extern const struct comm_transport comm_by_local;
extern const struct comm_transport comm_by_mpi __attribute__((weak)); /* absent if not linked */

struct bell { /* doorbell, and the rank's row of the board (exec/comm/watch.c) */
    _Atomic uint32_t rung;
    _Atomic uint32_t asleep;
    _Atomic int64_t life_ns;  /* CLOCK_MONOTONIC of the last sign of life */
    _Atomic int64_t waits_ns; /* begin of the current collective call; 0: none */
    _Atomic int32_t pid;
    char padding[36]; /* a cache line each */
};
_Static_assert(sizeof(struct bell) == 64, "a cache line each");

struct comm {
    struct arena *a;
    const struct comm_transport *transport;
    void *state; /* private to the transport */
    int32_t rank, size, n_sends;
    bool one_host, started;
    bool met;                 /* all have joined */
    bool patient;             /* comm_watch_patiently */
    int32_t expendable;       /* ranks from here on may end before the others */
    _Atomic bool *gone;       /* (size) and have; NULL: none may */
    int64_t limit_ns;         /* an unresponsive rank is dead after this */
    const char *phase;        /* current phase of all ranks, for errors */
    const char *const *names; /* (size) names of their devices; NULL: none */
    struct bell own, *bells;  /* (size) shared, or NULL */
    void *shared;
    size_t shared_bytes;
};

#endif
