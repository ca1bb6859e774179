/* tools/help.h - the text of --help, from the tables of tools/options.h. The manual page and docs/reference use the same functions
 * (docs/generate).
 */
#ifndef TOOLS_HELP_H
#define TOOLS_HELP_H

#include "tools/options.h"

#include <stdio.h>

enum { HELP_WIDTH = 80 }; /* columns */

/* "[options] JOB [CLUSTER] PLAN..." */
void help_arguments(const struct verb *verb, FILE *out);
/* "-o, --out PLAN", "--objective time|cost|rate", "JOB"; at most size - 1 characters. */
const char *help_head(const struct option *o, char *buffer, size_t size);
/* "default 15", "default 0: never", "required", "repeatable"; "": nothing to add. defaults: the verb's struct request. */
const char *help_preset(const struct option *o, const void *defaults, char *buffer, size_t size);
void help_verb(const struct verb *verb, FILE *out);

/* Meanings of the exit codes; {0} ends the list. */
struct help_code {
    int code;
    const char *meaning;
};
extern const struct help_code help_codes[];
extern const char help_purpose[]; /* the purpose of the program, one sentence */

#endif
