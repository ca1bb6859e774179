/* tools/cmd.h - every verb of the program, once: its name, and what it does in a line.
 *
 * The verb NAME is `enum status cmd_NAME(int argc, char **argv, struct error *err)` in
 * tools/cmd_NAME.c; argv[0] is the verb. It prints its data on stdout, its talk through core/base/log.h,
 * and returns the failure that main turns into the exit code.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include "core/base/error.h"

#define VERBS(X)                                                                                   \
    X(show, "what a job, a cluster or a plan says")                                                \
    X(profile, "measure the job's operators and the cluster's links")                              \
    X(plan, "find a plan for a job on a cluster")                                                  \
    X(whatif, "the team as it might be: devices gone, nodes more, other links")                    \
    X(lower, "the program of a plan: procedures and lanes")                                        \
    X(schedule, "the order of a pipeline, by name or from a file, timed")                          \
    X(simulate, "run a plan in predicted time")                                                    \
    X(goodput, "days to months: failures, checkpoints, spot devices")                              \
    X(memory, "what each device of a plan holds, and why")                                         \
    X(run, "train: the plan on real devices")                                                      \
    X(compare, "a predicted and a measured trace, span by span")                                   \
    X(calibrate, "the next profile, from traces of runs")                                          \
    X(import, "foreign profiles, tables and topologies")                                           \
    X(validate, "predictions against measurements of others")                                      \
    X(collective, "what a collective takes, by algorithm")                                         \
    X(export, "a plan in the words of other programs")                                             \
    X(plot, "a timeline of one steady iteration")                                                  \
    X(devices, "the catalogue of device types")                                                    \
    X(check, "what this machine can run")                                                          \
    X(version, "version and compiler of this program")

#define X(name, help) enum status cmd_##name(int argc, char **argv, struct error *err);
VERBS(X)
#undef X

#endif
