#include "traces/xml.h"

#include "core/base/arena.h"
#include "core/base/file.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct arena *a;
    const char *file, *at, *end;
    int line, depth;
    struct xml *open; /* the innermost element */
    struct xml *root;
    struct xml *last[XML_DEPTH_MAX]; /* of the children of the element at each depth */
    struct error *err;
};

static enum status broken(const struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static enum status broken(const struct reader *r, const char *fmt, ...)
{
    char text[ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    error_format(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(r->err, ERR_INPUT, "%s:%d: %s", r->file, r->line, text);
}

enum status xml_error(const struct xml *e, struct error *err, const char *fmt, ...)
{
    char text[ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    error_format(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(err, ERR_INPUT, "%s:%d: <%.40s>: %s", e->file, e->line, e->name, text);
}

const char *xml_get(const struct xml *e, const char *attribute)
{
    for (int32_t i = 0; i < e->n_attributes; i++)
        if (!strcmp(e->attributes[i].name, attribute)) return e->attributes[i].value;
    return NULL;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void skip_space(struct reader *r)
{
    for (; r->at < r->end && is_space(*r->at); r->at++) r->line += *r->at == '\n';
}

static bool starts(const struct reader *r, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(r->end - r->at) >= n && !memcmp(r->at, word, n);
}

/* Skips to the position after the next `word`, without parsing. */
static enum status skip_past(struct reader *r, const char *word, const char *what)
{
    for (; r->at < r->end; r->at++) {
        if (starts(r, word)) {
            r->at += strlen(word);
            return OK;
        }
        r->line += *r->at == '\n';
    }
    return broken(r, "the file ends inside %s", what);
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
}

static enum status read_name(struct reader *r, const char **out)
{
    const char *start = r->at;
    while (r->at < r->end && is_name(*r->at)) r->at++;
    if (r->at == start)
        return r->at == r->end ? broken(r, "the file ends where a name is expected")
                               : broken(r, "a name is expected, found byte 0x%02x",
                                        (unsigned)(unsigned char)*r->at);
    if (r->at - start > XML_TEXT_MAX)
        return broken(r, "a name of more than %d bytes", XML_TEXT_MAX);
    *out = arena_strndup(r->a, start, (size_t)(r->at - start));
    return OK;
}

static enum status read_value(struct reader *r, const char *name, const char **out)
{
    char quote = r->at < r->end ? *r->at : 0;
    if (quote != '"' && quote != '\'')
        return broken(r, "the value of %.40s must be in quotes", name);
    const char *start = ++r->at;
    for (; r->at < r->end && *r->at != quote; r->at++) {
        unsigned char c = (unsigned char)*r->at;
        if (c == '&') return broken(r, "%.40s: entities are not read", name);
        if (c == '<') return broken(r, "%.40s: '<' in a value: is its quote missing?", name);
        if (c < 0x20 && c != '\t')
            return broken(r, "%.40s: control character 0x%02x in a value", name, (unsigned)c);
        if (r->at - start >= XML_TEXT_MAX)
            return broken(r, "%.40s: a value of more than %d bytes", name, XML_TEXT_MAX);
    }
    if (r->at == r->end) return broken(r, "the file ends inside the value of %.40s", name);
    *out = arena_strndup(r->a, start, (size_t)(r->at++ - start));
    return OK;
}

static enum status read_attributes(struct reader *r, struct xml *e)
{
    struct xml_attribute list[XML_ATTRIBUTES_MAX];
    for (;;) {
        const char *before = r->at;
        struct xml_attribute x;
        skip_space(r);
        if (r->at == r->end) return broken(r, "the file ends inside <%.40s", e->name);
        if (*r->at == '>' || *r->at == '/') break;
        if (r->at == before) return broken(r, "<%.40s: a space is expected", e->name);
        if (e->n_attributes == XML_ATTRIBUTES_MAX)
            return broken(r, "<%.40s has more than %d attributes", e->name, XML_ATTRIBUTES_MAX);
        TRY(read_name(r, &x.name));
        skip_space(r);
        if (r->at == r->end || *r->at != '=')
            return broken(r, "<%.40s: attribute %.40s has no value", e->name, x.name);
        r->at++;
        skip_space(r);
        TRY(read_value(r, x.name, &x.value));
        for (int32_t i = 0; i < e->n_attributes; i++)
            if (!strcmp(list[i].name, x.name))
                return broken(r, "<%.40s: attribute %.40s is given twice", e->name, x.name);
        list[e->n_attributes++] = x;
    }
    e->attributes = ARENA_ARRAY(r->a, struct xml_attribute, (size_t)e->n_attributes);
    for (int32_t i = 0; i < e->n_attributes; i++) e->attributes[i] = list[i];
    return OK;
}

static enum status read_start(struct reader *r)
{
    struct xml *e = ARENA_ARRAY(r->a, struct xml, 1);
    if (!r->open && r->root) return broken(r, "a second element behind <%.40s>", r->root->name);
    if (r->depth == XML_DEPTH_MAX) return broken(r, "more than %d elements deep", XML_DEPTH_MAX);
    *e = (struct xml){.file = r->file, .line = r->line, .parent = r->open};
    r->at++;
    TRY(read_name(r, &e->name));
    TRY(read_attributes(r, e));
    if (!r->open) {
        r->root = e;
    } else {
        struct xml **last = &r->last[r->depth - 1];
        *(r->open->first ? &(*last)->next : &r->open->first) = e;
        *last = e;
    }
    bool empty = *r->at == '/';
    r->at += empty;
    if (r->at == r->end || *r->at != '>') return broken(r, "<%.40s: '>' is expected", e->name);
    r->at++;
    if (empty) return OK;
    r->open = e;
    r->depth++;
    return OK;
}

static enum status read_end(struct reader *r)
{
    const char *name;
    r->at += 2;
    TRY(read_name(r, &name));
    skip_space(r);
    if (r->at == r->end || *r->at != '>') return broken(r, "</%.40s: '>' is expected", name);
    r->at++;
    if (!r->open) return broken(r, "</%.40s> ends nothing", name);
    if (strcmp(name, r->open->name) != 0)
        return broken(r, "</%.40s> where <%.40s> of line %d is open", name, r->open->name,
                      r->open->line);
    r->open = r->open->parent;
    r->depth--;
    return OK;
}

static enum status read_item(struct reader *r)
{
    if (starts(r, "<!--")) {
        r->at += 4;
        return skip_past(r, "-->", "a comment");
    }
    if (starts(r, "<?")) return skip_past(r, "?>", "<? … ?>");
    if (starts(r, "<!DOCTYPE") || starts(r, "<!ENTITY"))
        return broken(r, "document types are not read");
    if (starts(r, "<!")) return broken(r, "'<!' begins nothing that is read here");
    if (starts(r, "</")) return read_end(r);
    if (*r->at == '<') return read_start(r);
    return broken(r, r->root ? "text between elements" : "this is not XML: '<' is expected first");
}

enum status xml_parse(struct arena *a, const char *name, const char *text, size_t n,
                      struct xml **out, struct error *err)
{
    struct reader r = {.a = a, .file = name, .at = text, .end = text + n, .line = 1, .err = err};
    if (starts(&r, "\xef\xbb\xbf")) r.at += 3;
    for (skip_space(&r); r.at < r.end; skip_space(&r)) TRY(read_item(&r));
    if (r.open)
        return broken(&r, "the file ends and <%.40s> of line %d is open", r.open->name,
                      r.open->line);
    if (!r.root) return broken(&r, "no element in the file");
    *out = r.root;
    return OK;
}

enum status xml_read(struct arena *a, const char *path, struct xml **out, struct error *err)
{
    char *text;
    size_t n;
    TRY(file_read(a, path, XML_BYTES_MAX, &text, &n, err));
    return xml_parse(a, path, text, n, out, err);
}
