/* core/document/canonical.h - the canonical text form of values in job, cluster and plan files.
 *
 * Written values read back to the same bits, and equal values have equal text;
 * plan_hash and the profile of a cluster depend on both. A text is written unquoted if YAML
 * cannot misread it, else in double quotes. Independent of the locale.
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

/* Detects a plan, job or cluster file given as another kind, by root keys that only one kind has. */
MUST_CHECK enum status canonical_kind(const struct node *root, const char *expected,
                                      struct error *err);
/* Checks the head of every file: version: 1. */
MUST_CHECK enum status canonical_version(const struct node *root, struct error *err);

/* A display label: a text of 1 to 200 bytes without control characters. */
MUST_CHECK enum status canonical_label(const struct node *n, const char **out, struct error *err);
/* A name that may be part of other names and paths: a label of at most 100 bytes without
 * spaces and dots. */
MUST_CHECK enum status canonical_name(const struct node *n, const char **out, struct error *err);

/* Equal keys among n: ERR_INPUT at the later one, with its description and the line of the earlier.
 * Sorts the entries. O(n log n). */
struct canonical_entry {
    const char *key;
    const struct node *at;
    int32_t index; /* order of appearance */
};
MUST_CHECK enum status canonical_unique(struct canonical_entry *entries, size_t n, const char *what,
                                        struct error *err);

#endif
