/* exec/comm/launch_local.h - ranks forked by this process on this host, without MPI.
 *
 * They share an unnamed file through an inherited descriptor. The environment carries nothing of it, so that no
 * variable can turn a process into such a rank or name a file to write. exec/comm/launch.h recognises these ranks
 * too.
 */
#ifndef EXEC_COMM_LAUNCH_LOCAL_H
#define EXEC_COMM_LAUNCH_LOCAL_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Body of a rank; returns its exit code (enum status). The process ends by _exit afterwards. */
typedef int local_rank(void *owner, int32_t rank);

/* Forks n ranks that run body, and waits. The first failure decides, except an ERR_RANK caused by another rank:
 * ERR_RANK with the rank's number and how it ended, or the rank's documented exit code. The others then have
 * LOCAL_PATIENCE_S to end; all ranks together have limit_s. The remaining ranks are killed, at once if all of them
 * are stopped. No rank is left behind. Nothing that does not survive fork (a CUDA context) may exist at the call. */
enum { LOCAL_PATIENCE_S = 60, LOCAL_RANKS_MAX = 64 };
MUST_CHECK enum status launch_local(int32_t n, local_rank *body, void *owner, double limit_s,
                                    struct error *err);
/* Ranks that failed by themselves, not because of another one: killed, ended with an error of their own, stopped, or not ended in time. */
struct launch_faults {
    int32_t n, rank[LOCAL_RANKS_MAX];
    bool signalled; /* SIGINT, SIGTERM or SIGHUP came meanwhile */
    int64_t first_ns; /* CLOCK_MONOTONIC at which the first rank that failed or is stopped was seen; 0: none */
};
/* What the parent does meanwhile; each may be NULL. */
struct launch_hooks {
    void (*stop)(void *owner); /* asks the ranks to end after a first signal */
    /* Once a second, after a rank has ended or stopped, and after launch_local_wake. pid: (n) processes of the ranks, 0: ended. Returns the
     * CLOCK_MONOTONIC ns at which it is to be called within the second, or 0. */
    int64_t (*look)(void *owner, const pid_t *pid);
};
/* By a rank, or by a thread of the process that waits for ranks: it looks at once, in place of after its pause. Elsewhere without effect.
 * Async-signal-safe. */
void launch_local_wake(void);
/* The ranks of a program's run: without a limit of time. Ranks from `expendable` on may end before the others, which go on
 * (comm_expendable), and are killed once they have been stopped for half of comm_limit_ns: ERR_RANK with the number of such ranks and how the first one ended, after all others have succeeded. The first
 * failure that another rank reported (launch_report) is the error. SIGINT, SIGTERM or SIGHUP ends the ranks by SIGQUIT: ERR_INTERRUPTED. If there is a hook `stop`, the
 * first signal calls it instead, because the ranks then end by themselves, and a second signal ends them. faults: filled also on success;
 * NULL: not needed. */
MUST_CHECK enum status launch_local_run(int32_t n, int32_t expendable, local_rank *body, const struct launch_hooks *hooks, void *owner,
                                        struct launch_faults *faults, struct error *err);
/* Whether this process is a rank of launch_local_run. */
bool launch_local_reports(void);
/* Reports a failure of this rank to its parent; one that differs from a failure already reported goes to stderr, or to the log of
 * --verbose if it is the end of another rank. False if the parent
 * takes none: from expendable ranks, and outside launch_local_run. */
bool launch_local_report(const struct error *err);
/* Of this process if it is such a rank; else -1 and 0. */
int32_t launch_local_rank(void);
int32_t launch_local_size(void);
/* Opens the shared file anew, because locks belong to an open file description and inherited descriptors share one.
 * -1: errno. */
int launch_local_open(void);

#endif
