#include "traces/export_chrome.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of threads for overlapping events of one stream and peer; the last one takes the rest. Our traces need far
 * fewer; the limit keeps the search linear for foreign ones. */
enum { LANES_MAX = 64, TIDS_A_STREAM = 1000000 };

struct track { /* one thread of one device */
    int32_t peer, lane;
    int64_t end_ns; /* of its last event */
};

struct message {
    int32_t channel, step, microbatch;
};

struct chrome {
    const struct trace *trace;
    struct arena *scratch;
    FILE *out;
    bool some;                 /* not the first event */
    size_t n_tracks, capacity; /* of the current device and stream */
    struct track *tracks;
    size_t n_sent, n_received;
    struct message *sent, *received; /* sorted */
};

static void text(const struct chrome *c, const char *value)
{
    struct json j;
    json_begin(&j, c->out, JSON_LINE);
    json_put_text(&j, NULL, value);
}

static void time_us(const struct chrome *c, const char *key, int64_t ns)
{
    fprintf(c->out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void event(struct chrome *c, const char *ph, int32_t pid, int64_t tid)
{
    fprintf(c->out, "%s{\"ph\":\"%s\",\"pid\":%" PRId32 ",\"tid\":%" PRId64, c->some ? ",\n" : "",
            ph, pid, tid);
    c->some = true;
}

static void metadata(struct chrome *c, const char *what, int32_t pid, int64_t tid, const char *name)
{
    event(c, "M", pid, tid);
    fprintf(c->out, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
    text(c, name);
    fprintf(c->out, "}}");
    event(c, "M", pid, tid);
    fprintf(c->out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%" PRId64 "}}", what,
            !strcmp(what, "process") ? pid : tid);
}

/* --- threads --------------------------------------------------------------------------------- */

static int64_t tid_of(enum stream stream, size_t track)
{
    return (int64_t)stream * TIDS_A_STREAM + (int64_t)track;
}

static void name_track(struct chrome *c, const struct span *s, size_t track)
{
    const char *name = stream_name(s->stream);
    if (s->peer >= 0)
        name = arena_printf(c->scratch, "%s %s %s", name, s->stream == STREAM_send ? "to" : "from",
                            c->trace->devices[s->peer].name);
    if (c->tracks[track].lane)
        name = arena_printf(c->scratch, "%s (%d)", name, (int)c->tracks[track].lane + 1);
    metadata(c, "thread", s->device, tid_of(s->stream, track), name);
}

/* The first free thread of the span's peer at its begin; spans are sorted by begin. */
static size_t track_for(struct chrome *c, const struct span *s)
{
    int32_t lanes = 0;
    size_t last = 0;
    for (size_t i = 0; i < c->n_tracks; i++) {
        if (c->tracks[i].peer != s->peer) continue;
        if (c->tracks[i].end_ns <= s->begin_ns) return i;
        lanes++;
        last = i;
    }
    if (lanes == LANES_MAX) return last;
    c->tracks = arena_grow(c->scratch, c->tracks, c->n_tracks, &c->capacity, sizeof *c->tracks);
    c->tracks[c->n_tracks] = (struct track){.peer = s->peer, .lane = lanes};
    name_track(c, s, c->n_tracks);
    return c->n_tracks++;
}

/* --- messages -------------------------------------------------------------------------------- */

static int by_message(const void *a, const void *b)
{
    const struct message *x = a, *y = b;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->microbatch < y->microbatch ? -1 : x->microbatch > y->microbatch;
}

static struct message *messages(struct chrome *c, enum span_kind kind, size_t *n)
{
    size_t capacity = 0;
    struct message *m = NULL;
    *n = 0;
    for (size_t i = 0; i < c->trace->n_spans; i++) {
        const struct span *s = &c->trace->spans[i];
        if (s->kind != kind) continue;
        m = arena_grow(c->scratch, m, *n, &capacity, sizeof *m);
        m[(*n)++] = (struct message){s->op, s->step, s->microbatch};
    }
    if (*n) qsort(m, *n, sizeof *m, by_message);
    return m;
}

/* One end of an arrow, if both ends are in the trace. */
static void arrow(struct chrome *c, const struct span *s, int64_t tid)
{
    struct message m = {s->op, s->step, s->microbatch};
    if (!c->n_sent || !c->n_received) return;
    const struct message *at = bsearch(&m, c->sent, c->n_sent, sizeof m, by_message);
    if (!at || !bsearch(&m, c->received, c->n_received, sizeof m, by_message)) return;
    bool starts = s->kind == SPAN_SEND;
    event(c, starts ? "s" : "f", s->device, tid);
    fprintf(c->out, ",\"id\":%zu,\"cat\":\"message\",\"name\":\"message\"%s",
            (size_t)(at - c->sent), starts ? "" : ",\"bp\":\"e\"");
    time_us(c, "ts", starts ? s->begin_ns : s->end_ns);
    fputc('}', c->out);
}

/* --- events ---------------------------------------------------------------------------------- */

static const char *category(const struct span *s)
{
    if (s->kind == SPAN_KERNEL) return span_kind_name(s->kind);
    if (s->kind != SPAN_COMPUTE) return span_title(s);
    switch (s->phase) {
    case 'F':
        return "forward";
    case 'B':
        return "backward";
    case 'I':
        return "input gradient";
    case 'W':
        return "weight gradient";
    default:
        return "update";
    }
}

static void duration(struct chrome *c, const struct span *s)
{
    size_t track = track_for(c, s);
    int64_t tid = tid_of(s->stream, track);
    c->tracks[track].end_ns = s->end_ns;
    event(c, "X", s->device, tid);
    fprintf(c->out, ",\"cat\":\"%s\",\"name\":", category(s));
    text(c, span_title(s));
    time_us(c, "ts", s->begin_ns);
    time_us(c, "dur", s->end_ns - s->begin_ns);
    fprintf(c->out,
            ",\"args\":{\"call\":\"%c\",\"step\":%" PRId32 ",\"microbatch\":%" PRId32
            ",\"stage\":%" PRId32 ",\"op\":%" PRId32 ",\"part\":%" PRId32 ",\"bytes\":%" PRId64,
            s->phase, s->step, s->microbatch, s->stage, s->op, s->part, s->bytes);
    if (s->kind != SPAN_COMPUTE && s->kind != SPAN_KERNEL) {
        fprintf(c->out, ",\"%s\":", s->collective ? "collective" : "link");
        text(c, s->name);
    }
    fprintf(c->out, "}}");
    if (s->kind == SPAN_SEND || s->kind == SPAN_RECEIVE) arrow(c, s, tid);
}

static void instant(struct chrome *c, int32_t device, int32_t step, int64_t ns)
{
    event(c, "i", device, tid_of(STREAM_compute, 0));
    fprintf(c->out, ",\"s\":\"g\",\"cat\":\"step\",\"name\":\"end of step %" PRId32 "\"", step);
    time_us(c, "ts", ns);
    fputc('}', c->out);
}

static int by_step(const void *a, const void *b)
{
    const struct span *x = *(const struct span *const *)a, *y = *(const struct span *const *)b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns < y->end_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* In emulated runs a STEP is wall time while spans use the devices' clocks: there a step ends with its last update. */
static void steps(struct chrome *c)
{
    const struct trace *t = c->trace;
    bool own_clock = !strcmp(t->clock, "virtual");
    const struct span **ends = ARENA_ARRAY(c->scratch, const struct span *, t->n_spans);
    size_t n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (own_clock ? s->kind == SPAN_COMPUTE && s->phase == PHASE_U : s->kind == SPAN_STEP)
            ends[n++] = s;
    }
    if (n) qsort(ends, n, sizeof *ends, by_step);
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || ends[i + 1]->step != ends[i]->step)
            instant(c, ends[i]->device, ends[i]->step, ends[i]->end_ns);
}

static void events(struct chrome *c)
{
    const struct trace *t = c->trace;
    size_t *order = trace_order(c->scratch, t);
    const struct span *before = NULL;
    c->sent = messages(c, SPAN_SEND, &c->n_sent);
    c->received = messages(c, SPAN_RECEIVE, &c->n_received);
    for (int32_t d = 0; d < t->n_devices; d++)
        metadata(c, "process", d, 0,
                 arena_printf(c->scratch, "%s (%s)", t->devices[d].name, t->devices[d].type));
    for (size_t i = 0; i < t->n_spans && !ferror(c->out); i++) {
        const struct span *s = &t->spans[order[i]];
        if (!before || before->device != s->device || before->stream != s->stream) c->n_tracks = 0;
        before = s;
        if (s->kind != SPAN_STEP) duration(c, s);
    }
    steps(c);
}

enum status export_chrome(const struct trace *t, const char *path, struct error *err)
{
    struct file f = {0};
    TRY(file_open(&f, path, err));
    struct chrome c = {.trace = t, .scratch = arena_new(), .out = f.stream};
    fprintf(c.out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"plan\":");
    text(&c, t->plan ? t->plan : "");
    fprintf(c.out, ",\"clock\":\"%s\"},\"traceEvents\":[\n", t->clock);
    events(&c);
    fprintf(c.out, "\n]}\n");
    arena_free(c.scratch);
    return file_commit(&f, err);
}
