/* tools/report/html.h - parts of a self-contained HTML page: escaped text, head with its style sheet, tables, bars.
 *
 * The page loads nothing: no script, no font, no picture by address. Colours of text and lines follow prefers-color-scheme; fills are
 * those of the pictures of `plot`.
 */
#ifndef TOOLS_REPORT_HTML_H
#define TOOLS_REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct arena;

/* The text with markup escaped; control characters and broken UTF-8 as in messages (core/base/log.h). In elements and in attributes. */
void html_text(FILE *out, struct arena *a, const char *text);
void html_begin(FILE *out, struct arena *a, const char *title);
void html_end(FILE *out);
/* <section id="id"><h2>title</h2>, and a paragraph if text is not NULL. */
void html_section(FILE *out, struct arena *a, const char *id, const char *title, const char *text);
void html_section_end(FILE *out);
void html_paragraph(FILE *out, struct arena *a, const char *class, const char *text);

/* A table: its head of n columns, rows of n cells, its end. A head that begins with '#' is of numbers and without the sign. A cell
 * that is NULL stays open: the caller writes markup and calls html_cell_end. */
void html_table(FILE *out, struct arena *a, const char *const *heads, size_t n);
void html_row(FILE *out);
void html_cell(FILE *out, struct arena *a, const char *text, bool number);
void html_cell_open(FILE *out);
void html_cell_end(FILE *out);
void html_row_end(FILE *out);
void html_table_end(FILE *out);

/* A legend: a coloured square and a name for each. */
void html_legend_begin(FILE *out);
void html_legend(FILE *out, struct arena *a, const char *colour, const char *name);
void html_legend_end(FILE *out);

struct html_part {
    const char *colour, *title;
    double share; /* of the bar */
};
/* A bar of parts, one after the other; the rest is empty. */
void html_bar(FILE *out, struct arena *a, const struct html_part *parts, size_t n);
/* A bar from the middle, to the left (a gain) and to the right (a loss), each a share of half the width, 0 to 1. */
void html_diverging(FILE *out, double gain, double loss);

#endif
