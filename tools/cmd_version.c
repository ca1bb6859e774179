#include "core/base/arena.h"
#include "core/base/version.h"
#include "core/document/json.h"
#include "tools/cmd.h"
#include "tools/common.h"

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

static enum status version(struct arena *a, void *request, const struct common *common,
                           struct error *err)
{
    (void)a, (void)request, (void)err;
    print(common->json);
    return OK;
}

static const struct option options[] = {{0}};

const struct verb cmd_version = {
    .name = "version",
    .summary = "print the version and the compiler of this program",
    .options = options,
    .examples = {"musher version", "musher version --json"},
    .run = version,
};
