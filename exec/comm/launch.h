/* exec/comm/launch.h - ranks: ours to start, or started for us (mpirun, Slurm). */
#ifndef EXEC_COMM_LAUNCH_H
#define EXEC_COMM_LAUNCH_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

bool launch_is_rank(void); /* started under mpirun or srun, or forked */
int32_t launch_rank(void); /* 0 where not started as a rank */
int32_t launch_size(void); /* 1 where not started as a rank */
/* Started by launch_ranks: who did that says how the run ended. */
bool launch_is_ours(void);
/* A failure that all ranks agree on is said once. True where somebody else says it: rank 0, or who launched us (told here). */
bool launch_report(const struct error *err);
/* Of a rank that fails while the others run: to who launched us, else on stderr. */
void launch_report_alone(const struct error *err);
/* The letter of /proc/PID/stat: 'T' stopped, 'Z' ended and not yet waited for, 'X' gone; 'R' too where that cannot be read. */
char launch_process_state(int32_t pid);
bool launch_process_ended(char state);
/* Starts n ranks of this very program with argv (argv[0] replaced by /proc/self/exe) through mpirun and waits. stdout and stderr pass
 * through. ERR_RANK names the rank and how it ended; ERR_RESOURCE where mpirun is missing or what the ranks print cannot be written; ERR_INTERRUPTED on SIGINT, SIGTERM or SIGHUP, with
 * no rank left behind. The first failure that a rank reported becomes the error; else a rank's
 * documented exit code (2 … 6, 8) becomes the status. */
MUST_CHECK enum status launch_ranks(int32_t n, char *const *argv, struct error *err);

#endif
