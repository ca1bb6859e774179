/* CSV reader (RFC 4180 quoting); the cells are one array of pointers into the text. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/validate/published.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CSV_MAX_BYTES = 64 << 20 };

struct reader {
    struct arena *a;
    const char *file;
    char *at, *end;
    int32_t line;
    struct error *err;
};

/* One field, unquoted in place; *stop is the character behind it: ',', '\n' or 0. */
static enum status read_field(struct reader *r, const char **out, char *stop)
{
    char *to = r->at;
    int32_t from = r->line;
    bool quoted = r->at < r->end && *r->at == '"';
    *out = to;
    if (quoted) r->at++;
    for (;; r->at++) {
        if (r->at == r->end && quoted)
            return error_set(r->err, ERR_INPUT, "%s:%" PRId32 ": a quote is never closed", r->file,
                             from);
        if (r->at == r->end) break;
        if (quoted && *r->at == '"') {
            if (r->at + 1 < r->end && r->at[1] == '"')
                r->at++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (*r->at == ',' || *r->at == '\n'))
            break;
        if (*r->at == '\n') r->line++;
        if (*r->at != '\r') *to++ = *r->at;
    }
    *stop = '\0';
    if (r->at < r->end) *stop = *r->at++;
    if (*stop == '\n') r->line++;
    *to = '\0'; /* at most where the field's own end stood */
    return OK;
}

/* Fields of one line; n: the required number, 0 for the header. */
static enum status read_line(struct reader *r, int32_t n, const char ***out, int32_t *count)
{
    size_t capacity = 0;
    int32_t line = r->line;
    char stop = ',';
    *out = NULL, *count = 0;
    while (stop == ',') {
        const char **fields =
            arena_grow(r->a, (void *)*out, (size_t)*count, &capacity, sizeof *fields);
        *out = fields;
        TRY(read_field(r, &fields[(*count)++], &stop));
    }
    if (!n || *count == n) return OK;
    return error_set(r->err, ERR_INPUT,
                     "%s:%" PRId32 ": %" PRId32 " fields, the header has %" PRId32, r->file, line,
                     *count, n);
}

enum status csv_read(struct arena *a, const char *path, struct csv *out, struct error *err)
{
    char *text;
    size_t n = 0, capacity = 0, lines = 0;
    TRY(file_read(a, path, CSV_MAX_BYTES, &text, &n, err));
    struct reader r = {a, path, text, text + n, 1, err};
    if (!strncmp(text, "\xef\xbb\xbf", 3)) r.at += 3; /* a byte order mark */
    *out = (struct csv){.file = path};
    TRY(read_line(&r, 0, &out->header, &out->n_columns));
    while (r.at < r.end) {
        const char **row;
        int32_t count, line = r.line;
        if (*r.at == '\n' || *r.at == '\r') { /* an empty line */
            r.line += *r.at++ == '\n';
            continue;
        }
        TRY(read_line(&r, out->n_columns, &row, &count));
        out->line = arena_grow(a, out->line, (size_t)out->n_rows, &lines, sizeof *out->line);
        out->line[out->n_rows] = line;
        for (int32_t i = 0; i < count; i++) {
            size_t at = (size_t)out->n_rows * (size_t)out->n_columns + (size_t)i;
            out->field = arena_grow(a, (void *)out->field, at, &capacity, sizeof *out->field);
            out->field[at] = row[i];
        }
        out->n_rows++;
    }
    return OK;
}

int32_t csv_column(const struct csv *c, const char *name)
{
    for (int32_t i = 0; i < c->n_columns; i++)
        if (!strcmp(c->header[i], name)) return i;
    return -1;
}

const char *csv_text(const struct csv *c, int32_t row, const char *column)
{
    int32_t i = csv_column(c, column);
    return i < 0 ? "" : c->field[row * c->n_columns + i];
}

enum status csv_number(const struct csv *c, int32_t row, const char *column, double *out,
                       struct error *err)
{
    if (csv_column(c, column) < 0)
        return error_set(err, ERR_INPUT, "%s:1: no column '%s'", c->file, column);
    const char *text = csv_text(c, row, column);
    char *end;
    *out = *text ? strtod(text, &end) : NAN;
    if (!*text || (end != text && !*end && isfinite(*out))) return OK;
    return error_set(err, ERR_INPUT, "%s:%" PRId32 ": %s: '%.40s' is no number", c->file,
                     c->line[row], column, text);
}

enum status csv_count(const struct csv *c, int32_t row, const char *column, int64_t most,
                      int64_t *out, struct error *err)
{
    double value;
    TRY(csv_number(c, row, column, &value, err));
    if (value >= 1 && value <= (double)most && value == floor(value)) {
        *out = (int64_t)value;
        return OK;
    }
    return error_set(err, ERR_INPUT,
                     "%s:%" PRId32 ": %s: '%.40s' is no count between 1 and %" PRId64, c->file,
                     c->line[row], column, csv_text(c, row, column), most);
}
