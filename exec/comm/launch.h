/* exec/comm/launch.h - launches the ranks of a run through mpirun, or recognises that a launcher (mpirun, srun)
 * started this process. */
#ifndef EXEC_COMM_LAUNCH_H
#define EXEC_COMM_LAUNCH_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

bool launch_is_rank(void); /* started under mpirun or srun, or forked */
int32_t launch_rank(void); /* 0 if not started as a rank */
int32_t launch_size(void); /* 1 if not started as a rank */
/* Started by launch_ranks or launch_local_run: the parent process reports how the run ended. */
bool launch_is_ours(void);
/* Reports a failure common to all ranks once. True if another process prints it: rank 0, or the parent (which this
 * call informs). */
bool launch_report(const struct error *err);
/* Of a rank that fails alone: to the parent, else on stderr. */
void launch_report_alone(const struct error *err);
/* The state of /proc/PID/stat: 'T' stopped, 'Z' zombie, 'X' gone; 'R' also if it cannot be read. */
char launch_process_state(int32_t pid);
bool launch_process_ended(char state);
/* Where ranks run: Open MPI's host file with a line for each rank, in their order, and the command that starts a program on a host ("ssh -p 2222").
 * Every host has this program, and the files of its arguments, under the same names. */
struct launch_hosts {
    const char *file, *agent;
    int lock;  /* descriptor that locks the file while it is needed; tools/mpi_hosts.h */
    bool here; /* this host has ranks too: mpirun is hung once they have ended and it goes on */
};
bool launch_host_is_here(const char *host); /* the name is this host's, with or without its domain, or localhost */
/* Starts n ranks of this program with argv (argv[0] replaced by /proc/self/exe) through mpirun, on this host (on NULL) or on others, and waits. stdout and
 * stderr pass through. ERR_RANK names the rank and how it ended, or the host that the agent does not reach; ERR_RESOURCE: mpirun is missing, or the ranks'
 * output cannot be written; ERR_INTERRUPTED on SIGINT, SIGTERM or SIGHUP, with no rank left behind. The first failure
 * that a rank reported becomes the error; stops: ranks end by themselves at SIGUSR1, which a first signal becomes; else a rank's documented exit code (2 … 6, 8) becomes the status. */
MUST_CHECK enum status launch_ranks(int32_t n, const struct launch_hosts *on, char *const *argv, bool stops, struct error *err);

#endif
