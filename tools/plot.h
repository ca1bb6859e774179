/* tools/plot.h - plots drawn by gnuplot: timelines and memory of traces, bars of plans, losses of runs; tools/sweep/picture.h adds sweeps.
 *
 * Names enter a script only through gnuplot_text, without markup (`noenhanced`).
 */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include "core/base/error.h"
#include "traces/trace.h"

#include <stdio.h>

struct arena;

/* Writes the script of a picture: plot_head first, then the rest. */
typedef void plot_script(FILE *out, struct arena *a, const char *terminal, const char *output,
                         const void *what);
/* The picture in a file whose suffix selects the format: .png, .svg, or .gp (the script with its data). ERR_USAGE: another suffix.
 * ERR_RESOURCE: gnuplot is missing or failed; nothing is written. */
MUST_CHECK enum status plot_image(struct arena *a, const char *path, plot_script *write,
                                  const void *what, struct error *err);
/* ERR_USAGE if no picture is written to a path with this suffix. */
MUST_CHECK enum status plot_format(const char *path, struct error *err);
/* Terminal, size in pixels, output and style. output: file name of the image; NULL: gnuplot's standard output. */
void plot_head(FILE *out, struct arena *a, const char *terminal, const char *output, int width,
               int height);
/* A tic's label is a format of its value: escapes '%'. */
void plot_tic(FILE *out, struct arena *a, const char *label);
/* A name with control characters escaped (core/base/log.h). */
const char *plot_shown(struct arena *a, const char *name);

/* Timelines of one steady step of each trace (tools/timeline.h), one above the other, a row per device or class of devices. */
MUST_CHECK enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n,
                                      const char *path, struct error *err);
/* Memory over that step, a panel per device or class (sim/explain/live.h): stacked by class of slot, with the device's limit. At most
 * PLOT_PANELS panels, those of the highest share of their limit. name: the trace's file,
 * for messages. ERR_INPUT: the trace has no plan. */
enum { PLOT_PANELS = 12 };
MUST_CHECK enum status plot_memory(struct arena *a, struct trace *t, const char *name,
                                   const char *path, struct error *err);
/* Iteration times of a found plan and of the textbook plans beside it, from the output of `plan --json`; with the lower bound. */
MUST_CHECK enum status plot_baselines(struct arena *a, const char *json, const char *path,
                                      struct error *err);
/* Losses of runs, from the logs of `run --log`: a line of each run's training loss, and a dashed one with points of its validation loss. ERR_INPUT:
 * another file, or text and images over tokens. */
enum plot_over { PLOT_OVER_STEPS, PLOT_OVER_TOKENS, PLOT_OVER_HOURS };
extern const char *const plot_over_names[]; /* NULL-ended, by enum */
MUST_CHECK enum status plot_runs(struct arena *a, const char *const *logs, size_t n, enum plot_over over, const char *path, struct error *err);
/* Whether the file is output of `plan --json`. */
bool plot_is_search(struct arena *a, const char *json);

#endif
