/* tools/plot.h - timelines for people: traces one above the other, one row a device, through gnuplot. */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include "core/base/error.h"
#include "traces/trace.h"

/* One steady iteration of each trace (the last whole step). path's ending chooses: .png, .svg, or .gp (the script alone,
 * with its data inside). ERR_USAGE: another ending; ERR_RESOURCE: gnuplot missing or failed; then nothing is written. */
MUST_CHECK enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n,
                                      const char *path, struct error *err);

#endif
