/* core/base/settings.h - what the variables of the environment may be, in one table: help shows it, and a value that is none is refused
 * before anything begins. Settings are those of a machine, not of a run: which library, how long to wait. */
#ifndef CORE_BASE_SETTINGS_H
#define CORE_BASE_SETTINGS_H

#include "core/base/error.h"

#include <stdbool.h>

struct setting {
    const char *name;   /* of the variable */
    const char *values; /* what it may be, "1" */
    const char *help;   /* meaning, and the default in parentheses */
};
/* Ends with a NULL name. */
extern const struct setting settings[];

/* ERR_USAGE names the first variable with a value that it cannot have, and those it may. Empty: as if it were not there. */
MUST_CHECK enum status settings_check(struct error *err);
/* true: it is "1". */
bool settings_on(const char *name);
/* MUSHER_TRANSPORT=host. */
bool settings_host_transport(void);
/* MUSHER_TIMEOUT, s. */
double settings_timeout_s(void);

#endif
