#include "core/document/canonical.h"

#include "core/base/units.h"
#include "core/base/utf8.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_MAX = 200, NAME_MAX_BYTES = 100 };

/* --- writing --- */

/* Characters that a YAML parser rejects, folds into spaces or takes for a byte order mark. */
static bool must_escape(uint32_t c)
{
    return utf8_is_control(c) || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
}

/* Starts with a letter and has no character that is special in YAML. */
static bool is_plain(const char *text)
{
    static const char *const taken[] = {"true", "false", "null", "Null", "NULL",  "yes",   "no",
                                        "on",   "off",   "True", "TRUE", "False", "FALSE", NULL};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "0123456789_-./+";
    if (!*text || !strchr(letters, *text)) return false;
    for (const char *c = text; *c; c++)
        if (!strchr(letters, *c) && !strchr(others, *c)) return false;
    for (int i = 0; taken[i]; i++)
        if (!strcmp(text, taken[i])) return false;
    return true;
}

static void write_character(FILE *out, const char *s, size_t length, uint32_t c)
{
    if (c == '"' || c == '\\')
        fprintf(out, "\\%c", (int)c);
    else if (!must_escape(c))
        fwrite(s, 1, length, out);
    else if (c > 0xFFFF)
        fprintf(out, "\\U%08" PRIX32, c);
    else
        fprintf(out, "\\u%04" PRIX32, c);
}

void canonical_text(FILE *out, const char *text)
{
    if (!text) text = "";
    if (is_plain(text)) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (size_t i = 0, n = strlen(text), length; i < n; i += length) {
        uint32_t c = 0xFFFD;
        length = utf8_next(text + i, n - i, &c);
        if (length)
            write_character(out, text + i, length, c);
        else
            fputs("\xEF\xBF\xBD", out); /* no text: U+FFFD */
        if (!length) length = 1;
    }
    fputc('"', out);
}

void canonical_double(FILE *out, double value)
{
    char buffer[32];
    fputs(json_number(buffer, value), out);
}

static const struct {
    const char *name;
    double factor;
} units[][8] = {
    /* the largest first, ended by a name of NULL */
    [QUANTITY_BYTES] =
        {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}},
    [QUANTITY_BYTES_PER_S] =
        {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}},
    [QUANTITY_SECONDS] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}},
    [QUANTITY_FLOPS] =
        {{"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}, {"FLOP/s", 1}},
    [QUANTITY_WATTS] = {{"W", 1}},
};
static const char *const base_units[] = {"B", "B/s", "s", "FLOP/s", "W"};

/* Too many digits to read: use a smaller unit. */
enum { SHORT_NUMBER = 8 };

static bool quantity_in_unit(enum quantity q, int unit, double value, char text[64])
{
    char number[32];
    double factor = units[q][unit].factor, scaled = value / factor, again = 0;
    /* Factors of times are not exact; the rounded number is the one originally written. */
    if (factor < 1) {
        snprintf(number, sizeof number, "%.15g", scaled);
        for (char *c = number; *c; c++)
            if (!strchr("0123456789+-e", *c)) *c = '.';
        if (!units_parse_number(number, &scaled)) return false;
    }
    if (scaled < 1 || strlen(json_number(number, scaled)) > SHORT_NUMBER) return false;
    snprintf(text, 64, "%s %s", number, units[q][unit].name);
    return units_parse(q, text, &again) && again >= value && again <= value;
}

void canonical_quantity(FILE *out, enum quantity q, double value)
{
    char text[64];
    for (int i = 0; units[q][i].name; i++)
        if (quantity_in_unit(q, i, value, text)) {
            fputs(text, out);
            return;
        }
    canonical_double(out, value);
    if (value > 0) fprintf(out, " %s", base_units[q]);
}

void canonical_indent(FILE *out, int n) { fprintf(out, "%*s", n, ""); }

/* --- reading --- */

enum status canonical_kind(const struct node *root, const char *expected, struct error *err)
{
    static const char *const kinds[][2] = {
        {"plan", "replicas"}, {"cluster", "nodes"}, {"job", "global_batch"}};
    const char *found = NULL, *key = "";
    if (root->kind != NODE_MAP) return OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!node_get(root, kinds[i][1])) continue;
        if (!strcmp(kinds[i][0], expected)) return OK;
        if (!found) found = kinds[i][0], key = kinds[i][1];
    }
    if (!found) return OK;
    return node_error(root, err, "this is a %s (it has '%s'); a %s was expected", found, key,
                      expected);
}

enum status canonical_version(const struct node *root, struct error *err)
{
    const struct node *n;
    int64_t version;
    TRY(node_need(root, "version", &n, err));
    TRY(node_int(n, 0, INT32_MAX, &version, err));
    if (version != 1)
        return node_error(n, err, "version %" PRId64 " is not supported; this musher reads version 1",
                          version);
    return OK;
}

static enum status read_text(const struct node *n, size_t most, bool name, const char **out,
                             struct error *err)
{
    const char *text;
    TRY(node_text(n, &text, err));
    size_t length = strlen(text);
    if (!length) return node_error(n, err, "must not be empty");
    if (length > most)
        return node_error(n, err, "has %zu bytes; at most %zu are accepted", length, most);
    for (size_t i = 0, step; i < length; i += step) {
        uint32_t c = 0;
        step = utf8_next(text + i, length - i, &c);
        if (!step || must_escape(c))
            return node_error(n, err, "must not contain control characters (found one at byte %zu)",
                              i + 1);
        if (name && (c == ' ' || c == 0xA0))
            return node_error(n, err, "'%s': a name must not contain spaces", text);
        if (name && c == '.')
            return node_error(
                n, err, "'%s': a name must not contain dots (a.0 is device 0 of node a)", text);
    }
    *out = text;
    return OK;
}

enum status canonical_label(const struct node *n, const char **out, struct error *err)
{
    return read_text(n, LABEL_MAX, false, out, err);
}

enum status canonical_name(const struct node *n, const char **out, struct error *err)
{
    return read_text(n, NAME_MAX_BYTES, true, out, err);
}

static int by_key(const void *x, const void *y)
{
    const struct canonical_entry *a = x, *b = y;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

enum status canonical_unique(struct canonical_entry *entries, size_t n, const char *what,
                             struct error *err)
{
    if (n > 1) qsort(entries, n, sizeof *entries, by_key);
    for (size_t i = 1; i < n; i++) {
        const struct canonical_entry *e = &entries[i];
        if (strcmp(e[-1].key, e->key) != 0) continue;
        if (!e[-1].at->line) return node_error(e->at, err, "%s %s is given twice", what, e->key);
        return node_error(e->at, err, "%s %s is given twice (first in line %d)", what, e->key,
                          e[-1].at->line);
    }
    return OK;
}
