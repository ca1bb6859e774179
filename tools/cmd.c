#include "tools/cmd.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "tools/help.h"

#include <string.h>

const struct verb *const verbs[] = {
#define X(name) &cmd_##name,
    VERBS(X)
#undef X
        NULL};

enum status cmd_verb_find(const char *name, const struct verb **out, struct error *err)
{
    const char *names[sizeof verbs / sizeof *verbs] = {0};
    for (int i = 0; verbs[i]; i++) {
        names[i] = verbs[i]->name;
        if (strcmp(verbs[i]->name, name)) continue;
        *out = verbs[i];
        return OK;
    }
    const char *near = nearest_name(name, names);
    if (near) return error_set(err, ERR_USAGE, "unknown verb '%s'; did you mean '%s'?", name, near);
    return error_set(err, ERR_USAGE, "unknown verb '%s'; 'musher --help' lists them", name);
}

enum status cmd_verb_run(const struct verb *verb, int argc, char **argv, struct error *err)
{
    struct arena *a = arena_new();
    struct common common = {0};
    char *request = ARENA_ARRAY(a, char, verb->request_bytes + 1);
    if (verb->request_bytes) memcpy(request, verb->defaults, verb->request_bytes);
    enum status st = options_parse(a, verb, request, &common, argc, argv, err);
    if (st == OK && common.help)
        help_verb(verb, stdout);
    else if (st == OK)
        st = verb->run(a, request, &common, err);
    arena_free(a);
    return st;
}
