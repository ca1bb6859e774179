/* tools/cmd.h - every verb of the program: struct verb cmd_NAME of tools/cmd_NAME.c.
 *
 * A verb prints its data on stdout, its talk through core/base/log.h, and returns the failure that main turns into the
 * exit code. A new verb is a file and a line here.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include "tools/options.h"

/* In the order in which they are listed. */
#define VERBS(X)                                                                                   \
    X(show)                                                                                        \
    X(profile)                                                                                     \
    X(plan)                                                                                        \
    X(whatif)                                                                                      \
    X(lower)                                                                                       \
    X(schedule)                                                                                    \
    X(simulate)                                                                                    \
    X(goodput)                                                                                     \
    X(memory)                                                                                      \
    X(run)                                                                                         \
    X(compare)                                                                                     \
    X(calibrate)                                                                                   \
    X(import)                                                                                      \
    X(validate)                                                                                    \
    X(collective)                                                                                  \
    X(export)                                                                                      \
    X(plot)                                                                                        \
    X(devices)                                                                                     \
    X(check)                                                                                       \
    X(version)

#define X(name) extern const struct verb cmd_##name;
VERBS(X)
#undef X

/* All of them, NULL-ended. */
extern const struct verb *const verbs[];

/* ERR_USAGE, with the nearest name, where there is none. */
MUST_CHECK enum status cmd_verb_find(const char *name, const struct verb **out, struct error *err);

/* Parses the line, then prints the help or runs the verb. argv[0] is the verb's name. */
MUST_CHECK enum status cmd_verb_run(const struct verb *verb, int argc, char **argv,
                                    struct error *err);

#endif
