#include "core/document/json.h"

#include "core/base/error.h"
#include "core/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_begin(struct json *j, FILE *stream, enum json_layout layout)
{
    memset(j, 0, sizeof *j);
    j->stream = stream;
    j->layout = layout;
}

void json_end(struct json *j)
{
    if (j->depth || !j->done) BUG("json_end: %d levels are open", j->depth);
    fputc('\n', j->stream);
}

static void put_text(FILE *out, const char *text)
{
    size_t left = strlen(text);
    fputc('"', out);
    while (left) {
        uint32_t c = 0;
        size_t length = utf8_next(text, left, &c);
        if (!length)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (int)c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (utf8_is_control(c))
            fprintf(out, "\\u%04" PRIx32, c);
        else
            fwrite(text, 1, length, out);
        if (!length) length = 1;
        text += length;
        left -= length;
    }
    fputc('"', out);
}

static bool on_one_line(const struct json *j)
{
    return j->layout == JSON_LINE || (j->depth && j->level[j->depth - 1].on_one_line);
}

static void break_line(const struct json *j, int depth)
{
    fprintf(j->stream, "\n%*s", 2 * depth, "");
}

/* All that precedes a value: comma, line break, key. */
static void lead_in(struct json *j, const char *key)
{
    bool in_object = j->depth && j->level[j->depth - 1].is_object;
    if (in_object != (key != NULL))
        BUG("json: %s", key ? "a key outside an object" : "no key inside an object");
    if (!j->depth) {
        if (j->done) BUG("json: a second value at the top");
        j->done = true;
        return;
    }
    bool line = on_one_line(j), indented = j->layout == JSON_INDENTED;
    if (j->level[j->depth - 1].count++) fputs(line && indented ? ", " : ",", j->stream);
    if (!line) break_line(j, j->depth);
    if (!key) return;
    put_text(j->stream, key);
    fputs(indented ? ": " : ":", j->stream);
}

static void open_level(struct json *j, const char *key, bool is_object, bool line)
{
    lead_in(j, key);
    if (j->depth == JSON_MAX_DEPTH) BUG("json: deeper than %d", JSON_MAX_DEPTH);
    line = line || on_one_line(j);
    fputc(is_object ? '{' : '[', j->stream);
    j->level[j->depth].is_object = is_object;
    j->level[j->depth].on_one_line = line;
    j->level[j->depth].count = 0;
    j->depth++;
}

void json_put_object(struct json *j, const char *key) { open_level(j, key, true, false); }
void json_put_list(struct json *j, const char *key) { open_level(j, key, false, false); }
void json_put_object_line(struct json *j, const char *key) { open_level(j, key, true, true); }
void json_put_list_line(struct json *j, const char *key) { open_level(j, key, false, true); }

void json_close(struct json *j)
{
    if (!j->depth) BUG("json_close: nothing is open");
    bool line = on_one_line(j);
    j->depth--;
    if (j->level[j->depth].count && !line) break_line(j, j->depth);
    fputc(j->level[j->depth].is_object ? '}' : ']', j->stream);
}

void json_put_int(struct json *j, const char *key, int64_t value)
{
    lead_in(j, key);
    fprintf(j->stream, "%" PRId64, value);
}

const char *json_number(char buffer[32], double value)
{
    if (!isfinite(value)) return memcpy(buffer, "null", sizeof "null");
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, 32, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break; /* the same locale in both directions */
    }
    for (char *c = buffer; *c; c++)
        if (!strchr("0123456789+-e", *c)) *c = '.';
    return buffer;
}

void json_put_double(struct json *j, const char *key, double value)
{
    char buffer[32];
    lead_in(j, key);
    fputs(json_number(buffer, value), j->stream);
}

void json_put_fraction(struct json *j, const char *key, double value)
{
    char buffer[32];
    json_put_double(j, key, value);
    if (isfinite(value) && !strpbrk(json_number(buffer, value), ".e")) fputs(".0", j->stream);
}

void json_put_bool(struct json *j, const char *key, bool value)
{
    lead_in(j, key);
    fputs(value ? "true" : "false", j->stream);
}

void json_put_null(struct json *j, const char *key)
{
    lead_in(j, key);
    fputs("null", j->stream);
}

void json_put_text(struct json *j, const char *key, const char *value)
{
    lead_in(j, key);
    if (value)
        put_text(j->stream, value);
    else
        fputs("null", j->stream);
}
