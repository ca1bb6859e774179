/* profiles/store_schema.h - the tables of the profile database. Only profiles/store*.c and docs/generate include this header. */
#ifndef PROFILES_STORE_SCHEMA_H
#define PROFILES_STORE_SCHEMA_H

#include "profiles/profile.h"
#include "profiles/store_table.h"

/* Databases are created with the first schema and upgraded to a later one when its table first gets a row, so that a database
 * without newer content can be read by older versions of this program. 2: collective_row. 3: routing_row. 4:
 * oriented_fit, skew_row. */
enum { STORE_SCHEMA_FIRST = 1, STORE_SCHEMA = 4, STORE_CHILDREN = 8 };

struct store_head {
    struct profile p;
    int64_t rows_crc; /* over the CRCs of all rows, tables in order */
};

extern const struct table store_head_table;
extern const struct table store_child_tables[STORE_CHILDREN];

#endif
