/* tools/published_internal.h - what the files of tools/published share. */
#ifndef TOOLS_PUBLISHED_INTERNAL_H
#define TOOLS_PUBLISHED_INTERNAL_H

#include "tools/validate_published.h"

/* Whether the fit was trained on a row (from 0) of the report's table. */
static inline bool published_trains(const struct published_report *r,
                                    const struct published_fit *fit, int32_t row)
{
    return r->trains && row % fit->every == 0;
}

/* Rows of PUBLISHED_ZERO_BUBBLE: fills lines and memory of the report. */
MUST_CHECK enum status published_bubbles(struct arena *a, const struct csv *c,
                                         const struct published_fit *fit, int32_t every,
                                         struct published_report *out, struct error *err);

#endif
