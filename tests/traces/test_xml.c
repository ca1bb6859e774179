/* The accepted XML subset, rejected input with its line, and robustness against any bytes. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "traces/xml.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

static struct xml *good(const char *text)
{
    struct xml *root = NULL;
    ck_assert_msg(xml_parse(arena, "t", text, strlen(text), &root, &err) == OK, "%s", err.text);
    return root;
}

START_TEST(elements_attributes_and_lines_are_kept)
{
    struct xml *r =
        good("\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- <no/> -->\n<a x='1'\n   y = \"two "
             "words\" >\n  <b/><c-1 z=''></c-1>\n  <b n=\"2\"/>\n</a>\n<!-- end -->\n");
    ck_assert(!strcmp(r->name, "a") && r->line == 3 && r->n_attributes == 2 && !r->parent);
    ck_assert_str_eq(xml_get(r, "y"), "two words");
    ck_assert(!xml_get(r, "z"));
    struct xml *b = r->first, *c = b->next, *d = c->next;
    ck_assert(!strcmp(b->name, "b") && !b->n_attributes && b->line == 5 && b->parent == r);
    ck_assert(!strcmp(c->name, "c-1") && !strcmp(xml_get(c, "z"), "") && !c->first);
    ck_assert(!strcmp(xml_get(d, "n"), "2") && d->line == 6 && !d->next);
}
END_TEST

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "t:1: no element"},
    {" \n\n", "t:3: no element"},
    {"hello", "t:1: this is not XML"},
    {"{\"a\": 1}", "this is not XML"},
    {"<a>\n<b>\n</a>", "t:3: </a> where <b> of line 2 is open"},
    {"<a>\n<b/>\n", "t:3: the file ends and <a> of line 1 is open"},
    {"<a/>\n<b/>", "t:2: a second element behind <a>"},
    {"</a>", "ends nothing"},
    {"<a>text</a>", "text between elements"},
    {"<!DOCTYPE a [<!ENTITY x \"y\">]><a/>", "document types are not read"},
    {"<a x=\"&lt;\"/>", "x: entities are not read"},
    {"<a x=\"&#65;\"/>", "entities are not read"},
    {"<a><![CDATA[x]]></a>", "begins nothing"},
    {"<a x=1/>", "must be in quotes"},
    {"<a x/>", "attribute x has no value"},
    {"<a x=\"1\" x=\"2\"/>", "attribute x is given twice"},
    {"<a x=\"1\"y=\"2\"/>", "a space is expected"},
    {"<a x=\"1", "the file ends inside the value of x"},
    {"<a x=\"1\n\"/>", "control character 0x0a"},
    {"<a x=\"<b\"/>", "is its quote missing?"},
    {"<a", "the file ends inside <a"},
    {"<", "the file ends where a name is expected"},
    {"<a/ >", "'>' is expected"},
    {"<!-- \n", "t:2: the file ends inside a comment"},
    {"<?xml", "the file ends inside"},
    {"<\x80/>", "found byte 0x80"},
};

START_TEST(what_is_not_read_is_refused_with_its_line)
{
    struct xml *root;
    ck_assert_int_eq(xml_parse(arena, "t", bad[_i].text, strlen(bad[_i].text), &root, &err),
                     ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message) != NULL, "%s\nexpected: %s", err.text,
                  bad[_i].message);
}
END_TEST

static void too_much(const char *text, const char *message)
{
    struct xml *root;
    ck_assert_int_eq(xml_parse(arena, "t", text, strlen(text), &root, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, message) != NULL, "%s\nexpected: %s", err.text, message);
}

START_TEST(depth_and_lengths_are_bounded)
{
    enum { DEEP = 100000, LONG = 2000 };
    char *deep = arena_alloc(arena, 3 * DEEP + 1, 1), *wide = arena_alloc(arena, LONG + 1, 1);
    const char *many = "<a";
    for (int i = 0; i < DEEP; i++) memcpy(deep + 3 * i, "<a>", 3);
    for (int i = 0; i < 100; i++) many = arena_printf(arena, "%s x%d=''", many, i);
    memset(wide, 'y', LONG);
    too_much(deep, "elements deep");
    too_much(arena_printf(arena, "%s/>", many), "more than 64 attributes");
    too_much(arena_printf(arena, "<a x='%s'/>", wide), "more than 1024 bytes");
    too_much(arena_printf(arena, "<%s/>", wide), "more than 1024 bytes");
}
END_TEST

/* Truncated anywhere, changed anywhere: a result, and no read beyond the end (the text has no 0 after it). */
START_TEST(broken_files_are_answered)
{
    static const char text[] =
        "<?xml?><!-- c --><s v=\"1\"><c a='b' d=\"e\"><p/><g x=\"2\"></g></c></s>";
    size_t n = sizeof text - 1;
    for (uint64_t i = 0; i < (suites_long() ? 200000u : 20000u); i++) {
        struct xml *root;
        size_t length = i < n ? i : 1 + (size_t)rng_below(1, 1, i, n);
        char *copy = malloc(length);
        memcpy(copy, text, length);
        for (uint64_t k = 0; i >= n && k < rng_below(1, 2, i, 4); k++)
            copy[rng_below(1, 3, 4 * i + k, length)] =
                "<>/\"'=!?-& a\n\x80"[rng_below(1, 4, 4 * i + k, 15)];
        enum status st = xml_parse(arena, "t", copy, length, &root, &err);
        ck_assert(st == OK || (st == ERR_INPUT && !strncmp(err.text, "t:", 2)));
        ck_assert(st == OK || i >= n || length < n);
        free(copy);
        arena_reset(arena);
    }
}
END_TEST

Suite *xml_suite(void)
{
    Suite *s = suite_create("traces/xml");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, elements_attributes_and_lines_are_kept);
    tcase_add_loop_test(t, what_is_not_read_is_refused_with_its_line, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, depth_and_lengths_are_bounded);
    tcase_add_test(t, broken_files_are_answered);
    suite_add_tcase(s, t);
    return s;
}
