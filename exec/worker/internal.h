/* exec/worker/internal.h - one rank's run, and which module owns what of it:
 *
 *   rank.c          struct rank: the program, its options, peers and device
 *   chunks.c        struct chunks: stages with memory, operators with addresses
 *   progress.c      struct progress: steps and sequences so far
 *   transports.c    struct transports: what moves how, and what moves it
 *   pinned.c        struct pinned: pinned memory of a discrete lane
 *   async_issue.c   struct async_issue: what was issued and not seen yet
 *   inputs.c        struct inputs: data and its buffers
 *   channel_ends.c  struct channel_ends: SEND, RECEIVE and their waits
 *   local_sums.c    struct local_sums: sums within a discrete device
 *   kernel_spans.c  struct kernel_spans: kernels below operators
 *   step_log.c      struct step_log: losses and ends of steps
 *   scale_log.c     struct scale_log: the loss scale
 *   saver.c         struct saver: checkpoints out
 *
 * Without a struct of their own: preflight.c, preload.c, prepare.c, staging.c, routing.c, resume.c; saved_tensor.c, parts.c and divided.c
 * (tensors of checkpoints). Each is given what it works on. This header is for worker.c and steps.c alone, which own what no module does.
 */
#ifndef EXEC_WORKER_INTERNAL_H
#define EXEC_WORKER_INTERNAL_H

#include "exec/clock.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/channel_ends.h"
#include "exec/worker/chunks.h"
#include "exec/worker/inputs.h"
#include "exec/worker/kernel_spans.h"
#include "exec/worker/local_sums.h"
#include "exec/worker/pinned.h"
#include "exec/worker/progress.h"
#include "exec/worker/rank.h"
#include "exec/worker/saver.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/step_log.h"
#include "exec/worker/transports.h"

/* of a group by this rank: how many, and of the last one the step and how many of it were before */
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
    struct async_issue ahead; /* a discrete lane; else it does nothing */
    struct inputs inputs;
    struct channel_ends ends;
    struct local_sums reduces; /* a discrete lane */
    struct kernel_spans kernels;
    struct step_log log;
    struct scale_log scales;
    struct saver saver;
    /* worker.c */
    struct arena *a;           /* the caller's: results */
    struct device_clock clock; /* of the compute thread */
    struct span_list spans;    /* of the compute thread */
    int64_t cpu_ns;            /* of the compute thread while stepping */
    bool agreed; /* the failure that ends the steps is that of every rank, in the same words */
    bool real_time;
    /* steps.c */
    struct launches *launches; /* (n_groups) */
};

/* steps.c */
void worker_open_steps(struct worker *w);
MUST_CHECK enum status worker_step(struct worker *w, struct error *err); /* one step */

#endif
