/* core/document/keys.h - tables of the keys of each map in a file: the reader rejects all others, and docs/reference
 * lists them (docs/generate).
 */
#ifndef CORE_DOCUMENT_KEYS_H
#define CORE_DOCUMENT_KEYS_H

#include "core/document/document.h"

struct document_key {
    const char *name;    /* NULL ends a table */
    const char *value;   /* type and unit: "text", "size", "number of sequences" */
    const char *preset;  /* default; NULL: required */
    const char *meaning; /* noun phrase */
};
enum { DOCUMENT_KEYS_MAX = 32 };

/* document_keys: node_keys with the names of the table. */
MUST_CHECK enum status document_keys(const struct node *map, const struct document_key *keys,
                                     struct error *err);

#endif
