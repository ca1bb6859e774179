/* Tables of later schemas in the profile database: collectives, fits by orientation, lateness at collectives. */
#include "profiles/store.h"

#include "core/base/arena.h"
#include "tests/support/stores.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static struct device_type host_type = {.name = "any", .catalogue = "host"};
static struct cluster team = {.name = "team", .n_types = 1, .types = &host_type};

/* With one operator, whose time identifies the profile. */
static struct profile plain(uint64_t seed)
{
    struct profile p = {.cluster = "team", .pace = 1, .cluster_hash = 77, .n_ops = 1};
    p.ops = ARENA_ARRAY(a, struct op_row, 1);
    p.ops[0] = (struct op_row){
        .base = "host", .key = seed, .text = "x", .provenance = "profile", .seconds = (double)seed};
    return p;
}

static void same(const struct profile *p, const struct profile *q)
{
    ck_assert_uint_eq(q->n_ops, 1);
    ck_assert_double_eq(p->ops[0].seconds, q->ops[0].seconds);
    ck_assert_uint_eq(p->ops[0].key, q->ops[0].key);
}

static struct store *opened(bool create)
{
    struct store *s = NULL;
    MUST(store_open(a, db, create, &s, &err));
    return s;
}

static void fill(struct profile out[2])
{
    struct store *s = opened(true);
    for (int i = 0; i < 2; i++) {
        out[i] = plain((uint64_t)i + 1);
        MUST(store_append(s, &out[i], &err));
    }
    store_close(s);
}

static int sql(const char *text)
{
    sqlite3 *c = NULL;
    ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
    int rc = sqlite3_exec(c, text, NULL, NULL, NULL);
    sqlite3_close(c);
    return rc;
}

static struct collective_row collectives[] = {
    {COLLECTIVE_ALL_REDUCE, 8, 1, "", "", 1024, 2e-5, .01, 2, "nccl-tests one.txt", ""},
    {COLLECTIVE_ALL_REDUCE, 8, 1, "", "", 4096, 3e-5, .02, 4, "nccl-tests one.txt", ""},
    {COLLECTIVE_ALL_TO_ALL, 16, 2, "Ring", "LL128", 1 << 20, 3e-3, 0, 1, "somebody", ""},
};

static struct profile with_collectives(uint64_t seed)
{
    struct profile p = plain(seed);
    p.collectives = collectives;
    p.n_collectives = 3;
    return p;
}

START_TEST(collectives_come_back_as_they_went_in)
{
    struct store *s = opened(true);
    struct profile p = with_collectives(1), back;
    MUST(store_append(s, &p, &err));
    MUST(store_load(s, a, 1, &back, &err));
    same(&p, &back);
    ck_assert_uint_eq(back.n_collectives, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct collective_row *x = &collectives[i], *y = &back.collectives[i];
        ck_assert(x->kind == y->kind && x->n_ranks == y->n_ranks && x->n_nodes == y->n_nodes &&
                  x->bytes == y->bytes && x->seconds == y->seconds && x->spread == y->spread &&
                  x->samples == y->samples);
        ck_assert_str_eq(x->algorithm, y->algorithm);
        ck_assert_str_eq(x->protocol, y->protocol);
        ck_assert_str_eq(x->provenance, y->provenance);
    }
    store_close(s);
}
END_TEST

/* Rows of a known device type need the fifth schema; those of one that is not known stand where they stood. */
START_TEST(device_types_of_collectives_come_back)
{
    struct store *s = opened(true);
    struct profile p = with_collectives(1), back;
    struct collective_row rows[4];
    memcpy(rows, collectives, sizeof collectives);
    rows[3] = rows[0], rows[3].device = "A100-SXM4-80", rows[3].seconds = 7e-6;
    p.collectives = rows, p.n_collectives = 4;
    MUST(store_append(s, &p, &err));
    MUST(store_load(s, a, 1, &back, &err));
    ck_assert_uint_eq(back.n_collectives, 4);
    ck_assert_str_eq(back.collectives[2].device, "A100-SXM4-80"); /* behind the others of its shape */
    ck_assert_double_eq(back.collectives[2].seconds, 7e-6);
    ck_assert(!back.collectives[0].device || !*back.collectives[0].device);
    store_close(s);
    ck_assert_int_eq(sql("drop trigger device_collective_fixed; update device_collective set "
                         "device = 'H100-SXM5-80'"),
                     SQLITE_OK);
    s = opened(false);
    ck_assert_int_eq(store_load(s, a, 1, &back, &err), ERR_INPUT);
    store_close(s);
}
END_TEST

static int64_t asked(const char *text)
{
    sqlite3 *c = NULL;
    sqlite3_stmt *q = NULL;
    ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
    ck_assert_int_eq(sqlite3_prepare_v2(c, text, -1, &q, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(q), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(c);
    return value;
}

/* A database without collectives is readable by an older version; the first collectives upgrade its schema. */
START_TEST(old_databases_still_open_and_go_on)
{
    struct profile p[2], more = with_collectives(3), back;
    fill(p);
    ck_assert_int_eq(asked("pragma user_version"), 1);
    ck_assert_int_eq(asked("select count(*) from sqlite_schema where name = 'collective_row'"), 0);
    struct store *reader = opened(false), *s = opened(false);
    MUST(store_load(reader, a, 1, &back, &err));
    MUST(store_append(s, &more, &err));
    ck_assert_int_eq(asked("pragma user_version"), 2);
    struct store *both[] = {s, reader}; /* the one that was open before too */
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) {
            MUST(store_load(both[k], a, i + 1, &back, &err));
            same(&p[i], &back);
            ck_assert_uint_eq(back.n_collectives, 0);
        }
        MUST(store_load(both[k], a, 3, &back, &err));
        ck_assert_uint_eq(back.n_collectives, 3);
    }
    p[0].parent = 3, p[0].id = 0;
    MUST(store_append(s, &p[0], &err));
    MUST(store_load(s, a, 4, &back, &err));
    same(&p[0], &back);
    store_close(s);
    store_close(reader);
}
END_TEST

static const char *const collective_tampers[] = {
    "drop trigger collective_row_fixed; update collective_row set seconds = 1 where bytes = 1024",
    "drop trigger collective_row_fixed; update collective_row set kind = 'broadcast'",
    "drop trigger collective_row_kept; delete from collective_row where bytes = 4096",
    "drop trigger collective_row_kept; delete from collective_row",
    "drop table collective_row",
    "pragma user_version = 1",
    "pragma user_version = 1; update meta set value = 1 where name = 'schema'",
    "pragma user_version = 3; update meta set value = 3 where name = 'schema'",
};
START_TEST(tampered_collectives_are_refused)
{
    struct store *s = opened(true);
    struct profile p = with_collectives(1), back;
    MUST(store_append(s, &p, &err));
    store_close(s);
    s = NULL;
    ck_assert_int_ne(sql("update collective_row set seconds = 1"), SQLITE_OK);
    ck_assert_int_eq(sql(collective_tampers[_i]), SQLITE_OK);
    enum status st = store_open(a, db, false, &s, &err);
    if (st == OK) st = store_load(s, a, 1, &back, &err);
    ck_assert_msg(st == ERR_INPUT, "%d %s", (int)st, st ? err.text : "nothing was seen");
    store_close(s);
}
END_TEST

START_TEST(none_is_told_from_unreadable)
{
    struct store *s = opened(true);
    int64_t id = 7;
    bool exact;
    ck_assert_int_eq(store_latest(s, 1, &team, &id, &exact, &err), ERR_INPUT);
    ck_assert_int_eq(id, 0); /* nothing stored yet */
    struct profile p[2];
    fill(p);
    struct cluster other = {.name = "other"};
    store_close(s);
    s = opened(false);
    ck_assert_int_eq(store_latest(s, 1, &other, &id, &exact, &err), ERR_INPUT);
    ck_assert_int_eq(id, 0);
    ck_assert_int_eq(sql("drop trigger profile_fixed; update profile set pace = 9"), SQLITE_OK);
    ck_assert_int_eq(store_latest(s, p[0].cluster_hash, &team, &id, &exact, &err), ERR_INPUT);
    ck_assert_int_eq(id, -1);
    store_close(s);
}
END_TEST

/* The first profile has neither and stays readable by an older program; the second upgrades the schema. */
START_TEST(oriented_fits_and_lateness_come_back_as_they_went_in)
{
    struct skew_row skew = {"collectives", 0.0625, 448, "run:x"};
    struct op_fit fits[] = {{.base = "host", .kind = OP_matmul, .constant_s = 1, .rows = 9},
                            {.base = "host",
                             .kind = OP_matmul,
                             .orientation = 2,
                             .s_per_flop = 3e-11,
                             .s_per_byte = 2e-10,
                             .residual = 0.05,
                             .min_flops = 7,
                             .max_flops = 8,
                             .rows = 7}};
    struct profile p[2], back, more = plain(3);
    fill(p);
    ck_assert_int_eq(sql("create temp table v(x check (x = 1)); insert into v select user_version "
                         "from pragma_user_version"),
                     SQLITE_OK);
    more.n_oriented = 2, more.oriented = fits;
    more.n_skews = 1, more.skews = &skew;
    struct store *s = opened(false);
    MUST(store_append(s, &more, &err));
    store_close(s);
    s = opened(false);
    MUST(store_load(s, a, 2, &back, &err));
    ck_assert(!back.n_oriented && !back.n_skews);
    MUST(store_load(s, a, more.id, &back, &err));
    ck_assert_uint_eq(back.n_oriented, 2);
    ck_assert(back.oriented[0].orientation == 0 && back.oriented[0].constant_s == 1);
    const struct op_fit *f = &back.oriented[1];
    ck_assert(f->kind == OP_matmul && f->orientation == 2 && f->rows == 7 && f->residual == 0.05 &&
              f->s_per_flop == 3e-11 && f->s_per_byte == 2e-10 && f->min_flops == 7 &&
              f->max_flops == 8 && !strcmp(f->base, "host"));
    ck_assert_uint_eq(back.n_skews, 1);
    ck_assert_str_eq(back.skews[0].name, "collectives");
    ck_assert_str_eq(back.skews[0].provenance, "run:x");
    ck_assert(back.skews[0].spread == 0.0625 && back.skews[0].samples == 448);
    store_close(s);
    ck_assert_int_eq(sql("drop trigger skew_row_fixed; update skew_row set spread = 0.07"),
                     SQLITE_OK);
    s = opened(false);
    ck_assert_int_eq(store_load(s, a, more.id, &back, &err), ERR_INPUT);
    store_close(s);
}
END_TEST

static enum status refuse(void *user, struct error *error)
{
    ++*(int *)user;
    return error_set(error, ERR_RESOURCE, "no room for the other output");
}

START_TEST(what_fails_inside_an_append_takes_the_profile_and_new_tables_with_it)
{
    struct profile p = plain(1), q = plain(2), back;
    struct store *s = opened(true);
    int calls = 0;
    p.collectives = collectives, p.n_collectives = 1;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(store_append_with(s, &p, refuse, &calls, &err), ERR_RESOURCE);
        ck_assert_str_eq(err.text, "no room for the other output");
        ck_assert(calls == 1 + i && !p.id);
        if (!i) MUST(store_append(s, &q, &err));
    }
    ck_assert_int_eq(q.id, 1);
    MUST(store_load(s, a, 1, &back, &err));
    ck_assert_int_eq(store_load(s, a, 2, &back, &err), ERR_INPUT);
    ck_assert_int_ne(sql("select * from collective_row"), SQLITE_OK);
    p.parent = 9; /* a rejected profile: inside is not called */
    ck_assert_int_eq(store_append_with(s, &p, refuse, &calls, &err), ERR_INPUT);
    ck_assert_int_eq(calls, 2);
    p.parent = 0;
    MUST(store_append(s, &p, &err));
    MUST(store_load(s, a, 2, &back, &err));
    ck_assert_uint_eq(back.n_collectives, 1);
    store_close(s);
}
END_TEST

Suite *store_collectives_suite(void)
{
    Suite *s = suite_create("store_collectives");
    TCase *c = tcase_create("store_collectives");
    tcase_add_checked_fixture(c, stores_set_up, stores_tear_down);
    tcase_add_test(c, collectives_come_back_as_they_went_in);
    tcase_add_test(c, device_types_of_collectives_come_back);
    tcase_add_test(c, old_databases_still_open_and_go_on);
    tcase_add_loop_test(c, tampered_collectives_are_refused, 0,
                        sizeof collective_tampers / sizeof *collective_tampers);
    tcase_add_test(c, none_is_told_from_unreadable);
    tcase_add_test(c, what_fails_inside_an_append_takes_the_profile_and_new_tables_with_it);
    tcase_add_test(c, oriented_fits_and_lateness_come_back_as_they_went_in);
    suite_add_tcase(s, c);
    return s;
}
