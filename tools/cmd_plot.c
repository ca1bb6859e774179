#include "core/base/arena.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/plot.h"
#include "traces/export_chrome.h"

#include <stdio.h>
#include <string.h>

struct request {
    struct texts traces;
    const char *out;
};

static enum status plot(struct arena *a, void *request, const struct common *common,
                        struct error *err)
{
    const struct request *q = request;
    const struct texts *paths = &q->traces;
    const char *out = q->out;
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
    if (common->json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "file", out);
        common_json_end(&j);
    }
    return OK;
}

static const struct option options[] = {
    {.name = "TRACE",
     ARGUMENTS_AT(traces),
     .min = 1,
     .max = 8,
     .help = "traces of simulate or run, drawn from top to bottom"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "FILE",
     .writes = true,
     .help = "image to write; the suffix selects the format: .png, .svg, .gp (gnuplot script) or "
             ".json (Chrome and Perfetto)",
     .required = true},
    {0}};

const struct verb cmd_plot = {
    .name = "plot",
    .summary = "draw the timeline of one steady iteration",
    .options = options,
    .examples = {"# prediction above measurement",
                 "musher plot sim.trace run.trace -o timeline.png",
                 "# for chrome://tracing or ui.perfetto.dev", "musher plot run.trace -o run.json"},
    REQUEST(.out = NULL),
    .run = plot,
};
