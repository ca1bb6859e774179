/* The checksum is zlib's CRC-32 over a canonical form of the row: the table's name, the profile's id and each value,
 * integers and doubles as 8 bytes, little-endian, strings with their length first. It is independent of SQLite's
 * record format, and any single flipped bit of a value changes it.
 */
#include "profiles/store_table.h"

#include "core/collective/algorithm.h"
#include "core/graph/op.h"
#include "profiles/link_model.h"

#include <sqlite3.h>
#include <string.h>
#include <zlib.h>

/* --- SQL ------------------------------------------------------------------------------------- */

static const char *type_name(enum column_type type)
{
    switch (type) {
    case COLUMN_INT64:
    case COLUMN_INT32:
        return "integer";
    case COLUMN_DOUBLE:
        return "real";
    default:
        return "text";
    }
}

const char *table_create_sql(struct arena *a, const struct table *t, bool child)
{
    const char *sql =
        arena_printf(a, "create table %s(%s", t->name,
                     child ? "profile integer not null references profile(id), " : "");
    for (const struct column *c = t->columns; c->name; c++)
        sql = arena_printf(a, "%s%s %s not null, ", sql, c->name, type_name(c->type));
    return arena_printf(a,
                        "%scrc integer not null, primary key(%s%s)) strict;"
                        "create trigger %s_fixed before update on %s begin select raise(abort, "
                        "'profiles are never changed'); end;"
                        "create trigger %s_kept before delete on %s begin select raise(abort, "
                        "'profiles are never deleted'); end;",
                        sql, child ? "profile, " : "", t->key, t->name, t->name, t->name, t->name);
}

const char *table_insert_sql(struct arena *a, const struct table *t, bool child)
{
    const char *names = child ? "profile, " : "", *marks = child ? "?, " : "";
    for (const struct column *c = t->columns; c->name; c++) {
        names = arena_printf(a, "%s%s, ", names, c->name);
        marks = arena_printf(a, "%s?, ", marks);
    }
    return arena_printf(a, "insert into %s(%scrc) values(%s?)", t->name, names, marks);
}

const char *table_select_sql(struct arena *a, const struct table *t, bool child, const char *rest)
{
    const char *names = child ? "profile, " : "";
    for (const struct column *c = t->columns; c->name; c++)
        names = arena_printf(a, "%s%s, ", names, c->name);
    return arena_printf(a, "select %scrc from %s %s", names, t->name, rest);
}

/* --- values ---------------------------------------------------------------------------------- */

static uint32_t crc_int(uint32_t crc, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    return (uint32_t)crc32(crc, bytes, sizeof bytes);
}

static uint32_t crc_text(uint32_t crc, const char *text)
{
    crc = crc_int(crc, strlen(text));
    return (uint32_t)crc32(crc, (const unsigned char *)text, (unsigned)strlen(text));
}

static const char *text_of(const struct column *c, const char *at)
{
    int32_t index = 0;
    if (c->type == COLUMN_TEXT) {
        const char *text = NULL;
        memcpy(&text, at, sizeof text);
        return text ? text : "";
    }
    memcpy(&index, at, sizeof index);
    if (c->type == COLUMN_DTYPE) return dtype_name((enum dtype)index);
    if (c->type == COLUMN_SOURCE) return source_name((enum source)index);
    if (c->type == COLUMN_COLLECTIVE) return collective_kind_name((enum collective_kind)index);
    return index < 0 ? "*" : op_kind_name((enum op_kind)index);
}

static int64_t int_of(const struct column *c, const char *at)
{
    int64_t wide = 0;
    int32_t narrow = 0;
    if (c->type == COLUMN_INT64)
        memcpy(&wide, at, sizeof wide);
    else
        memcpy(&narrow, at, sizeof narrow);
    return c->type == COLUMN_INT64 ? wide : narrow;
}

static uint32_t crc_of_row(const struct table *t, int64_t profile, const void *row)
{
    uint32_t crc = crc_int(crc_text((uint32_t)crc32(0, NULL, 0), t->name), (uint64_t)profile);
    for (const struct column *c = t->columns; c->name; c++) {
        const char *at = (const char *)row + c->offset;
        uint64_t bits = 0;
        if (c->type == COLUMN_DOUBLE) {
            memcpy(&bits, at, sizeof bits);
            crc = crc_int(crc, bits);
        } else if (c->type == COLUMN_INT64 || c->type == COLUMN_INT32) {
            crc = crc_int(crc, (uint64_t)int_of(c, at));
        } else {
            crc = crc_text(crc, text_of(c, at));
        }
    }
    return crc;
}

int table_bind(sqlite3_stmt *q, const struct table *t, bool child, int64_t profile, const void *row,
               uint32_t *crc)
{
    int i = 1, rc = child ? sqlite3_bind_int64(q, i++, profile) : SQLITE_OK;
    for (const struct column *c = t->columns; c->name && rc == SQLITE_OK; c++, i++) {
        const char *at = (const char *)row + c->offset;
        double value = 0;
        if (c->type == COLUMN_DOUBLE) {
            memcpy(&value, at, sizeof value);
            rc = sqlite3_bind_double(q, i, value);
        } else if (c->type == COLUMN_INT64 || c->type == COLUMN_INT32) {
            rc = sqlite3_bind_int64(q, i, int_of(c, at));
        } else {
            rc = sqlite3_bind_text(q, i, text_of(c, at), -1, SQLITE_STATIC);
        }
    }
    *crc = crc_of_row(t, profile, row);
    return rc == SQLITE_OK ? sqlite3_bind_int64(q, i, (int64_t)*crc) : rc;
}

static bool index_of(const struct column *c, const char *text, int32_t *out)
{
    enum op_kind kind;
    enum dtype dtype;
    enum collective_kind collective;
    if (c->type == COLUMN_COLLECTIVE && collective_kind_parse(text, &collective)) {
        *out = (int32_t)collective;
        return true;
    }
    if (c->type == COLUMN_DTYPE && dtype_parse(text, &dtype)) {
        *out = (int32_t)dtype;
        return true;
    }
    if (c->type == COLUMN_KIND && op_kind_parse(text, &kind)) {
        *out = (int32_t)kind;
        return true;
    }
    *out = -1;
    if (c->type == COLUMN_KIND) return !strcmp(text, "*");
    for (int32_t s = SOURCE_MEASURED; c->type == COLUMN_SOURCE && s <= SOURCE_CATALOGUE; s++)
        if (!strcmp(text, source_name((enum source)s))) *out = s;
    return *out >= 0;
}

static bool take_value(sqlite3_stmt *q, int i, struct arena *a, const struct column *c, char *at)
{
    int type = sqlite3_column_type(q, i);
    if (c->type == COLUMN_DOUBLE) {
        double value = sqlite3_column_double(q, i);
        memcpy(at, &value, sizeof value);
        return type == SQLITE_FLOAT;
    }
    if (c->type == COLUMN_INT64 || c->type == COLUMN_INT32) {
        int64_t value = sqlite3_column_int64(q, i);
        int32_t narrow = (int32_t)value;
        memcpy(at, c->type == COLUMN_INT64 ? (void *)&value : (void *)&narrow,
               c->type == COLUMN_INT64 ? sizeof value : sizeof narrow);
        return type == SQLITE_INTEGER && (c->type == COLUMN_INT64 || value == narrow);
    }
    const char *text = (const char *)sqlite3_column_text(q, i);
    if (type != SQLITE_TEXT || !text || strlen(text) != (size_t)sqlite3_column_bytes(q, i))
        return false;
    if (c->type == COLUMN_TEXT) {
        text = arena_strdup(a, text);
        memcpy(at, &text, sizeof text);
        return true;
    }
    int32_t index = 0;
    bool known = index_of(c, text, &index);
    memcpy(at, &index, sizeof index);
    return known;
}

bool table_take(sqlite3_stmt *q, struct arena *a, const struct table *t, bool child,
                int64_t profile, void *row, uint32_t *crc)
{
    int i = child ? 1 : 0;
    if (child && sqlite3_column_int64(q, 0) != profile) return false;
    memset(row, 0, t->row_bytes);
    for (const struct column *c = t->columns; c->name; c++, i++)
        if (!take_value(q, i, a, c, (char *)row + c->offset)) return false;
    *crc = crc_of_row(t, profile, row);
    return sqlite3_column_type(q, i) == SQLITE_INTEGER &&
           sqlite3_column_int64(q, i) == (int64_t)*crc;
}
