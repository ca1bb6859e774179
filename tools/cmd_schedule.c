/* tools/cmd_schedule.c - a schedule by name, from a file or searched: its order, makespan, bubble and memory. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "planner/schedule/find.h"
#include "sim/pipeline/program.h"
#include "sim/pipeline/zero_bubble.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/schedule.h"
#include "tools/schedule/search.h"

#include <inttypes.h>
#include <string.h>

struct request {
    const char *what, *forward, *input, *weight, *backward, *latency, *transfer;
    const char *activation, *released, *resident, *limit, *warmup;
    const char *csv, *trace;
    struct schedule_search_options search; /* --cases */
    int64_t devices, microbatches, chunks;
    bool split, v_shaped, fair, fluid, timeline;
};
static const char automatic[] = "zero-bubble", searched[] = "searched";
enum { MAX_STAGES = 1000000 };

/* --- lists: "1 ms | 2 ms", or one for all --- */

enum unit { UNIT_NS, UNIT_BYTES, UNIT_LIMIT, UNIT_COUNT };

static enum status one_value(const char *option, const char *text, enum unit u, int64_t *out,
                             struct error *err)
{
    static const char *const expected[] = {
        "a time of 0 s … 1e6 s, such as 1.5 ms", "a size such as 1.5 GiB",
        "a size such as 1.5 GiB, or inf", "a whole number, 1 or more"};
    double v = -1;
    char hint[UNITS_HINT] = "";
    bool ok = u == UNIT_NS      ? units_parse_seconds(text, &v)
              : u == UNIT_COUNT ? units_parse_number(text, &v)
                                : units_parse_bytes(text, &v);
    if (u == UNIT_LIMIT && !strcmp(text, "inf")) {
        *out = PIPELINE_NO_LIMIT;
        return OK;
    }
    if (!ok || !(v >= 0) || v > 1e15 || (u == UNIT_NS && v > 1e6) ||
        (u == UNIT_COUNT && (v < 1 || v > INT32_MAX || v != (double)(int32_t)v)))
        return error_set(
            err, ERR_USAGE, "--%s: '%s': expected %s%s", option, text, expected[u],
            ok || u == UNIT_COUNT
                ? ""
                : units_hint(hint, u == UNIT_NS ? QUANTITY_SECONDS : QUANTITY_BYTES, text));
    *out = u == UNIT_NS ? units_ns_from_s(v) : (int64_t)v;
    return OK;
}

/* n values between bars; one value stands for all. NULL text: the default for all. */
static enum status values(struct arena *a, const char *option, const char *text, enum unit u,
                          int64_t n, int64_t otherwise, int64_t **out, struct error *err)
{
    int64_t *list = ARENA_ARRAY(a, int64_t, (size_t)n + 1), found = 0;
    char *at = arena_strdup(a, text ? text : "");
    for (int64_t i = 0; i < n; i++) list[i] = otherwise;
    while (text && at) {
        char *bar = strchr(at, '|');
        if (bar) *bar++ = 0;
        at += strspn(at, " \t");
        for (size_t end = strlen(at); end && strchr(" \t", at[end - 1]);) at[--end] = 0;
        int64_t value = 0;
        TRY(one_value(option, at, u, &value, err));
        if (found < n) list[found] = value;
        found++;
        at = bar;
    }
    if (found > 1 && found != n)
        return error_set(err, ERR_USAGE,
                         "--%s: %" PRId64 " values: expected 1 or %" PRId64 ", between bars",
                         option, found, n);
    for (int64_t i = 1; found == 1 && i < n; i++) list[i] = list[0];
    *out = list;
    return OK;
}

/* --- prices --- */

static enum status read_pipeline(struct arena *a, const struct request *q, int32_t devices,
                                 int32_t stages, struct pipeline *p, struct error *err)
{
    int64_t *f, *i, *w, *b, *latency, *transfer, *taken, *released, *resident, *limit;
    TRY(values(a, "forward", q->forward, UNIT_NS, stages, 1000000, &f, err));
    TRY(values(a, "input", q->input, UNIT_NS, stages, 1000000, &i, err));
    TRY(values(a, "weight", q->weight, UNIT_NS, stages, 1000000, &w, err));
    TRY(values(a, "backward", q->backward, UNIT_NS, stages, 0, &b, err));
    TRY(values(a, "latency", q->latency, UNIT_NS, stages - 1, 0, &latency, err));
    TRY(values(a, "transfer", q->transfer, UNIT_NS, stages - 1, 0, &transfer, err));
    TRY(values(a, "activation", q->activation, UNIT_BYTES, stages, 0, &taken, err));
    TRY(values(a, "released", q->released, UNIT_BYTES, stages, 0, &released, err));
    TRY(values(a, "resident", q->resident, UNIT_BYTES, devices, 0, &resident, err));
    TRY(values(a, "limit", q->limit, UNIT_LIMIT, devices, PIPELINE_NO_LIMIT, &limit, err));
    *p = (struct pipeline){.n_devices = devices, .n_stages = stages};
    p->stages = ARENA_ARRAY(a, struct pipeline_stage, (size_t)stages);
    p->links = ARENA_ARRAY(a, struct pipeline_link, (size_t)stages);
    p->devices = ARENA_ARRAY(a, struct pipeline_device, (size_t)devices);
    for (int32_t v = 0; v < stages; v++) {
        if (released[v] > taken[v])
            return error_set(err, ERR_USAGE,
                             "stage %" PRId32 ": --released is larger than --activation", v);
        p->stages[v] = (struct pipeline_stage){
            f[v], i[v], w[v], b[v], taken[v], -released[v], released[v] - taken[v]};
        for (int k = 0; k < 2 && v + 1 < stages; k++)
            p->links[v].occupancy_ns[k] = transfer[v], p->links[v].latency_ns[k] = latency[v];
    }
    for (int32_t d = 0; d < devices; d++)
        p->devices[d] = (struct pipeline_device){resident[d], limit[d]};
    return OK;
}

/* --- the order --- */

/* H-1F1B needs times and transfers by device; with one chunk per device, stages are devices. */
static enum status make_named(struct arena *a, const struct request *q, enum schedule_kind kind,
                              const struct pipeline *p, struct schedule *s, struct error *err)
{
    size_t n = (size_t)q->devices;
    double *time = ARENA_ARRAY(a, double, n), *transfer = ARENA_ARRAY(a, double, n);
    struct schedule_spec spec = {.kind = kind,
                                 .n_devices = (int32_t)q->devices,
                                 .n_chunks = (int32_t)q->chunks,
                                 .n_microbatches = (int32_t)q->microbatches,
                                 .split = q->split};
    if (kind == SCHEDULE_H1F1B || kind == SCHEDULE_H1F1B_PUBLISHED) {
        for (size_t d = 0; d < n; d++) {
            const struct pipeline_stage *x = &p->stages[d];
            const struct pipeline_link *l = &p->links[d];
            int64_t back = x->fused_ns && !q->split ? x->fused_ns : x->input_ns + x->weight_ns;
            time[d] = (double)(x->forward_ns + back);
            transfer[d] = (double)(l->occupancy_ns[0] + l->latency_ns[0]);
        }
        spec.time = time, spec.transfer = transfer;
    }
    if (q->warmup) {
        int64_t *w;
        int32_t *counts = ARENA_ARRAY(a, int32_t, n);
        TRY(values(a, "warmup", q->warmup, UNIT_COUNT, q->devices, 1, &w, err));
        for (size_t d = 0; d < n; d++) counts[d] = (int32_t)w[d];
        spec.warmup = counts;
    }
    return schedule_make(a, &spec, s, err);
}

/* *bound: lower bound of all orders of this placement; text NULL if none is known (several chunks). */
static enum status make_searched(struct arena *a, const struct request *q, const struct pipeline *p,
                                 struct schedule *s, struct bound_schedule *bound,
                                 struct error *err)
{
    struct schedule_find_options o = {.seed = q->search.seed, .operations = q->search.operations};
    struct schedule shape;
    struct schedule_found found;
    schedule_shape(a, (int32_t)q->devices, q->chunks ? (int32_t)q->chunks : 1,
                   (int32_t)q->microbatches, q->v_shaped, &shape);
    TRY(schedule_find(a, p, &shape, &o, &found, err));
    *s = found.schedule;
    if (s->n_chunks == 1) *bound = found.bound;
    return OK;
}

static enum status read_order(struct arena *a, const struct request *q, struct schedule *s,
                              struct error *err)
{
    char *text;
    size_t n;
    TRY(file_read(a, q->what, (size_t)256 * 1024 * 1024, &text, &n, err));
    if (strlen(text) != n) return error_set(err, ERR_INPUT, "%s: NUL byte in the text", q->what);
    return schedule_parse(a, q->what, text, q->v_shaped, s, err);
}

static enum status counts_given(const struct request *q, struct error *err)
{
    if (q->devices && q->microbatches) return OK;
    return error_set(err, ERR_USAGE, "schedule %s needs --devices P and --microbatches M", q->what);
}

/* known: the message about the named ones. */
static enum status unknown_name(const char *what, const char *known, struct error *err)
{
    const char *const made[] = {automatic, searched, NULL};
    char hint[NEAREST_HINT];
    return error_set(err, ERR_USAGE,
                     "%s%s (%s and %s are made for the given times; a file has a '.' or '/' in its "
                     "name)",
                     known, nearest_name_hint(what, made, hint), automatic, searched);
}

static enum status make(struct arena *a, const struct request *q, struct schedule *s,
                        struct pipeline *p, struct bound_schedule *bound, struct error *err)
{
    enum schedule_kind kind;
    bool named = schedule_kind_parse(q->what, &kind, err) == OK;
    if (!named && q->warmup)
        return error_set(err, ERR_USAGE, "--warmup is for named schedules of the 1F1B family");
    bool search = !strcmp(q->what, searched);
    if (named || search || !strcmp(q->what, automatic)) {
        TRY(counts_given(q, err));
        int64_t own = named ? schedule_kind_chunks(kind) : 1;
        int64_t stages = q->devices * (q->chunks ? q->chunks : own ? own : 2);
        if (stages > MAX_STAGES)
            return error_set(err, ERR_INPUT, "%" PRId64 " stages: expected at most %d", stages,
                             MAX_STAGES);
        if (!named && !search && q->chunks > 1)
            return error_set(err, ERR_USAGE, "%s has one chunk per device", automatic);
        TRY(read_pipeline(a, q, (int32_t)q->devices, (int32_t)stages, p, err));
        if (named) return make_named(a, q, kind, p, s, err);
        if (search) return make_searched(a, q, p, s, bound, err);
        int64_t makespan_ns;
        return zero_bubble_make(a, p, (int32_t)q->microbatches, true, s, &makespan_ns, err);
    }
    if (!strpbrk(q->what, "./")) return unknown_name(q->what, arena_strdup(a, err->text), err);
    TRY(read_order(a, q, s, err));
    if ((q->devices && q->devices != s->n_devices) ||
        (q->microbatches && q->microbatches != s->n_microbatches) ||
        (q->chunks && q->chunks != s->n_chunks))
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId32 " devices, %" PRId32 " chunks each and %" PRId32
                         " microbatches; the options state other numbers",
                         q->what, s->n_devices, s->n_chunks, s->n_microbatches);
    return read_pipeline(a, q, s->n_devices, s->n_devices * s->n_chunks, p, err);
}

static enum status write_csv(const struct schedule *s, const char *path, struct error *err)
{
    struct file f;
    TRY(file_open(&f, path, err));
    schedule_write(f.stream, s, '|');
    fputc('\n', f.stream);
    return file_commit(&f, err);
}

static void print_bound(const struct bound_schedule *b, int64_t makespan_ns)
{
    char text[32];
    double gap = (double)(makespan_ns - b->lower_bound_ns) / (double)b->lower_bound_ns;
    printf("lower bound of all orders %s (%s): %s", units_print_ns(text, b->lower_bound_ns),
           b->term, makespan_ns == b->lower_bound_ns ? "this order is optimal\n" : "at most ");
    if (makespan_ns != b->lower_bound_ns) printf("%.2f %% from optimal\n", 100 * gap);
}

static enum status show(struct arena *a, const struct request *q, bool json, struct error *err)
{
    struct schedule s;
    struct pipeline p;
    struct bound_schedule bound = {0};
    struct static_report r;
    struct trace *trace = NULL;
    bool events;
    if (!q->what) return error_set(err, ERR_USAGE, "schedule needs a NAME or --cases CSV");
    if (q->search.out) return error_set(err, ERR_USAGE, "--out is for --cases; orders go to --csv");
    if (q->search.seconds > 0) return error_set(err, ERR_USAGE, "--time-limit is for --cases");
    if (q->search.operations && strcmp(q->what, searched) != 0)
        return error_set(err, ERR_USAGE, "--budget is for --cases and the schedule %s", searched);
    TRY(common_not_stdout(json, "--csv", q->csv, err));
    TRY(common_not_stdout(json, "--trace", q->trace, err));
    TRY(make(a, q, &s, &p, &bound, err));
    TRY(pipeline_report(a, &s, &p,
                        q->fluid  ? LINK_FLUID
                        : q->fair ? LINK_FAIR
                                  : LINK_FIFO,
                        &r, &events, q->trace ? &trace : NULL, err));
    if (q->csv) TRY(write_csv(&s, q->csv, err));
    if (trace) TRY(trace_write(trace, q->trace, err));
    bool silent = (q->csv && !strcmp(q->csv, "-")) || (q->trace && !strcmp(q->trace, "-"));
    if (json)
        schedule_print_json(&s, &r, events);
    else if (!silent)
        schedule_print_text(&s, &r, events, q->timeline);
    if (!json && !silent && bound.term) print_bound(&bound, r.makespan_ns);
    if (r.fits) return OK;
    char needs[32], limit[32];
    return error_set(err, ERR_INFEASIBLE,
                     "%s does not fit: device %" PRId32 " needs %s, its limit is %s", s.name,
                     r.tightest, units_print_bytes(needs, (double)r.devices[r.tightest].peak_bytes),
                     units_print_bytes(limit, (double)p.devices[r.tightest].limit_bytes));
}

static enum status search(struct arena *a, struct request *q, const struct common *common,
                          struct error *err)
{
    struct schedule_search_options *o = &q->search;
    if (q->what) return error_set(err, ERR_USAGE, "--cases takes no NAME ('%s')", q->what);
    if (q->chunks > 2)
        return error_set(err, ERR_USAGE, "--cases searches --chunks 1 or 2, not %" PRId64,
                         q->chunks);
    o->chunks = q->chunks ? q->chunks : 1;
    o->json = common->json;
    return schedule_search(a, o, err);
}

static enum status run_schedule(struct arena *a, void *request, const struct common *common,
                                struct error *err)
{
    struct request *q = request;
    q->search.seed = (uint64_t)common->seed;
    return q->search.cases ? search(a, q, common, err) : show(a, q, common->json, err);
}

static const char *const names[] = {
#define X(name, text, chunks, traits, order) text,
    SCHEDULES(X)
#undef X
        automatic,
    searched, NULL};
#define SCHEDULE_TEXT(name, text, chunks, traits, order) text ", "

#define LIST(name_, field, unit_, preset_, help_)                                                  \
    {                                                                                              \
        .name = name_, TEXT_AT(field), .unit = unit_, .help = help_, .preset = preset_             \
    }
#define OUTPUT(name_, field, unit_, help_)                                                         \
    {                                                                                              \
        .name = name_, TEXT_AT(field), .unit = unit_, .writes = true, .help = help_                \
    }
#define COUNT(name_, field, unit_, most, preset_, help_)                                           \
    {                                                                                              \
        .name = name_, INT_AT(field), .unit = unit_, .min = 0, .max = most, .help = help_,         \
        .preset = preset_                                                                          \
    }
#define FLAG(name_, field, help_)                                                                  \
    {                                                                                              \
        .name = name_, FLAG_AT(field), .help = help_                                               \
    }
static const struct option options[] = {
    {.name = "NAME",
     ARGUMENT_AT(what),
     .min = -1,
     .choices = names,
     .help = "schedule: " SCHEDULES(
         SCHEDULE_TEXT) "zero-bubble or searched (an order found for the "
                        "given times); or a file with an order, as --csv writes it"},
    COUNT("devices", devices, "P", SCHEDULE_MAX_DEVICES, "that of NAME's file; required for a name",
          "pipeline devices (ranks), e.g. 4"),
    COUNT("microbatches", microbatches, "M", SCHEDULE_MAX_MICROBATCHES,
          "that of NAME's file; required for a name", "microbatches of a step, e.g. 8"),
    COUNT("chunks", chunks, "V", SCHEDULE_MAX_CHUNKS, "0: the fewest of the schedule",
          "stages of each device (virtual pipeline), e.g. 2"),
    LIST("warmup", warmup, "N|...", "that of the schedule",
         "warm-up of each device in forwards, of the 1F1B family, e.g. '3|2|1'"),
    FLAG("split", split,
         "use separate input-gradient (I) and weight-gradient (W) operations instead of one "
         "backward (B), where the schedule allows both"),
    FLAG("v-shaped", v_shaped,
         "place second chunks from the last device back to the first (orders of files, searched)"),
    LIST("forward", forward, "TIME|...", "1 ms",
         "forward time (F): one value, or one of each stage, e.g. '1 ms|2 ms'"),
    LIST("input", input, "TIME|...", "1 ms", "input-gradient time (I)"),
    LIST("weight", weight, "TIME|...", "1 ms", "weight-gradient time (W)"),
    LIST("backward", backward, "TIME|...", "I + W", "backward time (B), e.g. '2 ms'"),
    LIST("latency", latency, "TIME|...", "0", "one-way latency between stages, e.g. '10 us'"),
    LIST("transfer", transfer, "TIME|...", "0",
         "occupancy of a link by one message, e.g. '0 ms|2 ms'"),
    LIST("activation", activation, "SIZE|...", "0",
         "activation memory that a forward of a stage allocates, e.g. '1 GiB'"),
    LIST("released", released, "SIZE|...", "0",
         "part of it that the input gradient frees, e.g. '512 MiB'; the weight gradient frees the "
         "rest"),
    LIST("resident", resident, "SIZE|...", "0",
         "permanent memory of a device (weights and optimizer state), e.g. '4 GiB'"),
    LIST("limit", limit, "SIZE|...", "none", "memory of a device, e.g. '16 GiB'"),
    FLAG("fair", fair, "share busy links max-min fairly instead of first come, first served"),
    FLAG("fluid", fluid,
         "as --fair, and let messages between the same two stages share their link too"),
    FLAG("timeline", timeline, "draw the schedule as text, one row per device"),
    OUTPUT("csv", csv, "CSV", "file for the order, in one cell with devices between bars; or -"),
    OUTPUT("trace", trace, "TRACE", "trace file to write, for musher plot"),
    LIST("cases", search.cases, "CSV", NULL,
         "table of pipelines; the best order of each is searched"),
    {.name = "out",
     .letter = 'o',
     TEXT_AT(search.out),
     .unit = "CSV",
     .writes = true,
     .help = "result file of --cases, or -: makespan, memory, lower bound and order of each case"},
    COUNT("budget", search.operations, "N", 1e15, "0: that of the search",
          "operations timed by --cases and `searched`, e.g. 1000000"),
    {.name = "time-limit",
     DOUBLE_AT(search.seconds),
     .unit = "SECONDS",
     .min = 0,
     .max = 1e6,
     .help = "wall time of each search of --cases, e.g. 10",
     .preset = "0: none"},
    {0}};

const struct verb cmd_schedule = {
    .name = "schedule",
    .summary = "time a pipeline schedule (1F1B, zero bubble, ...) on given stage times",
    .about =
        "The output states the makespan, the bubble and peak memory of each device, and a lower "
        "bound over all orders of the same operations. Lists have a value for each stage or "
        "device between bars; one value stands for all.\n\n"
        "The table of --cases has the columns case, p, m (name, devices, microbatches), tF, tB, tW "
        "(times of F, I, W), tcomm_links (latencies), memF, memB, memW (changes of memory) and "
        "mem_limit.",
    .options = options,
    .examples = {"musher schedule 1f1b --devices 4 --microbatches 8 --timeline",
                 "musher schedule h-1f1b --devices 3 --microbatches 12 "
                 "--forward '1 ms' --transfer '0 ms|2 ms'",
                 "musher schedule zb-v --devices 4 --microbatches 8 --csv -",
                 "musher schedule --cases cases.csv -o orders.csv --chunks 2"},
    REQUEST(0),
    .run = run_schedule,
};
