/* exec/comm/launch_local.h - ranks forked by this process, on this machine, without MPI.
 *
 * They find each other by a file without a name, whose descriptor they inherit. Nothing of it is in the environment, so that no variable
 * makes a process such a rank, or names a file that is written. Such ranks are ranks by exec/comm/launch.h too.
 */
#ifndef EXEC_COMM_LAUNCH_LOCAL_H
#define EXEC_COMM_LAUNCH_LOCAL_H

#include "core/base/error.h"

#include <stdint.h>

/* What a rank does; its exit code (enum status). Its process ends by _exit after it. */
typedef int local_rank(void *owner, int32_t rank);

/* Forks n ranks, which run body, and waits. The first that fails, other than by ERR_RANK for the sake of another,
 * decides: ERR_RANK with its number and how it ended, or its
 * own documented exit code. The others then have LOCAL_PATIENCE_S to end by themselves, and all of them have limit_s; who has not
 * ended is killed, at once where all who are left are stopped. None is left behind. Nothing that does not survive a fork (a CUDA context) may exist yet. */
enum { LOCAL_PATIENCE_S = 5 };
MUST_CHECK enum status launch_local(int32_t n, local_rank *body, void *owner, double limit_s,
                                    struct error *err);
/* Of this process, where it is such a rank; -1 and 0 where it is none. */
int32_t launch_local_rank(void);
int32_t launch_local_size(void);
/* Opens the file in which such ranks meet, anew: locks belong to an opening, and inherited descriptors share one. -1: errno. */
int launch_local_open(void);

#endif
