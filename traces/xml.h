/* traces/xml.h - parser of a safe XML subset for machine-written topology files: elements and attributes.
 *
 * Accepted: one root element, nested elements, quoted attributes, comments and <?…?>. Rejected with file:line: DTDs, entities
 * and character references (nothing is expanded), CDATA, text between elements, duplicate attributes in one element, anything
 * after the root, and anything beyond the limits below in depth, length or number. Reading is therefore O(bytes) in time
 * and memory for any file.
 */
#ifndef TRACES_XML_H
#define TRACES_XML_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct arena;

enum { XML_BYTES_MAX = 1 << 24, XML_DEPTH_MAX = 64, XML_ATTRIBUTES_MAX = 64, XML_TEXT_MAX = 1024 };

struct xml_attribute {
    const char *name, *value;
};
struct xml {
    const char *file, *name;
    int line; /* of the start tag */
    int32_t n_attributes;
    struct xml_attribute *attributes;
    struct xml *parent, *first, *next; /* children in order */
};

MUST_CHECK enum status xml_read(struct arena *a, const char *path, struct xml **out,
                                struct error *err);
/* The same from n bytes at text; name is used in error messages. */
MUST_CHECK enum status xml_parse(struct arena *a, const char *name, const char *text, size_t n,
                                 struct xml **out, struct error *err);
const char *xml_get(const struct xml *e, const char *attribute); /* NULL if absent */
/* ERR_INPUT "file:line: <name …>: …". */
enum status xml_error(const struct xml *e, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
