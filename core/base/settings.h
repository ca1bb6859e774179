/* core/base/settings.h - the table of environment variables: `--help` lists it, and an invalid value is an error at
 * startup. Settings describe a machine, not a run: library paths, timeouts. */
#ifndef CORE_BASE_SETTINGS_H
#define CORE_BASE_SETTINGS_H

#include "core/base/error.h"

#include <stdbool.h>

struct setting {
    const char *name;   /* of the environment variable */
    const char *values; /* accepted values, "1" */
    const char *help;   /* meaning, and the default in parentheses */
};
/* Ends with a NULL name. */
extern const struct setting settings[];

/* ERR_USAGE names the first variable with an invalid value and the accepted ones. An empty value counts as unset. */
MUST_CHECK enum status settings_check(struct error *err);
/* Whether the variable is "1". */
bool settings_on(const char *name);
/* MUSHER_TRANSPORT=host. */
bool settings_host_transport(void);
/* MUSHER_TIMEOUT, s. */
double settings_timeout_s(void);

#endif
