/* core/document/json.h - a streaming JSON writer.
 *
 *     struct json j;
 *     json_begin(&j, stream, JSON_INDENTED);
 *     json_put_object(&j, NULL);
 *     json_put_int(&j, "schema", 1);
 *     json_put_list(&j, "devices");
 *     for (int d = 0; d < n; d++) json_put_text(&j, NULL, name[d]);
 *     json_close(&j);
 *     json_close(&j);
 *     json_end(&j);
 *
 * Every value takes its key first: a name inside an object, NULL inside a list and at the top.
 * A wrong key or an unclosed level is a bug and aborts. The writer allocates no memory;
 * write errors are reported by file_commit.
 * Doubles are the shortest of %.15g, %.16g and %.17g that reads back the same; nan and inf, which JSON lacks,
 * become null. Broken UTF-8 becomes U+FFFD. Independent of the locale.
 * The functions are named json_put_..., because jansson owns json_object and json_null.
 */
#ifndef CORE_DOCUMENT_JSON_H
#define CORE_DOCUMENT_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 64

enum json_layout {
    JSON_LINE,     /* no spaces, no line breaks: a line of a JSON-lines file */
    JSON_INDENTED, /* two spaces a level, one member a line */
};

struct json {
    FILE *stream;
    enum json_layout layout;
    int depth;
    bool done; /* the top-level value is complete */
    struct {
        bool is_object, on_one_line;
        int64_t count;
    } level[JSON_MAX_DEPTH];
};

void json_begin(struct json *j, FILE *stream, enum json_layout layout);
void json_end(struct json *j); /* checks that everything is closed; writes a line break */

void json_put_object(struct json *j, const char *key);
void json_put_list(struct json *j, const char *key);
/* The same on one line inside an indented document: short rows of a table. */
void json_put_object_line(struct json *j, const char *key);
void json_put_list_line(struct json *j, const char *key);
void json_close(struct json *j); /* the innermost open object or list */

void json_put_int(struct json *j, const char *key, int64_t value);
void json_put_double(struct json *j, const char *key, double value);
/* The same with ".0" behind a whole number, for readers that refuse 0 for 0.0. */
void json_put_fraction(struct json *j, const char *key, double value);
void json_put_bool(struct json *j, const char *key, bool value);
void json_put_text(struct json *j, const char *key, const char *value); /* NULL writes null */
void json_put_null(struct json *j, const char *key);

/* The text of a number as json_put_double writes it, for other formats (YAML, CSV). */
const char *json_number(char buffer[32], double value);

#endif
