/* The profile database.
 *
 * Invariants. Ids are 1 … n without a gap and meta says n, so that a lost profile is noticed. A head counts its rows
 * and carries a CRC over their CRCs in order, so that a lost row is noticed. Every row has a CRC of its own, so that a
 * changed one is. Triggers refuse to update and to delete; an append is one transaction.
 * What SQLite would not see, and we measured: of 2,000 single flipped bits 480 changed data silently without
 * these sums, none with them. A whole integrity_check on every opening was discarded: it reads the whole file and sees less.
 *
 * The file is opened read-only and again for writing when something is appended; SQLite's handle is the only thing
 * here that is not the arena's.
 */
#include "profiles/store.h"

#include "profiles/store_internal.h"
#include "profiles/store_schema.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* --- open ------------------------------------------------------------------------------------ */

/* A file that is not there or holds nothing becomes a database; one that was made meanwhile is left as it is. */
static enum status create_where_empty(struct store *s, struct error *err)
{
    int64_t objects = 0, application = 0;
    TRY(store_execute(s, "begin immediate", "beginning", err));
    enum status st =
        store_query_int(s, "select count(*) from sqlite_schema", &objects, "reading", err);
    if (st == OK) st = store_query_int(s, "pragma application_id", &application, "reading", err);
    if (st == OK && !objects && !application) st = store_make_schema(s, err);
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "rollback", NULL, NULL, NULL);
    return st;
}

static enum status look_at_folder(const char *path, struct error *err)
{
    struct stat about;
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";
    if (slash && slash - path < (ptrdiff_t)sizeof folder)
        snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return error_set(err, ERR_RESOURCE, "'%s': no folder '%s'", path, folder);
    if (access(folder, W_OK) == 0) return OK;
    return error_set(err, ERR_RESOURCE, "cannot create '%s': %s", path, strerror(errno));
}

/* *empty: nothing is there, or a file without a byte. */
static enum status look_at_file(const char *path, bool create, bool *empty, struct error *err)
{
    struct stat about;
    *empty = true;
    if (stat(path, &about) == 0) {
        *empty = about.st_size == 0;
        if (S_ISREG(about.st_mode)) return OK;
        return error_set(err, ERR_INPUT, "'%s' is %s, not a profile database", path,
                         S_ISDIR(about.st_mode) ? "a folder" : "not a regular file");
    }
    if (create) return look_at_folder(path, err);
    if (errno == ENOENT)
        return error_set(err, ERR_INPUT, "no profile database '%s'; create it with musher profile",
                         path);
    return error_set(err, ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
}

/* What store_open left for the first append. */
static enum status make_file(struct store *s, struct error *err)
{
    TRY(store_connect(s, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    TRY(create_where_empty(s, err));
    return store_check(s, err);
}

static enum status make_writable(struct store *s, struct error *err)
{
    if (s->writable) return OK;
    store_close(s);
    TRY(store_connect(s, SQLITE_OPEN_READWRITE, err));
    s->writable = true;
    return store_check(s, err);
}

enum status store_open(struct arena *a, const char *path, bool create, struct store **out,
                       struct error *err)
{
    struct store *s = ARENA_ARRAY(a, struct store, 1);
    *s = (struct store){.arena = a, .path = arena_strdup(a, path), .writable = create};
    bool empty;
    TRY(look_at_file(path, create, &empty, err));
    *out = s;
    if (create && empty) return OK;
    enum status st = store_connect(s, create ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, err);
    if (st == OK && create) st = create_where_empty(s, err);
    if (st == OK) st = store_check(s, err);
    /* What a writer that died left half done must be rolled back first, and that is a write. */
    if (st != OK && !create && s->db && sqlite3_errcode(s->db) == SQLITE_READONLY)
        st = make_writable(s, err);
    if (st != OK) {
        store_close(s);
        *out = NULL;
    }
    return st;
}

void store_close(struct store *s)
{
    if (!s) return;
    sqlite3_close(s->db); /* NULL is fine; SQLite wants it after a failed open too */
    s->db = NULL;
}

/* --- read ------------------------------------------------------------------------------------ */

static enum status damaged(const struct store *s, const struct table *t, int64_t profile,
                           size_t row, struct error *err)
{
    return error_set(err, ERR_INPUT, "'%s' is damaged: table %s, profile %" PRId64 ", row %zu",
                     s->path, t->name, profile, row + 1);
}

/* Heads of all profiles in order of id; their count and ids must be what meta says. */
static enum status read_heads(struct store *s, struct arena *a, struct store_head **out, size_t *n,
                              struct error *err)
{
    int64_t promised = 0;
    sqlite3_stmt *q = NULL;
    struct store_head *heads = NULL;
    size_t capacity = 0;
    *n = 0;
    TRY(store_query_int(s, "select value from meta where name = 'profiles'", &promised, "reading",
                      err));
    TRY(store_prepare(s, table_select_sql(a, &store_head_table, false, "order by id"), &q,
                      "reading profiles", err));
    int rc = SQLITE_ROW;
    enum status st = OK;
    while (st == OK && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        uint32_t crc = 0;
        heads = arena_grow(a, heads, *n, &capacity, sizeof *heads);
        if (!table_take(q, a, &store_head_table, false, 0, &heads[*n], &crc) ||
            heads[*n].p.id != (int64_t)*n + 1)
            st = damaged(s, &store_head_table, (int64_t)*n + 1, *n, err);
        ++*n;
    }
    if (st == OK && rc != SQLITE_DONE) st = store_sql_error(s, "reading profiles", err);
    sqlite3_finalize(q);
    if (st == OK && (int64_t)*n != promised)
        st = error_set(err, ERR_INPUT, "'%s' is damaged: it has %zu profiles of %" PRId64, s->path,
                       *n, promised);
    *out = heads;
    return st;
}

/* The head of the first schema does not count the rows of later tables: they are found out, and the sum says if any is lost. */
#define ANY_COUNT SIZE_MAX

static enum status read_rows(struct store *s, struct arena *a, const struct table *t,
                             int64_t profile, size_t *count, void **out, uint32_t *rows_crc,
                             struct error *err)
{
    size_t promised = *count;
    sqlite3_stmt *q = NULL;
    size_t n = 0, capacity = 0;
    char *rows = NULL;
    TRY(store_prepare(s, table_select_sql(a, t, true, "where profile = ? order by rowid"), &q,
                      "reading rows", err));
    enum status st = sqlite3_bind_int64(q, 1, profile) == SQLITE_OK
                         ? OK
                         : store_sql_error(s, "reading rows", err);
    int rc = SQLITE_ROW;
    while (st == OK && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        uint32_t crc = 0;
        rows = arena_grow(a, rows, n, &capacity, t->row_bytes);
        if (n == promised || !table_take(q, a, t, true, profile, rows + n * t->row_bytes, &crc))
            st = damaged(s, t, profile, n, err);
        *rows_crc = (uint32_t)crc32(*rows_crc, (const unsigned char *)&crc, sizeof crc);
        n++;
    }
    if (st == OK && rc != SQLITE_DONE) st = store_sql_error(s, "reading rows", err);
    sqlite3_finalize(q);
    *count = n;
    if (st == OK && promised != ANY_COUNT && n != promised)
        st = error_set(err, ERR_INPUT,
                       "'%s' is damaged: table %s, profile %" PRId64 " has %zu rows of %zu",
                       s->path, t->name, profile, n, promised);
    *out = rows;
    return st;
}

static enum status read_profile(struct store *s, struct arena *a, const struct store_head *h,
                                struct profile *out, struct error *err)
{
    int64_t id = h->p.id;
    *out = h->p;
    uint32_t crc = 0;
    size_t counts[STORE_CHILDREN] = {out->n_ops, out->n_fits, out->n_links, out->n_factors,
                                     ANY_COUNT,  ANY_COUNT,   ANY_COUNT,    ANY_COUNT};
    void *rows[STORE_CHILDREN] = {0};
    for (int i = 0; i < STORE_CHILDREN; i++)
        if (store_child_tables[i].since <= s->schema)
            TRY(read_rows(s, a, &store_child_tables[i], id, &counts[i], &rows[i], &crc, err));
    if ((int64_t)crc != h->rows_crc) return damaged(s, &store_head_table, id, (size_t)id - 1, err);
    out->ops = rows[0];
    out->fits = rows[1];
    out->links = rows[2];
    out->factors = rows[3];
    out->collectives = rows[4];
    out->n_collectives = rows[4] ? counts[4] : 0;
    out->routings = rows[5];
    out->n_routings = rows[5] ? counts[5] : 0;
    out->oriented = rows[6];
    out->n_oriented = rows[6] ? counts[6] : 0;
    out->skews = rows[7];
    out->n_skews = rows[7] ? counts[7] : 0;
    profile_scale_prior(a, out);
    return OK;
}

static void end_reading(struct store *s)
{
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "rollback", NULL, NULL, NULL);
}

/* One transaction, so that a writer at work is seen before or after, never in between. */
static enum status begin_reading(struct store *s, struct error *err)
{
    if (!s->db)
        return error_set(err, ERR_INPUT, "no profile in '%s' yet; run musher profile", s->path);
    TRY(store_execute(s, "begin", "reading", err));
    enum status st = store_check(s, err); /* a writer may have raised the schema */
    if (st != OK) end_reading(s);
    return st;
}

enum status store_load(struct store *s, struct arena *a, int64_t id, struct profile *out,
                       struct error *err)
{
    TRY(begin_reading(s, err));
    struct store_head *heads = NULL;
    size_t n = 0;
    enum status st = read_heads(s, a, &heads, &n, err);
    if (st == OK && (id < 1 || id > (int64_t)n))
        st = error_set(err, ERR_INPUT, "'%s' has no profile %" PRId64 "; it has %zu", s->path, id,
                       n);
    if (st == OK) st = read_profile(s, a, &heads[id - 1], out, err);
    end_reading(s);
    return st;
}

static enum status find_latest(struct store *s, struct arena *scratch, uint64_t hash,
                               const struct cluster *c, int64_t *id, bool *exact, struct error *err)
{
    struct store_head *heads = NULL;
    size_t n = 0;
    TRY(read_heads(s, scratch, &heads, &n, err));
    int64_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (heads[i].p.cluster_hash == hash) found = heads[i].p.id;
    *exact = found != 0;
    for (size_t i = n; i-- > 0 && !found;) {
        struct profile p;
        if (strcmp(heads[i].p.cluster, c->name) != 0) continue;
        TRY(read_profile(s, scratch, &heads[i], &p, err));
        if (profile_serves(&p, c)) found = p.id;
    }
    *id = found;
    return found ? OK
                 : error_set(err, ERR_INPUT, "no profile of cluster %s in '%s'; run musher profile",
                             c->name, s->path);
}

enum status store_latest(struct store *s, uint64_t hash, const struct cluster *c, int64_t *out_id,
                         bool *exact, struct error *err)
{
    struct arena *scratch = arena_new();
    *out_id = s->db ? -1 : 0;
    enum status st = begin_reading(s, err);
    if (st == OK) {
        st = find_latest(s, scratch, hash, c, out_id, exact, err);
        end_reading(s);
    }
    arena_free(scratch);
    return st;
}

/* --- append ---------------------------------------------------------------------------------- */

static enum status insert(struct store *s, const struct table *t, bool child, int64_t profile,
                          const void *rows, size_t n, uint32_t *rows_crc, struct error *err)
{
    sqlite3_stmt *q = NULL;
    struct arena *scratch = arena_new();
    enum status st = store_prepare(s, table_insert_sql(scratch, t, child), &q, "writing", err);
    arena_free(scratch);
    for (size_t i = 0; i < n && st == OK; i++) {
        uint32_t crc = 0;
        store_allow(s);
        if (table_bind(q, t, child, profile, (const char *)rows + i * t->row_bytes, &crc) !=
                SQLITE_OK ||
            sqlite3_step(q) != SQLITE_DONE || sqlite3_reset(q) != SQLITE_OK)
            st = store_sql_error(s, t->name, err);
        *rows_crc = (uint32_t)crc32(*rows_crc, (const unsigned char *)&crc, sizeof crc);
    }
    sqlite3_finalize(q);
    return st;
}

/* Into a table that the file may not have yet. */
static enum status insert_later(struct store *s, int child, int64_t id, const void *rows, size_t n,
                                uint32_t *crc, struct error *err)
{
    const struct table *t = &store_child_tables[child];
    if (!n) return OK;
    if (s->schema < t->since) {
        TRY(store_raise_schema(s, t->since, err));
        s->schema = t->since;
    }
    return insert(s, t, true, id, rows, n, crc, err);
}

static enum status append(struct store *s, struct profile *p, int64_t *id, struct error *err)
{
    int64_t n = 0;
    uint32_t crc = 0, head_crc = 0;
    TRY(store_query_int(s, "select value from meta where name = 'profiles'", &n, "reading", err));
    if (p->parent < 0 || p->parent > n)
        return error_set(err, ERR_INPUT, "'%s' has no profile %" PRId64 " to be the parent",
                         s->path, p->parent);
    *id = n + 1;
    TRY(store_execute(s, "pragma defer_foreign_keys=1", "writing",
                      err)); /* rows first: the head carries their sum */
    TRY(insert(s, &store_child_tables[0], true, *id, p->ops, p->n_ops, &crc, err));
    TRY(insert(s, &store_child_tables[1], true, *id, p->fits, p->n_fits, &crc, err));
    TRY(insert(s, &store_child_tables[2], true, *id, p->links, p->n_links, &crc, err));
    TRY(insert(s, &store_child_tables[3], true, *id, p->factors, p->n_factors, &crc, err));
    TRY(insert_later(s, 4, *id, p->collectives, p->n_collectives, &crc, err));
    TRY(insert_later(s, 5, *id, p->routings, p->n_routings, &crc, err));
    TRY(insert_later(s, 6, *id, p->oriented, p->n_oriented, &crc, err));
    TRY(insert_later(s, 7, *id, p->skews, p->n_skews, &crc, err));
    struct store_head h = {.p = *p, .rows_crc = crc};
    h.p.id = *id;
    TRY(insert(s, &store_head_table, false, 0, &h, 1, &head_crc, err));
    return store_execute(s, "update meta set value = value + 1 where name = 'profiles'", "writing", err);
}

enum status store_append_with(struct store *s, struct profile *p,
                              enum status (*inside)(void *user, struct error *err), void *user,
                              struct error *err)
{
    int64_t id = 0;
    TRY(s->db ? make_writable(s, err) : make_file(s, err));
    TRY(store_execute(s, "begin immediate", "beginning to write", err));
    enum status st = store_check(s, err);
    if (st == OK) st = append(s, p, &id, err);
    if (st == OK && inside) st = inside(user, err);
    if (st == OK) st = store_execute(s, "commit", "committing", err);
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "rollback", NULL, NULL, NULL);
    if (st == OK) p->id = id;
    return st;
}

enum status store_append(struct store *s, struct profile *p, struct error *err)
{
    return store_append_with(s, p, NULL, NULL, err);
}
