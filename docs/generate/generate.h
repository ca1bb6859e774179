/* docs/generate/generate.h - docs/reference and the manual page from the tables that the program itself uses: verbs and options
 * (tools/options.h), keys of files (core/document/keys.h), operators (core/graph/op.h), the device catalogue (profiles/catalogue.h).
 */
#ifndef DOCS_GENERATE_GENERATE_H
#define DOCS_GENERATE_GENERATE_H

#include <stdio.h>

struct arena;

/* Each writes one file. They end the program, with a message, where a source is missing. */
void generate_commands(struct arena *a, FILE *out);
void generate_formats(struct arena *a, FILE *out);
void generate_metrics(struct arena *a, FILE *out);
void generate_operators(struct arena *a, FILE *out);
void generate_devices(struct arena *a, FILE *out);
void generate_man(struct arena *a, FILE *out);

/* The text of a file of the tree. */
const char *generate_source_text(struct arena *a, const char *path);
/* A cell of a Markdown table: bars and angle brackets escaped, line ends as <br>. */
void generate_cell(const char *text, FILE *out);

#endif
