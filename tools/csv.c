#include "tools/csv.h"

#include <stdbool.h>
#include <string.h>

int csv_split(char **line, char **fields, int most)
{
    char *at = *line;
    int n = 0;
    for (;;) {
        if (n == most) return -1;
        char *out = fields[n++] = at;
        bool quoted = *at == '"';
        if (quoted) at++;
        while (*at && (quoted || (*at != ',' && *at != '\n'))) {
            if (quoted && *at == '"') {
                if (at[1] != '"') {
                    quoted = false, at++;
                    continue;
                }
                at++;
            }
            if (*at != '\r') *out++ = *at;
            at++;
        }
        if (quoted) return -1;
        char end = *at;
        if (*at) at++;
        *out = '\0';
        if (end != ',') break;
    }
    *line = at;
    return n;
}

void csv_put(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"') fputc('"', out);
        fputc(*c, out);
    }
    fputc('"', out);
}
