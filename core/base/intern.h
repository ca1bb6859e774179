/* core/base/intern.h - equal contents stored once (interning): names and small records that repeat many times.
 *
 * An object with the same bytes is copied into the arena the first time only; later calls return that copy, so equal contents
 * have equal addresses. Records are compared byte by byte: their padding must be zero. O(bytes) a call.
 */
#ifndef CORE_BASE_INTERN_H
#define CORE_BASE_INTERN_H

#include <stddef.h>

struct arena;
struct intern; /* opaque */

/* Copies go to `contents`, the table to `tables`; both outlive it. */
struct intern *intern_new(struct arena *contents, struct arena *tables);
const void *intern_bytes(struct intern *x, const void *bytes, size_t n); /* NULL for NULL */
const char *intern_text(struct intern *x, const char *text);

#endif
