/* tools/launch/launch.h - the engines for which `musher launch ENGINE PLAN -o FILE` writes a file, once each: name, and what is written.
 *
 * An engine is X(NAME, what it is) and `enum status launch_NAME(FILE *out, const struct launch *l, struct error *err)` in
 * tools/launch/NAME.c. The file starts one rank for each device with a lane, in the program's order, so that rank i is on the node of
 * device i; it is written, not submitted.
 */
#ifndef TOOLS_LAUNCH_LAUNCH_H
#define TOOLS_LAUNCH_LAUNCH_H

#include "core/base/error.h"
#include "tools/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arena;
struct plan;
struct program;

/* What the command line states; NULL or "": not stated. */
struct launch_request {
    const char *program, *save, *name;
    const char *time, *partition, *account; /* slurm */
    const char *agent;                      /* ssh */
    const char *image, *claim, *folder;     /* kubernetes */
    int64_t grace_s;                        /* slurm: from SIGTERM to the time limit */
    int64_t restarts;                       /* kubernetes, ray */
    struct texts labels, env, directives, run;
};

/* Devices of one type on a node. label: what the engine calls the type; NULL: not stated. */
struct launch_part {
    const char *type, *label;
    bool gpu;
    int32_t n; /* of the node's devices, those up to the last one with a rank: device numbers count from the first */
};
enum { LAUNCH_PARTS = 8 };
struct launch_node {
    const char *name, *host;
    int32_t n_ranks, n_parts;
    struct launch_part part[LAUNCH_PARTS];
};
/* Consecutive nodes that are equal but for their names. */
struct launch_group {
    int32_t first, n; /* nodes */
};
struct launch {
    struct arena *a;
    const struct launch_request *q;
    const char *plan_path, *plan_name, *name; /* name: of the job */
    int32_t n_ranks, n_nodes, n_groups;
    struct launch_node *nodes; /* in the order in which ranks come to them */
    struct launch_group *groups;
    int32_t *rank_node; /* (n_ranks) */
    bool in_order;      /* the ranks of each node are neighbours */
};

/* ERR_INPUT: too many types on a node. ERR_USAGE: a label of an unknown type, an option with a
 * control character, a variable without a value, a directive without a dash. O(devices · types of a node). */
MUST_CHECK enum status launch_layout(struct arena *a, const char *path, const struct plan *plan, const struct program *program,
                                     const struct launch_request *q, struct launch *out, struct error *err);

#define LAUNCH_ENGINES(X)                                                                                                              \
    X(slurm, "a batch script for sbatch, which resumes itself after preemption and at the time limit")                               \
    X(ssh, "a shell script for mpirun of Open MPI, which starts ranks through ssh")                                                   \
    X(kubernetes, "a JobSet (jobset.x-k8s.io/v1alpha2) for kubectl apply")                                                            \
    X(ray, "a Python file, which starts ranks in a placement group of Ray")

#define X(name, help) MUST_CHECK enum status launch_##name(FILE *out, const struct launch *l, struct error *err);
LAUNCH_ENGINES(X)
#undef X

#endif
