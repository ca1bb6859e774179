/* core/document/canonical.h - values as job, cluster and plan files write them: one value, one text.
 *
 * What is written here reads back to the same bits, and equal values give equal text whoever writes
 * them; plan_hash and the profile of a cluster stand on that. A text is written plain where YAML
 * cannot take it for anything else, in double quotes otherwise. The locale plays no part.
 */
#ifndef CORE_DOCUMENT_CANONICAL_H
#define CORE_DOCUMENT_CANONICAL_H

#include "core/base/error.h"
#include "core/document/document.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

void canonical_text(FILE *out, const char *text); /* NULL is written as the empty text */
void canonical_double(FILE *out, double value);   /* finite */
/* "400 MB/s": the largest unit in which the number is at least 1 and reads back exactly, else the base unit; 0
 * without a unit. value >= 0. */
void canonical_quantity(FILE *out, enum quantity q, double value);
void canonical_indent(FILE *out, int n); /* n spaces */

/* A plan, a job or a cluster in the place of another kind of file, by the keys that only one of them has at its root. */
MUST_CHECK enum status canonical_kind(const struct node *root, const char *expected,
                                      struct error *err);
/* The head of every file: version: 1. */
MUST_CHECK enum status canonical_version(const struct node *root, struct error *err);

/* A label for people: a text of 1 to 200 bytes without control characters. */
MUST_CHECK enum status canonical_label(const struct node *n, const char **out, struct error *err);
/* A name that other names and places are built from: a label of at most 100 bytes that has neither
 * spaces nor dots. */
MUST_CHECK enum status canonical_name(const struct node *n, const char **out, struct error *err);

/* Equal keys among n: ERR_INPUT at the later one, naming what it is and the line of the earlier.
 * Sorts the entries. O(n log n). */
struct canonical_entry {
    const char *key;
    const struct node *at;
    int32_t index; /* order of appearance */
};
MUST_CHECK enum status canonical_unique(struct canonical_entry *entries, size_t n, const char *what,
                                        struct error *err);

#endif
