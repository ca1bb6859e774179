/* exec/comm/comm.h - ranks and the messages between them; hides MPI and the local transport.
 *
 * One struct comm is the group of ranks of a run. Messages are asynchronous: comm_send and comm_receive start one,
 * comm_poll reports completed ones. Messages of one (sender, receiver, tag) arrive in the order sent. Thread rule:
 * while a run executes, only the communication thread calls this module; before, after, and while that thread is
 * parked, only the thread that opened it.
 *
 * Ranks of one host also share memory (comm_share) and doorbells: a rank that produces work for another rings its
 * bell, so that low latency needs no polling. A run of one rank uses no message library.
 */
#ifndef EXEC_COMM_COMM_H
#define EXEC_COMM_COMM_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct comm;

/* Joins the ranks that were started together. ERR_INPUT if their number is not `wanted`. */
MUST_CHECK enum status comm_open(struct arena *a, int32_t wanted, struct comm **out,
                                 struct error *err);
void comm_close(struct comm *c);
/* Brackets cleanup after comm_close. If it lasts longer than PARTING_LIMITS × the time limit, it waits for a dead
 * rank, and the process ends with ERR_RANK. */
void comm_parting(struct comm *c, bool begins);
int32_t comm_rank(const struct comm *c);
int32_t comm_size(const struct comm *c);
bool comm_one_host(const struct comm *c);
bool comm_has_bells(const struct comm *c); /* every rank can wake every other */

/* Time limit after which an unresponsive rank is considered dead: MUSHER_TIMEOUT seconds, default 120. */
int64_t comm_limit_ns(void);
/* Names of ranks, and the current phase of all of them, for errors; both must live as long as c. */
void comm_call_ranks(struct comm *c, const char *const *names);
void comm_phase(struct comm *c, const char *phase);
/* Heartbeat of a rank that is busy without communicating: comm_alive from time to time, comm_working around one long
 * finite operation. */
void comm_alive(struct comm *c);
void comm_working(struct comm *c, bool begins);
/* One host only: a rank that has ended or is stopped, else the rank that was unresponsive for longest and for at
 * least limit_ns; -1: none known. text: which rank and how, "rank 2 (b.0) is stopped"; "" for -1. */
int32_t comm_lost(const struct comm *c, int64_t limit_ns, char *text, size_t n);
/* One host only: a rank that has ended; -1: none known. Reads /proc once per rank. */
int32_t comm_ended(const struct comm *c);

/* Called by all ranks: those from `first` on may end before the others, which go on without them: collective calls leave them out,
 * messages to them count as sent. Among forked ranks only; under MPI the end of a rank is the end of the run. */
void comm_expendable(struct comm *c, int32_t first);
bool comm_gone(const struct comm *c, int32_t rank); /* an expendable rank that has ended; any thread */

/* Collective calls of all ranks. They do not return if a rank is dead: the process prints it and ends with ERR_RANK. */
void comm_barrier(struct comm *c);
void comm_broadcast(struct comm *c, void *p, int64_t bytes); /* from rank 0 */
int64_t comm_max(struct comm *c, int64_t value);             /* on every rank */
/* comm_max without waiting, under MPI only; one at a time. ended: polls; once it returns true, *value is the largest of all ranks. */
void comm_max_begin(struct comm *c, int64_t value);
bool comm_max_ended(struct comm *c, int64_t *value);
void comm_sum(struct comm *c, double *values,
              int64_t n); /* result on rank 0; each value is non-zero on one rank only */
/* Concatenates the bytes of all ranks in rank order, in a on rank 0 (NULL elsewhere); *total: their number. */
void *comm_gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total);
/* The same for as many bytes of each rank; zeros for those that are gone. */
void *comm_gather_each(struct comm *c, struct arena *a, const void *p, int64_t bytes);
/* Every rank returns the status and the message of the lowest rank that failed. */
MUST_CHECK enum status comm_agree(struct comm *c, enum status mine, struct error *err);
/* Rank 0 calls work(owner), for example to write files; every rank returns its status as by comm_agree. The other
 * ranks wait without a time limit: on one host until rank 0 ends or is stopped; on several hosts until their launcher
 * ends them. */
typedef enum status comm_work(void *owner, struct error *err);
MUST_CHECK enum status comm_at_root(struct comm *c, comm_work *work, void *owner,
                                    struct error *err);
/* CLOCK_MONOTONIC of this rank minus that of rank 0, from the fastest of some round trips; 0 on rank 0's host. */
int64_t comm_clock_offset(struct comm *c);
/* Zeroed memory shared by all ranks of one host. ERR_RESOURCE. Unmapped by comm_close. */
MUST_CHECK enum status comm_share(struct comm *c, int64_t bytes, void **out, struct error *err);
/* Records that something in this process may never end (an unfinished backend), so that exit() could block in a
 * library. */
void comm_note_unfinished(void);
/* The last call of a program that may have run ranks, after all output is complete. Returns code for main to return;
 * after comm_note_unfinished it flushes, finalises the message library and leaves by _exit. */
MUST_CHECK int comm_end(int code);
/* Ends every rank of the run. */
__attribute__((noreturn)) void comm_abort(struct comm *c, int code);

/* Messages. comm_poll returns `owner` at the end. At most 2 GiB - 1 bytes each. */
struct comm_ended {
    int32_t owner;
    int64_t number;
    bool sent;
};
void comm_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag, int32_t owner,
               int64_t number);
void comm_receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag, int32_t owner,
                  int64_t number);
/* Messages completed since the last call, at most `most`; ERR_RANK if one failed. */
MUST_CHECK enum status comm_poll(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                                 struct error *err);
bool comm_sending(const struct comm *c); /* a message of this rank is still in flight */

/* Doorbells. comm_ring wakes `rank` if it is on this host; else no effect. */
void comm_ring(struct comm *c, int32_t rank);
uint32_t comm_rung(const struct comm *c); /* how often this rank's bell was rung */
/* Sleeps until this rank's bell was rung more than `seen` times or CLOCK_MONOTONIC reaches wall_ns. */
void comm_sleep(struct comm *c, uint32_t seen, int64_t wall_ns);

#endif
