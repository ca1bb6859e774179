/* tools/schedule/cases.c - reads the complete file and splits it in place; errors name line and column. */
#include "tools/schedule/cases.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_COLUMNS = 64 };
static const char *const needed[] = {"case",        "p",    "m",    "tF",   "tB",       "tW",
                                     "tcomm_links", "memF", "memB", "memW", "mem_limit"};
enum { CASE, P, M, T_F, T_B, T_W, LINKS, MEM_F, MEM_B, MEM_W, LIMIT, NEEDED };
static const char *const compared[] = {
#define X(name) #name,
    SCHEDULE_COLUMNS(X)
#undef X
};

const char *schedule_column_name(enum schedule_column c) { return compared[c]; }

int64_t schedule_cases_rounding(int64_t written)
{
    int64_t unit = 1;
    while (written / unit >= 1000000 && written % (unit * 10) == 0) unit *= 10;
    return unit / 2;
}

struct reader {
    struct arena *a;
    const char *file;
    int line;
    int32_t n_columns, needed[NEEDED], compared[SCHEDULE_COLUMN_COUNT];
    char *cells[MAX_COLUMNS];
    struct error *err;
};

static enum status split(struct reader *r, char *line)
{
    r->n_columns = 0;
    for (char *at = line; at;) {
        if (r->n_columns == MAX_COLUMNS)
            return error_set(r->err, ERR_INPUT, "%s:%d: more than %d columns", r->file, r->line,
                             MAX_COLUMNS);
        r->cells[r->n_columns++] = at;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    return OK;
}

static int32_t find(const struct reader *r, const char *name)
{
    for (int32_t i = 0; i < r->n_columns; i++)
        if (!strcmp(r->cells[i], name)) return i;
    return -1;
}

static enum status read_header(struct reader *r, char *line, bool *has)
{
    TRY(split(r, line));
    for (int i = 0; i < NEEDED; i++) {
        r->needed[i] = find(r, needed[i]);
        if (r->needed[i] < 0)
            return error_set(r->err, ERR_INPUT, "%s:1: no column '%s'", r->file, needed[i]);
    }
    for (int i = 0; i < SCHEDULE_COLUMN_COUNT; i++) {
        r->compared[i] = find(r, compared[i]);
        has[i] = r->compared[i] >= 0;
    }
    return OK;
}

/* An integer of at most 15 digits in any notation ("10", "10.0"); inf if allowed. */
static enum status whole(struct reader *r, const char *column, const char *text, int64_t least,
                         bool inf, int64_t *out)
{
    double v;
    if (inf && !strcmp(text, "inf")) {
        *out = PIPELINE_NO_LIMIT;
        return OK;
    }
    if (!units_parse_number(text, &v) || v != floor(v) || v < (double)least ||
        v > (double)PIPELINE_MAX_NS)
        return error_set(r->err, ERR_INPUT,
                         "%s:%d: %s: '%s': expected a whole number, %" PRId64 " … %" PRId64 "%s",
                         r->file, r->line, column, text, least, PIPELINE_MAX_NS,
                         inf ? ", or inf" : "");
    *out = (int64_t)v;
    return OK;
}

/* A lower bound of integer makespans is rounded up, unless it exceeds an integer by less than 1e-6. */
static enum status bound(struct reader *r, const char *text, int64_t *out)
{
    double v;
    if (!units_parse_number(text, &v) || v < 0 || v > (double)PIPELINE_MAX_NS)
        return error_set(r->err, ERR_INPUT,
                         "%s:%d: lower_bound: '%s': expected a number, 0 or more", r->file, r->line,
                         text);
    *out = (int64_t)ceil(v - 1e-6);
    return OK;
}

/* n numbers between bars; with no links the cell is empty; a single limit holds for every stage. */
static enum status numbers(struct reader *r, int column, int32_t n, int64_t least, int64_t **out)
{
    const char *name = needed[column];
    char *at = r->cells[r->needed[column]];
    bool only = !strchr(at, '|');
    int64_t *list = ARENA_ARRAY(r->a, int64_t, (size_t)n);
    int32_t found = 0;
    for (; at && *at; found++) {
        char *bar = strchr(at, '|');
        if (bar) *bar++ = 0;
        if (found < n) TRY(whole(r, name, at, least, column == LIMIT, &list[found]));
        at = bar;
    }
    for (; column == LIMIT && only && found && found < n; found++) list[found] = list[0];
    if (found != n)
        return error_set(r->err, ERR_INPUT,
                         "%s:%d: %s: %" PRId32 " numbers: expected %" PRId32 " between bars",
                         r->file, r->line, name, found, n);
    *out = list;
    return OK;
}

static enum status read_pipeline(struct reader *r, struct schedule_case *c)
{
    int32_t p = c->n_stages;
    int64_t *list[NEEDED];
    for (int k = T_F; k <= LIMIT; k++)
        TRY(numbers(r, k, k == LINKS ? p - 1 : p, k >= MEM_F && k <= MEM_W ? -PIPELINE_MAX_NS : 0,
                    &list[k]));
    c->pipeline = (struct pipeline){.n_devices = p, .n_stages = p};
    c->pipeline.stages = ARENA_ARRAY(r->a, struct pipeline_stage, (size_t)p);
    c->pipeline.links = ARENA_ARRAY(r->a, struct pipeline_link, (size_t)p);
    c->pipeline.devices = ARENA_ARRAY(r->a, struct pipeline_device, (size_t)p);
    for (int32_t s = 0; s < p; s++) {
        c->pipeline.stages[s] = (struct pipeline_stage){.forward_ns = list[T_F][s],
                                                        .input_ns = list[T_B][s],
                                                        .weight_ns = list[T_W][s],
                                                        .forward_bytes = list[MEM_F][s],
                                                        .input_bytes = list[MEM_B][s],
                                                        .weight_bytes = list[MEM_W][s]};
        c->pipeline.devices[s].limit_bytes = list[LIMIT][s];
        for (int k = 0; k < 2 && s + 1 < p; k++)
            c->pipeline.links[s].latency_ns[k] = list[LINKS][s];
    }
    return OK;
}

static enum status read_case(struct reader *r, char *line, int32_t expected,
                             struct schedule_case *c)
{
    int64_t p, m;
    TRY(split(r, line));
    if (r->n_columns != expected)
        return error_set(r->err, ERR_INPUT,
                         "%s:%d: %" PRId32 " columns: expected %" PRId32 " as in the first line",
                         r->file, r->line, r->n_columns, expected);
    *c = (struct schedule_case){.name = r->cells[r->needed[CASE]], .line = r->line};
    TRY(whole(r, "p", r->cells[r->needed[P]], 1, false, &p));
    TRY(whole(r, "m", r->cells[r->needed[M]], 1, false, &m));
    if (p > SCHEDULE_MAX_DEVICES || m > SCHEDULE_MAX_MICROBATCHES)
        return error_set(r->err, ERR_INPUT,
                         "%s:%d: %" PRId64 " stages and %" PRId64
                         " microbatches: expected at most %d and %d",
                         r->file, r->line, p, m, SCHEDULE_MAX_DEVICES, SCHEDULE_MAX_MICROBATCHES);
    c->n_stages = (int32_t)p, c->microbatches = (int32_t)m;
    TRY(read_pipeline(r, c));
    for (int k = 0; k < SCHEDULE_COLUMN_COUNT; k++) {
        c->makespan[k] = -1;
        if (r->compared[k] < 0 || !*r->cells[r->compared[k]]) continue;
        const char *text = r->cells[r->compared[k]];
        if (k == COLUMN_lower_bound)
            TRY(bound(r, text, &c->makespan[k]));
        else
            TRY(whole(r, compared[k], text, 0, false, &c->makespan[k]));
    }
    return OK;
}

enum status schedule_cases_read(struct arena *a, const char *path, struct schedule_cases *out,
                                struct error *err)
{
    char *text;
    size_t n, capacity = 0;
    struct reader r = {.a = a, .file = path, .err = err};
    TRY(file_read(a, path, (size_t)64 * 1024 * 1024, &text, &n, err));
    *out = (struct schedule_cases){.file = path};
    int32_t columns = 0;
    char *first =
        n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? text + 3 : text; /* byte order mark */
    for (char *at = first; at && *at;) {
        char *end = strchr(at, '\n');
        if (end) *end++ = 0;
        at[strcspn(at, "\r")] = 0;
        r.line++;
        if (r.line == 1) {
            TRY(read_header(&r, at, out->has));
            columns = r.n_columns;
        } else if (*at) {
            out->cases = arena_grow(a, out->cases, (size_t)out->n, &capacity, sizeof *out->cases);
            TRY(read_case(&r, at, columns, &out->cases[out->n++]));
        }
        at = end;
    }
    if (!out->n) return error_set(err, ERR_INPUT, "%s: no cases", path);
    return OK;
}
