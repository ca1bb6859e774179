#include "core/base/arena.h"
#include "tests/support/suites.h"
#include "tools/help.h"
#include "tools/options.h"

static struct arena *arena;
static struct error err;
static struct common common;
static struct request {
    const char *model, *out;
    struct texts traces, tags;
    int64_t budget;
    double within;
    bool dry;
    int method;
} q;
static const char *const methods[] = {"exact", "beam", NULL};

static const struct option table[] = {
    {.name = "MODEL", ARGUMENT_AT(model), .help = "config.json"},
    {.name = "TRACE", ARGUMENTS_AT(traces), .min = 1, .max = 3, .help = "traces"},
    {.name = "out", .letter = 'o', TEXT_AT(out), .unit = "FILE", .writes = true, .help = "to"},
    {.name = "budget", INT_AT(budget), .unit = "N", .help = "plans", .min = 1, .max = 1e6},
    {.name = "assert-within", DOUBLE_AT(within), .unit = "PERCENT", .help = "limit"},
    {.name = "tag", TEXTS_AT(tags), .unit = "TEXT", .help = "label"},
    {.name = "dry-run", .letter = 'n', FLAG_AT(dry), .help = "write nothing"},
    {.name = "method", CHOICE_AT(method), .choices = methods, .help = "of search"},
    {0}};
static const struct verb verb = {
    .name = "plan",
    .summary = "find a plan",
    .options = table,
    .examples = {"musher plan model.json a.trace", "musher plan m.json a -o p.yaml"},
    REQUEST(.out = "-", .budget = 2000, .within = 5)};

static void begin(void)
{
    arena = arena_new();
    memset(&err, 0, sizeof err);
    common = (struct common){0};
    q = *(const struct request *)verb.defaults;
}
static void end(void) { arena_free(arena); }

/* The words of the line, separated by single spaces. */
static enum status parse(const char *line)
{
    char *argv[32] = {0};
    int argc = 0;
    for (const char *word = line; word;) {
        const char *space = strchr(word, ' ');
        argv[argc++] = arena_strndup(arena, word, space ? (size_t)(space - word) : strlen(word));
        word = space ? space + 1 : NULL;
    }
    return options_parse(arena, &verb, &q, &common, argc, argv, &err);
}

START_TEST(every_form_is_understood)
{
    ck_assert_msg(
        parse("plan -o a.yaml m.json --budget=7 t1 --assert-within -2.5 --tag x --tag=y -n t2 "
              "--seed 99 --json --method beam") == OK,
        "%s", err.text);
    ck_assert_str_eq(q.out, "a.yaml");
    ck_assert_str_eq(q.model, "m.json");
    ck_assert_int_eq(q.budget, 7);
    ck_assert_double_eq(q.within, -2.5);
    ck_assert_uint_eq(q.tags.count, 2);
    ck_assert_str_eq(q.tags.items[1], "y");
    ck_assert_uint_eq(q.traces.count, 2);
    ck_assert_str_eq(q.traces.items[0], "t1");
    ck_assert(q.dry && common.json && !common.help);
    ck_assert_int_eq(common.seed, 99);
    ck_assert_int_eq(q.method, 1);
}
END_TEST

START_TEST(behind_two_dashes_everything_is_an_argument)
{
    ck_assert_int_eq(parse("plan m.json - -- --budget"), OK);
    ck_assert_str_eq(q.traces.items[0], "-");
    ck_assert_str_eq(q.traces.items[1], "--budget");
}
END_TEST

START_TEST(standard_input_is_one_file)
{
    ck_assert_int_eq(parse("plan - t"), OK);
    ck_assert_int_eq(parse("plan - -"), ERR_USAGE);
    ck_assert_str_eq(err.text, "MODEL and TRACE are both '-'; standard input can be read only once");
    ck_assert_int_eq(parse("plan m - -"), ERR_USAGE);
}
END_TEST

START_TEST(what_is_not_given_keeps_its_default)
{
    ck_assert_int_eq(parse("plan m t"), OK);
    ck_assert_str_eq(q.out, "-");
    ck_assert_int_eq(q.budget, 2000);
    ck_assert_int_eq(common.seed, 0);
}
END_TEST

START_TEST(the_last_of_two_counts)
{
    ck_assert_int_eq(parse("plan m t --budget 3 --budget 4"), OK);
    ck_assert_int_eq(q.budget, 4);
}
END_TEST

static const struct {
    const char *line, *message;
} wrong[] = {
    {"plan m t --bugdet 3", "unknown option '--bugdet'; did you mean --budget?"},
    {"plan m t --bugdet=3", "unknown option '--bugdet=3'; did you mean --budget?"},
    {"plan m t --jsn", "unknown option '--jsn'; did you mean --json?"},
    {"plan m t --zzzzzzzz", "unknown option '--zzzzzzzz'; --help lists them"},
    {"plan m t --MODEL x", "unknown option '--MODEL'; --help lists them"},
    {"plan m t -x", "unknown option '-x'; --help lists them"},
    {"plan m t -ofile", "unknown option '-ofile'; --help lists them"},
    {"plan m t --budget", "--budget needs a value: N"},
    {"plan m t --out --json", "--out needs a value: FILE"},
    {"plan m t --budget many", "--budget needs a whole number, got 'many'"},
    {"plan m t --budget 1.5", "--budget needs a whole number, got '1.5'"},
    {"plan m t --budget=", "--budget needs a whole number, got ''"},
    {"plan m t --budget 0", "--budget must be from 1 to 1000000, got '0'"},
    {"plan m t --seed 99999999999999999999",
     "--seed needs a whole number, got '99999999999999999999'"},
    {"plan m t --assert-within nan", "--assert-within needs a number, got 'nan'"},
    {"plan m t --dry-run=1", "--dry-run takes no value"},
    {"plan m t --method best", "--method must be one of exact, beam; got 'best'; did you mean 'beam'?"},
    {"plan", "MODEL is missing; 'musher plan --help' shows the arguments"},
    {"plan m", "TRACE is missing; 'musher plan --help' shows the arguments"},
    {"plan m 1 2 3 4", "'4' is one argument too many for 'plan'"},
    {"plan m t -v -q", "--verbose and --quiet exclude each other"},
};

START_TEST(a_wrong_line_says_what_is_wrong)
{
    ck_assert_int_eq(parse(wrong[_i].line), ERR_USAGE);
    ck_assert_str_eq(err.text, wrong[_i].message);
}
END_TEST

START_TEST(help_comes_from_the_table)
{
    char text[4096] = "";
    FILE *paper = fmemopen(text, sizeof text, "w");
    help_verb(&verb, paper);
    fclose(paper);
    ck_assert_ptr_nonnull(strstr(text, "usage: musher plan [options] MODEL TRACE...\n"));
    ck_assert_ptr_nonnull(strstr(text, "  -o, --out FILE            to (default -)\n"));
    ck_assert_ptr_nonnull(strstr(text, "      --budget N            plans (default 2000)\n"));
    ck_assert_ptr_nonnull(strstr(text, "      --method exact|beam   of search (default exact)\n"));
    ck_assert_ptr_nonnull(strstr(text, "      --json "));
    ck_assert_ptr_nonnull(strstr(text, "musher plan m.json a -o p.yaml"));
}
END_TEST

START_TEST(what_is_required_must_be_there)
{
    static const struct option rows[] = {{.name = "out",
                                          .letter = 'o',
                                          TEXT_AT(out),
                                          .unit = "PLAN",
                                          .required = true,
                                          .help = "plan"},
                                         {0}};
    static const struct verb strict = {.name = "plan", .options = rows, .defaults = &q};
    char name[] = "plan", option[] = "-o", value[] = "p.yaml",
         *argv[] = {name, option, value, NULL};
    char preset[64];
    q.out = NULL;
    ck_assert_int_eq(options_parse(arena, &strict, &q, &common, 1, argv, &err), ERR_USAGE);
    ck_assert_str_eq(err.text, "plan needs --out PLAN");
    ck_assert_int_eq(options_parse(arena, &strict, &q, &common, 3, argv, &err), OK);
    ck_assert_str_eq(q.out, "p.yaml");
    ck_assert_str_eq(help_preset(rows, strict.defaults, preset, sizeof preset), "required");
}
END_TEST

START_TEST(help_wins_over_mistakes)
{
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    ck_assert_int_eq(parse("plan --nonsense --help"), OK);
    ck_assert(common.help);
}
END_TEST

Suite *options_suite(void)
{
    Suite *s = suite_create("options");
    TCase *c = tcase_create("options");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, every_form_is_understood);
    tcase_add_test(c, behind_two_dashes_everything_is_an_argument);
    tcase_add_test(c, standard_input_is_one_file);
    tcase_add_test(c, what_is_not_given_keeps_its_default);
    tcase_add_test(c, the_last_of_two_counts);
    tcase_add_loop_test(c, a_wrong_line_says_what_is_wrong, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(c, help_comes_from_the_table);
    tcase_add_test(c, what_is_required_must_be_there);
    tcase_add_test(c, help_wins_over_mistakes);
    suite_add_tcase(s, c);
    return s;
}
