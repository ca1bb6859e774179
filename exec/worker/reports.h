/* exec/worker/reports.h - each step's numbers of every rank, sent to rank 0, which adds them up for the run's observer.
 *
 * A rank hands its report of a step to the communication thread once the step has settled; it is a message of its own wire (wire.h) and delays
 * no other one. Cost: microbatches + 3 doubles a rank and step, and no wait but at the end of the run. Without an observer nothing is sent.
 */
#ifndef EXEC_WORKER_REPORTS_H
#define EXEC_WORKER_REPORTS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct comm_thread;
struct device_clock;
struct noise_log;
struct progress;
struct rank;
struct scale_log;
struct step_log;

enum { REPORTS_SPENT = 16 }; /* steps from the current one back whose times are kept until they settle */

/* All fields belong to reports.c. */
struct reports {
    bool on;
    struct rank *r;
    struct comm_thread *m;
    const struct progress *progress;
    struct device_clock *clock; /* of the compute thread, whose time here is not the device's */
    const struct step_log *log;
    const struct scale_log *scales;
    const struct noise_log *noise;
    int64_t n;                                 /* doubles of a report */
    int64_t sent;                              /* steps of this run that are reported */
    int64_t seen, posted;                      /* rank 0: steps that the observer has, receives that are posted for each rank */
    double spent[REPORTS_SPENT][2];            /* data, compute in ns, of step n at n mod REPORTS_SPENT */
    double **mine;                             /* (capacity) reports under way, number n at n mod capacity */
    int64_t capacity;
    double *theirs;                            /* rank 0: (ranks, REPORTS_AHEAD, n) */
    int64_t memory_bytes;
};

void reports_open(struct reports *x, struct rank *r, struct comm_thread *m, const struct progress *g, struct device_clock *clock, const struct step_log *log,
                  const struct scale_log *scales, const struct noise_log *noise);
/* All ranks, before the first step: the observer's begin on rank 0. */
MUST_CHECK enum status reports_begin(struct reports *x, struct error *err);
/* Time of the current step that this rank spent so. */
void reports_data(struct reports *x, int64_t ns);
void reports_compute(struct reports *x, int64_t ns);
/* After a step: `settled` steps of this run have all their numbers on this rank. */
void reports_step(struct reports *x, int64_t settled);
/* At the end of a run, all steps of which are settled: returns when the observer has them all, or this rank's have left. ERR_RANK. */
MUST_CHECK enum status reports_finish(struct reports *x, int64_t settled, struct error *err);

#endif
