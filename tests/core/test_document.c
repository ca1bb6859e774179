#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/document/document.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static struct arena *arena;
static struct error err;

static void begin(void)
{
    arena = arena_new();
    memset(&err, 0, sizeof err);
}
static void end(void) { arena_free(arena); }

static struct node *parse(const char *text)
{
    struct node *root = NULL;
    enum status status = document_parse(arena, "job", text, strlen(text), &root, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    return root;
}

static const char yaml[] =
    "# a job\nname: 7b\nbatch: 64\nratio: 2.5e-1\nfast: true\nnothing: ~\n"
    "link: 25 GB/s\nhost: \"12\"\nnodes:\n  - host: a\n    gpus: [A100, T4]\n"
    "  - host: b\n";
static const char json[] =
    "{\"name\":\"7b\",\"batch\":64,\"ratio\":0.25,\"fast\":true,\"nothing\":null,"
    "\"link\":\"25 GB/s\",\"host\":\"12\",\"nodes\":[{\"host\":\"a\",\"gpus\":"
    "[\"A100\",\"T4\"]},{\"host\":\"b\"}]}";

static void check_sample(const struct node *root)
{
    int64_t batch = 0, absent = 9;
    double ratio = 0, link = 0;
    bool fast = false;
    const char *text = NULL;
    const struct node *nodes = NULL, *gpu = NULL;
    static const char *const types[] = {"V100", "T4", NULL};
    int type = -1;
    char path[64];
    ck_assert_int_eq(node_get_int(root, "batch", 1, 64, &batch, &err), OK);
    ck_assert_int_eq(batch, 64);
    ck_assert_int_eq(node_get_int(root, "absent", 1, 64, &absent, &err), OK);
    ck_assert_int_eq(node_get_int(root, "nothing", 1, 64, &absent, &err), OK);
    ck_assert_int_eq(absent, 9);
    ck_assert_int_eq(node_get_double(root, "ratio", 0, 1, &ratio, &err), OK);
    ck_assert_double_eq(ratio, 0.25);
    ck_assert_int_eq(node_get_bool(root, "fast", &fast, &err), OK);
    ck_assert(fast);
    ck_assert_int_eq(node_get_quantity(root, "link", QUANTITY_BYTES_PER_S, 0, 1e12, &link, &err),
                     OK);
    ck_assert_double_eq(link, 25e9);
    ck_assert_int_eq(node_get_text(root, "host", &text, &err), OK);
    ck_assert_str_eq(text, "12");
    ck_assert_int_eq(node_need(root, "nodes", &nodes, &err), OK);
    ck_assert_int_eq(node_is(nodes, NODE_LIST, &err), OK);
    ck_assert_uint_eq(nodes->count, 2);
    gpu = node_get(nodes->members[0], "gpus")->members[1];
    ck_assert_str_eq(node_path(gpu, path, sizeof path), "nodes[0].gpus[1]");
    ck_assert_int_eq(node_choice(gpu, types, &type, &err), OK);
    ck_assert_int_eq(type, 1);
}

START_TEST(yaml_is_read) { check_sample(parse(yaml)); }
END_TEST

START_TEST(json_is_read) { check_sample(parse(json)); }
END_TEST

START_TEST(a_byte_order_mark_and_windows_line_ends_are_accepted)
{
    char text[1024] = "\xEF\xBB\xBF";
    size_t n = 3;
    for (const char *c = yaml; *c; c++) {
        if (*c == '\n') text[n++] = '\r';
        text[n++] = *c;
    }
    text[n] = 0;
    check_sample(parse(text));
    snprintf(text, sizeof text, "\xEF\xBB\xBF\r\n%s\r\n", json);
    check_sample(parse(text));
}
END_TEST

START_TEST(yaml_nodes_know_where_they_stand)
{
    const struct node *root = parse(yaml);
    const struct node *host = node_get(node_get(root, "nodes")->members[1], "host");
    ck_assert_int_eq(host->line, 12);
    ck_assert_int_eq(host->column, 11);
    ck_assert_int_eq(node_error(host, &err, "unknown host '%s'", host->text), ERR_INPUT);
    ck_assert_str_eq(err.text, "job:12:11: nodes[1].host: unknown host 'b'");
}
END_TEST

/* What neither parser lets through, and the place that the message must name. */
static const struct {
    const char *text, *message;
} malformed[] = {
    {"", "job:1:1: the file is empty"},
    {"# only talk\n", "job:1:1: the file is empty"},
    {"a: [1, 2", "job:2:1: did not find expected ',' or ']'"},
    {"a: 1\n  b: 2\n", "job:2:4: "},
    {"a: \"x", "job:1:6: "},
    {"a: b: c", "job:1:5: "},
    {"\ta: 1", "job:1:1: a tab is no indentation in YAML, use spaces"},
    {"a: 1\nb: 2\na: 3\n", "job:3:4: a: key 'a' is given twice (first in line 1)"},
    {"x:\n  a: 1\n  a: 1\n", "job:3:6: x.a: key 'a' is given twice"},
    {"a: &x 1\nb: *x\n", "job:1:4: anchors and aliases"},
    {"b: *x\n", "job:1:4: anchors and aliases"},
    {"a: &x [1]\n", "job:1:4: anchors and aliases"},
    {"a: !!int 1\n", "job:1:4: tags"},
    {"a: !x {b: 1}\n", "job:1:4: tags"},
    {"a: 1\n---\nb: 2\n", "job:2:1: more than one document"},
    {"? [1, 2]\n: 3\n", "job:1:3: a key must be a plain text"},
    {"a: \"x\\0y\"\n", "job:1:4: a text must not contain a NUL"},
    {"a: \x01\n", "job:1:1: control characters are not allowed"},
    {"a: caf\xE9\n", "job:1:7: not UTF-8 text (byte 0xe9)"},
    {"a: 1\nb: \xC0\x80\n", "job:2:4: not UTF-8 text (byte 0xc0)"},
    {"\xFF\xFE"
     "a",
     "job:1:1: not UTF-8 text (byte 0xff)"},
    {"%YAML 3.0\n---\na: 1\n", "job:1:1: "},
    {"@a: 1\n", "job:1:1: "},
    {"{\"a\": 1", "job:1:7: "},
    {"{\"a\": 1,}", "job:1:9: "},
    {"{\"a\": 1} x", "job:1:10: "},
    {"{\n\"a\": 1\n\"b\": 2}", "job:3:3: "},
    {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
    {"{'a': 1}", "job:1:2: "},
    {"{\"a\": NaN}", "job:1:9: invalid token near 'NaN'"},
    {"{\"a\": 1e999}", "job:1:11: real number overflow"},
    {"{\"a\": 99999999999999999999}", "job:1:26: too big integer"},
    {"{\"a\": \"\\u0000\"}", "job:1:14: \\u0000 is not allowed"},
    {"{\"a\": 01}", "job:1:"},
    {"[1, 2", "job:1:5: "},
    {"[", "job:1:1: "},
    {"{\"a\": \"\\ud800\"}", "job:1:"},
    {"{\"a\": tru}", "job:1:9: "},
    {"a: 1\n\"b\\e[2J\": 2\n", "job:2:11: b\x1b[2J: a key must not contain control characters"},
    {"{\"x\": {\"\\u009b\": 1}}", "job: x.\xc2\x9b: a key must not contain control characters"},
};

START_TEST(a_malformed_file_is_refused_with_its_place)
{
    const char *text = malformed[_i].text;
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, &err), ERR_INPUT);
    ck_assert_int_eq(err.code, ERR_INPUT);
    ck_assert_ptr_null(root);
    ck_assert_msg(strstr(err.text, malformed[_i].message) && !strncmp(err.text, "job:", 4),
                  "'%s': %s", text, err.text);
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, NULL), ERR_INPUT);
}
END_TEST

START_TEST(a_text_is_a_name_that_can_be_printed_and_lines_are_not)
{
    static const struct {
        const char *text;
        bool line;
        int byte; /* of the first control character; 0: fine */
    } rows[] = {{"Gänge", true, 0},     {"", true, 0},           {"a\\nb", false, 2},
                {"a\\tb\\r", false, 2}, {"\\u001b[2J", true, 1}, {"ab\\u0007", true, 3},
                {"\\u007f", true, 1},   {"é\\u009b", true, 3},   {"a\\n\\u202e", true, 2},
                {"\\u2066", true, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text_of_row = arena_printf(arena, "{\"a\": \"%s\"}", rows[i].text), *text;
        struct node *root = parse(text_of_row);
        char byte[40];
        snprintf(byte, sizeof byte, "(found one at byte %d)", rows[i].byte);
        ck_assert_int_eq(node_get_text(root, "a", &text, &err), rows[i].byte ? ERR_INPUT : OK);
        ck_assert(!rows[i].byte || strstr(err.text, byte));
        ck_assert_int_eq(node_get_lines(root, "a", &text, &err),
                         rows[i].byte && rows[i].line ? ERR_INPUT : OK);
    }
}
END_TEST

START_TEST(a_nul_byte_is_refused)
{
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "job", "a: \0", 4, &root, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "job:1:4: a NUL byte: this is not a text file");
}
END_TEST

/* One question to a node that cannot answer it. */
enum ask {
    ASK_INT,
    ASK_DOUBLE,
    ASK_BOOL,
    ASK_TEXT,
    ASK_SIZE,
    ASK_RATE,
    ASK_CHOICE,
    ASK_MAP,
    ASK_KEYS,
    ASK_NEED
};

static const char *const known_keys[] = {"name", "batch", NULL};

static enum status ask(enum ask what, const struct node *root)
{
    const struct node *x = node_get(root, "x");
    int64_t whole = 0;
    double real = 0;
    bool yes = false;
    const char *text = NULL;
    int choice = 0;
    switch (what) {
    case ASK_INT:
        return node_int(x, 1, 100, &whole, &err);
    case ASK_DOUBLE:
        return node_double(x, 0, 1, &real, &err);
    case ASK_BOOL:
        return node_bool(x, &yes, &err);
    case ASK_TEXT:
        return node_text(x, &text, &err);
    case ASK_SIZE:
        return node_quantity(x, QUANTITY_BYTES, 0, 1e12, &real, &err);
    case ASK_RATE:
        return node_quantity(x, QUANTITY_BYTES_PER_S, 1, INFINITY, &real, &err);
    case ASK_CHOICE:
        return node_choice(x, known_keys, &choice, &err);
    case ASK_MAP:
        return node_is(x, NODE_MAP, &err);
    case ASK_KEYS:
        return node_keys(root, known_keys, &err);
    case ASK_NEED:
        return node_need(root, "y", &x, &err);
    }
    return OK;
}

static const struct {
    enum ask what;
    const char *text, *message;
} unfit[] = {
    {ASK_INT, "x: 0", "job:1:4: x: must be a whole number from 1 to 100, found '0'"},
    {ASK_INT, "x: 101", "found '101'"},
    {ASK_INT, "x: 1.5", "found '1.5'"},
    {ASK_INT, "x: ten", "found 'ten'"},
    {ASK_INT, "x: \"10\"", "found \"10\" in quotes"},
    {ASK_INT, "x: 99999999999999999999", "found '99999999999999999999'"},
    {ASK_INT, "x: [1]", "found a list"},
    {ASK_INT, "x: {a: 1}", "found a map"},
    {ASK_INT, "x:", "found nothing"},
    {ASK_INT, "x: 0x10", "found '0x10'"},
    {ASK_INT, "{\"x\": 0}", "job: x: must be a whole number from 1 to 100, found '0'"},
    {ASK_INT, "{\"x\": \"5\"}",
     "job: x: must be a whole number from 1 to 100, found \"5\" in quotes"},
    {ASK_DOUBLE, "x: .nan", "must be a number from 0 to 1, found '.nan'"},
    {ASK_DOUBLE, "x: nan", "found 'nan'"},
    {ASK_DOUBLE, "x: .inf", "found '.inf'"},
    {ASK_DOUBLE, "x: 1e999", "found '1e999'"},
    {ASK_DOUBLE, "x: 1.0001", "found '1.0001'"},
    {ASK_DOUBLE, "x: 0,5", "found '0,5'"},
    {ASK_BOOL, "x: yes", "must be true or false, found 'yes'"},
    {ASK_BOOL, "x: \"true\"", "found \"true\" in quotes"},
    {ASK_BOOL, "{\"x\": 1}", "job: x: must be true or false, found '1'"},
    {ASK_TEXT, "x: [a]", "must be a text, found a list"},
    {ASK_TEXT, "x: null", "must be a text, found nothing"},
    {ASK_SIZE, "x: 1 GB/s", "must be a size such as 80 GiB or 64 kB, found '1 GB/s'"},
    {ASK_SIZE, "x: 5 TB", "must be a quantity from 0 to 1e+12 bytes, found '5 TB'"},
    {ASK_SIZE, "x: -1 B", "found '-1 B'"},
    {ASK_SIZE, "x: 24",
     "job:1:4: x: must be a size such as 80 GiB or 64 kB, found '24'; a number needs a unit: write "
     "24 GB or "
     "24 GiB"},
    {ASK_SIZE, "x: 64000000", "; a number needs a unit: write 64000000 B"},
    {ASK_RATE, "x: 60", "found '60'; a number needs a unit: write 60 GB/s or 60 Gb/s"},
    {ASK_RATE, "x: 0", "must be a quantity of at least 1 bytes/s, found '0'"},
    {ASK_CHOICE, "x: nam", "must be one of name, batch; found 'nam'; did you mean 'name'?"},
    {ASK_CHOICE, "x: [name]", "must be one of name, batch; found a list"},
    {ASK_MAP, "x: 1", "must be a map (key: value), found '1'"},
    {ASK_KEYS, "name: a\nbacth: 2",
     "job:2:8: bacth: unknown key 'bacth'; known: name, batch; did you mean 'batch'?"},
    {ASK_KEYS, "- 1", "job:1:1: must be a map (key: value), found a list"},
    {ASK_KEYS, "{\"x\": 1}", "job: x: unknown key 'x'; known: name, batch"},
    {ASK_NEED, "x: 1", "job:1:1: the key 'y' is missing"},
    {ASK_INT, "x: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     "found 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'"},
};

START_TEST(an_unfit_value_is_refused_with_what_would_be_right)
{
    enum status status = ask(unfit[_i].what, parse(unfit[_i].text));
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, unfit[_i].message) != NULL, "'%s': %s", unfit[_i].text,
                  err.text);
}
END_TEST

START_TEST(depth_64_is_read_and_65_is_not)
{
    for (int depth = 63; depth <= 65; depth++)
        for (int style = 0; style < 2; style++) {
            char text[512] = "x: ";
            size_t n = style ? 3 : 0;
            int levels = depth - (style ? 1 : 0); /* the map itself is a level */
            for (int i = 0; i < levels; i++) text[n++] = '[';
            for (int i = 0; i < levels; i++) text[n++] = ']';
            struct node *root = NULL;
            enum status status = document_parse(arena, "job", text, n, &root, &err);
            ck_assert_int_eq(status, depth <= 64 ? OK : ERR_INPUT);
        }
    ck_assert_ptr_nonnull(strstr(err.text, "nested deeper than 64 levels"));
}
END_TEST

/* n times the same letter; 10 s of processor time would mean that the cost is not linear. */
static void monster(const char *head, char letter, size_t n, bool refused)
{
    char *text = arena_alloc(arena, n + 16, 1);
    size_t used = strlen(head);
    memcpy(text, head, used);
    memset(text + used, letter, n);
    struct node *root = NULL;
    clock_t start = clock();
    enum status status = document_parse(arena, "job", text, used + n, &root, &err);
    ck_assert_int_eq(status, refused ? ERR_INPUT : OK);
    ck_assert((double)(clock() - start) / CLOCKS_PER_SEC < 10);
}

START_TEST(monsters_are_refused_quickly)
{
    monster("", '[', 1000000, true);
    monster("x: ", '[', 1000000, true);
    monster("x: ", '{', 1000000, true);
    monster("[", ',', 5000000, true);
    monster("x: ", '\'', 1000001, true);
    monster("x: ", '-', 1000000, false);
    monster("x: &", '?', 100000, true);
}
END_TEST

/* 60 maps in each other with long keys, and many values in the innermost: what every value's path repeats is 60 kB. */
static char *deep_and_wide(const char *head, size_t n_values)
{
    struct text t;
    FILE *out = text_begin(&t);
    fputs(head, out);
    for (int i = 0; i < 60; i++) fprintf(out, "{\"%01000d\":", i);
    fputc('[', out);
    for (size_t i = 0; i < n_values; i++) fprintf(out, "%s%zu", i ? ", " : "", i);
    fputc(']', out);
    for (int i = 0; i < 60; i++) fputc('}', out);
    return text_end(arena, &t, NULL);
}

static const char *const heads[] = {"", "x: "}; /* JSON, YAML */
START_TEST(memory_is_in_proportion_to_the_file)
{
    enum { VALUES = 20000 };
    char *text = deep_and_wide(heads[_i], VALUES), path[32], number[24];
    struct arena *own = arena_new();
    struct node *root = NULL;
    enum status status = document_parse(own, "job", text, strlen(text), &root, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    ck_assert_uint_lt(arena_bytes(own), 16 * 1024 * 1024);
    const struct node *n = root;
    while (n->kind == NODE_MAP || n->kind == NODE_LIST) n = n->members[n->count - 1];
    ck_assert_str_eq(n->text, "19999");
    ck_assert_str_eq(node_path(n, path, sizeof path), &"0000000000000000000000059[19999]"[1]);
    int64_t small;
    ck_assert_int_eq(node_int(n, 0, 9, &small, &err), ERR_INPUT);
    snprintf(number, sizeof number, "%d[%d]: ", 59, VALUES - 1);
    ck_assert_msg(strstr(err.text, number), "%s", err.text);
    arena_free(own);
}
END_TEST

static const char *const nests[] = {"[", "{\"k\":", "x: [", "- ", "? "};
START_TEST(a_nest_of_100000_levels_is_refused)
{
    struct text t;
    FILE *out = text_begin(&t);
    for (int i = 0; i < 100000; i++) fputs(i ? nests[_i] + (_i == 2 ? 3 : 0) : nests[_i], out);
    char *text = text_end(arena, &t, NULL);
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, _i < 2   ? "maximum parsing depth"
                                   : _i < 4 ? "nested deeper than 64 levels"
                                            : "key"),
                  "%s", err.text);
}
END_TEST

START_TEST(many_equal_keys_are_found_quickly)
{
    size_t n = 0, size = 200000 * 12;
    char *text = arena_alloc(arena, size, 1);
    for (int i = 0; i < 200000; i++)
        n += (size_t)snprintf(text + n, size - n, "k%d: 1\n", i % 199999);
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "job", text, n, &root, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "job:200000:5: k0: key 'k0' is given twice (first in line 1)");
}
END_TEST

START_TEST(half_a_file_never_crashes)
{
    const char *const whole[] = {yaml, json};
    for (int f = 0; f < 2; f++)
        for (size_t n = 0; n < strlen(whole[f]); n++) {
            struct node *root = NULL;
            char *cut = arena_strndup(arena, whole[f], n);
            enum status status = document_parse(arena, "job", cut, n, &root, &err);
            ck_assert(status == OK || (status == ERR_INPUT && !strncmp(err.text, "job:", 4)));
            ck_assert(f == 0 || n == 0 || status == ERR_INPUT);
        }
}
END_TEST

START_TEST(a_missing_file_is_named)
{
    struct node *root = NULL;
    ck_assert_int_eq(document_read(arena, "/nonexistent/job.yaml", &root, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "cannot read '/nonexistent/job.yaml': No such file or directory");
}
END_TEST

Suite *document_suite(void)
{
    Suite *s = suite_create("document");
    TCase *c = tcase_create("document");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, yaml_is_read);
    tcase_add_test(c, json_is_read);
    tcase_add_test(c, a_byte_order_mark_and_windows_line_ends_are_accepted);
    tcase_add_test(c, yaml_nodes_know_where_they_stand);
    tcase_add_loop_test(c, a_malformed_file_is_refused_with_its_place, 0,
                        sizeof malformed / sizeof *malformed);
    tcase_add_test(c, a_text_is_a_name_that_can_be_printed_and_lines_are_not);
    tcase_add_test(c, a_nul_byte_is_refused);
    tcase_add_loop_test(c, an_unfit_value_is_refused_with_what_would_be_right, 0,
                        sizeof unfit / sizeof *unfit);
    tcase_add_test(c, depth_64_is_read_and_65_is_not);
    tcase_add_test(c, monsters_are_refused_quickly);
    tcase_add_loop_test(c, memory_is_in_proportion_to_the_file, 0, sizeof heads / sizeof *heads);
    tcase_add_loop_test(c, a_nest_of_100000_levels_is_refused, 0, sizeof nests / sizeof *nests);
    tcase_add_test(c, many_equal_keys_are_found_quickly);
    tcase_add_test(c, half_a_file_never_crashes);
    tcase_add_test(c, a_missing_file_is_named);
    suite_add_tcase(s, c);
    return s;
}
