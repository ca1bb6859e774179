/* exec/worker/saver.h - writes checkpoints: which slots of a rank go into one, and under which names.
 *
 * Each tensor is written once, by the first stage of replica 0 that owns the parameter, and by the first of several
 * devices. Shards over replicas (ZeRO) are assembled by exec/worker/divided, shards of a sharded stage by
 * exec/worker/shards. Every function is collective over all ranks; the communication thread is parked or not running. */
#ifndef EXEC_WORKER_SAVER_H
#define EXEC_WORKER_SAVER_H

#include "exec/checkpoint/checkpoint.h"

#include <stdint.h>

struct chunks;
struct inputs;
struct progress;
struct rank;
struct scale_log;
struct serve;
struct step_log;

/* All fields belong to saver.c. */
struct saver {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    const struct inputs *inputs;
    const struct scale_log *scales;
    struct step_log *log;
    struct serve *serve;
    struct checkpoint_store store; /* rank 0: the folder of --save */
};

void saver_init(struct saver *s, struct rank *r, const struct chunks *c, const struct progress *g,
                const struct inputs *inputs, const struct scale_log *scales, struct step_log *log,
                struct serve *serve);
/* enter opens the folder of --save before a checkpoint to resume is searched; follow sets the step that the run
 * continues from. ERR_RESOURCE: a rank cannot write into the folder. */
MUST_CHECK enum status saver_enter(struct saver *s, struct error *err);
MUST_CHECK enum status saver_follow(struct saver *s, struct error *err);
/* If losses or tensors are not finite, nothing is written and a warning is printed, because the previous checkpoint
 * is worth more. step: including steps before this run. */
MUST_CHECK enum status saver_save(struct saver *s, int64_t step, struct error *err);
void saver_leave(struct saver *s);

#endif
