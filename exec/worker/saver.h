/* exec/worker/saver.h - writes checkpoints: between steps and at the end of a run.
 *
 * saver_save: all ranks wait until the generation is written. saver_snapshot: each rank copies what it saves into host memory; a thread of its
 * own writes the files and a note that it has (exec/checkpoint/written.h); that of rank 0 waits for the notes of all
 * ranks and publishes the generation, without a message. A rank has one snapshot at a time, because saver_wait stands before the next.
 *
 * A saver of checkpoints in memory (saver_snapshot alone) needs no notes: each rank's thread writes its part, then copies it to a node that is its
 * peer (exec/worker/peer_copy.h).
 *
 * saver_enter, _follow, _save and _snapshot are collective over all ranks; the communication thread is parked or not running. */
#ifndef EXEC_WORKER_SAVER_H
#define EXEC_WORKER_SAVER_H

#include "exec/checkpoint/files.h"
#include "exec/checkpoint/memory.h"
#include "exec/host_transport/spans.h"
#include "exec/worker/saving.h"
#include "exec/worker/snapshot.h"
#include "traces/saves.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct inputs;
struct progress;
struct rank;
struct scale_log;
struct serve;
struct step_log;

enum { SAVER_FOLDER_BYTES = 4096 };

/* All fields belong to saver.c. */
struct saver {
    bool in_memory; /* its checkpoints are in host memory of nodes (exec/checkpoint/memory.h), else in a folder */
    bool stops, automatic; /* SAVE_SYNC; --save-every auto */
    struct wires *wires;   /* in_memory: whose links copies take */
    int32_t taken;         /* in_memory: checkpoints of this start so far */
    struct checkpoint_memory_writer writer;
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    const struct inputs *inputs;
    const struct scale_log *scales;
    struct step_log *log;
    struct serve *serve;
    struct checkpoint_store store; /* rank 0: the folder of --save */
    int64_t every, next;           /* steps between checkpoints, 0: none; steps of this run before the next one */
    struct saves saves;
    struct span_list spans; /* SNAPSHOT, SAVE */
    int64_t zero_ns;        /* CLOCK_MONOTONIC at time 0 of the last pause */
    /* a generation; the thread's while it runs */
    struct snapshot snapshot;
    struct arena *a;
    struct saving mine;
    struct checkpoint about;
    char folder[SAVER_FOLDER_BYTES];
    struct checkpoint_layout layout;
    struct checkpoint_target target; /* the folder and the layout */
    pthread_t thread;
    bool running;
    atomic_bool done; /* set last by the thread */
    int64_t written_ns;
    int64_t waited_ns; /* by the last saver_wait */
    enum status status;
    struct error error;
};

/* wires: of a saver of checkpoints in memory; NULL: in the folder of --save. */
void saver_init(struct saver *s, struct rank *r, const struct chunks *c, const struct progress *g,
                const struct inputs *inputs, const struct scale_log *scales, struct step_log *log,
                struct serve *serve, struct wires *wires);
/* enter opens the folder of --save before a checkpoint to resume is searched; follow sets the step that the run
 * continues from. ERR_RESOURCE: a rank cannot write into the folder. */
MUST_CHECK enum status saver_enter(struct saver *s, struct error *err);
MUST_CHECK enum status saver_follow(struct saver *s, struct error *err);
/* Steps of this run before the next checkpoint; INT64_MAX: none but the last. */
int64_t saver_next(const struct saver *s);
/* If losses or tensors are not finite, nothing is written and a warning is printed, because the previous checkpoint
 * is worth more. step: including steps before this run. */
MUST_CHECK enum status saver_save(struct saver *s, int64_t step, struct error *err);
/* After saver_wait. When it returns, device memory may change. *missed: the folder could not be made, and the run survives it. */
MUST_CHECK enum status saver_snapshot(struct saver *s, int64_t step, bool *missed, struct error *err);
/* A failure of a checkpoint between steps: OK and a warning on rank 0 if it is ERR_RESOURCE and the run survives it (run_options), else the
 * failure. */
MUST_CHECK enum status saver_survive(const struct saver *s, enum status status, const struct error *err);
/* Collective, after a checkpoint between steps, and before the next step: notes the pause for it, instants of CLOCK_MONOTONIC, and sets when
 * the next one is due. */
void saver_paused(struct saver *s, int64_t zero_ns, int64_t begin_ns, int64_t end_ns);
/* Instead, if it could not be written and the run goes on: sets when the next one is due. */
void saver_missed(struct saver *s);
/* This rank alone. wait returns when the thread has written; look does not wait. Errors of the thread, with the file: ERR_RESOURCE, a warning
 * if the run survives it.
 * ERR_RANK: another rank is dead. */
MUST_CHECK enum status saver_wait(struct saver *s, struct error *err);
MUST_CHECK enum status saver_look(struct saver *s, struct error *err);
/* Collective, at the end of the run: on rank 0 the costs. */
void saver_report(struct saver *s, struct saver_costs *out);
/* leave waits for the thread, whose error is lost, and lets go of the folder; close releases the copy's memory, when the device has nothing to
 * do. */
void saver_leave(struct saver *s);
void saver_close(struct saver *s);

#endif
