#include "core/base/arena.h"
#include "core/base/version.h"
#include "core/document/json.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"

static const char *compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

static void print(bool as_json)
{
    if (!as_json) {
        printf("musher %s (%s)\n", MUSHER_VERSION, compiler());
        return;
    }
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "version", MUSHER_VERSION);
    json_put_text(&j, "compiler", compiler());
    common_json_end(&j);
}

enum status cmd_version(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    const struct option options[] = {{0}};
    const struct command command = {"version",
                                    "version and compiler of this program",
                                    options,
                                    {"musher version", "musher version --json"}};
    struct arena *a = arena_new();
    enum status status = options_parse(a, &command, &common, argc, argv, err);
    if (status == OK && !common.help) print(common.json);
    arena_free(a);
    return status;
}
