#include "profiles/store_internal.h"
#include "profiles/store_schema.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

enum {
    APPLICATION = 0x4D555348, /* "MUSH" */
    VALUE_MAX = 1 << 20,     /* bytes of a text or a row: ours have some hundred */
    SQL_MAX = 1 << 16,
    STEPS_AT_ONCE = 1000,
};

/* --- errors ---------------------------------------------------------------------------------- */

enum status store_sql_error(const struct store *s, const char *doing, struct error *err)
{
    int code = s->db ? sqlite3_errcode(s->db) : SQLITE_NOMEM;
    const char *why = s->db ? sqlite3_errmsg(s->db) : "no memory";
    switch (code) {
    case SQLITE_NOMEM:
        arena_exhausted(0);
    case SQLITE_NOTADB:
        return error_set(err, ERR_INPUT, "'%s' is not a profile database: %s", s->path, why);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return error_set(err, ERR_RESOURCE, "'%s' is in use by another process: %s: waited %d s",
                         s->path, doing, STORE_BUSY_MS / 1000);
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return error_set(err, ERR_RESOURCE, "'%s': %s: %s", s->path, doing, why);
    case SQLITE_CONSTRAINT:
        return error_set(err, ERR_INPUT, "'%s': %s: %s", s->path, doing, why);
    case SQLITE_TOOBIG:
        return error_set(err, ERR_INPUT, "'%s': %s: a value of more than %d bytes", s->path, doing,
                         (int)VALUE_MAX);
    case SQLITE_INTERRUPT:
        return error_set(
            err, ERR_INPUT,
            "'%s' is damaged: %s: a statement exceeds the SQLite steps of a valid file of this size", s->path,
            doing);
    default:
        return error_set(err, ERR_INPUT, "'%s' is damaged: %s: %s", s->path, doing, why);
    }
}

/* Eight steps of SQLite's virtual machine per byte of the file: reading a row takes about one per byte. */
void store_allow(struct store *s)
{
    struct stat about;
    int64_t bytes = stat(s->path, &about) == 0 ? (int64_t)about.st_size : 0;
    if (bytes > INT64_C(1) << 30) bytes = INT64_C(1) << 30;
    s->steps = (1000000 + 8 * bytes) / STEPS_AT_ONCE;
}

/* Called by SQLite after each STEPS_AT_ONCE steps; a non-zero result aborts the statement. */
static int count_steps(void *store)
{
    struct store *s = store;
    return --s->steps < 0;
}

enum status store_prepare(struct store *s, const char *sql, sqlite3_stmt **out, const char *doing,
                          struct error *err)
{
    store_allow(s);
    return sqlite3_prepare_v2(s->db, sql, -1, out, NULL) == SQLITE_OK
               ? OK
               : store_sql_error(s, doing, err);
}

enum status store_execute(struct store *s, const char *sql, const char *doing, struct error *err)
{
    store_allow(s);
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? OK
                                                                   : store_sql_error(s, doing, err);
}

enum status store_query_int(struct store *s, const char *sql, int64_t *out, const char *doing,
                          struct error *err)
{
    sqlite3_stmt *q = NULL;
    TRY(store_prepare(s, sql, &q, doing, err));
    enum status st = OK;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW && sqlite3_column_type(q, 0) == SQLITE_INTEGER)
        *out = sqlite3_column_int64(q, 0);
    else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        st = error_set(err, ERR_INPUT, "'%s' is damaged: %s: nothing found", s->path, doing);
    else
        st = store_sql_error(s, doing, err);
    sqlite3_finalize(q);
    return st;
}

/* --- the connection -------------------------------------------------------------------------- */

/* No code of the file is executed: no views, triggers or functions in expressions. The triggers of our own tables are for
 * other programs. */
enum status store_connect(struct store *s, int flags, struct error *err)
{
    static const struct {
        int what, on;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},    {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}};
    if (sqlite3_open_v2(s->path, &s->db, flags, NULL) != SQLITE_OK)
        return store_sql_error(s, "cannot open", err);
    sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (sqlite3_db_config(s->db, settings[i].what, settings[i].on, NULL) != SQLITE_OK)
            return error_set(err, ERR_INTERNAL, "SQLite %s does not know setting %d",
                             sqlite3_libversion(), settings[i].what);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, VALUE_MAX);
    sqlite3_limit(s->db, SQLITE_LIMIT_SQL_LENGTH, SQL_MAX);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_progress_handler(s->db, STEPS_AT_ONCE, count_steps, s);
    return store_execute(s, "pragma cell_size_check=1; pragma mmap_size=0; pragma synchronous=extra",
                         "settings", err);
}

enum status store_make_schema(struct store *s, struct error *err)
{
    const char *sql = table_create_sql(s->arena, &store_head_table, false);
    for (int i = 0; i < STORE_CHILDREN && !store_child_tables[i].since; i++)
        sql = arena_printf(s->arena, "%s%s", sql,
                           table_create_sql(s->arena, &store_child_tables[i], true));
    sql = arena_printf(s->arena,
                       "%screate table meta(name text primary key, value integer not null) strict;"
                       "insert into meta values('schema', %d), ('profiles', 0);"
                       "pragma application_id=%d; pragma user_version=%d; commit",
                       sql, STORE_SCHEMA_FIRST, APPLICATION, STORE_SCHEMA_FIRST);
    return store_execute(s, sql, "making the tables", err);
}

enum status store_raise_schema(struct store *s, int64_t schema, struct error *err)
{
    const char *sql = "";
    for (int i = 0; i < STORE_CHILDREN; i++)
        if (store_child_tables[i].since > s->schema && store_child_tables[i].since <= schema)
            sql = arena_printf(s->arena, "%s%s", sql,
                               table_create_sql(s->arena, &store_child_tables[i], true));
    sql = arena_printf(s->arena,
                       "%supdate meta set value = %" PRId64
                       " where name = 'schema'; pragma user_version=%" PRId64,
                       sql, schema, schema);
    return store_execute(s, sql, "adding tables", err);
}

/* --- whose objects --------------------------------------------------------------------------- */

static const char objects_sql[] =
    "select type, name, tbl_name, sql from sqlite_schema order by type, name";

static bool same_row(sqlite3_stmt *one, sqlite3_stmt *other)
{
    for (int i = 0; i < sqlite3_column_count(one); i++) {
        int n = sqlite3_column_bytes(one, i);
        if (sqlite3_column_type(one, i) != sqlite3_column_type(other, i) ||
            sqlite3_column_bytes(other, i) != n ||
            (n && memcmp(sqlite3_column_blob(one, i), sqlite3_column_blob(other, i), (size_t)n)))
            return false;
    }
    return true;
}

/* Each row of `found` must be in `ours`; both have the same order. */
static enum status compare_objects(const struct store *s, sqlite3_stmt *found, sqlite3_stmt *ours,
                                   struct error *err)
{
    int rc;
    while ((rc = sqlite3_step(found)) == SQLITE_ROW) {
        bool known = false;
        while (!known && sqlite3_step(ours) == SQLITE_ROW) known = same_row(found, ours);
        if (known) continue;
        const char *type = (const char *)sqlite3_column_text(found, 0),
                   *name = (const char *)sqlite3_column_text(found, 1);
        return error_set(err, ERR_INPUT,
                         "'%s' is not a musher profile database, or was changed: the %.20s '%.60s' "
                         "in it is not musher's",
                         s->path, type ? type : "object", name ? name : "");
    }
    return rc == SQLITE_DONE ? OK : store_sql_error(s, "reading its tables", err);
}

/* The expected schema is created in memory by the same statements, and compared. */
static enum status check_objects(struct store *s, struct error *err)
{
    struct arena *scratch = arena_new();
    struct store ours = {.arena = scratch, .path = ":memory:", .schema = STORE_SCHEMA_FIRST};
    sqlite3_stmt *q[2] = {0};
    enum status st = store_connect(&ours, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
    if (st == OK) st = store_execute(&ours, "begin", "making the tables", err);
    if (st == OK) st = store_make_schema(&ours, err);
    if (st == OK) st = store_raise_schema(&ours, s->schema, err);
    if (st == OK) st = store_prepare(&ours, objects_sql, &q[0], "reading its tables", err);
    if (st == OK) st = store_prepare(s, objects_sql, &q[1], "reading its tables", err);
    if (st == OK) st = compare_objects(s, q[1], q[0], err);
    sqlite3_finalize(q[0]);
    sqlite3_finalize(q[1]);
    sqlite3_close(ours.db);
    arena_free(scratch);
    return st;
}

enum status store_check(struct store *s, struct error *err)
{
    int64_t version = 0, application = 0, printed = 0;
    TRY(store_query_int(s, "pragma application_id", &application, "reading", err));
    TRY(store_query_int(s, "pragma user_version", &version, "reading", err));
    if (application != APPLICATION)
        return error_set(err, ERR_INPUT, "'%s' is not a musher profile database", s->path);
    bool known = version >= STORE_SCHEMA_FIRST && version <= STORE_SCHEMA;
    s->schema = version;
    if (known) TRY(check_objects(s, err));
    if (known)
        TRY(store_query_int(s, "select value from meta where name = 'schema'", &printed, "reading",
                          err));
    if (known && printed == version) return OK;
    return error_set(err, ERR_INPUT,
                     "'%s' has schema %" PRId64 "; this version reads schemas %d to %d", s->path,
                     known ? printed : version, (int)STORE_SCHEMA_FIRST, (int)STORE_SCHEMA);
}
