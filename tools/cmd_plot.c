#include "core/base/arena.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/plot.h"
#include "tools/run_log.h"
#include "tools/sweep/picture.h"
#include "traces/export_chrome.h"

#include <stdio.h>
#include <string.h>

struct request {
    struct texts files;
    const char *out;
    bool memory;
    int over; /* enum plot_over */
};

static enum status one(const struct request *q, const char *what, struct error *err)
{
    if (q->files.count == 1) return OK;
    return error_set(err, ERR_USAGE, "%s one file, not %zu", what, q->files.count);
}

static enum status plot_traces(struct arena *a, const struct request *q, struct error *err)
{
    const struct texts *paths = &q->files;
    struct trace **traces = ARENA_ARRAY(a, struct trace *, paths->count);
    const char *ending = strrchr(q->out, '.');
    bool chrome = ending && !strcmp(ending, ".json");
    if (chrome) TRY(one(q, "a Chrome trace holds", err));
    if (q->memory) TRY(one(q, "--memory draws", err));
    if (chrome && q->memory)
        return error_set(err, ERR_USAGE, "--memory draws a picture: .png, .svg or .gp");
    for (size_t i = 0; i < paths->count; i++) TRY(trace_read(a, paths->items[i], &traces[i], err));
    if (chrome) return export_chrome(traces[0], q->out, err);
    if (q->memory) return plot_memory(a, traces[0], paths->items[0], q->out, err);
    return plot_timelines(a, traces, paths->count, q->out, err);
}

static enum status plot(struct arena *a, void *request, const struct common *common,
                        struct error *err)
{
    const struct request *q = request;
    const char *first = q->files.items[0];
    bool runs = run_log_is(first), sweep = !runs && table_is(first), search = !runs && !sweep && !common_is_trace(first) && plot_is_search(a, first);
    if ((runs || sweep || search) && q->memory)
        return error_set(err, ERR_USAGE, "--memory is for a trace; %s is a %s", first, runs ? "log of a run" : sweep ? "sweep" : "search");
    if (!runs && q->over) return error_set(err, ERR_USAGE, "--over is for logs of run --log; %s is none", first);
    if (runs) {
        TRY(plot_runs(a, q->files.items, q->files.count, (enum plot_over)q->over, q->out, err));
    } else if (sweep) {
        struct sweep_table t;
        TRY(one(q, "a sweep is drawn from", err));
        TRY(table_read(a, first, &t, err));
        TRY(picture_sweep(a, &t, q->out, err));
    } else if (search) {
        TRY(one(q, "a search is drawn from", err));
        TRY(plot_baselines(a, first, q->out, err));
    } else {
        TRY(plot_traces(a, q, err));
    }
    if (common->json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "file", q->out);
        common_json_end(&j);
    }
    return OK;
}

static const struct option options[] = {
    {.name = "FILE",
     ARGUMENTS_AT(files),
     .min = 1,
     .max = 8,
     .help = "traces of simulate or run, drawn from top to bottom; or the table of a sweep (CSV); "
             "or the "
             "output of plan --json, whose textbook plans are drawn; or logs of run --log, whose losses are drawn"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "FILE",
     .writes = true,
     .help = "image to write; the suffix selects the format: .png, .svg, .gp (gnuplot script) or "
             ".json (of a trace: Chrome and Perfetto)",
     .required = true},
    {.name = "memory",
     FLAG_AT(memory),
     .help = "draw the memory of each class of devices over the step, by class of slot, beside its "
             "limit"},
    {.name = "over",
     CHOICE_AT(over),
     .unit = "NAME",
     .choices = plot_over_names,
     .help = "horizontal axis of losses: steps, tokens (or images) or hours"},
    {0}};

const struct verb cmd_plot = {
    .name = "plot",
    .summary = "draw a trace's timeline or memory, a sweep, the plans of a search, or losses of runs",
    .about = "A timeline and a memory picture show one steady iteration. Up to 16 devices have a "
             "row each; of "
             "more, devices of one type that execute the same calls form one row.",
    .options = options,
    .examples = {"# prediction above measurement",
                 "musher plot sim.trace run.trace -o timeline.png",
                 "musher plot sim.trace --memory -o memory.png",
                 "# for chrome://tracing or ui.perfetto.dev", "musher plot run.trace -o run.json",
                 "musher plot sweep.csv -o sweep.svg", "musher plot one.jsonl two.jsonl --over tokens -o loss.png"},
    REQUEST(.out = NULL),
    .run = plot,
};
