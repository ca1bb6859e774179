/* Trace files out and in.
 *
 * A run's trace has millions of lines that look alike, so spans are not handed to a JSON library
 * (measured: 36 MB/s, twelve times the memory): trace_scan.c reads one line of our own fixed fields into
 * one struct span. The header, one line of any length, goes through core/document/document. The reader keeps one buffer
 * that grows only where a line does not fit.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/document.h"
#include "core/document/json.h"
#include "traces/gzip.h"
#include "traces/spill.h"
#include "traces/trace.h"
#include "traces/trace_scan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 1, SCHEMA_KERNELS };
#define KIND "musher-trace"
#define BUFFER_BYTES ((size_t)256 * 1024)
#define HEADER_MAX_BYTES ((size_t)64 * 1024 * 1024) /* what core/document/document accepts */
#define LINE_MAX_BYTES ((size_t)64 * 1024)          /* a span has about 200 bytes */

static const char *const clocks[] = {"simulated", "virtual", "wall", NULL};
static const char *const header_keys[] = {
    "schema",   "kind",      "source",    "plan",         "plan_hash", "profile_id",
    "emulated", "real_time", "clock",     "iteration_ns", "steps",     "stages",
    "spans",    "devices",   "plan_text", "kernels_lost", "classes", "period", "period_times",
    "routing", NULL};
static const char *const routing_keys[] = {"block", "tokens", NULL};
static const char *const classes[] = {"equal_times", "equal_shape", NULL};
static const char *const device_keys[] = {"id",         "type",  "slowdown", "peak_bytes",
                                          "stands_for", "alike", NULL};

/* --- out ------------------------------------------------------------------------------------- */

static void write_routing(struct json *j, const struct trace *t)
{
    json_put_list(j, "routing");
    for (int32_t i = 0; i < t->n_routings; i++) {
        json_put_object(j, NULL);
        json_put_int(j, "block", t->routings[i].block);
        json_put_list_line(j, "tokens");
        for (int32_t k = 0; k < t->routings[i].n_experts; k++) json_put_int(j, NULL, t->routings[i].tokens[k]);
        json_close(j);
        json_close(j);
    }
    json_close(j);
}

static void write_header(FILE *out, const struct trace *t)
{
    struct json j;
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, t->plan_hash);
    json_begin(&j, out, JSON_LINE);
    json_put_object(&j, NULL);
    json_put_int(&j, "schema", t->kernels ? SCHEMA_KERNELS : SCHEMA);
    json_put_text(&j, "kind", KIND);
    json_put_text(&j, "source", t->source);
    json_put_text(&j, "plan", t->plan ? t->plan : "");
    json_put_text(&j, "plan_hash", hash);
    json_put_int(&j, "profile_id", t->profile_id);
    json_put_bool(&j, "emulated", t->emulated);
    json_put_bool(&j, "real_time", t->real_time);
    json_put_text(&j, "clock", t->clock);
    json_put_int(&j, "iteration_ns", t->iteration_ns);
    if (t->period) json_put_int(&j, "period", t->period);
    if (t->period_times) {
        json_put_list_line(&j, "period_times");
        for (int32_t i = 0; i < t->period; i++) json_put_int(&j, NULL, t->period_times[i]);
        json_close(&j);
    }
    json_put_int(&j, "steps", t->steps);
    json_put_int(&j, "stages", t->n_stages);
    json_put_int(&j, "spans",
                 (int64_t)(t->n_spans + (t->spill ? spill_spans(t->spill) : 0)));
    if (t->kernels) json_put_int(&j, "kernels_lost", t->kernels_lost);
    if (trace_folded(t)) json_put_text(&j, "classes", classes[t->equal_shape]);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < t->n_devices; i++) {
        json_put_object(&j, NULL);
        json_put_text(&j, "id", t->devices[i].name);
        json_put_text(&j, "type", t->devices[i].type);
        json_put_double(&j, "slowdown", t->devices[i].slowdown);
        json_put_int(&j, "peak_bytes", t->devices[i].peak_bytes);
        if (t->devices[i].stands_for > 1) {
            json_put_int(&j, "stands_for", t->devices[i].stands_for);
            json_put_text(&j, "alike", t->devices[i].alike);
        }
        json_close(&j);
    }
    json_close(&j);
    if (t->n_routings) write_routing(&j, t);
    if (t->plan_text) json_put_text(&j, "plan_text", t->plan_text);
    json_close(&j);
    json_end(&j);
}

static void write_span(FILE *out, const struct span *s)
{
    fprintf(out, "{\"kind\":\"%s\",\"stream\":\"%s\",\"device\":%" PRId32, span_kind_name(s->kind),
            stream_name(s->stream), s->device);
    if (s->peer != -1) fprintf(out, ",\"peer\":%" PRId32, s->peer);
    fprintf(out,
            ",\"stage\":%" PRId32 ",\"phase\":\"%c\",\"step\":%" PRId32 ",\"microbatch\":%" PRId32
            ",\"op\":%" PRId32,
            s->stage, s->phase, s->step, s->microbatch, s->op);
    if (s->part) fprintf(out, ",\"part\":%" PRId32, s->part);
    if (s->uneven_ppm) fprintf(out, ",\"uneven_ppm\":%" PRId32, s->uneven_ppm);
    fprintf(out, ",\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64, s->begin_ns, s->end_ns);
    if (s->bytes) fprintf(out, ",\"bytes\":%" PRId64, s->bytes);
    if (s->key) fprintf(out, ",\"key\":\"%016" PRIx64 "\"", s->key);
    if (s->collective)
        fprintf(out, ",\"collective\":\"%s\"", collective_kind_word((enum collective_kind)(s->collective - 1)));
    struct json j; /* its escaping of strings */
    json_begin(&j, out, JSON_LINE);
    fputs(",\"name\":", out);
    json_put_text(&j, NULL, s->name ? s->name : "");
    fputs("}\n", out);
}

static void put_span(void *out, const struct span *s) { write_span(out, s); }

enum status trace_write(const struct trace *t, const char *path, struct error *err)
{
    struct file f = {0};
    TRY(file_open(&f, path, err));
    struct arena *scratch = arena_new();
    bool sorted = trace_sorted(t);
    size_t *order = sorted ? NULL : trace_order(scratch, t);
    FILE *out = gzip_name(path) ? gzip_writer(scratch, f.stream) : f.stream;
    enum status st = OK;
    if (!out) st = error_set(err, ERR_RESOURCE, "cannot write '%s': %s", path, strerror(errno));
    if (out) write_header(out, t);
    if (out && t->spill)
        spill_merge(t->spill, t->spans, order, t->n_spans, put_span, out);
    else
        for (size_t i = 0; out && i < t->n_spans && !ferror(out) && !ferror(f.stream); i++)
            write_span(out, &t->spans[order ? order[i] : i]);
    if (t->spill && spill_error(t->spill) && st == OK)
        st = error_set(err, ERR_RESOURCE, "cannot keep the spans of '%s' in a temporary file: %s",
                       path, strerror(spill_error(t->spill)));
    if (out && out != f.stream && fclose(out) && !ferror(f.stream))
        st = error_set(err, ERR_RESOURCE, "cannot write '%s': %s", path, strerror(errno));
    arena_free(scratch);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    return st;
}

/* --- lines ----------------------------------------------------------------------------------- */

struct lines {
    struct arena *arena; /* of the buffer */
    const char *path;    /* for messages */
    int fd;
    struct gzip_reader *gzip; /* NULL: the file is plain */
    bool at_end;              /* the file has no more bytes than the buffer */
    char *buffer;
    size_t capacity, begin, end; /* unread bytes: [begin, end) */
    int64_t line;                /* of the line that was given last, 1-based */
    struct error *err;
};

static enum status lines_open(struct lines *l, struct arena *a, const char *path, struct error *err)
{
    *l = (struct lines){
        .arena = a, .path = file_label(path), .fd = -1, .err = err, .capacity = BUFFER_BYTES};
    char head[2] = "";
    size_t n = file_head(path, head, sizeof head);
    bool packed = n == sizeof head && !memcmp(head, "\x1f\x8b", sizeof head);
    if (n && head[0] != '{' && !packed)
        return error_set(
            err, ERR_INPUT,
            "%s:1: not a musher trace (musher simulate --trace and musher run --trace write one): a trace starts with its header, a JSON object", l->path);
    TRY(file_open_regular(path, &l->fd, NULL, err));
    l->buffer = arena_alloc(a, l->capacity, 1);
    if (packed && !(l->gzip = gzip_reader_new(a, l->fd)))
        return error_set(err, ERR_RESOURCE, "cannot read '%s': %s", l->path, strerror(ENOMEM));
    return OK;
}

static void lines_close(struct lines *l)
{
    gzip_reader_free(l->gzip);
    if (l->fd >= 0) close(l->fd);
}

static enum status fill(struct lines *l)
{
    if (l->begin) memmove(l->buffer, l->buffer + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
    if (l->end == l->capacity) {
        char *bigger = arena_alloc(l->arena, 2 * l->capacity, 1);
        memcpy(bigger, l->buffer, l->end);
        l->buffer = bigger;
        l->capacity *= 2;
    }
    ssize_t got = 0;
    do
        got = l->gzip ? gzip_read(l->gzip, l->buffer + l->end, l->capacity - l->end)
                      : read(l->fd, l->buffer + l->end, l->capacity - l->end);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set(l->err, ERR_INPUT, "cannot read '%s': %s", l->path,
                         l->gzip && errno == EBADMSG ? "the gzip file is broken or truncated"
                                                     : strerror(errno));
    l->at_end = got == 0;
    l->end += (size_t)got;
    return OK;
}

/* *text is NULL at the end of the file. A last line without its end is a truncated file. */
static enum status lines_next(struct lines *l, size_t max_bytes, char **text, size_t *n)
{
    size_t seen = 0;
    *text = NULL;
    for (;;) {
        size_t unread = l->end - l->begin;
        char *from = l->buffer + l->begin,
             *newline = unread > seen ? memchr(from + seen, '\n', unread - seen) : NULL;
        if (newline) {
            *text = from;
            *n = (size_t)(newline - from);
            l->begin += *n + 1;
            l->line++;
            return OK;
        }
        if (l->at_end && !unread) return OK;
        if (l->at_end)
            return error_set(l->err, ERR_INPUT,
                             "%s:%" PRId64 ": the last line has no end: the file is truncated",
                             l->path, l->line + 1);
        if (unread > max_bytes)
            return error_set(l->err, ERR_INPUT,
                             "%s:%" PRId64 ": a line of more than %zu bytes: not a trace", l->path,
                             l->line + 1, max_bytes);
        seen = unread;
        TRY(fill(l));
    }
}

/* --- in -------------------------------------------------------------------------------------- */

/* JSON's nodes know their field but not their line; a header's line is the first. */
static void place_in_first_line(struct node *n, const char *label)
{
    n->file = label;
    for (size_t i = 0; i < n->count; i++) place_in_first_line(n->members[i], label);
}

static enum status read_devices(struct arena *a, const struct node *list, struct trace *t,
                                struct error *err)
{
    TRY(node_is(list, NODE_LIST, err));
    t->n_devices = (int32_t)list->count;
    t->devices = ARENA_ARRAY(a, struct trace_device, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct node *d = list->members[i], *value = NULL;
        TRY(node_keys(d, device_keys, err));
        TRY(node_need(d, "id", &value, err));
        TRY(node_text(value, &t->devices[i].name, err));
        TRY(node_need(d, "type", &value, err));
        TRY(node_text(value, &t->devices[i].type, err));
        TRY(node_get_double(d, "slowdown", 0, 1e9, &t->devices[i].slowdown, err));
        TRY(node_get_int(d, "peak_bytes", 0, INT64_MAX, &t->devices[i].peak_bytes, err));
        int64_t stands_for = 0;
        TRY(node_get_int(d, "stands_for", 2, INT32_MAX, &stands_for, err));
        TRY(node_get_text(d, "alike", &t->devices[i].alike, err));
        t->devices[i].stands_for = (int32_t)stands_for;
    }
    return OK;
}

static enum status need_int(const struct node *map, const char *key, int64_t max, int64_t *out,
                            struct error *err)
{
    const struct node *value = NULL;
    TRY(node_need(map, key, &value, err));
    return node_int(value, 0, max, out, err);
}

static enum status need_choice(const struct node *map, const char *key, const char *const *names,
                               int *out, struct error *err)
{
    const struct node *value = NULL;
    TRY(node_need(map, key, &value, err));
    return node_choice(value, names, out, err);
}

static enum status check_schema(const struct node *root, bool *out_kernels, struct error *err)
{
    int64_t schema = 0;
    const char *kind = NULL;
    TRY(node_get_text(root, "kind", &kind, err));
    if (!kind || strcmp(kind, KIND) != 0)
        return node_error(root, err, "not a musher trace (no kind \"" KIND "\")");
    TRY(need_int(root, "schema", INT64_MAX, &schema, err));
    if (schema != SCHEMA && schema != SCHEMA_KERNELS)
        return node_error(root, err,
                          "schema %" PRId64
                          " of traces is unknown to this version, which reads %d and %d",
                          schema, SCHEMA, SCHEMA_KERNELS);
    *out_kernels = schema == SCHEMA_KERNELS;
    if (!*out_kernels && node_get(root, "kernels_lost"))
        return node_error(node_get(root, "kernels_lost"), err, "only schema %d has kernels",
                          SCHEMA_KERNELS);
    return node_keys(root, header_keys, err);
}

static enum status read_period_times(const struct node *root, struct trace *t, struct error *err)
{
    const struct node *list = node_get(root, "period_times");
    int64_t times;
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    if (list->count != (size_t)t->period)
        return node_error(list, err, "%zu steps of a period of %" PRId32, list->count, t->period);
    int32_t *of = ARENA_ARRAY(t->arena, int32_t, list->count);
    for (size_t i = 0; i < list->count; i++) {
        TRY(node_int(list->members[i], 1, INT32_MAX, &times, err));
        of[i] = (int32_t)times;
    }
    t->period_times = of;
    return OK;
}

/* Of a block that follows the previous one's. */
static enum status read_block(struct arena *a, const struct node *n, int32_t previous, struct trace_routing *out, struct error *err)
{
    const struct node *list = NULL, *at = NULL;
    int64_t block;
    TRY(node_keys(n, routing_keys, err));
    TRY(node_need(n, "block", &at, err));
    TRY(node_int(at, previous + 1, INT32_MAX - 1, &block, err));
    TRY(node_need(n, "tokens", &list, err));
    TRY(node_is(list, NODE_LIST, err));
    int64_t *tokens = ARENA_ARRAY(a, int64_t, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(node_int(list->members[i], 0, INT64_MAX, &tokens[i], err));
    *out = (struct trace_routing){(int32_t)block, (int32_t)list->count, tokens};
    return OK;
}

static enum status read_routing(const struct node *root, struct trace *t, struct error *err)
{
    const struct node *list = node_get(root, "routing");
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    struct trace_routing *blocks = ARENA_ARRAY(t->arena, struct trace_routing, list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(read_block(t->arena, list->members[i], i ? blocks[i - 1].block : -1, &blocks[i], err));
    t->n_routings = (int32_t)list->count, t->routings = blocks;
    return OK;
}

static enum status read_fields(struct arena *a, const struct node *root, struct trace *t,
                               int64_t *n_spans, struct error *err)
{
    const struct node *value = NULL;
    const char *hash = NULL;
    int the_clock = 0, alike = 0;
    int64_t steps = 0, stages = 0, period = 0;
    TRY(check_schema(root, &t->kernels, err));
    if (t->kernels) TRY(need_int(root, "kernels_lost", INT64_MAX, &t->kernels_lost, err));
    TRY(node_need(root, "source", &value, err));
    TRY(node_text(value, &t->source, err));
    TRY(need_choice(root, "clock", clocks, &the_clock, err));
    t->clock = clocks[the_clock];
    TRY(node_need(root, "plan", &value, err));
    TRY(node_text(value, &t->plan, err));
    TRY(node_need(root, "plan_hash", &value, err));
    TRY(node_text(value, &hash, err));
    if (!trace_scan_hex(hash, strlen(hash), &t->plan_hash))
        return node_error(value, err, "must be 16 hexadecimal digits");
    TRY(node_get_int(root, "profile_id", 0, INT64_MAX, &t->profile_id, err));
    TRY(node_get_bool(root, "emulated", &t->emulated, err));
    TRY(node_get_bool(root, "real_time", &t->real_time, err));
    TRY(need_int(root, "iteration_ns", INT64_MAX, &t->iteration_ns, err));
    TRY(need_int(root, "steps", INT32_MAX, &steps, err));
    TRY(need_int(root, "stages", INT32_MAX, &stages, err));
    if ((value = node_get(root, "classes"))) TRY(node_choice(value, classes, &alike, err));
    t->equal_shape = alike == 1;
    TRY(node_get_int(root, "period", 0, INT32_MAX, &period, err));
    t->period = (int32_t)period;
    TRY(read_period_times(root, t, err));
    TRY(read_routing(root, t, err));
    t->steps = (int32_t)steps;
    t->n_stages = (int32_t)stages;
    TRY(need_int(root, "spans", INT64_MAX, n_spans, err));
    TRY(node_get_lines(root, "plan_text", &t->plan_text, err));
    TRY(node_need(root, "devices", &value, err));
    return read_devices(a, value, t, err);
}

static enum status read_header(struct lines *l, struct arena *a, struct trace *t, int64_t *n_spans)
{
    char *text = NULL;
    size_t n = 0;
    struct node *root = NULL;
    TRY(lines_next(l, HEADER_MAX_BYTES, &text, &n));
    if (!text) return error_set(l->err, ERR_INPUT, "%s: the file is empty", l->path);
    TRY(document_parse(a, l->path, text, n, &root, l->err));
    place_in_first_line(root, arena_printf(a, "%s:1", l->path));
    return read_fields(a, root, t, n_spans, l->err);
}

static enum status read_spans(struct lines *l, struct trace *t, int64_t n_spans)
{
    struct trace_scan *scan = trace_scan_new(t, l->arena);
    for (;;) {
        char *text = NULL;
        size_t n = 0;
        struct span s;
        TRY(lines_next(l, LINE_MAX_BYTES, &text, &n));
        if (!text) break;
        if (trace_scan_span(scan, text, n, &s, l->err) != OK)
            return error_wrap(l->err, ERR_INPUT, "%s:%" PRId64, l->path, l->line);
        trace_add(t, s);
    }
    if ((int64_t)t->n_spans == n_spans) return OK;
    return error_set(l->err, ERR_INPUT,
                     "%s:%" PRId64 ": the file ends after %zu spans of the %" PRId64
                     " that its header promises%s",
                     l->path, l->line, t->n_spans, n_spans,
                     (int64_t)t->n_spans < n_spans ? ": it is truncated" : "");
}

enum status trace_read(struct arena *a, const char *path, struct trace **out, struct error *err)
{
    struct error unheard; /* what is wrapped must have been said to somebody */
    struct lines l;
    int64_t n_spans = 0;
    struct arena *scratch = arena_new();
    struct trace *t = ARENA_ARRAY(a, struct trace, 1);
    t->arena = a;
    enum status st = lines_open(&l, scratch, path, err ? err : &unheard);
    if (st == OK) st = read_header(&l, a, t, &n_spans);
    if (st == OK) st = read_spans(&l, t, n_spans);
    lines_close(&l);
    arena_free(scratch);
    if (st == OK) *out = t;
    return st;
}
