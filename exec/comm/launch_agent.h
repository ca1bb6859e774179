/* exec/comm/launch_agent.h - which host an agent does not reach, after mpirun could not start its daemons: mpirun's own message names none. */
#ifndef EXEC_COMM_LAUNCH_AGENT_H
#define EXEC_COMM_LAUNCH_AGENT_H

#include "exec/comm/launch.h"

/* Runs `AGENT HOST mpirun --version` on each host of the host file but this one, with 10 s each, until one fails. ERR_RANK: its name and the first line that it
 * wrote to stderr. OK: all of them answer. Cost: one agent a host. */
MUST_CHECK enum status launch_agent_check(const struct launch_hosts *on, struct error *err);

#endif
