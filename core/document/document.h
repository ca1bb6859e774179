/* core/document/document.h - a YAML or JSON file as a tree whose nodes record their position.
 *
 * Readers of files (job, cluster, plan, config.json, traces' headers) get typed values with range checks;
 * an error is one line with the position (file:line:column and field path), the value found and the values accepted.
 * YAML is parsed by libyaml events (aliases and tags are errors: they are unnecessary here and
 * allow exponential expansion), JSON by jansson (duplicate keys are errors; positions are field paths, syntax errors
 * have line:column). Depth is limited to 64, size to 64 MiB.
 * Ownership: the arena's. Errors: ERR_INPUT unless stated otherwise.
 */
#ifndef CORE_DOCUMENT_DOCUMENT_H
#define CORE_DOCUMENT_DOCUMENT_H

#include "core/base/error.h"
#include "core/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum node_kind { NODE_NULL, NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
    enum node_kind kind;
    bool quoted;               /* the scalar was quoted (YAML) or a JSON string */
    const char *text;          /* scalar's text as written */
    const char *key;           /* key in the parent map, without control characters; or NULL */
    size_t index;              /* index in the parent list */
    const struct node *parent; /* NULL: the root */
    const char *file;          /* for messages */
    int line, column;          /* 1-based; 0: unknown in this format */
    size_t count;              /* members of a map or a list */
    struct node **members;
};

/* Format by content: '{' or '[' first means JSON, everything else YAML. name is the file name in messages. */
MUST_CHECK enum status document_read(struct arena *a, const char *path, struct node **out,
                                     struct error *err);
MUST_CHECK enum status document_parse(struct arena *a, const char *name, const char *text, size_t n,
                                      struct node **out, struct error *err);

/* The field path, "nodes[1].host"; the end of one longer than size - 1 bytes. Computed on demand, because the paths of all
 * nodes of a file can be much longer than the file. */
const char *node_path(const struct node *n, char *buffer, size_t size);

/* ERR_INPUT "file:line:column: path: message", used by every reader. */
enum status node_error(const struct node *n, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

const struct node *node_get(const struct node *map, const char *key); /* NULL: absent */
MUST_CHECK enum status node_need(const struct node *map, const char *key, const struct node **out,
                                 struct error *err);
/* ERR_INPUT for a key outside the NULL-ended list, with the known ones, and for a node that is not a map. */
MUST_CHECK enum status node_keys(const struct node *map, const char *const *known,
                                 struct error *err);
MUST_CHECK enum status node_is(const struct node *n, enum node_kind kind, struct error *err);

/* Scalars. Ranges are inclusive and part of the message. */
MUST_CHECK enum status node_int(const struct node *n, int64_t min, int64_t max, int64_t *out,
                                struct error *err);
MUST_CHECK enum status node_double(const struct node *n, double min, double max, double *out,
                                   struct error *err);
MUST_CHECK enum status node_bool(const struct node *n, bool *out, struct error *err);
/* One line without control characters (core/base/utf8.h): printable as a name. */
MUST_CHECK enum status node_text(const struct node *n, const char **out, struct error *err);
/* Tabs and line ends allowed: text that is parsed further and not printed as it is. */
MUST_CHECK enum status node_lines(const struct node *n, const char **out, struct error *err);
/* One of the NULL-ended names; *out: its index. */
MUST_CHECK enum status node_choice(const struct node *n, const char *const *names, int *out,
                                   struct error *err);
/* "25 GB/s", "1.5 GiB", "50 us", "312 TFLOP/s" -> SI base units (core/base/units.h parses); min <= value <= max. A number
 * without a unit is an error, except 0. */
MUST_CHECK enum status node_quantity(const struct node *n, enum quantity q, double min, double max,
                                     double *out, struct error *err);

/* node_get + the getter; *out keeps its default if the key is absent or null. */
MUST_CHECK enum status node_get_int(const struct node *map, const char *key, int64_t min,
                                    int64_t max, int64_t *out, struct error *err);
MUST_CHECK enum status node_get_double(const struct node *map, const char *key, double min,
                                       double max, double *out, struct error *err);
MUST_CHECK enum status node_get_bool(const struct node *map, const char *key, bool *out,
                                     struct error *err);
MUST_CHECK enum status node_get_text(const struct node *map, const char *key, const char **out,
                                     struct error *err);
MUST_CHECK enum status node_get_lines(const struct node *map, const char *key, const char **out,
                                      struct error *err);
MUST_CHECK enum status node_get_quantity(const struct node *map, const char *key, enum quantity q,
                                         double min, double max, double *out, struct error *err);

#endif
