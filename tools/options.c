#include "tools/options.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/former.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The parser's view: the verb's own table, then the common one, and the addresses of their values. */
enum { ROWS_MAX = 128 }; /* of a verb */
struct tables {
    const struct option *own;
    char *request, *common;
    bool *given; /* (ROWS_MAX) own rows on the command line */
};

#define COMMON_AT(field) .at = offsetof(struct common, field)
static const struct option common_table[] = {
    {.name = "json",
     .type = OPTION_FLAG,
     COMMON_AT(json),
     .help = "print results as one JSON object on standard output"},
    {.name = "seed",
     .type = OPTION_INT,
     COMMON_AT(seed),
     .unit = "N",
     .min = 0,
     .max = 9e15,
     .help = "seed of weights, batches and random draws, e.g. 42",
     .preset = "0: the job's seed"},
    {.name = "verbose",
     .letter = 'v',
     .type = OPTION_FLAG,
     COMMON_AT(verbose),
     .help = "print progress and details on standard error"},
    {.name = "quiet",
     .letter = 'q',
     .type = OPTION_FLAG,
     COMMON_AT(quiet),
     .help = "print only errors on standard error"},
    {.name = "help", .letter = 'h', .type = OPTION_FLAG, COMMON_AT(help), .help = "print this text"},
    {0}};

enum { N_COMMON = sizeof common_table / sizeof *common_table };
static void *value_at(const struct tables *t, const struct option *o)
{
    bool shared = o >= common_table && o < common_table + N_COMMON;
    return (shared ? t->common : t->request) + o->at;
}

const struct option *options_common(void) { return common_table; }

bool option_is_argument(const struct option *o)
{
    return o->type == OPTION_ARGUMENT || o->type == OPTION_ARGUMENTS;
}

static enum status unknown(const struct tables *t, const char *shown, const char *word,
                           struct error *err)
{
    const char *names[ROWS_MAX + N_COMMON], *now = former_option(word);
    size_t n = 0;
    if (now) return error_set(err, ERR_USAGE, "unknown option '%s': %s", shown, now);
    for (const struct option *o = t->own; o->name; o++)
        if (!option_is_argument(o)) names[n++] = o->name;
    for (const struct option *o = common_table; o->name; o++) names[n++] = o->name;
    names[n] = NULL;
    const char *near = nearest_name(word, names);
    if (near)
        return error_set(err, ERR_USAGE, "unknown option '%s'; did you mean --%s?", shown, near);
    return error_set(err, ERR_USAGE, "unknown option '%s'; --help lists them", shown);
}

static const struct option *find_in(const struct option *o, const char *name, size_t n, char letter)
{
    for (; o->name; o++) {
        if (option_is_argument(o)) continue;
        if (name && strlen(o->name) == n && !memcmp(o->name, name, n)) return o;
        if (letter && o->letter == letter) return o;
    }
    return NULL;
}

static const struct option *find(const struct tables *t, const char *name, size_t n, char letter)
{
    const struct option *o = find_in(t->own, name, n, letter);
    return o ? o : find_in(common_table, name, n, letter);
}

static bool has_range(const struct option *o) { return o->min < 0 || o->min > 0 || o->max > 0; }

static enum status out_of_range(const struct option *o, const char *text, struct error *err)
{
    return error_set(err, ERR_USAGE, "--%s must be from %.10g to %.10g, got '%s'", o->name, o->min,
                     o->max, text);
}

static enum status assign_int(const struct option *o, void *at, const char *text, struct error *err)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || !strchr("+-0123456789", *text))
        return error_set(err, ERR_USAGE, "--%s needs a whole number, got '%s'", o->name, text);
    if (has_range(o) && ((double)value < o->min || (double)value > o->max))
        return out_of_range(o, text, err);
    *(int64_t *)at = value;
    return OK;
}

static enum status assign_double(const struct option *o, void *at, const char *text,
                                 struct error *err)
{
    double value = 0;
    if (!units_parse_number(text, &value))
        return error_set(err, ERR_USAGE, "--%s needs a number, got '%s'", o->name, text);
    if (has_range(o) && (value < o->min || value > o->max)) return out_of_range(o, text, err);
    *(double *)at = value;
    return OK;
}

static const char *list_choices(char *buffer, size_t size, const char *const *choices,
                                const char *between)
{
    size_t used = 0;
    buffer[0] = 0;
    for (int i = 0; choices[i] && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? between : "", choices[i]);
    return buffer;
}

static enum status assign_choice(const struct option *o, void *at, const char *text,
                                 struct error *err)
{
    char list[256], hint[NEAREST_HINT];
    for (int i = 0; o->choices[i]; i++)
        if (!strcmp(o->choices[i], text)) {
            *(int *)at = i;
            return OK;
        }
    return error_set(err, ERR_USAGE, "--%s must be one of %s; got '%s'%s", o->name,
                     list_choices(list, sizeof list, o->choices, ", "), text,
                     nearest_name_hint(text, o->choices, hint));
}

/* Lists grow one by one; command lines are short. */
static void add_text(struct arena *a, struct texts *list, const char *text)
{
    const char **items = ARENA_ARRAY(a, const char *, list->count + 1);
    if (list->count) memcpy(items, list->items, list->count * sizeof *items);
    items[list->count++] = text;
    list->items = items;
}

static enum status assign(struct arena *a, const struct tables *t, const struct option *o,
                          const char *text, struct error *err)
{
    void *at = value_at(t, o);
    switch (o->type) {
    case OPTION_INT:
        return assign_int(o, at, text, err);
    case OPTION_DOUBLE:
        return assign_double(o, at, text, err);
    case OPTION_CHOICE:
        return assign_choice(o, at, text, err);
    case OPTION_TEXT:
    case OPTION_ARGUMENT:
        *(const char **)at = text;
        return OK;
    case OPTION_TEXTS:
    case OPTION_ARGUMENTS:
        add_text(a, at, text);
        return OK;
    case OPTION_FLAG:
        break;
    }
    BUG("option --%s has no value to set", o->name);
}

static void note_given(const struct tables *t, const struct option *o)
{
    if (o >= common_table && o < common_table + N_COMMON) return;
    if (o - t->own >= ROWS_MAX) BUG("more than %d options", ROWS_MAX);
    t->given[o - t->own] = true;
}

/* Parses the option at argv[*i], which begins with a dash; advances *i over a separate value. */
static enum status parse_option(struct arena *a, const struct tables *t, int argc, char **argv,
                                int *i, struct error *err)
{
    const char *arg = argv[*i], *value = NULL;
    const struct option *o = NULL;
    if (arg[1] != '-') {
        o = arg[2] ? NULL : find(t, NULL, 0, arg[1]);
        if (!o) return unknown(t, arg, arg + 1, err);
    } else {
        size_t n = strcspn(arg + 2, "=");
        o = find(t, arg + 2, n, 0);
        if (!o) return unknown(t, arg, arena_strndup(a, arg + 2, n), err);
        if (arg[2 + n]) value = arg + 2 + n + 1;
    }
    note_given(t, o);
    if (o->type == OPTION_FLAG) {
        if (value) return error_set(err, ERR_USAGE, "--%s takes no value", o->name);
        *(bool *)value_at(t, o) = true;
        return OK;
    }
    if (!value) {
        if (*i + 1 == argc || !strncmp(argv[*i + 1], "--", 2))
            return error_set(err, ERR_USAGE, "--%s needs a value%s%s", o->name, o->unit ? ": " : "",
                             o->unit ? o->unit : "");
        value = argv[++*i];
    }
    return assign(a, t, o, value, err);
}

size_t option_least(const struct option *o)
{
    return o->type == OPTION_ARGUMENTS ? (size_t)o->min : o->min >= 0;
}

size_t option_most(const struct option *o)
{
    return o->type == OPTION_ARGUMENT ? 1 : o->max > 0 ? (size_t)o->max : SIZE_MAX;
}

/* Assigns arguments to rows in order; each row takes all arguments that later rows do not require. */
static enum status share_out(struct arena *a, const struct verb *verb, const struct tables *t,
                             const struct texts *given, struct error *err)
{
    size_t needed = 0, next = 0;
    for (const struct option *o = verb->options; o->name; o++)
        if (option_is_argument(o)) needed += option_least(o);
    size_t spare = given->count > needed ? given->count - needed : 0;
    for (const struct option *o = verb->options; o->name; o++) {
        if (!option_is_argument(o)) continue;
        size_t extra =
            option_most(o) - option_least(o) < spare ? option_most(o) - option_least(o) : spare;
        spare -= extra;
        for (size_t k = 0; k < option_least(o) + extra; k++) {
            if (next == given->count)
                return error_set(err, ERR_USAGE,
                                 "%s is missing; 'musher %s --help' shows the arguments", o->name,
                                 verb->name);
            note_given(t, o);
            TRY(assign(a, t, o, given->items[next++], err));
        }
    }
    if (next < given->count)
        return error_set(err, ERR_USAGE, "'%s' is one argument too many for '%s'",
                         given->items[next], verb->name);
    return OK;
}

/* --help wins over everything else on the line, errors included. */
static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

enum status options_spare(const char *option, const char *path, const char *input,
                          struct error *err)
{
    if (!path || !input || !strcmp(path, "-") || !file_same(path, input)) return OK;
    return error_set(err, ERR_USAGE, "--%s %.300s would overwrite an input: '%.300s' is that file",
                     option, path, input);
}

/* A value may hold its file's name in "NAME=FILE:NODE" (tools/team/add.c). */
static enum status spare_value(struct arena *a, const struct option *out, const char *path,
                               const char *value, struct error *err)
{
    const char *sign = value ? strchr(value, '=') : NULL,
               *colon = value ? strrchr(value, ':') : NULL, *from = sign ? sign + 1 : value;
    TRY(options_spare(out->name, path, value, err));
    if (!colon || colon <= from) return OK;
    return options_spare(out->name, path, arena_strndup(a, from, (size_t)(colon - from)), err);
}

/* ERR_USAGE if option o names the file `path` that row out writes: an input would be overwritten, or another output. */
static enum status spare_row(struct arena *a, const struct tables *t, const struct option *out,
                             const char *path, const struct option *o, struct error *err)
{
    if (o->type == OPTION_TEXTS || o->type == OPTION_ARGUMENTS) {
        const struct texts *list = value_at(t, o);
        for (size_t i = 0; i < list->count; i++)
            TRY(spare_value(a, out, path, list->items[i], err));
    } else if (o->type == OPTION_TEXT || o->type == OPTION_ARGUMENT) {
        const char *value = *(const char **)value_at(t, o);
        if (o->writes && value && strcmp(path, "-") != 0 &&
            (!strcmp(path, value) || file_same(path, value)))
            return error_set(err, ERR_USAGE, "--%s and --%s would both write '%.300s'", out->name,
                             o->name, path);
        TRY(spare_value(a, out, path, value, err));
    }
    return OK;
}

/* Standard input can be read only once. */
static enum status one_input(const struct tables *t, struct error *err)
{
    const char *first = NULL;
    for (const struct option *o = t->own; o->name; o++) {
        bool list = o->type == OPTION_TEXTS || o->type == OPTION_ARGUMENTS,
             one = o->type == OPTION_TEXT || o->type == OPTION_ARGUMENT;
        if ((!list && !one) || o->writes) continue;
        const struct texts alone = {1, value_at(t, o)}, *values = list ? value_at(t, o) : &alone;
        for (size_t i = 0; i < values->count; i++) {
            if (!values->items[i] || strcmp(values->items[i], "-") != 0) continue;
            if (first)
                return error_set(err, ERR_USAGE,
                                 "%s and %s are both '-'; standard input can be read only once",
                                 first, o->name);
            first = o->name;
        }
    }
    return OK;
}

static enum status spare_inputs(struct arena *a, const struct tables *t, struct error *err)
{
    TRY(one_input(t, err));
    for (const struct option *out = t->own; out->name; out++) {
        const char *path = out->writes ? *(const char **)value_at(t, out) : NULL;
        for (const struct option *o = t->own; path && o->name; o++)
            if (o != out) TRY(spare_row(a, t, out, path, o, err));
    }
    return OK;
}

static enum status check_required(const struct verb *verb, const struct tables *t,
                                  struct error *err)
{
    for (const struct option *o = verb->options; o->name; o++)
        if (o->required && !*(const char **)value_at(t, o))
            return error_set(err, ERR_USAGE, "%s needs --%s %s", verb->name, o->name, o->unit);
    return OK;
}

/* The first given row of NAME|NAME…, or NULL; *shown: "--NAME or --NAME", arguments without dashes. */
static const struct option *given_of(struct arena *a, const struct tables *t, const char *names,
                                     const char **shown)
{
    const struct option *found = NULL;
    *shown = "";
    for (size_t n; *names; names += n + (names[n] == '|')) {
        const struct option *o = t->own;
        n = strcspn(names, "|");
        while (o->name && (strlen(o->name) != n || memcmp(o->name, names, n) != 0)) o++;
        if (!o->name) BUG("no option is named %s", names);
        if (!found && t->given[o - t->own]) found = o;
        *shown = arena_printf(a, "%s%s%s%s", *shown, **shown ? " or " : "",
                              option_is_argument(o) ? "" : "--", o->name);
    }
    return found;
}

static bool among(const char *names, const char *name)
{
    for (size_t n; *names; names += n + (names[n] == '|')) {
        n = strcspn(names, "|");
        if (strlen(name) == n && !memcmp(names, name, n)) return true;
    }
    return false;
}

/* The verb refuses an argument that is none of its choices. */
static enum status check_only(struct arena *a, const struct tables *t, const struct option *o, struct error *err)
{
    const struct option *which = t->own;
    while (which->name && !(which->type == OPTION_ARGUMENT && which->choices)) which++;
    if (!which->name) BUG("no argument has choices, but --%s is for some only", o->name);
    const char *value = *(const char **)value_at(t, which), *others = "";
    bool known = false;
    for (const char *const *c = which->choices; value && *c; c++) {
        known |= !strcmp(*c, value);
        if (among(o->only, *c)) others = arena_printf(a, "%s%s%s", others, *others ? " and " : "", *c);
    }
    if (!known || among(o->only, value)) return OK;
    return error_set(err, ERR_USAGE, "--%s has no effect with %s, it is for %s", o->name, value, others);
}

/* An option that would have no effect is refused. */
static enum status check_effect(struct arena *a, const struct tables *t, struct error *err)
{
    const char *shown;
    for (const struct option *o = t->own; o->name; o++) {
        if (!t->given[o - t->own]) continue;
        if (o->only) TRY(check_only(a, t, o, err));
        if (o->needs && !given_of(a, t, o->needs, &shown))
            return error_set(err, ERR_USAGE, "--%s needs %s", o->name, shown);
        const struct option *other = o->excludes ? given_of(a, t, o->excludes, &shown) : NULL;
        if (other)
            return error_set(err, ERR_USAGE, "--%s has no effect with %s%s", o->name,
                             option_is_argument(other) ? "" : "--", other->name);
    }
    return OK;
}

enum status options_parse(struct arena *a, const struct verb *verb, void *request,
                          struct common *common, int argc, char **argv, struct error *err)
{
    bool is_given[ROWS_MAX] = {0};
    const struct tables tables = {verb->options, request, (char *)common, is_given};
    struct texts given = {0};
    bool only_arguments = false;
    common->argv = argv;
    if (wants_help(argc, argv)) {
        common->help = true;
        return OK;
    }
    for (int i = 1; i < argc; i++) {
        if (!only_arguments && !strcmp(argv[i], "--"))
            only_arguments = true;
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1])
            TRY(parse_option(a, &tables, argc, argv, &i, err));
        else
            add_text(a, &given, argv[i]);
    }
    if (common->verbose && common->quiet)
        return error_set(err, ERR_USAGE, "--verbose and --quiet exclude each other");
    if (common->verbose) log_set_level(LOG_LEVEL_DEBUG);
    if (common->quiet) log_set_level(LOG_LEVEL_ERROR);
    TRY(share_out(a, verb, &tables, &given, err));
    TRY(check_required(verb, &tables, err));
    TRY(check_effect(a, &tables, err));
    return spare_inputs(a, &tables, err);
}
