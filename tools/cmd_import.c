/* musher import: conversion of a foreign format to profiles, tables, models or a cluster. tools/import/import.h lists the formats. */
#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "tools/cmd.h"
#include "tools/import/import.h"

#include <stdbool.h>
#include <stddef.h>

struct request {
    const char *kind;
    struct import_request about;
};

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

/* '-' and '_' are equal. */
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

static enum status run_import(struct arena *a, void *request, const struct common *common,
                              struct error *err)
{
    struct request *q = request;
    size_t i = 0;
    q->about.json = common->json;
    TRY(find(q->kind, &i, err));
    return run[i](a, &q->about, err);
}

static const struct option options[] = {
    {.name = "KIND",
     ARGUMENT_AT(kind),
     .choices = names,
     .help = "format of PATH:"
#define X(name, text, help) "\n" text ": " help
     IMPORTERS(X)
#undef X
    },
    {.name = "PATH", ARGUMENT_AT(about.path), .help = "file or folder to read"},
    {.name = "db",
     TEXT_AT(about.db),
     .unit = "DB",
     .help = "profile database that receives the measurements (sailor, nccl-tests)"},
    {.name = "cluster",
     TEXT_AT(about.cluster),
     .unit = "CLUSTER",
     .help = "cluster file of the measured or described devices (nccl-tests, topo)"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(about.out),
     .unit = "PATH",
     .writes = true,
     .help = "cluster file to write (nccl-topology, topo); folder for model tables (sailor)"},
    {0}};

const struct verb cmd_import = {
    .name = "import",
    .summary = "read profiles, collective timings and topologies of other tools",
    .options = options,
    .examples = {"musher import sailor sailor --db sailor.db",
                 "musher import nccl-tests all_reduce.txt --cluster cluster.yaml --db profiles.db",
                 "musher import nccl-topology topology.xml -o cluster.yaml"},
    REQUEST(0),
    .run = run_import,
};
