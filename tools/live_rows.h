/* tools/live_rows.h - memory over a steady step of the devices or classes of a timeline, for pictures. */
#ifndef TOOLS_LIVE_ROWS_H
#define TOOLS_LIVE_ROWS_H

#include "core/program/program.h"
#include "sim/explain/live.h"
#include "tools/timeline.h"

/* Okabe and Ito's palette again, by enum live_class. */
extern const char *const live_rows_colours[LIVE_CLASS_COUNT];

struct live_row {
    int32_t class; /* of the timeline */
    struct live live;
};
/* The `most` classes with the highest peak relative to the device's memory, in the timeline's order, each of at most `points`
 * points. p: the lowered plan of the trace. ERR_INPUT: the trace is of another program. */
MUST_CHECK enum status live_rows_make(struct arena *a, const struct program *p,
                                      const struct trace *t, const struct step_timeline *line,
                                      int32_t most, size_t points, int32_t *n,
                                      struct live_row **out, struct error *err);
/* Lower and upper edge in bytes of a class stacked on the ones before it, at a point. */
void live_rows_edges(const struct live *x, size_t point, enum live_class c, int64_t *low,
                     int64_t *high);

#endif
