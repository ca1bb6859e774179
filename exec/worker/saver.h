/* exec/worker/saver.h - writes checkpoints: which of a rank's slots go into one under which names.
 *
 * A tensor is written once, by the first stage of replica 0 that owns the parameter, of several devices the first. What ranks
 * shard (ZeRO) is put together by exec/worker/divided, what devices of a sharded stage hold as shards by exec/worker/shards.
 * Every function is for all ranks together; the communication thread is parked or not running. */
#ifndef EXEC_WORKER_SAVER_H
#define EXEC_WORKER_SAVER_H

#include "exec/checkpoint/checkpoint.h"

#include <stdint.h>

struct chunks;
struct inputs;
struct progress;
struct rank;
struct scale_log;
struct step_log;

/* All fields belong to saver.c. */
struct saver {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    const struct inputs *inputs;
    const struct scale_log *scales;
    struct step_log *log;
    struct checkpoint_store store; /* rank 0: the folder of --save */
};

void saver_init(struct saver *s, struct rank *r, const struct chunks *c, const struct progress *g,
                const struct inputs *inputs, const struct scale_log *scales, struct step_log *log);
/* The folder of --save: before what is resumed is looked for, and once it is known from where the run goes on. ERR_RESOURCE: a rank
 * cannot write into it. */
MUST_CHECK enum status saver_enter(struct saver *s, struct error *err);
MUST_CHECK enum status saver_follow(struct saver *s, struct error *err);
/* Nothing is written, with a warning, where losses or tensors are not finite: what was saved before
 * is worth more. step: those before this run counted. */
MUST_CHECK enum status saver_save(struct saver *s, int64_t step, struct error *err);
void saver_leave(struct saver *s);

#endif
