/* exec/worker/run_board.h - when the steps, checkpoints and starts of a run ended, across restarts.
 *
 * In zeroed memory that the launcher shares with the ranks of all starts; rank 0 writes, after every step, but for `unwritten`. Times are ns of
 * CLOCK_MONOTONIC, which all processes of a host share. Cost: a few stores a step.
 */
#ifndef EXEC_WORKER_RUN_BOARD_H
#define EXEC_WORKER_RUN_BOARD_H

#include "exec/comm/launch_local.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { RUN_BOARD_STEPS = 1 << 16 }; /* newest steps whose durations are kept: 512 KiB */

struct run_board {
    int64_t forked_ns; /* this start, by the launcher */
    bool changed;      /* by the launcher: the plan of this start is not the first one */
    /* Of this start, 0: not yet. joined: devices open, memory allocated; loaded: behind the checkpoint to resume from; begun: the first
     * step; first: its end. */
    _Atomic int64_t joined_ns, loaded_ns, begun_ns, first_ns;
    int64_t before;          /* steps of the training before the first start */
    _Atomic int64_t zero_ns; /* the first step of the first start began; 0: not yet */
    _Atomic int64_t ended;   /* number of the last step that has ended, of the whole training */
    _Atomic int64_t last_ns; /* end of the last step or checkpoint */
    int64_t steps, steps_ns; /* executed, repeated ones too: their number and time */
    int64_t saves, saves_ns; /* checkpoints between steps: their number, and the time that training paused for them */
    /* Of this start, by each rank: step of the last checkpoint whose part it could not write; 0: none. Not a file, because the disk may be full. */
    _Atomic int64_t unwritten[LOCAL_RANKS_MAX];
    int64_t memory_saves, memory_saves_ns; /* the same of those in host memory */
    int64_t step_ns[RUN_BOARD_STEPS]; /* of step n at n mod RUN_BOARD_STEPS; negative: the duration of a disturbed step */
};

/* By the launcher, before it forks the ranks of a start. */
void run_board_start(struct run_board *b, bool changed);
/* By rank 0; b NULL: no effect. before: steps of the training before this start. */
void run_board_joined(struct run_board *b);
void run_board_loaded(struct run_board *b);
void run_board_begun(struct run_board *b, int64_t before);
/* The step `number` has ended after so many ns; disturbed: it says nothing about the plan's speed, because an injected fault slowed it. */
void run_board_step(struct run_board *b, int64_t number, int64_t ns, bool disturbed);
void run_board_saved(struct run_board *b, bool memory, int64_t ns); /* memory: into host memory */

/* Time of the steps (from, to], of those that are kept. */
int64_t run_board_time(const struct run_board *b, int64_t from, int64_t to);
/* Median of the undisturbed steps of the first plan; of all steps where there is none; 0: no step. */
int64_t run_board_median(struct arena *a, const struct run_board *b);

#endif
