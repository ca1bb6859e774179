/* tools/early_end.h - signals that end a run of `run --save` after the step in progress, with a checkpoint. */
#ifndef TOOLS_EARLY_END_H
#define TOOLS_EARLY_END_H

struct run_options;

/* Both have no effect without o->save; they set o->stop. Of a run of one device, in this process: SIGINT, SIGTERM, SIGHUP and SIGUSR1; a second one
 * ends it at once. */
void early_end_alone(struct run_options *o);
/* Of a rank that a launcher outside this process has started: SIGTERM, and SIGUSR1, which mpirun passes on without ending its ranks. A
 * scheduler may send them to one rank or to all, and more than once; it ends a run at once by SIGKILL. */
void early_end_rank(struct run_options *o);

#endif
