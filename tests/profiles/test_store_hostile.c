/* A profile database that somebody else made: nothing that its author wrote is run, and it ends. */
#include "profiles/store.h"

#include "profiles/store_internal.h"
#include "tests/support/stores.h"

#include <sqlite3.h>
#include <string.h>

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void sql(const char *text)
{
    sqlite3 *c = NULL;
    char *why = NULL;
    ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(c, text, NULL, NULL, &why) == SQLITE_OK, "%s", why);
    sqlite3_close(c);
}

static void one_profile(void)
{
    struct store *s = NULL;
    struct link_row link = {"bus", {5e-6, 8e9, 0.02, 1024, 1 << 20, SOURCE_FITTED, 0, {{0, 0}}}};
    struct profile p = {.cluster = "team", .pace = 1, .links = &link, .n_links = 1};
    MUST(store_open(a, db, true, &s, &err));
    MUST(store_append(s, &p, &err));
    store_close(s);
}

static enum status loaded(void)
{
    struct store *s = NULL;
    struct profile back;
    enum status st = store_open(a, db, false, &s, &err);
    if (st == OK) st = store_load(s, a, 1, &back, &err);
    store_close(s);
    return st;
}

#define ENDLESS "with recursive n(i) as (select 1 union all select i + 1 from n) "
#define WRITE_SCHEMA "pragma writable_schema=1; "

static const struct {
    const char *sql, *names;
} foreign[] = {
    {"pragma foreign_keys=0; drop table profile; create view profile as " ENDLESS
     "select i as id, 0 as parent, '' as cluster, 0 as cluster_hash, '' as machine, '' as note, "
     "'' as calibrated_on, 1.0 as pace, 0 as n_ops, 0 as n_fits, 0 as n_links, 0 as n_factors, "
     "0 as rows_crc, 0 as crc from n where i < 0",
     "the view 'profile'"},
    {"drop table meta; create view meta as " ENDLESS
     "select 'schema' as name, i as value from n where i < 0",
     "the view 'meta'"},
    {"create table extra(x)", "the table 'extra'"},
    {"create index extra on op_row(abs(seconds))", "the index 'extra'"},
    {"create index extra on op_row(seconds) where seconds > 1", "the index 'extra'"},
    {"create trigger extra after insert on op_row begin " ENDLESS "select max(i) from n; end",
     "the trigger 'extra'"},
    {"drop trigger op_row_kept; create trigger op_row_kept before insert on op_row begin "
     "select 1; end",
     "the trigger 'op_row_kept'"},
    {WRITE_SCHEMA "insert into sqlite_schema values('table', 'extra', 'extra', 0, "
                  "'CREATE VIRTUAL TABLE extra USING fts5(x)')",
     "the table 'extra'"},
    {"alter table op_row add column more integer generated always as (abs(samples)) virtual",
     "the table 'op_row'"},
    {WRITE_SCHEMA "update sqlite_schema set sql = replace(sql, 'crc integer not null', "
                  "'crc integer not null check(abs(crc) >= 0)') where name = 'op_row'",
     "the table 'op_row'"},
    {WRITE_SCHEMA
     "update sqlite_schema set sql = replace(sql, ') strict', ')') where name = 'op_row'",
     "the table 'op_row'"}};
START_TEST(objects_that_are_not_ours_are_refused_by_name)
{
    one_profile();
    MUST(loaded());
    sql(foreign[_i].sql);
    ck_assert_int_eq(loaded(), ERR_INPUT);
    ck_assert_msg(strstr(err.text, foreign[_i].names) && strstr(err.text, db), "%s", err.text);
    struct store *s = NULL;
    ck_assert_int_eq(store_open(a, db, true, &s, &err), ERR_INPUT);
}
END_TEST

/* In a record of a file there may be anything, whatever the table says. */
START_TEST(a_value_of_another_type_is_refused)
{
    one_profile();
    sql("drop trigger link_row_fixed; " WRITE_SCHEMA
        "update sqlite_schema set sql = replace(sql, ') strict', ')') where name = 'link_row'");
    sql("update link_row set latency_s = x'00'");
    sql(WRITE_SCHEMA "update sqlite_schema set sql = sql || ' strict' where name = 'link_row' and "
                     "type = 'table'");
    ck_assert_int_eq(loaded(), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "table link_row, profile 1, row 1"), "%s", err.text);
}
END_TEST

START_TEST(a_huge_text_is_refused_before_it_is_read)
{
    one_profile();
    sql("drop trigger profile_fixed; update profile set note = hex(zeroblob(600000))");
    ck_assert_int_eq(loaded(), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "a value of more than 1048576 bytes"), "%s", err.text);
    struct profile p = {
        .cluster = "team",
        .pace = 1,
    };
    char *note = arena_alloc(a, 2000001, 1);
    p.note = memset(note, 'x', 2000000);
    struct store *s = NULL;
    unlink(db);
    MUST(store_open(a, db, true, &s, &err));
    ck_assert_int_eq(store_append(s, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "a value of more than 1048576 bytes"), "%s", err.text);
    store_close(s);
}
END_TEST

/* Pages that lead in circles make a statement of ours endless; a recursive one stands for it. */
START_TEST(a_statement_takes_no_more_steps_than_the_file_explains)
{
    struct store *s = NULL;
    int64_t n = 0;
    one_profile();
    MUST(store_open(a, db, false, &s, &err));
    ck_assert_int_eq(store_query_int(s, ENDLESS "select max(i) from n", &n, "counting", &err),
                     ERR_INPUT);
    ck_assert_msg(strstr(err.text, "counting: a statement exceeds the SQLite steps"), "%s", err.text);
    MUST(store_query_int(s, ENDLESS "select i from n where i = 10000", &n, "counting", &err));
    ck_assert_int_eq(n, 10000);
    store_close(s);
}
END_TEST

Suite *store_hostile_suite(void)
{
    Suite *s = suite_create("store_hostile");
    TCase *c = tcase_create("store_hostile");
    tcase_add_checked_fixture(c, stores_set_up, stores_tear_down);
    tcase_add_loop_test(c, objects_that_are_not_ours_are_refused_by_name, 0,
                        sizeof foreign / sizeof *foreign);
    tcase_add_test(c, a_value_of_another_type_is_refused);
    tcase_add_test(c, a_huge_text_is_refused_before_it_is_read);
    tcase_add_test(c, a_statement_takes_no_more_steps_than_the_file_explains);
    suite_add_tcase(s, c);
    return s;
}
