/* tools/gnuplot.h - gnuplot as a child: a script goes in by its standard input, a picture comes back by its standard output.
 *
 * gnuplot is given no name of a file, and a picture that comes back is whole: it knows neither a disk that is full nor what
 * lies where the picture will.
 */
#ifndef TOOLS_GNUPLOT_H
#define TOOLS_GNUPLOT_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdio.h>

struct arena;

/* text in double quotes, as a string of gnuplot's that has these bytes: nothing in it is a command, an escape, a backtick or a
 * macro. */
void gnuplot_text(FILE *out, const char *text);

/* A stream for the script; gnuplot_draw closes it. The script's terminal is format, "png" or "svg", and its output is not set.
 * ERR_RESOURCE: gnuplot is missing, failed, or gave half a picture. */
MUST_CHECK enum status gnuplot_open(FILE **script, struct error *err);
MUST_CHECK enum status gnuplot_draw(struct arena *a, FILE *script, const char *format,
                                    char **image, size_t *n, struct error *err);

#endif
