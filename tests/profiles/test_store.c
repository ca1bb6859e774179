/* The profile database: stored profiles are read back unchanged, and corruption is detected. */
#include "profiles/store.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "tests/support/stores.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static struct device_type host_type = {.name = "any", .catalogue = "host"};
static struct cluster team = {.name = "team", .n_types = 1, .types = &host_type};

static struct profile example(uint64_t seed, size_t n)
{
    struct profile p = {.cluster = "team",
                        .machine = "a machine, 2 processors",
                        .note = "tiny",
                        .calibrated_on = "",
                        .pace = 1.03,
                        .cluster_hash = UINT64_C(0xfedcba9876543210),
                        .n_ops = n,
                        .n_fits = 2,
                        .n_links = 2,
                        .n_factors = 3};
    static struct op_fit fits[] = {
        {.base = "host",
         .kind = OP_matmul,
         .constant_s = 1e-6,
         .s_per_flop = 1e-11,
         .s_per_byte = 3e-10,
         .residual = 0.07,
         .min_flops = 100,
         .max_flops = 1e9,
         .rows = 12},
        {.base = "host", .kind = OP_matmul, .dtype = DTYPE_fp64, .constant_s = 2e-6, .rows = 4}};
    static struct link_row links[] = {
        {"bus", {5e-6, 8e9, 0.02, 1024, 1 << 20, SOURCE_FITTED, 0, {{0, 0}}}},
        {"lan \"one\"", {50e-6, 1e9, 0, 0, INT64_MAX, SOURCE_STATED, 0, {{0, 0}}}}};
    static struct factor_row factors[] = {{"slow", OP_matmul, 1.1, 7, "run:x"},
                                          {"*", OP_add, 0.9, 3, "run:x"},
                                          {"*", -1, 1.02, 20, "run:x, y"}};
    p.fits = fits;
    p.links = links;
    p.factors = factors;
    p.ops = ARENA_ARRAY(a, struct op_row, n);
    for (size_t i = 0; i < n; i++)
        p.ops[i] = (struct op_row){.base = i % 4 ? "host" : "type:slow",
                                   .key = rng_u64(seed, 0, i),
                                   .kind = (enum op_kind)(i % OP_KIND_COUNT),
                                   .dtype = (enum dtype)(i % DTYPE_COUNT),
                                   .flops = 1e9 * rng_uniform(seed, 1, i),
                                   .bytes = (double)i,
                                   .text = arena_printf(a, "operator %zu", i),
                                   .seconds = rng_uniform(seed, 2, i),
                                   .spread = 0.1,
                                   .samples = (int32_t)i,
                                   .provenance = "profile"};
    profile_sort(&p);
    return p;
}

static bool same_heads(const struct profile *p, const struct profile *q)
{
    return p->id == q->id && p->parent == q->parent && !strcmp(p->cluster, q->cluster) &&
           !strcmp(p->machine, q->machine) && !strcmp(p->note, q->note) &&
           !strcmp(p->calibrated_on, q->calibrated_on) && p->cluster_hash == q->cluster_hash &&
           p->pace == q->pace && p->n_ops == q->n_ops && p->n_fits == q->n_fits &&
           p->n_links == q->n_links && p->n_factors == q->n_factors;
}

static bool same(const struct profile *p, const struct profile *q)
{
    if (!same_heads(p, q)) return false;
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct op_row *x = &p->ops[i], *y = &q->ops[i];
        if (strcmp(x->base, y->base) || x->key != y->key || x->kind != y->kind ||
            x->dtype != y->dtype || x->flops != y->flops || x->bytes != y->bytes ||
            strcmp(x->text, y->text) || x->seconds != y->seconds || x->spread != y->spread ||
            x->samples != y->samples || strcmp(x->provenance, y->provenance))
            return false;
    }
    for (size_t i = 0; i < p->n_fits; i++) {
        const struct op_fit *x = &p->fits[i], *y = &q->fits[i];
        if (strcmp(x->base, y->base) || x->kind != y->kind || x->dtype != y->dtype ||
            x->constant_s != y->constant_s || x->s_per_flop != y->s_per_flop ||
            x->s_per_byte != y->s_per_byte || x->residual != y->residual ||
            x->min_flops != y->min_flops || x->max_flops != y->max_flops || x->rows != y->rows)
            return false;
    }
    for (size_t i = 0; i < p->n_links; i++) {
        const struct link_model *x = &p->links[i].model, *y = &q->links[i].model;
        if (strcmp(p->links[i].name, q->links[i].name) || x->latency_s != y->latency_s ||
            x->bandwidth_Bps != y->bandwidth_Bps || x->residual != y->residual ||
            x->min_bytes != y->min_bytes || x->max_bytes != y->max_bytes || x->source != y->source)
            return false;
    }
    for (size_t i = 0; i < p->n_factors; i++) {
        const struct factor_row *x = &p->factors[i], *y = &q->factors[i];
        if (strcmp(x->type, y->type) || x->kind != y->kind || x->factor != y->factor ||
            x->samples != y->samples || strcmp(x->provenance, y->provenance))
            return false;
    }
    return true;
}

static struct store *opened(bool create)
{
    struct store *s = NULL;
    MUST(store_open(a, db, create, &s, &err));
    return s;
}

/* Two profiles, the second one the first's child. */
static void fill(struct profile out[2], size_t n)
{
    struct store *s = opened(true);
    out[0] = example(1, n);
    out[1] = example(2, n + 1);
    MUST(store_append(s, &out[0], &err));
    out[1].parent = out[0].id;
    out[1].calibrated_on = "plan a, plan b";
    MUST(store_append(s, &out[1], &err));
    store_close(s);
}

START_TEST(what_goes_in_comes_out)
{
    struct profile p[2], back;
    bool exact = false;
    int64_t id = 0;
    fill(p, 200);
    struct store *s = opened(false);
    ck_assert_int_eq(p[0].id, 1);
    ck_assert_int_eq(p[1].id, 2);
    for (int i = 0; i < 2; i++) {
        MUST(store_load(s, a, p[i].id, &back, &err));
        ck_assert(same(&p[i], &back));
        ck_assert(back.ops_sorted);
    }
    MUST(store_latest(s, p[0].cluster_hash, &team, &id, &exact, &err));
    ck_assert_int_eq(id, 2);
    ck_assert(exact);
    ck_assert_int_eq(back.parent, 1);
    store_close(s);
}
END_TEST

START_TEST(tables_that_later_schemas_brought_are_made_when_needed)
{
    struct collective_row measured = {.n_ranks = 8,
                                      .n_nodes = 1,
                                      .algorithm = "ring",
                                      .protocol = "",
                                      .bytes = 1 << 20,
                                      .seconds = 1e-4,
                                      .samples = 3,
                                      .provenance = "a table"};
    struct routing_row routing = {"experts", 1.25, 48, "run:x"};
    struct profile p[2], more[2] = {example(3, 5), example(4, 5)}, back;
    fill(p, 3);
    more[0].n_routings = more[1].n_routings = 1;
    more[0].routings = more[1].routings = &routing;
    more[0].n_collectives = 1;
    more[0].collectives = &measured;
    for (int i = 0; i < 2; i++) {
        struct store *s = opened(false);
        MUST(store_append(s, &more[i], &err));
        store_close(s);
        s = opened(false);
        MUST(store_load(s, a, more[i].id, &back, &err));
        ck_assert(same(&more[i], &back));
        ck_assert_uint_eq(back.n_routings, 1);
        ck_assert_str_eq(back.routings[0].name, "experts");
        ck_assert_double_eq(back.routings[0].spread, 1.25);
        ck_assert_int_eq(back.routings[0].samples, 48);
        ck_assert_uint_eq(back.n_collectives, 1 - (size_t)i);
        MUST(store_load(s, a, 2, &back, &err));
        ck_assert(same(&p[1], &back) && !back.n_routings);
        store_close(s);
    }
}
END_TEST

START_TEST(a_database_opened_for_reading_takes_an_append_too)
{
    struct profile p[2], more = example(3, 5), back;
    fill(p, 3);
    struct store *s = opened(false);
    MUST(store_append(s, &more, &err));
    ck_assert_int_eq(more.id, 3);
    MUST(store_load(s, a, 3, &back, &err));
    ck_assert(same(&more, &back));
    store_close(s);
}
END_TEST

START_TEST(an_empty_profile_is_a_profile)
{
    struct store *s = opened(true);
    struct profile p = {.cluster = "none", .pace = 1}, back;
    MUST(store_append(s, &p, &err));
    MUST(store_load(s, a, 1, &back, &err));
    ck_assert_uint_eq(back.n_ops, 0);
    ck_assert_str_eq(back.note, "");
    store_close(s);
}
END_TEST

START_TEST(what_is_not_there_is_said)
{
    struct profile p[2], back;
    struct cluster other = {.name = "other"};
    bool exact = false;
    int64_t id = 0;
    fill(p, 3);
    struct store *s = opened(false);
    ck_assert_int_eq(store_latest(s, 12345, &other, &id, &exact, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "no profile of cluster other") &&
                      strstr(err.text, "musher profile"),
                  "%s", err.text);
    ck_assert_int_eq(store_load(s, a, 7, &back, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "no profile 7"), "%s", err.text);
    struct profile orphan = example(4, 1);
    orphan.parent = 9;
    ck_assert_int_eq(store_append(s, &orphan, &err), ERR_INPUT);
    ck_assert_int_eq(orphan.id, 0);
    store_close(s);
}
END_TEST

/* Same name and base devices, another text. */
START_TEST(a_profile_is_found_when_only_names_or_links_differ)
{
    struct profile p = example(7, 12);
    struct device_type types[] = {host_type, {.name = "gpu", .catalogue = "T4"}, host_type};
    struct cluster c = team;
    int64_t id = 0;
    bool exact = true;
    struct store *s = opened(true);
    ck_assert_int_eq(store_latest(s, p.cluster_hash, &team, &id, &exact, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "musher profile"), "%s", err.text);
    for (size_t i = 0; i < p.n_ops; i++) p.ops[i].base = i % 3 ? "host" : "type:slow";
    MUST(store_append(s, &p, &err));
    c.types = types, c.n_types = 2; /* types that cannot be measured here have no rows */
    MUST(store_latest(s, 5, &c, &id, &exact, &err));
    ck_assert_int_eq(id, 1);
    ck_assert(!exact);
    MUST(store_latest(s, p.cluster_hash, &c, &id, &exact, &err));
    ck_assert(exact);
    c.types = &types[1], c.n_types = 1;
    ck_assert_int_eq(store_latest(s, 5, &c, &id, &exact, &err), ERR_INPUT);
    c = team;
    c.name = "another";
    ck_assert_int_eq(store_latest(s, 5, &c, &id, &exact, &err), ERR_INPUT);
    store_close(s);
}
END_TEST

START_TEST(a_row_that_is_refused_takes_the_whole_profile_with_it)
{
    struct store *s = opened(true);
    struct profile p = example(5, 10);
    p.ops[9].key = p.ops[8].key;
    p.ops[9].base = p.ops[8].base;
    ck_assert_int_eq(store_append(s, &p, &err), ERR_INPUT);
    p = example(5, 10);
    p.ops[3].seconds = 0.0 / 0.0;
    ck_assert_int_eq(store_append(s, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "op_row.seconds") != NULL, "%s", err.text);
    p = example(5, 10);
    MUST(store_append(s, &p, &err)); /* and the store goes on */
    ck_assert_int_eq(p.id, 1);
    store_close(s);
}
END_TEST

static int sql(const char *text)
{
    sqlite3 *c = NULL;
    ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
    int rc = sqlite3_exec(c, text, NULL, NULL, NULL);
    sqlite3_close(c);
    return rc;
}

static const char *const changes[] = {"update op_row set seconds = 1",
                                      "delete from op_row",
                                      "update profile set pace = 2",
                                      "delete from profile where id = 2",
                                      "update link_row set latency_s = 0",
                                      "delete from factor_row",
                                      "insert into profile select * from profile where id = 1"};
START_TEST(a_stored_profile_is_never_changed)
{
    struct profile p[2], back;
    fill(p, 5);
    ck_assert_int_ne(sql(changes[_i]), SQLITE_OK);
    struct store *s = opened(false);
    MUST(store_load(s, a, 2, &back, &err));
    ck_assert(same(&p[1], &back));
    store_close(s);
}
END_TEST

static const char *const tampers[] = {
    ("drop trigger op_row_fixed; update op_row set seconds = seconds + 1 where profile = 2 and "
     "rowid % 3 = 0"),
    "drop trigger op_row_kept; delete from op_row where rowid = (select max(rowid) from op_row)",
    "drop trigger profile_fixed; update profile set pace = 1.04 where id = 2",
    "drop trigger link_row_fixed; update link_row set source = 'measured' where profile = 2",
    "drop trigger profile_fixed; update profile set n_factors = 2 where id = 2",
    "pragma user_version = 2",
    "update meta set value = 3 where name = 'profiles'",
    "update meta set value = 9 where name = 'schema'",
    "drop table factor_row",
    "pragma application_id = 1"};
START_TEST(what_was_tampered_with_is_refused)
{
    struct profile p[2], back;
    struct store *s = NULL;
    fill(p, 30);
    ck_assert_int_eq(sql(tampers[_i]), SQLITE_OK);
    enum status st = store_open(a, db, false, &s, &err);
    if (st == OK) st = store_load(s, a, 2, &back, &err);
    ck_assert_msg(st == ERR_INPUT, "%d %s", (int)st, st ? err.text : "nothing was seen");
    ck_assert_ptr_nonnull(strstr(err.text, db));
    if (s) store_close(s);
}
END_TEST

START_TEST(what_is_no_database_is_refused)
{
    struct store *s = NULL;
    ck_assert_int_eq(store_open(a, db, false, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "create it with musher profile"));
    ck_assert_int_eq(access(db, F_OK), -1); /* asking made no file */
    ck_assert_int_eq(store_open(a, folder, true, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "a folder"));
    ck_assert_int_eq(store_open(a, "/nowhere/at/all.db", true, &s, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "no folder '/nowhere/at'"), "%s", err.text);
    FILE *f = fopen(db, "w");
    for (int i = 0; i < 400; i++) fputs("this is no database at all\n", f);
    fclose(f);
    ck_assert_int_eq(store_open(a, db, true, &s, &err), ERR_INPUT);
    ck_assert_int_eq(store_open(a, db, false, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "not a profile database"));
    unlink(db);
    ck_assert_int_eq(sql("create table theirs(x)"), SQLITE_OK);
    ck_assert_int_eq(store_open(a, db, true, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "not a musher profile database"));
    unlink(db);
    fclose(fopen(db, "w")); /* an empty file is not a database yet, and may become one */
    ck_assert_int_eq(store_open(a, db, false, &s, &err), ERR_INPUT);
    store_close(opened(true)); /* nothing was stored */
    ck_assert_int_eq(store_open(a, db, false, &s, &err), ERR_INPUT);
    unlink(db);
    store_close(opened(true));
    ck_assert_int_eq(access(db, F_OK), -1);
    store_close(NULL);
}
END_TEST

/* Every flipped bit is rejected or harmless: a loaded profile equals the stored one. */
START_TEST(no_flipped_bit_changes_a_profile_silently)
{
    struct profile p[2];
    char *bytes = NULL;
    size_t n = 0;
    fill(p, 40);
    MUST(file_read(a, db, 1 << 24, &bytes, &n, &err));
    uint64_t flips = suites_long() ? 2000 : 300, seen = 0;
    for (uint64_t i = 0; i < flips; i++) {
        struct arena *scratch = arena_new();
        struct store *s = NULL;
        struct profile back[2];
        int64_t id = 0;
        bool exact = false;
        uint64_t bit = rng_below(11, 0, i, n * 8);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        FILE *f = fopen(db, "w");
        ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
        fclose(f);
        enum status st = store_open(scratch, db, false, &s, &err);
        if (st == OK) st = store_latest(s, p[1].cluster_hash, &team, &id, &exact, &err);
        for (int k = 0; k < 2 && st == OK; k++) st = store_load(s, scratch, k + 1, &back[k], &err);
        if (st == OK)
            ck_assert_msg(id == 2 && same(&back[0], &p[0]) && same(&back[1], &p[1]), "bit %llu",
                          (unsigned long long)bit);
        seen += st != OK;
        if (s) store_close(s);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        arena_free(scratch);
    }
    ck_assert_uint_gt(seen, flips / 20); /* the rest fell into unused space */
}
END_TEST

START_TEST(a_database_that_may_not_be_written_can_be_read)
{
    struct profile p[2], more = example(3, 2), back;
    if (geteuid() == 0) return; /* to root everything may be written */
    fill(p, 3);
    ck_assert_int_eq(chmod(db, 0444), 0);
    struct store *s = opened(false);
    MUST(store_load(s, a, 1, &back, &err));
    ck_assert_int_eq(store_append(s, &more, &err), ERR_RESOURCE);
    store_close(s);
}
END_TEST

/* A writer that dies in the middle of its transaction leaves a journal; the next reader rolls it back. */
START_TEST(a_writer_that_died_leaves_the_database_as_it_was)
{
    struct profile p[2], back;
    fill(p, 2000);
    pid_t child = fork();
    if (!child) {
        sqlite3 *c = NULL;
        sqlite3_open(db, &c);
        sqlite3_exec(c,
                     "pragma cache_size=4; begin immediate; drop trigger op_row_fixed; update "
                     "op_row set seconds = 1",
                     NULL, NULL, NULL);
        _exit(0);
    }
    int how = 0;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_int_eq(access(arena_printf(a, "%s-journal", db), F_OK), 0);
    struct store *s = opened(false);
    for (int i = 0; i < 2; i++) {
        MUST(store_load(s, a, i + 1, &back, &err));
        ck_assert(same(&p[i], &back));
    }
    store_close(s);
}
END_TEST

START_TEST(a_second_writer_waits_and_then_says_so)
{
    struct profile p[2], more = example(3, 2);
    if (!suites_long()) return; /* it waits five seconds */
    fill(p, 3);
    sqlite3 *c = NULL;
    ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(c, "begin immediate", NULL, NULL, NULL), SQLITE_OK);
    struct store *s = opened(false);
    ck_assert_int_eq(store_append(s, &more, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "in use by another process") != NULL, "%s", err.text);
    sqlite3_close(c);
    MUST(store_append(s, &more, &err));
    store_close(s);
}
END_TEST

Suite *store_suite(void)
{
    Suite *s = suite_create("store");
    TCase *c = tcase_create("store");
    tcase_add_checked_fixture(c, stores_set_up, stores_tear_down);
    tcase_add_test(c, what_goes_in_comes_out);
    tcase_add_test(c, tables_that_later_schemas_brought_are_made_when_needed);
    tcase_add_test(c, a_database_opened_for_reading_takes_an_append_too);
    tcase_add_test(c, an_empty_profile_is_a_profile);
    tcase_add_test(c, what_is_not_there_is_said);
    tcase_add_test(c, a_profile_is_found_when_only_names_or_links_differ);
    tcase_add_test(c, a_row_that_is_refused_takes_the_whole_profile_with_it);
    tcase_add_loop_test(c, a_stored_profile_is_never_changed, 0, sizeof changes / sizeof *changes);
    tcase_add_loop_test(c, what_was_tampered_with_is_refused, 0, sizeof tampers / sizeof *tampers);
    tcase_add_test(c, what_is_no_database_is_refused);
    tcase_add_test(c, no_flipped_bit_changes_a_profile_silently);
    tcase_add_test(c, a_database_that_may_not_be_written_can_be_read);
    tcase_add_test(c, a_writer_that_died_leaves_the_database_as_it_was);
    tcase_add_test(c, a_second_writer_waits_and_then_says_so);
    suite_add_tcase(s, c);
    return s;
}
