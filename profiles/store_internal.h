/* profiles/store_internal.h - the SQLite connection of a profile database. Only profiles/store*.c include this header.
 *
 * The file is untrusted. Its schema must be exactly musher's, text for text, because a view in place of a table, a trigger, an
 * index or a virtual table would execute its author's code. The virtual machine of SQLite has a limit of steps per statement,
 * derived from the size of the file, because damaged pages can form a cycle; values are limited to 1 MiB.
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
    int64_t steps;  /* remaining for the current statement, in thousands */
};

/* Classifies SQLite's last error: the file's content (ERR_INPUT) or its environment (ERR_RESOURCE). */
enum status store_sql_error(const struct store *s, const char *doing, struct error *err);
/* Resets the step limit, before a statement or one more row of it. */
void store_allow(struct store *s);
MUST_CHECK enum status store_prepare(struct store *s, const char *sql, struct sqlite3_stmt **out,
                                     const char *doing, struct error *err);
MUST_CHECK enum status store_execute(struct store *s, const char *sql, const char *doing,
                                     struct error *err);
MUST_CHECK enum status store_query_int(struct store *s, const char *sql, int64_t *out,
                                       const char *doing, struct error *err);

MUST_CHECK enum status store_connect(struct store *s, int flags, struct error *err);
/* Creates the tables of the first schema inside an open transaction, and commits it. */
MUST_CHECK enum status store_make_schema(struct store *s, struct error *err);
/* Inside a transaction: adds the tables that the file's schema lacks. */
MUST_CHECK enum status store_raise_schema(struct store *s, int64_t schema, struct error *err);
/* Checks that the file is a musher database of a known schema without foreign objects. Sets s->schema. */
MUST_CHECK enum status store_check(struct store *s, struct error *err);

enum { STORE_BUSY_MS = 5000 };

#endif
