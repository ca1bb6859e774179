/* tools/wrap.h - text in lines of a given width. */
#ifndef TOOLS_WRAP_H
#define TOOLS_WRAP_H

#include <stdio.h>

/* Columns of the terminal that is standard output; WRAP_WIDTH where it is none. */
enum { WRAP_WIDTH = 132 };
int wrap_width(void);

/* Words of text from column `at` on, broken before `width` and continued at column `indent`. Line ends of the text stay; a line that
 * begins with spaces keeps them. A longer word stands alone on its line. A character counts as one column. */
void wrap_text(FILE *out, const char *text, int at, int indent, int width);

#endif
