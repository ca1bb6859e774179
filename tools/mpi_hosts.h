/* tools/mpi_hosts.h - the hosts of a program's ranks, for a launch through Open MPI on several hosts. */
#ifndef TOOLS_MPI_HOSTS_H
#define TOOLS_MPI_HOSTS_H

#include "core/base/error.h"
#include "exec/comm/launch.h"

struct arena;
struct program;

/* Writes a host file with a line for each device of the program, in their order, and fills *out; agent: as there. mpi_hosts_remove removes out->file. Files
 * that killed processes have left (musher-hosts-*, which their owners lock) are removed first.
 * ERR_INPUT: a host is localhost although another is not, or has a name that cannot stand in a host file; ERR_RESOURCE. */
MUST_CHECK enum status mpi_hosts_write(struct arena *a, const struct program *p, const char *agent, struct launch_hosts *out, struct error *err);
void mpi_hosts_remove(struct launch_hosts *on); /* allowed without a file */
/* The name of a host can stand in a host file of Open MPI. */
bool mpi_hosts_name(const char *host);

#endif
