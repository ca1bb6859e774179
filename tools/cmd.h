/* tools/cmd.h - the table of verbs: struct verb cmd_NAME, defined in tools/cmd_NAME.c.
 *
 * A verb prints its results on stdout and its messages through core/base/log.h; main maps the status that it returns to the exit
 * code. A new verb is a new file and a line here.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include "tools/options.h"

/* In the order of `musher --help`. */
#define VERBS(X)                                                                                   \
    X(show)                                                                                        \
    X(profile)                                                                                     \
    X(plan)                                                                                        \
    X(whatif)                                                                                      \
    X(sweep)                                                                                       \
    X(lower)                                                                                       \
    X(schedule)                                                                                    \
    X(simulate)                                                                                    \
    X(goodput)                                                                                     \
    X(memory)                                                                                      \
    X(run)                                                                                         \
    X(checkpoint)                                                                                  \
    X(launch)                                                                                      \
    X(compare)                                                                                     \
    X(calibrate)                                                                                   \
    X(import)                                                                                      \
    X(validate)                                                                                    \
    X(collective)                                                                                  \
    X(export)                                                                                      \
    X(plot)                                                                                        \
    X(report)                                                                                      \
    X(devices)                                                                                     \
    X(check)                                                                                       \
    X(version)

#define X(name) extern const struct verb cmd_##name;
VERBS(X)
#undef X

/* All of them, NULL-ended. */
extern const struct verb *const verbs[];

/* ERR_USAGE, with the nearest name, if no verb has this name. */
MUST_CHECK enum status cmd_verb_find(const char *name, const struct verb **out, struct error *err);

/* Parses the command line, then prints the help or runs the verb. argv[0] is the verb's name. */
MUST_CHECK enum status cmd_verb_run(const struct verb *verb, int argc, char **argv,
                                    struct error *err);

#endif
