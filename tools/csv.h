/* tools/csv.h - fields of comma-separated values (RFC 4180). */
#ifndef TOOLS_CSV_H
#define TOOLS_CSV_H

#include <stdio.h>

/* Splits one line, in place, into fields without their quotes; *line advances behind it. Returns their number; -1: more than `most`
 * fields, or an open quote. */
int csv_split(char **line, char **fields, int most);
/* One field, in quotes where the format needs them. */
void csv_put(FILE *out, const char *text);

#endif
