#include "core/document/document.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/utf8.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_BYTES ((size_t)64 * 1024 * 1024)
#define MAX_DEPTH 64
/* A tree of this size takes about 1 GB, far above any real file. */
#define MAX_NODES ((size_t)4 * 1000 * 1000)

/* One file being read. Both parsers make their nodes here. */
struct reader {
    struct arena *a;
    const char *name;
    size_t n_nodes;
    struct error *err;
    yaml_parser_t yaml;
    yaml_event_t event;
    bool has_event;
};

/* Position of a new node: a key of a map, an index of a list, or the root (neither). */
struct place {
    const struct node *parent;
    const char *key;
    size_t index;
    int depth;
};

/* ERR_INPUT at a position of the text, before there is a node. */
#define SYNTAX(r, line, column, ...)                                                               \
    (error_set((r)->err, ERR_INPUT, __VA_ARGS__),                                                  \
     error_wrap((r)->err, ERR_INPUT, "%s:%d:%d", (r)->name, (int)(line), (int)(column)))

static enum status node_new(struct reader *r, enum node_kind kind, struct place at, int line,
                            int column, struct node **out)
{
    struct node *n = ARENA_ARRAY(r->a, struct node, 1);
    *n = (struct node){.kind = kind,
                       .key = at.key,
                       .index = at.index,
                       .parent = at.parent,
                       .file = r->name,
                       .line = line,
                       .column = column};
    *out = n;
    if (at.key && at.key[utf8_plain(at.key, strlen(at.key))])
        return node_error(n, r->err, "a key must not contain control characters");
    if (at.depth > MAX_DEPTH)
        return node_error(n, r->err, "nested deeper than %d levels", MAX_DEPTH);
    if (++r->n_nodes > MAX_NODES)
        return node_error(n, r->err, "more than %zu values in one file", MAX_NODES);
    return OK;
}

static void append(struct reader *r, struct node *to, size_t *capacity, struct node *member)
{
    to->members = arena_grow(r->a, to->members, to->count, capacity, sizeof *to->members);
    to->members[to->count++] = member;
}

/* ---- YAML ------------------------------------------------------------------------------------- */

static enum status yaml_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->yaml;
    if (p->error == YAML_MEMORY_ERROR) arena_exhausted(0);
    const char *context = p->context ? p->context : "";
    if (p->error == YAML_SCANNER_ERROR && p->buffer.pointer < p->buffer.last && *p->buffer.pointer == '\t')
        return SYNTAX(r, p->problem_mark.line + 1, p->problem_mark.column + 1,
                      "a tab is no indentation in YAML, use spaces");
    return SYNTAX(r, p->problem_mark.line + 1, p->problem_mark.column + 1, "%s%s%s",
                  p->problem ? p->problem : "not YAML", *context ? " " : "", context);
}

static enum status yaml_next(struct reader *r)
{
    if (r->has_event) yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->yaml, &r->event)) return yaml_syntax(r);
    r->has_event = true;
    return OK;
}

static int event_line(const struct reader *r) { return (int)r->event.start_mark.line + 1; }
static int event_column(const struct reader *r) { return (int)r->event.start_mark.column + 1; }

/* Anchors, aliases and tags are errors: a file has one meaning. */
static enum status yaml_refuse(struct reader *r)
{
    const yaml_event_t *e = &r->event;
    bool anchor = e->type == YAML_ALIAS_EVENT, tag = false;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor != NULL;
        tag = e->data.scalar.tag != NULL;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor != NULL;
        tag = e->data.sequence_start.tag != NULL;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor != NULL;
        tag = e->data.mapping_start.tag != NULL;
    }
    if (anchor)
        return SYNTAX(r, event_line(r), event_column(r),
                      "anchors and aliases (&name, *name) are not accepted: write the value out");
    if (tag) return SYNTAX(r, event_line(r), event_column(r), "tags (!name) are not accepted");
    return OK;
}

static bool means_null(const char *text)
{
    return !*text || !strcmp(text, "~") || !strcmp(text, "null") || !strcmp(text, "Null") ||
           !strcmp(text, "NULL");
}

static enum status yaml_text(struct reader *r, const char **out)
{
    const char *value = (const char *)r->event.data.scalar.value;
    size_t length = r->event.data.scalar.length;
    if (strlen(value) != length)
        return SYNTAX(r, event_line(r), event_column(r), "a text must not contain a NUL character");
    *out = arena_strndup(r->a, value, length);
    return OK;
}

/* By key, then by position: the error is reported at the second of two equal keys. */
static int by_key(const void *x, const void *y)
{
    const struct node *a = *(struct node *const *)x, *b = *(struct node *const *)y;
    int order = strcmp(a->key, b->key);
    if (!order) order = a->line < b->line ? -1 : a->line > b->line;
    if (!order) order = a->column < b->column ? -1 : a->column > b->column;
    return order;
}

static enum status yaml_duplicates(struct reader *r, const struct node *map)
{
    if (map->count < 2) return OK;
    struct node **sorted = ARENA_ARRAY(r->a, struct node *, map->count);
    memcpy(sorted, map->members, map->count * sizeof *sorted);
    qsort(sorted, map->count, sizeof *sorted, by_key);
    for (size_t i = 1; i < map->count; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
            return node_error(sorted[i], r->err, "key '%.80s' is given twice (first in line %d)",
                              sorted[i]->key, sorted[i - 1]->line);
    return OK;
}

static enum status yaml_value(struct reader *r, struct place at, struct node **out);

static enum status yaml_members(struct reader *r, struct node *n, int depth)
{
    bool map = n->kind == NODE_MAP;
    yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    size_t capacity = 0;
    for (;;) {
        TRY(yaml_next(r));
        if (r->event.type == end) break;
        struct place at = {.parent = n, .index = n->count, .depth = depth + 1};
        if (map) {
            TRY(yaml_refuse(r));
            if (r->event.type != YAML_SCALAR_EVENT)
                return SYNTAX(r, event_line(r), event_column(r), "a key must be a plain text");
            TRY(yaml_text(r, &at.key));
            TRY(yaml_next(r));
        }
        struct node *member = NULL;
        TRY(yaml_value(r, at, &member));
        append(r, n, &capacity, member);
    }
    return map ? yaml_duplicates(r, n) : OK;
}

/* The value that starts with the current event. */
static enum status yaml_value(struct reader *r, struct place at, struct node **out)
{
    int line = event_line(r), column = event_column(r);
    TRY(yaml_refuse(r));
    if (r->event.type == YAML_SCALAR_EVENT) {
        TRY(node_new(r, NODE_SCALAR, at, line, column, out));
        TRY(yaml_text(r, &(*out)->text));
        (*out)->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        if (!(*out)->quoted && means_null((*out)->text)) (*out)->kind = NODE_NULL;
        return OK;
    }
    enum node_kind kind = r->event.type == YAML_MAPPING_START_EVENT ? NODE_MAP : NODE_LIST;
    TRY(node_new(r, kind, at, line, column, out));
    return yaml_members(r, *out, at.depth);
}

static enum status yaml_document(struct reader *r, struct node **out)
{
    TRY(yaml_next(r)); /* the stream's start */
    TRY(yaml_next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return SYNTAX(r, 1, 1, "the file is empty");
    TRY(yaml_next(r)); /* the document's first value */
    TRY(yaml_value(r, (struct place){.depth = 1}, out));
    TRY(yaml_next(r)); /* the document's end */
    TRY(yaml_next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return SYNTAX(r, event_line(r), event_column(r), "more than one document in the file");
    return OK;
}

static enum status read_yaml(struct reader *r, const char *text, size_t n, struct node **out)
{
    if (!yaml_parser_initialize(&r->yaml)) arena_exhausted(0);
    yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->yaml, (const unsigned char *)text, n);
    enum status status = yaml_document(r, out);
    if (r->has_event) yaml_event_delete(&r->event);
    yaml_parser_delete(&r->yaml);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------- */

static enum status json_value(struct reader *r, json_t *json, struct place at, struct node **out);

static enum status json_members(struct reader *r, json_t *json, struct node *n, int depth)
{
    size_t capacity = 0, index = 0;
    const char *key = NULL;
    json_t *value = NULL;
    struct node *member = NULL;
    if (json_is_array(json)) {
        json_array_foreach(json, index, value)
        {
            struct place at = {.parent = n, .index = index, .depth = depth + 1};
            TRY(json_value(r, value, at, &member));
            append(r, n, &capacity, member);
        }
        return OK;
    }
    json_object_foreach(json, key, value)
    {
        struct place at = {.parent = n, .key = arena_strdup(r->a, key), .depth = depth + 1};
        TRY(json_value(r, value, at, &member));
        append(r, n, &capacity, member);
    }
    return OK;
}

static enum status json_value(struct reader *r, json_t *json, struct place at, struct node **out)
{
    char number[32];
    enum node_kind kind = json_is_object(json)  ? NODE_MAP
                          : json_is_array(json) ? NODE_LIST
                          : json_is_null(json)  ? NODE_NULL
                                                : NODE_SCALAR;
    TRY(node_new(r, kind, at, 0, 0, out));
    struct node *n = *out;
    if (kind == NODE_MAP || kind == NODE_LIST) return json_members(r, json, n, at.depth);
    n->quoted = json_is_string(json);
    n->text = json_is_string(json)  ? arena_strdup(r->a, json_string_value(json))
              : json_is_true(json)  ? "true"
              : json_is_false(json) ? "false"
              : json_is_null(json)  ? ""
              : json_is_real(json)
                  ? arena_strdup(r->a, json_number(number, json_real_value(json)))
                  : arena_printf(r->a, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
    return OK;
}

/* jansson builds its whole tree before it can be stopped, so values are counted beforehand: each except
 * the first follows a comma or an opening bracket outside strings. */
static bool too_many_values(const char *text, size_t n)
{
    size_t count = 0;
    bool inside = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (inside && c == '\\')
            i++;
        else if (c == '"')
            inside = !inside;
        else if (!inside)
            count += c == ',' || c == '[' || c == '{';
    }
    return count > MAX_NODES;
}

static enum status read_json(struct reader *r, const char *text, size_t n, struct node **out)
{
    json_error_t why;
    if (too_many_values(text, n))
        return SYNTAX(r, 1, 1, "more than %zu values in one file", MAX_NODES);
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!json && json_error_code(&why) == json_error_out_of_memory) arena_exhausted(n);
    if (!json) return SYNTAX(r, why.line, why.column, "%s", why.text);
    enum status status = json_value(r, json, (struct place){.depth = 1}, out);
    json_decref(json);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------- */

static enum status check_text(struct reader *r, const char *text, size_t n)
{
    int line = 1, column = 1;
    for (size_t i = 0, length; i < n; i += length) {
        length = utf8_next(text + i, n - i, NULL);
        if (!length)
            return SYNTAX(r, line, column, "not UTF-8 text (byte 0x%02x)", (unsigned char)text[i]);
        if (!text[i]) return SYNTAX(r, line, column, "a NUL byte: this is not a text file");
        column++;
        if (text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return OK;
}

enum status document_parse(struct arena *a, const char *name, const char *text, size_t n,
                           struct node **out, struct error *err)
{
    /* SYNTAX wraps what it has just said, so there must be something to wrap */
    struct error unheard;
    struct reader r = {.a = a, .name = arena_strdup(a, name), .err = err ? err : &unheard};
    if (n > MAX_BYTES)
        return error_set(err, ERR_INPUT, "'%s' has %zu bytes; at most %zu are accepted", name, n,
                         MAX_BYTES);
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        text += 3;
        n -= 3;
    }
    TRY(check_text(&r, text, n));
    size_t first = 0;
    while (first < n && strchr(" \t\r\n", text[first])) first++;
    bool json = first < n && (text[first] == '{' || text[first] == '[');
    struct node *root = NULL;
    TRY(json ? read_json(&r, text, n, &root) : read_yaml(&r, text, n, &root));
    *out = root;
    return OK;
}

/* What a file of musher that is no document is; NULL for any other text. */
static const char *other_file(const char *text, size_t n)
{
    static const struct {
        const char *start, *is;
    } files[] = {{"\x1f\x8b", "a gzip file: only traces are read compressed"},
                 {"{\"schema\":1,\"error\":", NULL}, /* --json of a run that failed */
                 {"{\"schema\":", "a trace; a job, cluster or plan was expected"},
                 {"musher-program ", "a program; a job, cluster or plan was expected"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (n >= strlen(files[i].start) && !memcmp(text, files[i].start, strlen(files[i].start)))
            return files[i].is;
    return NULL;
}

enum status document_read(struct arena *a, const char *path, struct node **out, struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    TRY(file_read(a, path, MAX_BYTES, &text, &n, err));
    const char *of = other_file(text, n);
    if (of) return error_set(err, ERR_INPUT, "%s: %s", file_label(path), of);
    return document_parse(a, file_label(path), text, n, out, err);
}
