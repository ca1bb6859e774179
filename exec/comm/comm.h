/* exec/comm/comm.h - ranks and the messages between them; no library's type shows.
 *
 * One struct comm is a run's group of ranks. Messages are asynchronous: comm_send and comm_receive
 * start one, comm_poll tells which have ended. Between the start and the end of a run only the
 * communication thread calls anything here; before and after, and while that thread is parked, only
 * the thread that opened it. Messages between two ranks with one tag arrive in the order they were
 * sent.
 *
 * Ranks on one host also share memory (comm_share) and doorbells: whoever gave a rank something to
 * do rings its bell, so that nobody needs to poll in order to be quick. With one rank no message
 * library is touched.
 */
#ifndef EXEC_COMM_COMM_H
#define EXEC_COMM_COMM_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct comm;

/* Joins the ranks that were started together. ERR_INPUT where they are not `wanted` many. */
MUST_CHECK enum status comm_open(struct arena *a, int32_t wanted, struct comm **out,
                                 struct error *err);
void comm_close(struct comm *c);
/* Around what is taken back after comm_close: where that takes longer than PARTING_LIMITS limits, something waits for a rank
 * that is gone, and the process ends with ERR_RANK. */
void comm_parting(struct comm *c, bool begins);
int32_t comm_rank(const struct comm *c);
int32_t comm_size(const struct comm *c);
bool comm_one_host(const struct comm *c);
bool comm_has_bells(const struct comm *c); /* a rank can wake any other */

/* A rank of which nothing is heard for so long is gone: MUSHER_TIMEOUT seconds, else 120. */
int64_t comm_limit_ns(void);
/* Names of ranks, for errors, and what all of them are at; both live as long as c. */
void comm_call_ranks(struct comm *c, const char *const *names);
void comm_phase(struct comm *c, const char *phase);
/* This rank is at work, though it says nothing: now and then where much is done, or around one long thing that ends by itself. */
void comm_alive(struct comm *c);
void comm_working(struct comm *c, bool begins);
/* On one host: a rank that has ended, or is stopped, or else the one that was silent for longest, and for limit_ns at least.
 * -1: nobody is known to be. text: which and how, "rank 2 (b.0) is stopped"; "" for -1. */
int32_t comm_lost(const struct comm *c, int64_t limit_ns, char *text, size_t n);
/* On one host: a rank that has ended; -1: nobody is known to. Costs a look at /proc for each. */
int32_t comm_ended(const struct comm *c);

/* All ranks call these alike; they wait for each other. They do not return where a rank is gone: this process then says so
 * and ends with ERR_RANK. */
void comm_barrier(struct comm *c);
void comm_broadcast(struct comm *c, void *p, int64_t bytes); /* from rank 0 */
int64_t comm_max(struct comm *c, int64_t value);             /* everywhere */
void comm_sum(struct comm *c, double *values,
              int64_t n); /* on rank 0; each value is non-zero on one rank only */
/* The bytes of all ranks, one rank behind the other, in a on rank 0 (NULL elsewhere); *total their
 * number. */
void *comm_gather(struct comm *c, struct arena *a, const void *p, int64_t bytes, int64_t *total);
/* Worst news for all: every rank returns the status and the text of the lowest rank that failed. */
MUST_CHECK enum status comm_agree(struct comm *c, enum status mine, struct error *err);
/* Rank 0 calls work(owner), for example to write files, and every rank returns its status as by comm_agree. The others wait for as long
 * as that takes: on one host while rank 0 neither ends nor is stopped; on several hosts until their launcher ends them. */
typedef enum status comm_work(void *owner, struct error *err);
MUST_CHECK enum status comm_at_root(struct comm *c, comm_work *work, void *owner,
                                    struct error *err);
/* CLOCK_MONOTONIC here minus that of rank 0, by the fastest of some round trips; 0 on rank 0's
 * host. */
int64_t comm_clock_offset(struct comm *c);
/* Zeroed memory that all ranks see; one host only. ERR_RESOURCE. Unmapped by comm_close. */
MUST_CHECK enum status comm_share(struct comm *c, int64_t bytes, void **out, struct error *err);
/* Something that this process began may never end (a backend is unfinished), and exit() would wait for it: what libraries do there. */
void comm_note_unfinished(void);
/* The last thing that a program does which may have run ranks, all that it wrote being whole. Returns code for main to return; after
 * comm_note_unfinished it flushes, ends the message library and leaves at once. */
MUST_CHECK int comm_end(int code);
/* Ends every rank of the run. */
__attribute__((noreturn)) void comm_abort(struct comm *c, int code);

/* Messages. owner comes back when it has ended. At most 2 GiB - 1 each. */
struct comm_ended {
    int32_t owner;
    int64_t number;
    bool sent;
};
void comm_send(struct comm *c, const void *p, int64_t bytes, int32_t to, int32_t tag, int32_t owner,
               int64_t number);
void comm_receive(struct comm *c, void *p, int64_t bytes, int32_t from, int32_t tag, int32_t owner,
                  int64_t number);
/* Messages that have ended since, at most `most`; ERR_RANK where one broke. */
MUST_CHECK enum status comm_poll(struct comm *c, struct comm_ended *ended, int32_t most, int32_t *n,
                                 struct error *err);
bool comm_sending(const struct comm *c); /* a message of ours is not out yet */

/* Doorbells. comm_ring wakes `rank` (this one, or one on this host; else nothing happens). */
void comm_ring(struct comm *c, int32_t rank);
uint32_t comm_rung(const struct comm *c); /* how often ours was rung */
/* Sleeps until ours has been rung more than `seen` times or CLOCK_MONOTONIC is wall_ns. */
void comm_sleep(struct comm *c, uint32_t seen, int64_t wall_ns);

#endif
