/* musher import: a foreign format becomes profiles, tables, models or a cluster. tools/import/import.h lists the kinds. */
#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "tools/cmd.h"
#include "tools/import/import.h"
#include "tools/options.h"

#include <stdbool.h>
#include <stddef.h>

static const char *const names[] = {
#define X(name, text, help) text,
    IMPORTERS(X)
#undef X
        NULL};

static enum status (*const run[])(struct arena *a, const struct import_request *q,
                                  struct error *err) = {
#define X(name, text, help) import_##name,
    IMPORTERS(X)
#undef X
};

/* '-' and '_' are the same. */
static bool is(const char *name, const char *word)
{
    for (; *name && *word; name++, word++)
        if (*name != *word && !(*name == '-' && *word == '_')) return false;
    return *name == *word;
}

static enum status find(const char *word, size_t *out, struct error *err)
{
    for (*out = 0; names[*out]; ++*out)
        if (is(names[*out], word)) return OK;
    char hint[NEAREST_HINT];
    return error_set(err, ERR_USAGE, "unknown kind '%s'; 'musher import --help' lists them%s", word,
                     nearest_name_hint(word, names, hint));
}

enum status cmd_import(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct import_request q = {0};
    const char *kind = NULL;
    const struct option options[] = {
        {.name = "KIND",
         .type = OPTION_ARGUMENT,
         .value = &kind,
         .help = "what it is"
#define X(name, text, help) "\n      " text ": " help
         IMPORTERS(X)
#undef X
        },
        {.name = "PATH", .type = OPTION_ARGUMENT, .value = &q.path, .help = "file or folder"},
        {.name = "db",
         .type = OPTION_TEXT,
         .value = &q.db,
         .unit = "DB",
         .help = "profile database to add to"},
        {.name = "cluster",
         .type = OPTION_TEXT,
         .value = &q.cluster,
         .unit = "CLUSTER",
         .help = "cluster.yaml that it was measured on"},
        {.name = "out",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &q.out,
         .unit = "PATH",
         .writes = true,
         .help = "file or folder to write"},
        {0}};
    const struct command command = {"import",
                                    "foreign profiles, tables and topologies",
                                    options,
                                    {"musher import sailor sailor --db sailor.db",
                                     "musher import nccl-topology topology.xml -o cluster.yaml"}};
    struct arena *a = arena_new();
    size_t i = 0;
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    q.json = common.json;
    if (st == OK && !common.help) {
        st = find(kind, &i, err);
        if (st == OK) st = run[i](a, &q, err);
    }
    arena_free(a);
    return st;
}
