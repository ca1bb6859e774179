/* exec/comm/end_signals.h - SIGINT, SIGTERM, SIGHUP and SIGUSR1 of a process that waits for its ranks: a signal is noted, not fatal,
 * until the ranks have ended. SIGUSR1 is the notice of a preemption or a time limit in batch systems (sbatch --signal=USR1@60). */
#ifndef EXEC_COMM_END_SIGNALS_H
#define EXEC_COMM_END_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { END_SIGNALS = 4 };
/* old receives the dispositions that end_signals_unwatch restores, also in a forked child. An ignored SIGHUP (nohup) stays ignored. */
void end_signals_watch(struct sigaction old[END_SIGNALS]);
void end_signals_unwatch(const struct sigaction old[END_SIGNALS]);
/* In a child: SIGQUIT, which a launcher ends it by, does what SIGTERM did; ignore: the four are ignored, because the launcher answers
 * them. Else they do what they did. */
void end_signals_inherit(const struct sigaction old[END_SIGNALS], bool ignore);
int end_signals_caught(void); /* number of signals since the last end_signals_watch */

#endif
