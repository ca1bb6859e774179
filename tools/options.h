/* tools/options.h - a verb as data: name, help, option table and function. The parser, --help, the manual page, the shell
 * completions and docs/reference all read this one table.
 *
 *     struct request {
 *         const char *model, *out;
 *         struct texts traces;
 *         int64_t budget;
 *     };
 *     static const struct option options[] = {
 *         {.name = "MODEL", ARGUMENT_AT(model), .help = "config.json of the model"},
 *         {.name = "TRACE", ARGUMENTS_AT(traces), .min = 0, .max = 8, .help = "measured traces"},
 *         {.name = "out", .letter = 'o', TEXT_AT(out), .unit = "PLAN", .writes = true, .help = "plan file to write"},
 *         {.name = "budget", INT_AT(budget), .unit = "N", .min = 1, .max = 1e9, .help = "simulated candidates, e.g. 500"},
 *         {0}};
 *     static enum status plan(struct arena *a, void *request, const struct common *common, struct error *err);
 *     const struct verb cmd_plan = {.name = "plan", .summary = "search a plan", .options = options, .run = plan,
 *                                    .examples = {"musher plan model.json -o plan.yaml"}, REQUEST(.budget = 2000)};
 *
 * Forms: --name VALUE, --name=VALUE, -o VALUE, and `--`, after which everything is an argument. The last occurrence of an
 * option wins. Every verb also has --json, --seed, -v, -q and --help; -v and -q set the log level at once.
 * Errors: ERR_USAGE. An output file that another row also names, by any path or link, is refused before any file is opened.
 * The help of an option with a value is a noun phrase: the value, its unit, "e.g." an example; the default is printed after it.
 * The help of a flag is an imperative: what it makes the verb do.
 * Ownership: texts point into argv and into the defaults; lists belong to the arena.
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

enum option_type {
    OPTION_FLAG,      /* bool *; takes no value */
    OPTION_INT,       /* int64_t * */
    OPTION_DOUBLE,    /* double * */
    OPTION_TEXT,      /* const char ** */
    OPTION_TEXTS,     /* struct texts *; repeatable */
    OPTION_CHOICE,    /* int *: an index into choices */
    OPTION_ARGUMENT,  /* const char **; name is shown in capitals; optional if min < 0 */
    OPTION_ARGUMENTS, /* struct texts *; min to max items */
};

struct texts {
    size_t count;
    const char **items;
};

struct option {
    const char *name; /* without the dashes; NULL ends the table */
    char letter;      /* short form, or 0 */
    enum option_type type;
    size_t
        at; /* offset of the value in the verb's struct request, which holds the default before parsing */
    const char *
        unit; /* placeholder of the value; it selects the completion: DIR is a folder; CLUSTER, CSV, DB, FILE, JOB, PLAN,
                         PROGRAM and TRACE are files; DEVICE,... are names of the cluster on the line */
    const char *help;
    const char *preset; /* the default in words, if the value alone is unclear */
    double min, max;    /* inclusive range of a number, or counts of arguments; both 0: any */
    const char *const
        *choices;  /* NULL-ended: values of OPTION_CHOICE; completion candidates of a text */
    bool writes;   /* an output file: never one that another row names */
    /* Rows of the same table, NAME|NAME…: without one of `needs`, or beside one of `excludes`, the option would have no
     * effect, and is ERR_USAGE. */
    const char *needs, *excludes;
    const char *only; /* values NAME|NAME… of the argument with choices: with another one the option would have no effect, and is ERR_USAGE */
    bool required; /* of a text: ERR_USAGE without it */
};

/* Type and offset of a field of struct request; a field of another type is a compile error. */
#define OPTION_AT(field, ctype)                                                                    \
    (offsetof(struct request, field) +                                                             \
     0 * sizeof(1 ? (ctype *)NULL : &((struct request *)NULL)->field))
#define FLAG_AT(field) .type = OPTION_FLAG, .at = OPTION_AT(field, bool)
#define INT_AT(field) .type = OPTION_INT, .at = OPTION_AT(field, int64_t)
#define DOUBLE_AT(field) .type = OPTION_DOUBLE, .at = OPTION_AT(field, double)
#define TEXT_AT(field) .type = OPTION_TEXT, .at = OPTION_AT(field, const char *)
#define TEXTS_AT(field) .type = OPTION_TEXTS, .at = OPTION_AT(field, struct texts)
#define CHOICE_AT(field) .type = OPTION_CHOICE, .at = OPTION_AT(field, int)
#define ARGUMENT_AT(field) .type = OPTION_ARGUMENT, .at = OPTION_AT(field, const char *)
#define ARGUMENTS_AT(field) .type = OPTION_ARGUMENTS, .at = OPTION_AT(field, struct texts)

/* Values of the options that every verb has, and the command line. */
struct common {
    bool json, verbose, quiet;
    bool help;
    int64_t seed;
    char **argv; /* the verb and its arguments; argv[-1] is the program */
};

struct verb {
    const char *program; /* start of the usage line; NULL: musher and the name */
    const char *name;
    const char *summary; /* one line, an imperative, for the list of verbs */
    const char *
        about; /* paragraphs; NULL: the summary suffices. A line that begins with two spaces is not rewrapped */
    const struct option *options;
    const char *examples
        [8]; /* NULL-ended commands; a text that begins with "# " explains the next one */
    const void *defaults; /* a struct request */
    size_t request_bytes;
    enum status (*run)(struct arena *a, void *request, const struct common *common,
                       struct error *err);
};
/* The defaults of a verb's struct request, by designators. */
#define REQUEST(...)                                                                               \
    .defaults = &(const struct request){__VA_ARGS__}, .request_bytes = sizeof(struct request)

/* Parses the command line into request, a copy of verb->defaults. --help wins over everything else: common->help. */
MUST_CHECK enum status options_parse(struct arena *a, const struct verb *verb, void *request,
                                     struct common *common, int argc, char **argv,
                                     struct error *err);
/* For input files that other files name: ERR_USAGE if path, the output of --option, is the file input. Either may be NULL or
 * not exist. */
MUST_CHECK enum status options_spare(const char *option, const char *path, const char *input,
                                     struct error *err);
/* The options that every verb has, ended by an empty row; their values are a struct common. */
const struct option *options_common(void);
bool option_is_argument(const struct option *o);
/* Smallest and largest number of values of an argument. */
size_t option_least(const struct option *o);
size_t option_most(const struct option *o);

/* Help of the budget of every verb that searches (planner/search.h). */
#define BUDGET_ROUNDS                                                                              \
    "; beyond 8 devices a budget is 1250, 20000, 40000, 80000 ...: the largest of them up to N, "  \
    "and 1250 at least"

/* Options of every verb that predicts: the source of its costs. */
#define OPTION_DB(field)                                                                           \
    {                                                                                              \
        .name = "db", TEXT_AT(field), .unit = "DB",                                                \
        .help = "profile database with measured costs, e.g. profiles.db",                          \
        .preset = "costs estimated from the device catalogue"                                      \
    }
#define OPTION_PROFILE(field)                                                                      \
    {                                                                                              \
        .name = "profile", INT_AT(field), .unit = "ID", .min = 0, .max = 1e15,                     \
        .needs = "db", .help = "profile version in --db, e.g. 3",                                  \
        .preset = "0: the cluster's newest"                                                        \
    }

#endif
