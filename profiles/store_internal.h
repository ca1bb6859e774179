/* profiles/store_internal.h - the connection to the file of a profile database. Only profiles/store*.c include this header.
 *
 * The file may come from anybody. Its objects must be those that musher makes, word for word: a view in the place of a table,
 * a trigger, an index or a virtual table would run what its author wrote. Beyond that the virtual machine of SQLite may
 * take a number of steps for a statement that follows from the size of the file, because damaged pages can form a cycle, and no value may be longer than 1 MiB.
 */
#ifndef PROFILES_STORE_INTERNAL_H
#define PROFILES_STORE_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct sqlite3;      /* SQLite's */
struct sqlite3_stmt; /* SQLite's */

struct store {
    struct arena *arena;
    const char *path;
    struct sqlite3 *db;
    bool writable;
    int64_t schema; /* of the file */
    int64_t steps;  /* that the present statement may still take, in thousands */
};

/* What SQLite says of the last call: the file's fault, or that of its surroundings. */
enum status store_sql_error(const struct store *s, const char *doing, struct error *err);
/* A statement, or one more row of it, is about to begin: its steps are counted from here. */
void store_allow(struct store *s);
MUST_CHECK enum status store_prepare(struct store *s, const char *sql, struct sqlite3_stmt **out,
                                     const char *doing, struct error *err);
MUST_CHECK enum status store_execute(struct store *s, const char *sql, const char *doing,
                                     struct error *err);
MUST_CHECK enum status store_query_int(struct store *s, const char *sql, int64_t *out,
                                       const char *doing, struct error *err);

MUST_CHECK enum status store_connect(struct store *s, int flags, struct error *err);
/* The tables of the first schema, into an open transaction, which is committed. */
MUST_CHECK enum status store_make_schema(struct store *s, struct error *err);
/* Inside a transaction: what the file's schema has not yet. */
MUST_CHECK enum status store_raise_schema(struct store *s, int64_t schema, struct error *err);
/* A database of musher, of a schema that is known, with no object that is not musher's. Sets s->schema. */
MUST_CHECK enum status store_check(struct store *s, struct error *err);

enum { STORE_BUSY_MS = 5000 };

#endif
