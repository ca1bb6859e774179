/* tools/timeline.h - the timeline of one steady step of a trace: rows of devices and boxes of calls, for pictures.
 *
 * Up to TIMELINE_ROWS_ONE_BY_ONE devices have a row each. Of more, devices of one type that execute the same calls of the same operators form a
 * class, one row, drawn as its first device; of more classes than rows fit, evenly spaced ones are shown. A box covers the
 * operators of one call, because a picture of single operators would have a hundred thousand boxes.
 */
#ifndef TOOLS_TIMELINE_H
#define TOOLS_TIMELINE_H

#include "traces/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* 16 rows as in tables (tools/print/classes.h); more than 32 do not fit a screen of 1,000 lines at a legible height */
enum { TIMELINE_ROWS_ONE_BY_ONE = 16, TIMELINE_ROWS_MAX = 32, TIMELINE_COLOURS = 11 };

/* Okabe and Ito's palette, whose colours differ for all kinds of colour vision. dark: of a device's every second stage, so that
 * its chunks can be distinguished. */
struct timeline_colour {
    char letter;
    const char *title, *rgb, *dark;
};
extern const struct timeline_colour timeline_colours[TIMELINE_COLOURS];

struct timeline_row {
    int32_t device;    /* of the trace: the one that is drawn */
    int64_t n;         /* devices of the class */
    const char *names; /* as ranges, cut; control characters escaped */
    const char *label; /* names and number */
};
struct timeline_box {
    int32_t row, colour;      /* colour: into timeline_colours, + TIMELINE_COLOURS where dark */
    int64_t begin_ns, end_ns; /* since begin_ns of the timeline */
    bool compute;             /* else a message or a collective */
};
struct step_timeline {
    int32_t step;
    int64_t begin_ns, end_ns;     /* the step, in the clock of the spans */
    int32_t n_classes, n_rows;    /* n_classes > n_rows: not all are shown */
    struct timeline_row *classes; /* (n_classes) all of them, in the order of their first devices */
    int64_t n_devices;
    struct timeline_row *rows;
    size_t n_boxes;
    struct timeline_box *boxes;
};
/* The last complete step of the trace, which it sorts. O(spans log devices). */
void timeline_make(struct arena *a, struct trace *t, struct step_timeline *out);

#endif
