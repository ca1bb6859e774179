/* traces/xml.h - the little of XML that machines write about machines: elements and attributes.
 *
 * Read are one root element, elements inside it, attributes in quotes, comments and <?…?>. Refused, with file:line, are
 * DTDs, entities and character references (nothing is ever expanded), CDATA, text between elements, names given twice in
 * one element, anything after the root, and what is deeper, longer or more than the limits here. So reading costs O(bytes)
 * in time and memory whatever the file says.
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
    int line; /* where it begins */
    int32_t n_attributes;
    struct xml_attribute *attributes;
    struct xml *parent, *first, *next; /* children in order */
};

MUST_CHECK enum status xml_read(struct arena *a, const char *path, struct xml **out,
                                struct error *err);
/* The same from n bytes at text; name labels messages. */
MUST_CHECK enum status xml_parse(struct arena *a, const char *name, const char *text, size_t n,
                                 struct xml **out, struct error *err);
const char *xml_get(const struct xml *e, const char *attribute); /* NULL where it has none */
/* ERR_INPUT "file:line: <name …>: …". */
enum status xml_error(const struct xml *e, struct error *err, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
