#include "core/base/former.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "core/base/utf8.h"
#include "core/document/document.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Typed access to a document's nodes; core/document/document.c builds them. */

/* Written from the end, in the order of the parents. */
const char *node_path(const struct node *n, char *buffer, size_t size)
{
    size_t at = size - 1;
    buffer[at] = '\0';
    for (; n && n->parent && at; n = n->parent) {
        char index[32];
        const char *part = n->key;
        if (!part) snprintf(index, sizeof index, "[%zu]", n->index), part = index;
        size_t length = strlen(part), kept = length < at ? length : at;
        at -= kept;
        memcpy(buffer + at, part + length - kept, kept);
        if (at && n->key && n->parent->parent) buffer[--at] = '.';
    }
    return buffer + at;
}

enum status node_error(const struct node *n, struct error *err, const char *fmt, ...)
{
    if (!err) return ERR_INPUT;
    char text[sizeof err->text], where[sizeof err->text / 2], end[91];
    va_list ap;
    va_start(ap, fmt);
    error_format(text, sizeof text, fmt, ap);
    va_end(ap);
    /* The end of a very long name is more specific than its beginning. */
    const char *file = n->file ? n->file : "?", *path = node_path(n, end, sizeof end);
    size_t file_length = strlen(file);
    if (file_length > 100) file += file_length - 100;
    int used = snprintf(where, sizeof where, "%s", file);
    if (n->line)
        used += snprintf(where + used, sizeof where - (size_t)used, ":%d:%d", n->line, n->column);
    if (*path) snprintf(where + used, sizeof where - (size_t)used, ": %s", path);
    error_set(err, ERR_INPUT, "%s", text);
    return error_wrap(err, ERR_INPUT, "%s", where);
}

/* Description of n for "found ...". */
static const char *found(char buffer[64], const struct node *n)
{
    static const char *const kinds[] = {"nothing", NULL, "a list", "a map"};
    if (kinds[n->kind]) return kinds[n->kind];
    const char *quote = n->quoted ? "\"" : "'";
    size_t length = strlen(n->text);
    int shown = length > 40 ? 40 : (int)length;
    while (shown < (int)length && shown > 0 && (n->text[shown] & 0xC0) == 0x80) shown--;
    snprintf(buffer, 64, "%s%.*s%s%s", quote, shown, n->text, shown < (int)length ? "..." : "",
             quote);
    return buffer;
}

const struct node *node_get(const struct node *map, const char *key)
{
    if (!map || map->kind != NODE_MAP) return NULL;
    for (size_t i = 0; i < map->count; i++)
        if (!strcmp(map->members[i]->key, key)) return map->members[i];
    return NULL;
}

enum status node_is(const struct node *n, enum node_kind kind, struct error *err)
{
    static const char *const kinds[] = {"nothing", "a single value", "a list",
                                        "a map (key: value)"};
    char buffer[64];
    if (n->kind == kind) return OK;
    return node_error(n, err, "must be %s, found %s", kinds[kind], found(buffer, n));
}

enum status node_need(const struct node *map, const char *key, const struct node **out,
                      struct error *err)
{
    TRY(node_is(map, NODE_MAP, err));
    const struct node *n = node_get(map, key);
    if (!n) return node_error(map, err, "the key '%s' is missing", key);
    *out = n;
    return OK;
}

/* "a, b, c", truncated with ... */
static const char *join(char *buffer, size_t size, const char *const *names)
{
    size_t used = 0;
    buffer[0] = 0;
    for (size_t i = 0; names[i]; i++) {
        size_t need = strlen(names[i]) + 2;
        if (used + need + 4 >= size) {
            snprintf(buffer + used, size - used, "...");
            break;
        }
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? ", " : "", names[i]);
    }
    return buffer;
}

static int index_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

/* Of a list's map: the key of the list. */
static const char *key_of(const struct node *map)
{
    while (map && !map->key) map = map->parent;
    return map ? map->key : "";
}

static enum status unknown_key(const struct node *n, const struct node *map,
                               const char *const *known, struct error *err)
{
    char list[300], hint[NEAREST_HINT];
    const char *now = former_key(key_of(map), n->key);
    if (now) return node_error(n, err, "unknown key '%.60s': %s", n->key, now);
    return node_error(n, err, "unknown key '%.60s'; known: %s%s", n->key,
                      join(list, sizeof list, known), nearest_name_hint(n->key, known, hint));
}

enum status node_keys(const struct node *map, const char *const *known, struct error *err)
{
    TRY(node_is(map, NODE_MAP, err));
    for (size_t i = 0; i < map->count; i++)
        if (index_of(known, map->members[i]->key) < 0)
            return unknown_key(map->members[i], map, known, err);
    return OK;
}

/* An unquoted value: a number in quotes is a text. */
static enum status want_plain(const struct node *n, const char *what, struct error *err)
{
    char buffer[64];
    if (n->kind == NODE_SCALAR && !n->quoted) return OK;
    return node_error(n, err, "must be %s, found %s%s", what, found(buffer, n),
                      n->kind == NODE_SCALAR ? " in quotes" : "");
}

static const char *range_text(char buffer[64], int64_t min, int64_t max)
{
    if (min == INT64_MIN && max == INT64_MAX)
        buffer[0] = 0;
    else if (max == INT64_MAX)
        snprintf(buffer, 64, " of at least %" PRId64, min);
    else if (min == INT64_MIN)
        snprintf(buffer, 64, " of at most %" PRId64, max);
    else
        snprintf(buffer, 64, " from %" PRId64 " to %" PRId64, min, max);
    return buffer;
}

enum status node_int(const struct node *n, int64_t min, int64_t max, int64_t *out,
                     struct error *err)
{
    char range[64], what[96], buffer[64], *end = NULL;
    snprintf(what, sizeof what, "a whole number%s", range_text(range, min, max));
    TRY(want_plain(n, what, err));
    errno = 0;
    long long value = strtoll(n->text, &end, 10);
    bool number = end != n->text && !*end && strchr("+-0123456789", n->text[0]);
    if (!number || errno || value < min || value > max)
        return node_error(n, err, "must be %s, found %s", what, found(buffer, n));
    *out = value;
    return OK;
}

static const char *double_range_text(char buffer[96], double min, double max)
{
    bool low = isfinite(min) && min > -1e300, high = isfinite(max) && max < 1e300;
    if (low && high)
        snprintf(buffer, 96, " from %.10g to %.10g", min, max);
    else if (low || high)
        snprintf(buffer, 96, " of at %s %.10g", low ? "least" : "most", low ? min : max);
    else
        buffer[0] = 0;
    return buffer;
}

enum status node_double(const struct node *n, double min, double max, double *out,
                        struct error *err)
{
    char range[96], what[128], buffer[64];
    double value = 0;
    snprintf(what, sizeof what, "a number%s", double_range_text(range, min, max));
    TRY(want_plain(n, what, err));
    if (!units_parse_number(n->text, &value) || value < min || value > max)
        return node_error(n, err, "must be %s, found %s", what, found(buffer, n));
    *out = value;
    return OK;
}

enum status node_bool(const struct node *n, bool *out, struct error *err)
{
    char buffer[64];
    TRY(want_plain(n, "true or false", err));
    bool yes = !strcmp(n->text, "true"), no = !strcmp(n->text, "false");
    if (!yes && !no) return node_error(n, err, "must be true or false, found %s", found(buffer, n));
    *out = yes;
    return OK;
}

/* spaces: the control characters that the text may have. */
static enum status text_of(const struct node *n, const char *spaces, const char **out,
                           struct error *err)
{
    char buffer[64];
    if (n->kind != NODE_SCALAR)
        return node_error(n, err, "must be a text, found %s", found(buffer, n));
    size_t length = strlen(n->text), i = 0;
    while ((i += utf8_plain(n->text + i, length - i)) < length && strchr(spaces, n->text[i])) i++;
    if (i < length)
        return node_error(n, err, "must not contain control characters (found one at byte %zu)",
                          i + 1);
    *out = n->text;
    return OK;
}

enum status node_text(const struct node *n, const char **out, struct error *err)
{
    return text_of(n, "", out, err);
}

enum status node_lines(const struct node *n, const char **out, struct error *err)
{
    return text_of(n, "\t\r\n", out, err);
}

enum status node_choice(const struct node *n, const char *const *names, int *out, struct error *err)
{
    char list[300], buffer[64], hint[NEAREST_HINT] = "";
    int index = n->kind == NODE_SCALAR ? index_of(names, n->text) : -1;
    if (n->kind == NODE_SCALAR) nearest_name_hint(n->text, names, hint);
    if (index < 0)
        return node_error(n, err, "must be one of %s; found %s%s", join(list, sizeof list, names),
                          found(buffer, n), hint);
    *out = index;
    return OK;
}

static const struct {
    const char *what, *base;
} quantities[] = {
    [QUANTITY_BYTES] = {"a size such as 80 GiB or 64 kB", "bytes"},
    [QUANTITY_BYTES_PER_S] = {"a rate such as 25 GB/s or 100 Gb/s", "bytes/s"},
    [QUANTITY_SECONDS] = {"a time such as 5 us or 1.5 ms", "s"},
    [QUANTITY_FLOPS] = {"a speed such as 312 TFLOP/s", "FLOP/s"},
    [QUANTITY_WATTS] = {"a power such as 300 W", "W"},
};

enum status node_quantity(const struct node *n, enum quantity q, double min, double max,
                          double *out, struct error *err)
{
    char range[96], buffer[64], hint[UNITS_HINT] = "";
    double value = 0;
    if (n->kind != NODE_SCALAR || !units_parse(q, n->text, &value))
        return node_error(n, err, "must be %s, found %s%s", quantities[q].what, found(buffer, n),
                          n->kind == NODE_SCALAR ? units_hint(hint, q, n->text) : hint);
    if (value < min || value > max)
        return node_error(n, err, "must be a quantity%s %s, found %s",
                          double_range_text(range, min, max), quantities[q].base, found(buffer, n));
    *out = value;
    return OK;
}

/* The member; NULL: keep the default. */
static const struct node *given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

enum status node_get_int(const struct node *map, const char *key, int64_t min, int64_t max,
                         int64_t *out, struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_int(n, min, max, out, err) : OK;
}

enum status node_get_double(const struct node *map, const char *key, double min, double max,
                            double *out, struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_double(n, min, max, out, err) : OK;
}

enum status node_get_bool(const struct node *map, const char *key, bool *out, struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_bool(n, out, err) : OK;
}

enum status node_get_text(const struct node *map, const char *key, const char **out,
                          struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_text(n, out, err) : OK;
}

enum status node_get_lines(const struct node *map, const char *key, const char **out,
                           struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_lines(n, out, err) : OK;
}

enum status node_get_quantity(const struct node *map, const char *key, enum quantity q, double min,
                              double max, double *out, struct error *err)
{
    const struct node *n = given(map, key);
    return n ? node_quantity(n, q, min, max, out, err) : OK;
}
