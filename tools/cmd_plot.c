#include "core/base/arena.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"
#include "tools/plot.h"
#include "traces/export_chrome.h"

#include <stdio.h>
#include <string.h>

static enum status plot(struct arena *a, const struct texts *paths, const char *out, bool as_json,
                        struct error *err)
{
    struct trace **traces = ARENA_ARRAY(a, struct trace *, paths->count);
    for (size_t i = 0; i < paths->count; i++) TRY(trace_read(a, paths->items[i], &traces[i], err));
    const char *ending = strrchr(out, '.');
    if (ending && !strcmp(ending, ".json")) {
        if (paths->count != 1)
            return error_set(err, ERR_USAGE, "a Chrome trace holds one trace, not %zu",
                             paths->count);
        TRY(export_chrome(traces[0], out, err));
    } else {
        TRY(plot_timelines(a, traces, paths->count, out, err));
    }
    if (as_json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "file", out);
        common_json_end(&j);
    }
    return OK;
}

enum status cmd_plot(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    const char *out = NULL;
    struct texts paths = {0};
    const struct option options[] = {
        {.name = "T",
         .type = OPTION_ARGUMENTS,
         .value = &paths,
         .min = 1,
         .max = 8,
         .help = "traces, from the top of the picture down"},
        {.name = "out",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &out,
         .unit = "FILE",
         .writes = true,
         .help = ".png, .svg, .gp (gnuplot script) or .json (Chrome/Perfetto)"},
        {0}};
    const struct command command = {
        "plot",
        "a timeline of one steady iteration",
        options,
        {"musher plot sim.trace run.trace -o timeline.png", "musher plot run.trace -o run.json"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help)
        st = out ? plot(a, &paths, out, common.json, err)
                 : error_set(err, ERR_USAGE, "plot wants -o FILE");
    arena_free(a);
    return st;
}
