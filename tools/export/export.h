/* tools/export/export.h - every format that `musher export PLAN --format NAME` writes, once: its name, and what it is.
 *
 * A format is X(NAME, as users write it, what it is) and
 * `enum status export_NAME(FILE *out, const struct plan *p, const struct export_request *q, struct export_note *note, struct error *err)`
 * in tools/export/NAME.c. It writes nothing if the format cannot state the plan (ERR_INPUT).
 */
#ifndef TOOLS_EXPORT_EXPORT_H
#define TOOLS_EXPORT_EXPORT_H

#include "core/base/error.h"
#include "core/plan/plan.h"

#include <stdbool.h>
#include <stdio.h>

struct export_request {
    const char *zone; /* cloud zone; NULL: the format's default */
};
/* A property of the plan on which readers of the format rely: printed with --json, and as a warning if the plan lacks it. */
struct export_note {
    const char *key; /* NULL: none */
    bool holds;
    const char *warning;
};

#define EXPORTERS(X) X(sailor, "sailor", "the JSON of Sailor's planner")

#define X(name, text, help)                                                                        \
    MUST_CHECK enum status export_##name(FILE *out, const struct plan *p,                          \
                                         const struct export_request *q, struct export_note *note, \
                                         struct error *err);
EXPORTERS(X)
#undef X

#endif
