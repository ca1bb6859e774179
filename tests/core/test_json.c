#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/document/json.h"
#include "tests/support/suites.h"

#include <locale.h>
#include <math.h>

static char text[4096];

static FILE *paper(void)
{
    memset(text, 0, sizeof text);
    return fmemopen(text, sizeof text, "w");
}

static void write_sample(struct json *j)
{
    json_put_object(j, NULL);
    json_put_int(j, "schema", 1);
    json_put_list(j, "empty");
    json_close(j);
    json_put_list_line(j, "ratios");
    json_put_double(j, NULL, 0.1);
    json_put_double(j, NULL, 2);
    json_close(j);
    json_put_list(j, "devices");
    json_put_object_line(j, NULL);
    json_put_text(j, "host", "a");
    json_put_bool(j, "up", true);
    json_put_null(j, "rank");
    json_close(j);
    json_close(j);
    json_close(j);
    json_end(j);
}

START_TEST(a_line_has_no_spaces)
{
    struct json j;
    FILE *out = paper();
    json_begin(&j, out, JSON_LINE);
    write_sample(&j);
    fclose(out);
    ck_assert_str_eq(text, "{\"schema\":1,\"empty\":[],\"ratios\":[0.1,2],"
                           "\"devices\":[{\"host\":\"a\",\"up\":true,\"rank\":null}]}\n");
}
END_TEST

START_TEST(an_indented_document_keeps_rows_on_one_line)
{
    struct json j;
    FILE *out = paper();
    json_begin(&j, out, JSON_INDENTED);
    write_sample(&j);
    fclose(out);
    ck_assert_str_eq(text, "{\n  \"schema\": 1,\n  \"empty\": [],\n  \"ratios\": [0.1, 2],\n"
                           "  \"devices\": [\n    {\"host\": \"a\", \"up\": true, \"rank\": null}\n"
                           "  ]\n}\n");
}
END_TEST

static const struct {
    const char *value, *json;
} texts[] = {
    {"", "\"\""},
    {"a\"b\\c", "\"a\\\"b\\\\c\""},
    {"\xE2\x80\xAE\xE2\x80\xA8\xC2\x9B", "\"\\u202e\\u2028\\u009b\""},
    {"\n\t\r\x1b[2J", "\"\\n\\t\\u000d\\u001b[2J\""},
    {"h\xC3\xA9t\xC3\xA9", "\"h\xC3\xA9t\xC3\xA9\""},
    {"\xF0\x9F\x90\x95", "\"\xF0\x9F\x90\x95\""},
    {"x\xFFy", "\"x\\ufffdy\""},
    {"\xED\xA0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
    {"\xC2\x9B", "\"\\u009b\""},
    {"\xE2\x82", "\"\\ufffd\\ufffd\""},
};

START_TEST(texts_are_escaped_and_always_utf8)
{
    struct json j;
    FILE *out = paper();
    json_begin(&j, out, JSON_LINE);
    json_put_text(&j, NULL, texts[_i].value);
    json_end(&j);
    fclose(out);
    text[strlen(text) - 1] = 0;
    ck_assert_str_eq(text, texts[_i].json);
}
END_TEST

START_TEST(doubles_are_short_and_read_back_the_same)
{
    char buffer[32];
    ck_assert_str_eq(json_number(buffer, 0.1), "0.1");
    ck_assert_str_eq(json_number(buffer, 25e9), "25000000000");
    ck_assert_str_eq(json_number(buffer, 1e300), "1e+300");
    ck_assert_str_eq(json_number(buffer, NAN), "null");
    ck_assert_str_eq(json_number(buffer, -INFINITY), "null");
    const double hard[] = {1.0 / 3, 5e-324, 1.7976931348623157e308, 0.1 + 0.2,
                           -2.2250738585072014e-308};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
        ck_assert(strtod(json_number(buffer, hard[i]), NULL) == hard[i]);
    if (setlocale(LC_ALL, "de_DE.UTF-8")) {
        ck_assert_str_eq(json_number(buffer, 0.5), "0.5");
        setlocale(LC_ALL, "C");
    }
}
END_TEST

START_TEST(what_is_written_is_what_is_read)
{
    struct json j;
    FILE *out = paper();
    json_begin(&j, out, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_int(&j, "big", INT64_MIN);
    json_put_double(&j, "third", 1.0 / 3);
    json_put_text(&j, "name", "\x1b\"\\\x7f");
    json_close(&j);
    json_end(&j);
    fclose(out);
    struct arena *a = arena_new();
    struct node *root = NULL;
    struct error err = {0};
    ck_assert_msg(document_parse(a, "t", text, strlen(text), &root, &err) == OK, "%s", err.text);
    int64_t big = 0;
    double third = 0;
    ck_assert_int_eq(node_get_int(root, "big", INT64_MIN, INT64_MAX, &big, &err), OK);
    ck_assert_int_eq(node_get_double(root, "third", 0, 1, &third, &err), OK);
    ck_assert_int_eq(big, INT64_MIN);
    ck_assert(third == 1.0 / 3);
    ck_assert_str_eq(node_get(root, "name")->text, "\x1b\"\\\x7f"); /* node_text refuses it */
    arena_free(a);
}
END_TEST

/* Each ends in BUG, which aborts. */
START_TEST(misuse_is_a_bug)
{
    struct json j;
    json_begin(&j, paper(), JSON_LINE);
    if (!freopen("/dev/null", "w", stderr)) return;
    switch (_i) {
    case 0:
        json_put_int(&j, "key at the top", 1);
        break;
    case 1:
        json_close(&j);
        break;
    case 2:
        json_end(&j);
        break;
    case 3:
        json_put_object(&j, NULL);
        json_put_int(&j, NULL, 1);
        break;
    case 4:
        for (int depth = 0; depth <= JSON_MAX_DEPTH; depth++) json_put_list(&j, NULL);
        break;
    }
}
END_TEST

Suite *json_suite(void)
{
    Suite *s = suite_create("json");
    TCase *c = tcase_create("json");
    tcase_add_test(c, a_line_has_no_spaces);
    tcase_add_test(c, an_indented_document_keeps_rows_on_one_line);
    tcase_add_loop_test(c, texts_are_escaped_and_always_utf8, 0, sizeof texts / sizeof *texts);
    tcase_add_test(c, doubles_are_short_and_read_back_the_same);
    tcase_add_test(c, what_is_written_is_what_is_read);
    tcase_add_loop_test_raise_signal(c, misuse_is_a_bug, SIGABRT, 0, 5);
    suite_add_tcase(s, c);
    return s;
}
