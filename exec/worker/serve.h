/* exec/worker/serve.h - a rank that is a parameter server: the order of its workers' pushes and pulls (core/program/server_order.h).
 *
 * A push has arrived with the last of its messages. The server handles the earliest of those that have arrived, or, in a replayed run, the
 * next one of a log; equal orders give equal bits. Every push is noted. */
#ifndef EXEC_WORKER_SERVE_H
#define EXEC_WORKER_SERVE_H

#include "core/base/error.h"
#include "core/program/server_order.h"
#include "exec/arrivals.h"

struct chunks;
struct rank;

/* All fields belong to serve.c. */
struct serve {
    bool by_arrival; /* this rank is such a server */
    struct server_order order;
    struct call *calls; /* (2 n_workers) push and pull of each worker */
    int32_t *n_messages, **messages; /* (n_workers) channels of a worker's push */
    struct arrivals noted, replayed;
    int64_t next; /* of replayed */
    double *state; /* version, then each worker's last pulled version; for checkpoints */
};

/* Versions and pulls start at 0. */
void serve_open(struct serve *s, struct rank *r, const struct chunks *c);
/* Reads the log to replay, of which only this server's arrivals are kept. first_step: steps before this run. ERR_INPUT, ERR_RESOURCE. */
MUST_CHECK enum status serve_follow(struct serve *s, struct rank *r, int64_t first_step, struct error *err);
/* What a checkpoint keeps of versions, n numbers, now; NULL: this rank is no such server. serve_set_state: the caller has written them. */
double *serve_state(struct serve *s, int64_t *n);
void serve_set_state(struct serve *s);

#endif
