/* tools/hostfile.h - the devices that a run may use now (`run --hostfile`): a text file that another program writes anew when they change.
 *
 * One name a line, as in the hostfiles of MPI: a node of the plan's cluster or its `host` (all devices of the node), or a device ("a.1").
 * Words with = after the name ("slots=4") and what follows # are ignored; another name is an error. The cluster of the plan states all nodes that may come, with their
 * links. Writers: `scontrol show hostnames` of a Slurm job, `kubectl get pods` of a StatefulSet, a script of Horovod's elastic discovery;
 * each writes another file and renames it, so that no reader sees half of it.
 */
#ifndef TOOLS_HOSTFILE_H
#define TOOLS_HOSTFILE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct arena;

/* Fields belong to hostfile.c; listed may be read. */
struct hostfile {
    struct arena *a;
    const char *path;
    const struct cluster *cluster;
    bool *listed;      /* (devices of the cluster) */
    struct stat seen;  /* of the file when it was read */
    int missing; /* looks one after the other at which there was no file */
    int64_t looked_ns; /* CLOCK_MONOTONIC of the last look */
};

/* Reads the file. ERR_INPUT with file:line: an unknown name; no device is listed. */
MUST_CHECK enum status hostfile_open(struct arena *a, const char *path, const struct cluster *c, struct hostfile *out, struct error *err);
/* Whether another set of devices is listed than at the last look. At most one stat a second; the file is read if its time, size or inode has
 * changed. A file that cannot be read, or has errors, is a warning, and the list stays. */
bool hostfile_look(struct hostfile *h);

#endif
