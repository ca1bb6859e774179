/* tools/options.h - one table per verb: what is parsed is what --help prints.
 *
 *     struct common common = COMMON_DEFAULTS;
 *     const char *out = "-", *model = NULL;
 *     int64_t budget = 2000;
 *     struct texts traces = {0};
 *     const struct option options[] = {
 *         {.name = "MODEL", .type = OPTION_ARGUMENT, .value = &model, .help = "config.json of the model"},
 *         {.name = "TRACE", .type = OPTION_ARGUMENTS, .value = &traces, .min = 0, .max = 8, .help = "..."},
 *         {.name = "out", .letter = 'o', .type = OPTION_TEXT, .value = &out, .unit = "FILE", .help = "..."},
 *         {.name = "budget", .type = OPTION_INT, .value = &budget, .unit = "N", .min = 1, .max = 1e9, .help = "..."},
 *         {0}};
 *     const struct command command = {"plan", "find a plan for a model on a cluster", options,
 *                                     {"musher plan model.json -o plan.yaml", "..."}};
 *     TRY(options_parse(a, &command, &common, argc, argv, err));
 *     if (common.help) return OK;
 *
 * argv[0] is the verb. Forms: --name VALUE, --name=VALUE, -o VALUE, and `--`, behind which everything
 * is an argument. Of an option that is given twice the last one counts. Every verb has --json, --seed,
 * -v, -q and --help without naming them; -v and -q set the log level at once. Errors: ERR_USAGE.
 * A file to write that is, by any name or link, also named by another row is refused before anything is opened.
 * Ownership: texts point into argv and into the table's defaults; lists are the arena's.
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
    OPTION_TEXT,      /* const char **; NULL as default is shown as none */
    OPTION_TEXTS,     /* struct texts *; may be given again and again */
    OPTION_CHOICE,    /* int *: an index into choices */
    OPTION_ARGUMENT,  /* const char **; name is shown in capitals; optional where min < 0 */
    OPTION_ARGUMENTS, /* struct texts *; min to max of them */
};

struct texts {
    size_t count;
    const char **items;
};

struct option {
    const char *name; /* without the dashes; NULL ends the table */
    char letter;      /* short form, or 0 */
    enum option_type type;
    void *value;                /* holds the default before parsing */
    const char *unit;           /* shown behind the name: "FILE", "N", "SECONDS" */
    const char *help;           /* one line */
    double min, max;            /* inclusive range of numbers, counts of arguments; both 0: any */
    const char *const *choices; /* NULL-ended, for OPTION_CHOICE */
    bool writes;                /* a file that the verb makes: never one that another row names */
};

struct command {
    const char *name;
    const char *summary;
    const struct option *options;
    const char *examples[6]; /* NULL-ended */
};

/* What every verb accepts. */
struct common {
    bool json, verbose, quiet;
    bool help; /* the help has been printed: there is nothing left to do */
    int64_t seed;
};
#define COMMON_DEFAULTS                                                                            \
    {                                                                                              \
        .seed = 0                                                                                  \
    } /* 0: as the job says */

MUST_CHECK enum status options_parse(struct arena *a, const struct command *command,
                                     struct common *common, int argc, char **argv,
                                     struct error *err);
/* For files that the verb finds named inside others: ERR_USAGE where path, which --option is to write, is the file input.
 * Either may be NULL or missing. */
MUST_CHECK enum status options_spare(const char *option, const char *path, const char *input,
                                     struct error *err);
void options_help(const struct command *command, const struct common *common, FILE *out);


/* Rows of every verb that prices something: where its costs come from. */
#define OPTION_DB(at)                                                                              \
    {                                                                                              \
        .name = "db", .type = OPTION_TEXT, .value = (at), .unit = "DB",                            \
        .help = "profile database; without it costs are the catalogue's prior"                     \
    }
#define OPTION_PROFILE(at)                                                                         \
    {                                                                                              \
        .name = "profile", .type = OPTION_INT, .value = (at), .unit = "ID", .min = 0, .max = 1e15, \
        .help = "profile of the database; 0: the cluster's newest"                                 \
    }

#endif
