/* sim/goodput/goodput.h - goodput of weeks and months of training: failures, checkpoints, elastic and spot devices.
 *
 * A discrete-event simulation of one long run, repeated with other random draws. Time is whole ns. The job runs at a speed
 * (1: all its devices, healthy), writes a checkpoint after every `interval` of running, and loses on a failure the work since
 * the last safe checkpoint:
 *
 *     RUN ──due──▶ WRITE ──▶ RUN            WRITE stops the work for checkpoint_ns; the copy is safe background_ns later
 *     RUN ──due──▶ MEMORY ──▶ RUN           the same for a checkpoint in host memory (memory_interval_ns)
 *     any ──failure──▶ DETECT ──▶ REPLAN (only if the set of devices has changed) ──▶ RESTART ──▶ RUN
 *     DETECT ──too few devices──▶ WAIT ──devices return──▶ REPLAN …
 *     RUN ──more devices, and worth it──▶ WRITE ──▶ REPLAN ──▶ RESTART ──▶ RUN
 *
 * More devices are worth a stop if  new speed · (outlook − cost) > present speed · outlook  with cost = write (none if
 * all work is safe already) + re-planning + restart and outlook the shorter of the rest of the run and outlook_ns.
 * Every nanosecond belongs to one part (goodput_part): their sum is the elapsed time. Goodput is useful ÷ elapsed.
 * The failures of a cause form a renewal process (exponential or Weibull) in exposure, which accumulates in proportion to the
 * devices in use and, unless `calm`, also while the job restarts. Draws are functions of (seed, sample, cause, number): every
 * candidate interval meets the same failures (common random numbers), and threads change nothing.
 * A script's events (goodput_event) happen once, at a time or at a step's work; the job's first plan needs no re-planning.
 * Limits: the speed between two events is constant; a failure removes full devices; the failures of a cause are independent
 * of the devices that failed before. Cost: O(checkpoints + failures) a sample.
 */
#ifndef SIM_GOODPUT_GOODPUT_H
#define SIM_GOODPUT_GOODPUT_H

#include "core/base/error.h"
#include "sim/uncertainty/montecarlo.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define GOODPUT_PARTS(X)                                                                           \
    X(useful, "useful training steps")                                                             \
    X(lost, "recomputation after failures")                                                        \
    X(checkpoint, "checkpoint pauses and slowdown")                                                \
    X(detection, "failures not yet detected")                                                      \
    X(replan, "replanning")                                                                        \
    X(restart, "restart and checkpoint load")                                                      \
    X(waiting, "waiting for devices")                                                              \
    X(fewer, "steps on fewer devices")                                                             \
    X(slow, "slower devices and links")
enum goodput_part {
#define X(name, help) GOODPUT_##name,
    GOODPUT_PARTS(X)
#undef X
        GOODPUT_PART_COUNT
};
const char *goodput_part_name(enum goodput_part p);
const char *goodput_part_help(enum goodput_part p);

enum { GOODPUT_TYPES_MAX = 64 };

struct goodput_cause {
    const char *name, *category;
    double mtbf_s;   /* mean time between its failures at full size, seconds; INFINITY: never */
    double shape;    /* Weibull's; 1: exponential; < 1: failures come in bursts */
    int64_t devices; /* removed by one failure until they are repaired; 0: restart in place */
};
struct goodput_change { /* devices available from this time on */
    int64_t time_ns;
    const int64_t *devices; /* (n_types) */
};
enum goodput_event_kind {
    GOODPUT_EVENT_FAILURE,
    GOODPUT_EVENT_SLOW,
    GOODPUT_EVENT_DISK_FULL, /* checkpoints take their time and are not written */
};
struct goodput_event {        /* of a script; happens once */
    enum goodput_event_kind kind;
    int64_t at_work_ns;       /* >= 0: when the job first reaches this work; -1: at time_ns, or later when it next runs or writes */
    int64_t time_ns;
    int64_t detect_ns;        /* FAILURE */
    bool node;                /* FAILURE: a node is lost with its memory, not a process */
    const int64_t *devices;   /* (n_types) where it happens, while one of them is there; FAILURE removes them. NULL: restart in place */
    int64_t back_ns;          /* > 0: the devices return after this time; 0: see back_work_ns */
    int64_t back_work_ns;     /* > 0: when the job reaches this work; both 0: never */
    double speed;             /* SLOW: share of the speed that is left, in (0, 1] */
    int64_t lasts_ns;         /* SLOW, DISK_FULL: executed work, repeated work too; 0: of DISK_FULL one checkpoint */
};
struct goodput_job {
    int64_t horizon_ns; /* > 0: wall time of the run */
    int64_t work_ns;    /* > 0: ends when this much work (at speed 1) is safe; 0: at the horizon */
    int32_t n_types;
    const char *const *types; /* (n_types) names */
    const int64_t *devices;   /* (n_types) of the job; upper bound of its use */
    const int64_t *spares;    /* (n_types) on standby; NULL: none */
    /* Relative to all devices, 0 if the devices cannot run the job; non-decreasing. Called from several threads at once. */
    double (*speed)(const void *user, const int64_t *devices);
    const void *user;
    int64_t checkpoint_ns, background_ns;
    double background_slow; /* share of the speed lost during a background write */
    int64_t detect_ns, restart_ns, replan_ns;
    int64_t repair_ns;  /* until lost devices return; 0: replaced by the time of the restart */
    int64_t outlook_ns; /* 0: until the end of the run */
    double gain_min;    /* devices that return are taken in if an iteration becomes shorter by this part at least */
    /* warning before devices are withdrawn: if long enough for a write, nothing is lost */
    int64_t notice_ns;
    /* Checkpoints in the memory of a peer node (Gemini): every memory_interval_ns of running (0: none), a pause of memory_ns, safe memory_copy_ns
     * later. A failure keeps the newest of memory and storage, of a process (a cause without lost devices) even before the
     * copy is complete; a restart from memory takes memory_restart_ns. Devices withdrawn at once lose the
     * memory of their nodes, and the run what is not on storage. Not modelled: two peers lost before the next copy. */
    int64_t memory_interval_ns, memory_ns, memory_copy_ns, memory_restart_ns;
    bool calm; /* no failures while the job does not run: an assumption of the closed forms */
    /* > 0: work of one step. Intervals then count work, as a run that writes after a number of steps does, and lost steps are counted. */
    int64_t step_ns;
    size_t n_events;
    const struct goodput_event *events;
    int64_t failures_max; /* of events: the run ends at the next one */
    size_t n_causes, n_changes;
    const struct goodput_cause *causes;
    const struct goodput_change *changes; /* ascending; none: all devices are always available */
};

struct goodput_tally { /* means over samples if there are several */
    double elapsed_ns, part_ns[GOODPUT_PART_COUNT];
    double checkpoints, memory_checkpoints, replans, preemptions, reconfigurations;
    double lost_steps, event_failures; /* of a job with step_ns; failures of the script */
    bool ended_early;    /* a failure of the script after the last restart, or no space for the last checkpoint */
    double *event_ns;    /* (n_events) when it happened; -1: it did not */
    double *failures; /* (n_causes) */
    /* (n_causes + 1) lost work, detection, replan, restart, waiting; last: withdrawn and grown */
    double *cause_ns;
};
/* One simulation. ERR_INPUT: no devices, an invalid time or rate, more events than the limits (1e7 failures,
 * 1e8 checkpoints). */
MUST_CHECK enum status goodput_walk(struct arena *a, const struct goodput_job *job,
                                    int64_t interval_ns, uint64_t seed, int64_t sample,
                                    struct goodput_tally *out, struct error *err);

struct goodput_result {
    int64_t interval_ns;
    struct montecarlo_summary goodput; /* share of the elapsed time */
    struct goodput_tally mean;
};
MUST_CHECK enum status goodput_study(struct arena *a, const struct goodput_job *job,
                                     int64_t interval_ns, uint64_t seed, int32_t samples,
                                     int32_t threads, struct goodput_result *out,
                                     struct error *err);
/* The interval of the highest mean goodput between first_ns and last_ns, by golden section on its logarithm. Common random
 * numbers make the curve smooth enough. 20 studies. */
MUST_CHECK enum status goodput_best(struct arena *a, const struct goodput_job *job,
                                    int64_t first_ns, int64_t last_ns, uint64_t seed,
                                    int32_t samples, int32_t threads, struct goodput_result *out,
                                    struct error *err);

/* --- closed forms: seconds; t interval, C blocking write, R restart, M mean time between failures; exponential failures --- */

double goodput_mtbf(const struct goodput_job *job); /* of all causes together; INFINITY of none */
/* E[T] ÷ T0 of a run in segments of t if restarts can fail too: M e^(R/M) (e^((t+C)/M) − 1) ÷ t (Daly 2006,
 * below). */
double goodput_slowdown_restless(double t, double C, double R, double M);
/* Young's and Daly's intervals: core/model/checkpoint_interval.h. The minimum of that slowdown over t: the root of (1 − t/M) e^((t+C)/M) = 1. */
double goodput_optimum(double C, double M);

/* --- sim/goodput/read.c --- */

/* Failure counts of another cluster, scaled to n devices. CSV with a header; columns component, category, count, window_days, gpus
 * (others are ignored). The category determines the devices lost: GPU 1; Host and Unplanned Maintenance per_node; others none.
 * ERR_INPUT with file:line: missing column, non-numeric field, no rows. */
MUST_CHECK enum status goodput_read_failures(struct arena *a, const char *path, int64_t n,
                                             int64_t per_node, size_t *out_n,
                                             struct goodput_cause **out, struct error *err);
/* The same from Llama 3's table (54 days of 16,384 GPUs, 419 unplanned interruptions; "The Llama 3 Herd of Models",
 * arXiv 2407.21783, table 5; from the counts, because some printed shares do not follow from them). */
size_t goodput_llama3(struct arena *a, int64_t n, int64_t per_node, struct goodput_cause **out);

struct goodput_spot {
    int32_t n_types;
    const char **types;
    size_t n_changes;
    struct goodput_change *changes; /* the first at 0 */
    int64_t end_ns;                 /* time of the last row */
    int64_t *most;                  /* (n_types) */
};
/* Availability over time. CSV with a header: one column "time_s" (seconds) or "Timestamp" (seconds, or YYYY-MM-DD hh:mm:ss); an
 * unnamed column is an index and ignored; every other column counts the devices of the type in its heading. Times are
 * relative to the first row. ERR_INPUT with file:line: no time column, descending times, invalid counts. */
MUST_CHECK enum status goodput_read_spot(struct arena *a, const char *path,
                                         struct goodput_spot *out, struct error *err);

#endif
