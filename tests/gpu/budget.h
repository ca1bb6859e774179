/* tests/gpu/budget.h - time limits: a program for a GPU has GPU_SECONDS in all (environment, read at its start).
 * Limits are several times longer under sanitizers. */
#ifndef TESTS_GPU_BUDGET_H
#define TESTS_GPU_BUDGET_H

#include "core/base/settings.h"
#include "exec/clock.h"
#include "tests/support/slowdown.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct budget {
    double until_s;
};

static inline double budget_now(void) { return (double)clock_wall_ns() * 1e-9; }

static inline struct budget budget_start(double seconds)
{
    const char *said = getenv("GPU_SECONDS");
    char *end = NULL;
    struct error err = {0};
    double s = said && *said ? strtod(said, &end) : 0;
    if (settings_check(&err) == OK && said && *said && (!(s > 0) || s > 1e6 || *end))
        (void)error_set(&err, ERR_USAGE, "environment variable GPU_SECONDS: '%s', expected seconds above 0", said);
    if (err.code != OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(ERR_USAGE);
    }
    return (struct budget){budget_now() + (s > 0 ? s : seconds * TEST_SLOWDOWN)};
}

/* The seconds that a part which requests `seconds` may use; 0: none left. */
static inline double budget_part(const struct budget *b, double seconds)
{
    double left = b->until_s - budget_now();
    seconds *= TEST_SLOWDOWN;
    return left < 1 ? 0 : left < seconds ? left : seconds;
}

#endif
