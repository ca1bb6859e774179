/* tools/plot.h - timelines of traces, one above the other, one row per device, drawn by gnuplot. */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include "core/base/error.h"
#include "traces/trace.h"

/* Draws one steady iteration of each trace (the last complete step). The suffix of path selects the format: .png, .svg, or .gp
 * (the script with its data). ERR_USAGE: another suffix. ERR_RESOURCE: gnuplot is missing or failed; nothing is written. */
MUST_CHECK enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n,
                                      const char *path, struct error *err);

#endif
