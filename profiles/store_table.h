/* profiles/store_table.h - object-relational mapping: one list of columns per struct defines the SQL, the binding, the reader
 * and the checksum. Only profiles/store*.c and docs/generate include this header.
 */
#ifndef PROFILES_STORE_TABLE_H
#define PROFILES_STORE_TABLE_H

#include "core/base/arena.h"
#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3_stmt; /* SQLite's */

enum column_type {
    COLUMN_INT64, /* int64_t, uint64_t and size_t: the 64 bits unchanged */
    COLUMN_INT32,
    COLUMN_DOUBLE,
    COLUMN_TEXT,       /* const char *; NULL is written as "" */
    COLUMN_KIND,       /* int32_t or enum op_kind by name; -1 is "*" */
    COLUMN_DTYPE,      /* enum dtype by name */
    COLUMN_SOURCE,     /* enum source by name */
    COLUMN_COLLECTIVE, /* enum collective_kind by name */
};
struct column {
    const char *name;
    enum column_type type;
    size_t offset; /* in the struct */
};
struct table {
    const char *name;
    size_t row_bytes;
    const struct column *columns; /* terminated by a NULL name */
    const char *key;              /* columns that are unique within a profile */
    int since;                    /* schema version that introduced it; 0: the first */
    const char *meaning;          /* of a row, for docs/reference */
};

/* SQL in the arena. Every table but the first begins with a column `profile`, and all end with `crc`. */
const char *table_create_sql(struct arena *a, const struct table *t, bool child);
const char *table_insert_sql(struct arena *a, const struct table *t, bool child);
const char *table_select_sql(struct arena *a, const struct table *t, bool child, const char *rest);

/* Binds a row (profile first if child) and its CRC, which is also returned in *crc. Returns SQLite's code. */
int table_bind(struct sqlite3_stmt *q, const struct table *t, bool child, int64_t profile,
               const void *row, uint32_t *crc);
/* Reads the current row of a select into *row (strings in a). false: damaged: a wrong type or name, or a CRC mismatch. */
bool table_take(struct sqlite3_stmt *q, struct arena *a, const struct table *t, bool child,
                int64_t profile, void *row, uint32_t *crc);

#endif
