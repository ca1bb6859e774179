/* tools/cmd.h - every verb of the program, once: its name, and what it does in a line.
 *
 * The verb NAME is `enum status cmd_NAME(int argc, char **argv, struct error *err)` in
 * tools/cmd_NAME.c; argv[0] is the verb. It prints its data on stdout, its talk through core/log.h,
 * and returns the failure that main turns into the exit code.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include "core/error.h"

#define VERBS(X)                                                                                   \
    X(show, "what a model, a cluster, a plan or a trace says")                                     \
    X(profile, "measure operators and links, or list what is stored")                              \
    X(plan, "find a plan for a model on a cluster")                                                \
    X(lower, "the program of a plan: procedures and lanes")                                        \
    X(simulate, "run a plan in predicted time")                                                    \
    X(run, "run a plan on real devices")                                                           \
    X(compare, "two traces, or plans against each other")                                          \
    X(calibrate, "a better profile from predicted and measured traces")                            \
    X(plot, "a picture of a trace or a plan")                                                      \
    X(devices, "the device types that are known")                                                  \
    X(check, "whether a file is what it claims to be")                                             \
    X(version, "version and libraries")


 * missing. */
#define X(name, help)                                                                              \
    enum status cmd_##name(int argc, char **argv, struct error *err);
VERBS(X)
#undef X

#endif
