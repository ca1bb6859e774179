/* Text is taken line by line into words; the header's words say which word of a row is what. JSON goes through core/document/document.
 * Both end in the same add_sample, which checks what can be checked. */
#include "traces/import_nccl_tests.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/units.h"
#include "core/document/document.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64, RANKS_MAX = 1 << 20 };
#define FILE_MAX ((size_t)64 << 20)

struct reader {
    struct arena *arena;
    const char *path;
    struct nccl_tests *out;
    size_t capacity;
    bool has_kind, lut;
    int32_t group;      /* of the first rank: others are left out */
    const char **hosts; /* distinct */
    int32_t *on_host;   /* ranks on each */
    size_t n_hosts, hosts_capacity, on_host_capacity;
    const char *columns[WORDS_MAX]; /* of the header; none yet: n_columns 0 */
    int n_columns;
    int line;
    double *bus; /* reported, one a sample */
    size_t bus_capacity;
    int *lines;
    size_t lines_capacity;
};

/* --- both ------------------------------------------------------------------------------------ */

static const struct {
    const char *program;
    enum collective_kind kind;
} programs[] = {{"all_reduce", COLLECTIVE_ALL_REDUCE},
                {"all_gather", COLLECTIVE_ALL_GATHER},
                {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER},
                {"broadcast", COLLECTIVE_BROADCAST},
                {"alltoall", COLLECTIVE_ALL_TO_ALL}};

/* "…/all_reduce_perf" or a file named after it; false: it names none of ours. */
static bool kind_of(const char *name, enum collective_kind *out)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strstr(base, programs[i].program) && !strstr(base, "alltoallv")) {
            *out = programs[i].kind;
            return true;
        }
    return false;
}

static enum status take_program(struct reader *r, const char *where, const char *name,
                                struct error *err)
{
    enum collective_kind kind;
    if (!kind_of(name, &kind))
        return error_set(err, ERR_INPUT,
                         "%s: '%s' is not a supported test; supported are all_reduce_perf, "
                         "all_gather_perf, reduce_scatter_perf, broadcast_perf and alltoall_perf",
                         where, name);
    if (r->has_kind && kind != r->out->kind)
        return error_set(err, ERR_INPUT, "%s: a second test, %s: a file must contain one", where, name);
    r->out->kind = kind;
    r->has_kind = true;
    return OK;
}

static void take_rank(struct reader *r, const char *host, const char *device)
{
    struct nccl_tests *t = r->out;
    size_t at = 0;
    t->n_ranks++;
    if (!*t->device) t->device = arena_strdup(r->arena, device);
    t->mixed |= strcmp(t->device, device) != 0;
    while (at < r->n_hosts && strcmp(r->hosts[at], host) != 0) at++;
    if (at == r->n_hosts) {
        r->hosts = arena_grow(r->arena, r->hosts, at, &r->hosts_capacity, sizeof *r->hosts);
        r->on_host = arena_grow(r->arena, r->on_host, at, &r->on_host_capacity, sizeof *r->on_host);
        r->hosts[r->n_hosts++] = arena_strdup(r->arena, host);
        r->on_host[at] = 0;
    }
    r->on_host[at]++;
}

/* 21903 and 2804: major · 10000 + minor · 100 + patch, · 1000 before 2.9. */
static const char *version_text(struct arena *a, int64_t code)
{
    int64_t major = code >= 10000 ? code / 10000 : code / 1000;
    int64_t minor = (code >= 10000 ? code % 10000 : code % 1000) / 100;
    return code <= 0 ? "" : arena_printf(a, "%d.%d.%d", (int)major, (int)minor, (int)(code % 100));
}

static enum status add_sample(struct reader *r, const char *where, double bytes, double us,
                              double bus, bool in_place, struct error *err)
{
    struct nccl_tests *t = r->out;
    if (!(bytes >= 1 && bytes <= 1e15))
        return error_set(err, ERR_INPUT, "%s: size %g: 1 to 1e15 bytes", where, bytes);
    if (!(us > 0 && us < 1e12))
        return error_set(err, ERR_INPUT, "%s: time %g us: must be above 0", where, us);
    r->bus = arena_grow(r->arena, r->bus, t->n, &r->bus_capacity, sizeof *r->bus);
    r->lines = arena_grow(r->arena, r->lines, t->n, &r->lines_capacity, sizeof *r->lines);
    t->samples = arena_grow(r->arena, t->samples, t->n, &r->capacity, sizeof *t->samples);
    r->bus[t->n] = bus;
    r->lines[t->n] = r->line;
    t->samples[t->n++] = (struct nccl_sample){(int64_t)bytes, us * 1e-6, in_place};
    return OK;
}

/* Reported with two decimals, of a time with three digits or more. */
static bool follows(double bus, const struct nccl_sample *s, double factor)
{
    double GBps = (double)s->bytes / s->seconds / 1e9 * factor;
    return fabs(bus - GBps) <= .006 + .012 * GBps;
}

static enum status conclude(struct reader *r, struct error *err)
{
    struct nccl_tests *t = r->out;
    t->n_nodes = r->n_hosts ? (int32_t)r->n_hosts : 1;
    if (!t->n) return error_set(err, ERR_INPUT, "%s: no rows of nccl-tests with bytes", r->path);
    if (!t->n_ranks)
        return error_set(err, ERR_INPUT,
                         "%s: no lines '#  Rank …': the number of ranks is not known", r->path);
    for (size_t i = 1; i < r->n_hosts; i++)
        if (r->on_host[i] != r->on_host[0])
            return error_set(err, ERR_INPUT,
                             "%s: %" PRId32 " ranks on %s, %" PRId32 " on %s: every host needs the same number",
                             r->path, r->on_host[0], r->hosts[0], r->on_host[i], r->hosts[i]);
    if (!r->has_kind) r->has_kind = kind_of(r->path, &t->kind);
    bool guessed = !r->has_kind;
    if (guessed) t->kind = COLLECTIVE_ALL_REDUCE;
    double factor = collective_bus_factor(t->kind, t->n_ranks);
    if (guessed && t->n_ranks < 3)
        return error_set(
            err, ERR_INPUT,
            "%s: which collective was it? name the file after it (all_gather_perf.txt)", r->path);
    for (size_t i = 0; i < t->n; i++) {
        if (isnan(r->bus[i]) || follows(r->bus[i], &t->samples[i], factor)) continue;
        if (guessed)
            return error_set(err, ERR_INPUT,
                             "%s: which collective was it? its bandwidths are not those of an "
                             "all-reduce: name the file after it (all_gather_perf.txt)",
                             r->path);
        return error_set(err, ERR_INPUT,
                         "%s:%d: busbw %g does not follow from %" PRId64
                         " bytes in %g us by %s of %" PRId32 " ranks",
                         r->path, r->lines[i], r->bus[i], t->samples[i].bytes,
                         t->samples[i].seconds * 1e6, collective_kind_name(t->kind), t->n_ranks);
    }
    return OK;
}

/* --- text ------------------------------------------------------------------------------------ */

static const char *here(struct reader *r)
{
    return arena_printf(r->arena, "%s:%d", r->path, r->line);
}

static int split(char *line, char *word[WORDS_MAX])
{
    int n = 0;
    for (char *at = line; n < WORDS_MAX;) {
        at += strspn(at, " \t\r");
        if (!*at) break;
        word[n++] = at;
        at += strcspn(at, " \t\r");
        if (*at) *at++ = 0;
    }
    return n;
}

/* What a launcher puts before a line: [1,0]<stdout>: */
static char *without_prefix(char *line)
{
    char *at = line + strspn(line, " \t");
    if (*at != '[') return line;
    at += 1 + strspn(at + 1, "0123456789,");
    return strncmp(at, "]<stdout>:", 10) ? line : at + 10;
}

static bool whole_number(const char *word, int64_t *out)
{
    char *end = NULL;
    if (!strchr("-0123456789", *word) || !*word) return false;
    *out = strtoll(word, &end, 10);
    return end != word && !*end;
}

/* #  Rank 0 [Group 0] Pid 1 on host device 0 [0000:07:00] NVIDIA A100 */
static enum status rank_line(struct reader *r, char **word, int n, struct error *err)
{
    int64_t rank = 0, group = 0;
    const char *host = NULL, *device = "";
    for (int i = 0; i < n; i++) {
        if (!strcmp(word[i], "Rank") && i + 1 < n && !whole_number(word[i + 1], &rank)) rank = -1;
        if (!strcmp(word[i], "Group") && i + 1 < n && !whole_number(word[i + 1], &group)) rank = -1;
        if (!strcmp(word[i], "on") && i + 1 < n && !host) host = word[i + 1];
        if (word[i][0] == '[' && host) {
            for (int k = i + 1; k < n; k++)
                device = arena_printf(r->arena, "%s%s%s", device, k > i + 1 ? " " : "", word[k]);
            break;
        }
    }
    if (rank < 0 || rank >= RANKS_MAX || !host)
        return error_set(err, ERR_INPUT, "%s: not '#  Rank N … on HOST device N [BUS] NAME'",
                         here(r));
    if (!r->out->n_ranks) r->group = (int32_t)group;
    if (group == r->group) take_rank(r, host, device);
    return OK;
}

static enum status header_line(struct reader *r, char **word, int n, struct error *err)
{
    r->n_columns = 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(word[i], "cputime"))
            return error_set(err, ERR_INPUT,
                             "%s: CPU times (-C) are not durations of collectives; run without -C",
                             here(r));
        if (!strcmp(word[i], "timestamp")) break; /* behind all else, two words in a row */
        r->columns[r->n_columns++] = arena_strdup(r->arena, word[i]);
    }
    return OK;
}

static enum status comment_line(struct reader *r, char **word, int n, struct error *err)
{
    if (!strcmp(word[0], "#")) word++, n--;
    if (n < 2) return OK;
    if (!strcmp(word[0], "Rank")) return rank_line(r, word, n, err);
    if (!strcmp(word[0], "size") && !strcmp(word[1], "count")) return header_line(r, word, n, err);
    for (int i = 0; i + 1 < n; i++)
        if (!strcmp(word[i], "starting:") || !strcmp(word[i], "concluded:"))
            TRY(take_program(r, here(r), word[i + 1], err));
    for (int i = 0; i < n; i++) {
        int64_t code = 0;
        if (!strncmp(word[i], "nccl-library=", 13) && whole_number(word[i] + 13, &code))
            r->out->version = version_text(r->arena, code);
    }
    if (!strcmp(word[0], "Avg") && !strcmp(word[1], "bus")) r->out->complete = true;
    return OK;
}

static enum status number(struct reader *r, const char *column, const char *word, double *out,
                          struct error *err)
{
    if (units_parse_number(word, out)) return OK;
    return error_set(err, ERR_INPUT, "%s: %s: '%s' is not a number", here(r), column, word);
}

/* One half of a row, out-of-place or in-place. */
struct half {
    double us, bus, wrong;
    bool has_time;
};

static enum status take_half(struct reader *r, double bytes, const struct half *h, bool in_place,
                             struct error *err)
{
    if (h->wrong > 0)
        return error_set(err, ERR_INPUT, "%s: %g wrong elements: the run is not valid", here(r),
                         h->wrong);
    return h->has_time ? add_sample(r, here(r), bytes, h->us, h->bus, in_place, err) : OK;
}

static enum status data_line(struct reader *r, char **word, int n, struct error *err)
{
    struct half half[2] = {{.bus = NAN}, {.bus = NAN}};
    double bytes = 0, other;
    int64_t whole = 0;
    int at = 0, now = -1;
    if (!r->n_columns)
        return error_set(err, ERR_INPUT, "%s: a row before any '# size count type …'", here(r));
    for (int i = 0; i < r->n_columns; i++) {
        const char *name = r->columns[i];
        bool redop = !strcmp(name, "redop");
        if (redop && at < n &&
            (whole_number(word[at], &whole) || units_parse_number(word[at], &other)))
            continue; /* an all_gather of old writes none */
        if (at == n)
            return error_set(err, ERR_INPUT, "%s: the row ends before its %s", here(r), name);
        const char *value = word[at++];
        if (!strcmp(name, "type") || redop) continue;
        if (!strcmp(name, "time")) now++;
        if (now > 1) return error_set(err, ERR_INPUT, "%s: a third time in a row", here(r));
        if (!strcmp(value, "N/A")) continue;
        TRY(number(r, name, value, &other, err));
        if (!strcmp(name, "size")) bytes = other;
        if (!strcmp(name, "time")) half[now].us = other, half[now].has_time = true;
        if (!strcmp(name, "busbw") && now >= 0) half[now].bus = other;
        if (!strcmp(name, "#wrong") && now >= 0) half[now].wrong = other;
    }
    if (bytes == 0) {
        r->out->empty_rows++;
        return OK;
    }
    if (!half[0].has_time && !half[1].has_time)
        return error_set(err, ERR_INPUT, "%s: a row without a time", here(r));
    TRY(take_half(r, bytes, &half[0], false, err));
    return take_half(r, bytes, &half[1], true, err);
}

static enum status text_line(struct reader *r, char *line, struct error *err)
{
    char *word[WORDS_MAX];
    int64_t size = 0, count = 0;
    int n = split(without_prefix(line), word);
    if (!n) return OK;
    if (word[0][0] == '#') {
        if (word[0][1]) word[0]++; /* "#size" */
        return comment_line(r, word, n, err);
    }
    if (n > 2 && !strcmp(word[0], "NCCL") && !strcmp(word[1], "version"))
        r->out->version = arena_strndup(r->arena, word[2], strcspn(word[2], "+"));
    /* of rows the first two words are whole numbers and the third is a type; all else is somebody's log */
    if (n < 3 || !whole_number(word[0], &size) || !whole_number(word[1], &count)) return OK;
    return data_line(r, word, n, err);
}

/* A look-up table of vTrain's: size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s); AR_GPU4_… is its file's name. */
static enum status lut_line(struct reader *r, char *line, struct error *err)
{
    static const char *const columns[] = {"size", "count", "", "time", "busbw", "time", "busbw"};
    double value[7] = {0};
    char *at = line;
    for (int i = 0; i < 7; i++) {
        char *end = at + strcspn(at, ",\r");
        bool last = !*end || *end == '\r';
        if (last != (i == 6))
            return error_set(err, ERR_INPUT, "%s: not the 7 fields of a table", here(r));
        *end = 0;
        if (*columns[i]) TRY(number(r, columns[i], at, &value[i], err));
        at = end + 1;
    }
    TRY(add_sample(r, here(r), value[0], value[3] * 1e-3, value[4], false, err));
    return add_sample(r, here(r), value[0], value[5] * 1e-3, value[6], true, err);
}

static enum status lut_name(struct reader *r, struct error *err)
{
    const char *slash = strrchr(r->path, '/'), *base = slash ? slash + 1 : r->path;
    long ranks = strncmp(base, "AR_GPU", 6) ? 0 : strtol(base + 6, NULL, 10);
    if (ranks < 2 || ranks > RANKS_MAX)
        return error_set(err, ERR_INPUT,
                         "%s: the file name must contain the ranks: AR_GPU4_… is an all-reduce of 4",
                         r->path);
    r->out->n_ranks = (int32_t)ranks;
    r->out->kind = COLLECTIVE_ALL_REDUCE;
    r->has_kind = r->out->complete = r->lut = true;
    return OK;
}

static enum status read_text(struct reader *r, char *text, size_t n, struct error *err)
{
    if (strlen(text) != n) return error_set(err, ERR_INPUT, "%s: not a text file: it contains a 0 byte", r->path);
    for (char *at = text; at;) {
        char *end = strchr(at, '\n');
        if (end) *end++ = 0;
        r->line++;
        if (!strncmp(at, "size(B),", 8))
            TRY(lut_name(r, err));
        else if (!r->lut)
            TRY(text_line(r, at, err));
        else if (*at)
            TRY(lut_line(r, at, err));
        at = end;
    }
    return OK;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static enum status json_half(struct reader *r, const struct node *row, const char *key,
                             double bytes, struct error *err)
{
    const struct node *half = node_get(row, key), *wrong;
    double us = 0, bus = NAN, n_wrong = 0;
    const struct node *time;
    if (!half || half->kind == NODE_NULL) return OK;
    TRY(node_is(half, NODE_MAP, err));
    if (node_get(half, "cpu_time"))
        return node_error(half, err, "CPU times (-C) are not what a collective takes");
    TRY(node_need(half, "time", &time, err));
    TRY(node_double(time, 1e-9, 1e12, &us, err));
    TRY(node_get_double(half, "bus_bw", 0, 1e9, &bus, err));
    wrong = node_get(half, "nwrong");
    if (wrong && wrong->kind == NODE_SCALAR && !wrong->quoted)
        TRY(node_double(wrong, -1, 1e18, &n_wrong, err));
    if (n_wrong > 0) return node_error(half, err, "%g wrong elements", n_wrong);
    char path[96];
    const char *where =
        arena_printf(r->arena, "%s: %s", r->path, node_path(half, path, sizeof path));
    return add_sample(r, where, bytes, us, bus, !strcmp(key, "in_place"), err);
}

static enum status json_devices(struct reader *r, const struct node *list, struct error *err)
{
    TRY(node_is(list, NODE_LIST, err));
    for (size_t i = 0; i < list->count; i++) {
        const struct node *d = list->members[i];
        const char *host = "", *name = "";
        int64_t group = 0;
        TRY(node_is(d, NODE_MAP, err));
        TRY(node_get_int(d, "group", INT32_MIN, INT32_MAX, &group, err));
        TRY(node_get_text(d, "hostname", &host, err));
        TRY(node_get_text(d, "device_info", &name, err));
        if (!r->out->n_ranks) r->group = (int32_t)group;
        if (group == r->group) take_rank(r, host, name);
    }
    return OK;
}

/* Built without MPI, nccl-tests writes the first device only: the others are threads and GPUs of the same process. */
static enum status json_ranks(struct reader *r, const struct node *root, struct error *err)
{
    const struct node *config = node_get(root, "config"), *list = node_get(root, "devices");
    int64_t threads = 1, gpus = 1;
    if (config && config->kind == NODE_MAP) {
        if (!list) list = node_get(config, "devices");
        TRY(node_get_int(config, "nthreads", 1, 4096, &threads, err));
        TRY(node_get_int(config, "ngpus", 1, 4096, &gpus, err));
    }
    if (list) TRY(json_devices(r, list, err));
    if (r->out->n_ranks == 1 && threads * gpus > 1) r->out->n_ranks = (int32_t)(threads * gpus);
    return OK;
}

static enum status read_json(struct reader *r, const char *text, size_t n, struct error *err)
{
    struct node *root = NULL;
    const struct node *results = NULL, *args;
    int64_t version = 0;
    TRY(document_parse(r->arena, r->path, text, n, &root, err));
    TRY(node_is(root, NODE_MAP, err));
    args = node_get(root, "args");
    if (args && args->kind == NODE_LIST && args->count) {
        const char *program = NULL;
        TRY(node_text(args->members[0], &program, err));
        TRY(take_program(r, arena_printf(r->arena, "%s: args[0]", r->path), program, err));
    }
    TRY(node_get_int(root, "nccl_version", 0, 1000000, &version, err));
    r->out->version = version_text(r->arena, version);
    TRY(json_ranks(r, root, err));
    TRY(node_need(root, "results", &results, err));
    TRY(node_is(results, NODE_LIST, err));
    for (size_t i = 0; i < results->count; i++) {
        const struct node *row = results->members[i], *size;
        double bytes = 0;
        TRY(node_is(row, NODE_MAP, err));
        TRY(node_need(row, "size", &size, err));
        TRY(node_double(size, 0, 1e15, &bytes, err));
        r->line = (int)i + 1;
        if (bytes == 0) {
            r->out->empty_rows++;
            continue;
        }
        TRY(json_half(r, row, "out_of_place", bytes, err));
        TRY(json_half(r, row, "in_place", bytes, err));
    }
    r->out->complete = node_get(root, "average_bus_bandwidth") != NULL;
    return OK;
}

enum status import_nccl_tests_read(struct arena *a, const char *path, struct nccl_tests *out,
                                   struct error *err)
{
    struct reader r = {.arena = a, .path = path, .out = out};
    char *text = NULL;
    size_t n = 0;
    *out = (struct nccl_tests){.device = "", .version = ""};
    TRY(file_read(a, path, FILE_MAX, &text, &n, err));
    bool json = text[strspn(text, " \t\r\n")] == '{';
    TRY(json ? read_json(&r, text, n, err) : read_text(&r, text, n, err));
    return conclude(&r, err);
}
