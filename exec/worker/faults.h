/* exec/worker/faults.h - injects the faults of a script (core/faults/script.h) into a run of forked ranks.
 *
 * Signals are sent by the launcher. A rank that reaches the step of such a fault asks for the signal and then waits, so that the step is
 * exact; faults by time are sent once ranks train. While ranks end because of one fault,
 * no other one ends a rank: it waits for the next start. `exit` ends the rank itself in front of the step. A device is slow by the factor of its
 * virtual clock (exec/clock.h), a link by the time that messages occupy it, the disk is full by failing writes of checkpoints. The state
 * is in zeroed memory that the launcher shares with the ranks of all starts: a fault happens once, and not again when a restart repeats
 * its step. Cost: O(faults) a step of a run with a script, a comparison without.
 */
#ifndef EXEC_WORKER_FAULTS_H
#define EXEC_WORKER_FAULTS_H

#include "core/faults/script.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct device_clock;
struct run_board;
struct wires;

enum fault_phase { FAULT_PENDING, FAULT_ASKED, FAULT_MISSED, FAULT_HAPPENED, FAULT_OVER }; /* missed: its step was before the run; over: the node is back */
struct fault_state {
    _Atomic int phase;
    _Atomic int64_t step; /* in front of which it happened */
    _Atomic int64_t ns;   /* CLOCK_MONOTONIC */
    _Atomic int64_t left; /* steps of a slow or full one, this one included; -1: the next checkpoint */
};
struct faults { /* shared */
    const struct fault_script *script; /* NULL: none */
    _Atomic int64_t death_ns;          /* of the first rank that a fault ended in this start; 0: none */
    _Atomic int64_t death_step;        /* in front of which it ended */
    struct fault_state state[FAULTS_MAX];
};

/* One rank's side. */
struct fault_side {
    struct faults *f; /* NULL: no script */
    const struct program *p;
    const struct run_board *board;
    int32_t rank;
    struct device_clock *clock;
    struct wires *wires;
};
/* Before step `number` of the training: faults that are due happen. May not return. */
void faults_before_step(const struct fault_side *s, int64_t number);
/* Whether a fault slows this step. */
bool faults_disturb(const struct faults *f);
/* A checkpoint could not be written, or was written; on rank 0. */
void faults_saved(struct faults *f, bool written);

/* By the launcher, after launch_local_wake and at faults_due: sends the signals that are due to the ranks' processes (0: ended). */
void faults_send(struct faults *f, const struct program *p, const struct run_board *board, const pid_t *pid);
/* CLOCK_MONOTONIC ns of the next fault, or return of a node, that has a time; 0: none. */
int64_t faults_due(const struct faults *f, const struct run_board *board);
/* A lost node that is back now, while ranks train: its fault, which is then over; -1: none. */
int32_t faults_return(struct faults *f, const struct run_board *board);
/* Waits until the lost nodes with a time to return are back; returns the time waited. */
int64_t faults_await_nodes(struct faults *f);
/* Warns of the faults of the script that did not happen, because the run ended before. */
void faults_report_missed(struct arena *a, const struct faults *f);

#endif
