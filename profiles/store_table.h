/* profiles/store_table.h - a struct as a row of a table: one list of columns makes the SQL, the bind, the read and the
 * checksum. Only profiles/store*.c and docs/generate include this header.
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
    COLUMN_INT64, /* int64_t, uint64_t and size_t: 64 bits as they are */
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
    const struct column *columns; /* ended by a NULL name */
    const char *key;              /* columns that are unique within a profile */
    int since;                    /* schema that brought it; 0: it was always there */
    const char *meaning;          /* of a row, for docs/reference */
};

/* SQL into the arena. Every table but the first has a column `profile` before its own, and all have `crc` behind them. */
const char *table_create_sql(struct arena *a, const struct table *t, bool child);
const char *table_insert_sql(struct arena *a, const struct table *t, bool child);
const char *table_select_sql(struct arena *a, const struct table *t, bool child, const char *rest);

/* Binds a row (profile first where child) and its CRC; returns the CRC in *crc. SQLite's code. */
int table_bind(struct sqlite3_stmt *q, const struct table *t, bool child, int64_t profile,
               const void *row, uint32_t *crc);
/* The current row of a select into *row (texts are a's). false: damaged: a wrong type or name, or not what the CRC says. */
bool table_take(struct sqlite3_stmt *q, struct arena *a, const struct table *t, bool child,
                int64_t profile, void *row, uint32_t *crc);

#endif
