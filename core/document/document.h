/* core/document/document.h - a YAML or JSON file as a tree whose every node knows where it stands.
 *
 * Readers of files (job, cluster, plan, config.json, traces' headers) ask the tree for what they
 * want, with the range they accept; the tree answers with a value or with one line that names the
 * place (file:line:column and field path), what was found and what would have been right.
 * YAML is parsed by libyaml events (aliases and tags are refused: nobody needs them here and
 * they hide bombs), JSON by jansson (duplicates refused; places are field paths, syntax errors
 * have line:column). Depth is capped at 64, size at 64 MiB.
 * Ownership: the arena's. Errors: ERR_INPUT unless said otherwise.
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
    bool quoted;               /* the scalar stood in quotes (YAML) or was a JSON string */
    const char *text;          /* scalar's text as written */
    const char *key;           /* name in the parent map, without control characters; or NULL */
    size_t index;              /* place in the parent list */
    const struct node *parent; /* NULL: the root */
    const char *file;          /* for messages */
    int line, column;          /* 1-based; 0 where the format does not tell */
    size_t count;              /* members of a map or a list */
    struct node **members;
};

/* Format by content: '{' or '[' first means JSON, everything else YAML. name labels messages. */
MUST_CHECK enum status document_read(struct arena *a, const char *path, struct node **out,
                                     struct error *err);
MUST_CHECK enum status document_parse(struct arena *a, const char *name, const char *text, size_t n,
                                      struct node **out, struct error *err);

/* The field path, "nodes[1].host"; of one longer than size - 1 bytes the end. Made when asked for, because the paths of all
 * nodes of a file can be longer than the file by far. */
const char *node_path(const struct node *n, char *buffer, size_t size);

/* ERR_INPUT "file:line:column: path: message"; the way every reader complains about a node. */
enum status node_error(const struct node *n, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

const struct node *node_get(const struct node *map, const char *key); /* NULL where absent */
MUST_CHECK enum status node_need(const struct node *map, const char *key, const struct node **out,
                                 struct error *err);
/* A key that is in none of the NULL-ended list is an error that lists the known ones. Also: must be a map. */
MUST_CHECK enum status node_keys(const struct node *map, const char *const *known,
                                 struct error *err);
MUST_CHECK enum status node_is(const struct node *n, enum node_kind kind, struct error *err);

/* Scalars. Ranges are inclusive; the message names them. */
MUST_CHECK enum status node_int(const struct node *n, int64_t min, int64_t max, int64_t *out,
                                struct error *err);
MUST_CHECK enum status node_double(const struct node *n, double min, double max, double *out,
                                   struct error *err);
MUST_CHECK enum status node_bool(const struct node *n, bool *out, struct error *err);
/* On one line, without control characters (core/base/utf8.h): what may be printed as a name. */
MUST_CHECK enum status node_text(const struct node *n, const char **out, struct error *err);
/* Also with tabs and line ends: what is parsed again and not printed as it is. */
MUST_CHECK enum status node_lines(const struct node *n, const char **out, struct error *err);
/* One of the NULL-ended names; *out its index. */
MUST_CHECK enum status node_choice(const struct node *n, const char *const *names, int *out,
                                   struct error *err);
/* "25 GB/s", "1.5 GiB", "50 us", "312 TFLOP/s" -> SI base units (core/base/units.h parses); min <= value <= max. A number
 * other than 0 without a unit is refused. */
MUST_CHECK enum status node_quantity(const struct node *n, enum quantity q, double min, double max,
                                     double *out, struct error *err);

/* node_get + the getter, leaving *out (the default) where the key is absent or null. */
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
