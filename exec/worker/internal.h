/* exec/worker/internal.h - one rank's run, and which module owns which state:
 *
 *   rank.c          struct rank: program, options, peers, device
 *   chunks.c        struct chunks: stages with memory, operators with addresses
 *   progress.c      struct progress: steps and sequences so far
 *   transports.c    struct transports: the transport of each channel and group
 *   pinned.c        struct pinned: pinned memory of a discrete device
 *   async_issue.c   struct async_issue: work issued and not yet complete
 *   inputs.c        struct inputs: training data and its buffers
 *   channel_ends.c  struct channel_ends: SEND, RECEIVE and their waits
 *   offloads.c      struct offloads: OFFLOAD, FETCH and their waits
 *   local_sums.c    struct local_sums: reductions within a discrete device
 *   kernel_spans.c  struct kernel_spans: kernels below operators
 *   step_log.c      struct step_log: losses and ends of steps
 *   scale_log.c     struct scale_log: the loss scale
 *   noise_log.c     struct noise_log: squared norms of gradients
 *   routing.c       struct routing: tokens of each expert
 *   saver.c         struct saver: writes checkpoints (saving.c: a rank's part; snapshot.c: its copy in host memory)
 *   serve.c         struct serve: a parameter server's order of arrivals
 *   evaluate.c      struct evaluation: losses over validation samples
 *   reports.c       struct reports: each step's numbers, for rank 0
 *
 * Modules without a struct: preflight.c, preload.c, prepare.c, staging.c, resume.c; saved_tensor.c,
 * shards.c, divided.c, feedback.c and accumulated.c (tensors of checkpoints). They receive their state as arguments. This header is for worker.c,
 * pause.c, steps.c, serve.c and evaluate.c only; the first three own the rest.
 */
#ifndef EXEC_WORKER_INTERNAL_H
#define EXEC_WORKER_INTERNAL_H

#include "exec/clock.h"
#include "exec/straggler.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/channel_ends.h"
#include "exec/worker/chunks.h"
#include "exec/worker/evaluate.h"
#include "exec/worker/inputs.h"
#include "exec/worker/kernel_spans.h"
#include "exec/worker/local_sums.h"
#include "exec/worker/noise_log.h"
#include "exec/worker/offloads.h"
#include "exec/worker/pinned.h"
#include "exec/worker/progress.h"
#include "exec/worker/rank.h"
#include "exec/worker/reports.h"
#include "exec/worker/routing.h"
#include "exec/worker/saver.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/serve.h"
#include "exec/worker/step_log.h"
#include "exec/worker/transports.h"

/* launches of a group by this rank: total; step of the last one, and how many launches of that step came before it */
struct launches {
    int64_t number, step;
    int32_t times;
};

struct worker {
    /* modules */
    struct rank rank;
    struct chunks chunks;
    struct progress progress;
    struct transports transports;
    struct pinned pinned;
    struct async_issue ahead; /* no effect on a synchronous lane */
    struct inputs inputs;
    struct channel_ends ends;
    struct offloads offloads;
    struct local_sums reduces; /* discrete device only */
    struct kernel_spans kernels;
    struct step_log log;
    struct scale_log scales;
    struct noise_log noise;
    struct routing routing;
    struct evaluation evaluation;
    struct reports reports;
    struct saver saver, memory; /* of checkpoints in the folder of --save, and in host memory */
    struct serve serve; /* of a lane of a parameter server that handles pushes by arrival */
    /* worker.c */
    struct run_options continued; /* those of a run that continues a training */
    bool complete;                /* it had all its steps */
    struct arena *a;           /* the caller's: results */
    struct device_clock clock; /* of the compute thread */
    struct span_list spans;    /* of the compute thread */
    struct straggler_watch *stragglers; /* NULL: not watched */
    int64_t cpu_ns;            /* of the compute thread while stepping */
    bool agreed; /* the failure that ends the run is common to all ranks, with the same message */
    bool real_time;
    bool saved;                  /* a run that ends early has its checkpoint */
    int64_t asked;               /* steps that the run was to have; 0: it has them */
    struct run_options shorter; /* of a run that ended early */
    /* steps.c */
    struct launches *launches; /* (n_groups) */
};

/* steps.c */
void worker_open_steps(struct worker *w);
/* Before a checkpoint of a discrete device: its compute stream waits for delayed sums of local SGD. Those of the host are complete when
 * the communication thread pauses or stops, and async_issue_finish waits for all at the end. */
MUST_CHECK enum status worker_await_sums(struct worker *w, struct error *err);
/* In front of the first step of a run, and behind an evaluation: the calls that are executed one step ahead. */
MUST_CHECK enum status worker_first_pass(struct worker *w, struct error *err);
MUST_CHECK enum status worker_step(struct worker *w, struct error *err); /* one step */
/* One call of the lane in a step of this run. dropped: without its operators. */
MUST_CHECK enum status worker_call(struct worker *w, const struct call *c, int64_t step, bool dropped, struct error *err);

/* pause.c */
struct run_board;
struct run_board *worker_board(const struct worker *w); /* rank 0's; NULL: this rank does not write it */
/* All ranks agree on the instant at which the run's clock shows now_ns. */
int64_t worker_agree_on_zero(struct worker *w, int64_t offset_ns, int64_t now_ns);
void worker_take_priority(struct worker *w, bool wanted); /* of emulated devices */
/* The run's clock stops, behind a step of all ranks, at *now_ns; the communication thread is parked. end: it goes on from now_ns. */
MUST_CHECK enum status worker_begin_pause(struct worker *w, int64_t *now_ns, struct error *err);
void worker_end_pause(struct worker *w, int64_t offset_ns, int64_t now_ns);
MUST_CHECK enum status worker_stop_lane(struct worker *w, struct error *err);
/* A checkpoint between steps: the run's clock stops while all ranks write; or this rank copies its part and goes on. */
MUST_CHECK enum status worker_save_between(struct worker *w, int64_t offset_ns, struct error *err);
/* The checkpoint of a run that ends early in front of a step. *ends: false if it could not be written, the run survives that, and no signal
 * has asked for its end: the request is taken back. */
MUST_CHECK enum status worker_save_to_end(struct worker *w, int64_t offset_ns, bool *ends, struct error *err);
MUST_CHECK enum status worker_snapshot_between(struct worker *w, struct saver *to, struct error *err);
/* An error of the thread that writes a checkpoint ends the run after the step; the message names the file. */
MUST_CHECK enum status worker_look_at_save(struct worker *w, bool wait, struct error *err);

/* serve.c: a server's calls until every worker has ended `steps` steps of this run. ERR_RANK: none arrives; ERR_INPUT: the replayed log
 * ends before. */
MUST_CHECK enum status worker_serve(struct worker *w, int64_t steps, struct error *err);

#endif
