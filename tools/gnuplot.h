/* tools/gnuplot.h - gnuplot as a child process: the script goes to its standard input, the image comes from its standard output.
 *
 * gnuplot opens no output file. The image is checked for completeness in memory and then written by this program, so a full disk or
 * an existing file is handled as for every other output.
 */
#ifndef TOOLS_GNUPLOT_H
#define TOOLS_GNUPLOT_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdio.h>

struct arena;

/* Writes text as a double-quoted gnuplot string of the same bytes: commands, escapes, backticks and macros in it have no effect. */
void gnuplot_text(FILE *out, const char *text);

/* *script: a stream for the script, closed by gnuplot_draw. The script sets the terminal of `format`, "png" or "svg", and no output.
 * ERR_RESOURCE: gnuplot is missing, failed, or returned an incomplete image. */
MUST_CHECK enum status gnuplot_open(FILE **script, struct error *err);
MUST_CHECK enum status gnuplot_draw(struct arena *a, FILE *script, const char *format,
                                    char **image, size_t *n, struct error *err);

#endif
