/* core/program/server_order.h - the order in which a parameter server handles its workers' pushes and pulls.
 *
 * Both interpreters of a program ask this module what a server's lane does next (core/model/parameter_server.h, by arrival); only the
 * arrivals are theirs: simulated or real instants, or a log. The rule: a pull that the mode allows comes before the next push, that
 * of the slowest worker first, equal ones in the order of their pushes; pushes come in the order of arrival. The result is a function of the order of arrivals.
 * Each operation is O(workers).
 */
#ifndef CORE_PROGRAM_SERVER_ORDER_H
#define CORE_PROGRAM_SERVER_ORDER_H

#include "core/program/program.h"

enum server_action { SERVER_WAIT, SERVER_APPLY, SERVER_DROP, SERVER_REPLY, SERVER_DONE };
struct server_turn {
    enum server_action action;
    int32_t worker;
    int64_t step;      /* of the worker: the message number */
    int64_t staleness; /* APPLY, DROP */
    double rate;       /* APPLY: factor of the learning rate */
};

struct server_counts {
    int64_t pushes, dropped; /* handled, and of these dropped */
    int64_t slowed;          /* applied with a smaller rate */
    int64_t staleness, most; /* sum over all pushes, and the largest */
};
void server_order_count(struct server_counts *x, const struct parameter_server *rule, int64_t staleness, bool dropped);

struct server_worker {
    int64_t steps;  /* whose pushes were handled */
    int64_t pulled; /* version at its last pull */
    bool gone;      /* awaited no more */
};
struct server_order {
    const struct parameter_server *rule;
    int32_t n;
    struct server_worker *workers; /* (n) */
    int64_t version;               /* updates applied */
    int64_t end;                   /* steps of each worker until DONE; may be raised then */
    struct server_counts counts;
    int32_t *arrived, n_arrived;   /* (n) workers with a push to handle, in order of arrival */
    int32_t *pulling, n_pulling;   /* (n) workers whose push was handled, in that order */
};

void server_order_start(struct server_order *x, struct arena *a, const struct parameter_server *rule, int32_t n_workers);
/* The next push of a worker is complete. */
void server_order_arrived(struct server_order *x, int32_t worker);
bool server_order_expects(const struct server_order *x, int32_t worker); /* its next push has not arrived */
void server_order_gone(struct server_order *x, int32_t worker);
struct server_turn server_order_next(struct server_order *x); /* counts it as done */

/* Time per step of workers of different speeds: the time in which they handle as many samples as a step has, from the ends of their
 * steps. A worker's own step is the mean between the first quarter of the steps and the instant at which the first worker ends: all are
 * at work then. end_ns: (n_workers, steps); microbatches: (n_workers). */
int64_t server_order_iteration_ns(const int64_t *end_ns, const int32_t *microbatches, int32_t n_workers, int64_t steps);

#endif
