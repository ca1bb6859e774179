/* Readers of external tables: interruptions of a job, and availability of devices. */
#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/units.h"
#include "core/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FIELDS_MAX = 2 + GOODPUT_TYPES_MAX };
#define FILE_MAX ((size_t)256 << 20)
#define SECONDS_OF_DAY 86400.0

/* --- comma-separated values ------------------------------------------------------------------- */

struct table { /* reads a text line by line, in place */
    const char *path;
    char *rest;
    int line, n_fields;
    char *field[FIELDS_MAX];
};

/* Splits one line into fields. Quotes are removed ("" inside them is one); a quoted field ends on its line. */
static enum status cut(struct table *t, char *at, struct error *err)
{
    for (t->n_fields = 0;; at++) {
        char *to = at;
        if (t->n_fields == FIELDS_MAX)
            return error_set(err, ERR_INPUT, "%s:%d: more than %d columns", t->path, t->line,
                             FIELDS_MAX);
        t->field[t->n_fields++] = at;
        if (*at == '"') {
            for (at++; *at && (*at != '"' || at[1] == '"'); *to++ = *at++)
                if (*at == '"') at++;
            if (!*at)
                return error_set(err, ERR_INPUT, "%s:%d: a quote is never closed", t->path,
                                 t->line);
            at++;
        }
        while (*at && *at != ',') *to++ = *at++;
        bool last = !*at;
        *to = 0;
        if (last) return OK;
    }
}

/* The next non-empty line. *more: there was one. */
static enum status next_line(struct table *t, bool *more, struct error *err)
{
    for (;;) {
        char *line = t->rest;
        *more = *line != 0;
        if (!*more) return OK;
        size_t n = strcspn(line, "\n");
        t->rest = line + n + (line[n] == '\n');
        line[n] = 0;
        if (n && line[n - 1] == '\r') line[n - 1] = 0;
        t->line++;
        if (!line[strspn(line, " \t")]) continue;
        for (size_t i = 0; line[i += utf8_plain(line + i, strlen(line + i))]; i++)
            if (line[i] != '\t')
                return error_set(err, ERR_INPUT,
                                 "%s:%d: byte %zu is a control character or not UTF-8", t->path,
                                 t->line, i + 1);
        return cut(t, line, err);
    }
}

static enum status open_table(struct arena *a, const char *path, struct table *t, struct error *err)
{
    size_t n = 0;
    bool more = false;
    *t = (struct table){.path = path};
    TRY(file_read(a, path, FILE_MAX, &t->rest, &n, err));
    if (strlen(t->rest) != n) return error_set(err, ERR_INPUT, "%s: not a text file: it contains a 0 byte", path);
    TRY(next_line(t, &more, err));
    return more ? OK : error_set(err, ERR_INPUT, "%s: empty", path);
}

static enum status number_in(const struct table *t, int column, const char *name, double *out,
                             struct error *err)
{
    if (column < t->n_fields && units_parse_number(t->field[column], out)) return OK;
    return error_set(err, ERR_INPUT, "%s:%d: %s is '%s', not a number", t->path, t->line, name,
                     column < t->n_fields ? t->field[column] : "");
}

/* --- failures --------------------------------------------------------------------------------- */

enum { COMPONENT, CATEGORY, COUNT, WINDOW, GPUS, FAILURE_COLUMNS };
static const char *const failure_columns[] = {"component", "category", "count", "window_days",
                                              "gpus"};

static enum status failure_header(const struct table *t, int at[FAILURE_COLUMNS], struct error *err)
{
    for (int c = 0; c < FAILURE_COLUMNS; c++) {
        at[c] = -1;
        for (int i = 0; i < t->n_fields; i++)
            if (!strcmp(t->field[i], failure_columns[c])) at[c] = i;
        if (at[c] < 0)
            return error_set(err, ERR_INPUT,
                             "%s:%d: no column '%s'; component, category, count, window_days and "
                             "gpus are needed",
                             t->path, t->line, failure_columns[c]);
    }
    return OK;
}

static struct goodput_cause make_cause(const char *name, const char *category, double count,
                                       double device_days, int64_t n, int64_t per_node)
{
    bool gpu = !strcmp(category, "GPU");
    bool node = !strcmp(category, "Host") || !strcmp(category, "Unplanned Maintenance");
    return (struct goodput_cause){
        .name = name,
        .category = category,
        .mtbf_s = count > 0 ? device_days * SECONDS_OF_DAY / (count * (double)n) : INFINITY,
        .shape = 1,
        .devices = gpu    ? 1
                   : node ? per_node
                          : 0};
}

static enum status failure_row(struct arena *a, const struct table *t,
                               const int at[FAILURE_COLUMNS], int64_t n, int64_t per_node,
                               struct goodput_cause *out, struct error *err)
{
    double value[FAILURE_COLUMNS] = {0};
    for (int c = COUNT; c < FAILURE_COLUMNS; c++) {
        TRY(number_in(t, at[c], failure_columns[c], &value[c], err));
        if (!(value[c] >= 0) || (c != COUNT && !(value[c] > 0)))
            return error_set(err, ERR_INPUT, "%s:%d: %s is %g; it must be %s 0", t->path, t->line,
                             failure_columns[c], value[c], c == COUNT ? ">=" : ">");
    }
    if (at[COMPONENT] >= t->n_fields || at[CATEGORY] >= t->n_fields)
        return error_set(err, ERR_INPUT, "%s:%d: a row without component or category", t->path,
                         t->line);
    *out = make_cause(arena_strdup(a, t->field[at[COMPONENT]]),
                      arena_strdup(a, t->field[at[CATEGORY]]), value[COUNT],
                      value[WINDOW] * value[GPUS], n, per_node);
    return OK;
}

enum status goodput_read_failures(struct arena *a, const char *path, int64_t n, int64_t per_node,
                                  size_t *out_n, struct goodput_cause **out, struct error *err)
{
    struct table t;
    int at[FAILURE_COLUMNS];
    size_t capacity = 0;
    bool more = true;
    *out = NULL;
    *out_n = 0;
    TRY(open_table(a, path, &t, err));
    TRY(failure_header(&t, at, err));
    for (;;) {
        struct goodput_cause c;
        TRY(next_line(&t, &more, err));
        if (!more) break;
        TRY(failure_row(a, &t, at, n, per_node, &c, err));
        *out = arena_grow(a, *out, *out_n, &capacity, sizeof **out);
        (*out)[(*out_n)++] = c;
    }
    return *out_n ? OK : error_set(err, ERR_INPUT, "%s: no failures after the header", path);
}

size_t goodput_llama3(struct arena *a, int64_t n, int64_t per_node, struct goodput_cause **out)
{
    static const struct {
        const char *name, *category;
        int count;
    } rows[] = {{"Faulty GPU", "GPU", 148},
                {"GPU HBM3 Memory", "GPU", 72},
                {"Software Bug", "Dependency", 54},
                {"Network Switch/Cable", "Network", 35},
                {"Host Maintenance", "Unplanned Maintenance", 32},
                {"GPU SRAM Memory", "GPU", 19},
                {"GPU System Processor", "GPU", 17},
                {"NIC", "Host", 7},
                {"NCCL Watchdog Timeouts", "Unknown", 7},
                {"Silent Data Corruption", "GPU", 6},
                {"GPU Thermal Interface + Sensor", "GPU", 6},
                {"SSD", "Host", 3},
                {"Power Supply", "Host", 3},
                {"Server Chassis", "Host", 2},
                {"IO Expansion Board", "Host", 2},
                {"Dependency", "Dependency", 2},
                {"CPU", "Host", 2},
                {"System Memory", "Host", 2}};
    const size_t n_rows = sizeof rows / sizeof *rows;
    *out = ARENA_ARRAY(a, struct goodput_cause, n_rows);
    for (size_t i = 0; i < n_rows; i++)
        (*out)[i] =
            make_cause(rows[i].name, rows[i].category, rows[i].count, 54.0 * 16384, n, per_node);
    return n_rows;
}

/* --- availability ----------------------------------------------------------------------------- */

/* Days from 1970-01-01 in the Gregorian calendar. March is the first month, so that the leap day ends the year. */
static int64_t days_of(int year, int month, int day)
{
    int64_t y = year - (month <= 2), m = (month + 9) % 12;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* Seconds, or YYYY-MM-DD hh:mm[:ss[.fraction]] with a space or a T between; a time zone is ignored. */
static bool parse_time(const char *text, double *out)
{
    int year, month, day, hour, minute, used = 0;
    double second = 0;
    if (units_parse_number(text, out)) return true;
    if (sscanf(text, "%4d-%2d-%2d%*1[T ]%2d:%2d%n", &year, &month, &day, &hour, &minute, &used) < 5)
        return false;
    if (used && text[used] == ':') {
        char digits[16] = {0};
        size_t n = strspn(text + used + 1, "0123456789.");
        if (n < 1 || n >= sizeof digits) return false;
        memcpy(digits, text + used + 1, n);
        if (!units_parse_number(digits, &second)) return false;
    }
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        hour < 0 || minute < 0 || !(second < 61))
        return false;
    *out =
        (double)days_of(year, month, day) * SECONDS_OF_DAY + hour * 3600.0 + minute * 60.0 + second;
    return true;
}

struct spot_columns {
    int time, n, column[GOODPUT_TYPES_MAX];
};

static enum status spot_header(struct arena *a, const struct table *t, struct spot_columns *c,
                               struct goodput_spot *out, struct error *err)
{
    *c = (struct spot_columns){.time = -1};
    out->types = ARENA_ARRAY(a, const char *, (size_t)t->n_fields);
    for (int i = 0; i < t->n_fields; i++) {
        const char *name = t->field[i];
        if (!*name) continue;
        if (!strcasecmp(name, "time_s") || !strcasecmp(name, "timestamp")) {
            c->time = i;
            continue;
        }
        if (c->n == GOODPUT_TYPES_MAX)
            return error_set(err, ERR_INPUT, "%s:%d: more than %d device types", t->path, t->line,
                             GOODPUT_TYPES_MAX);
        out->types[c->n] = arena_strdup(a, name);
        c->column[c->n++] = i;
    }
    if (c->time < 0)
        return error_set(err, ERR_INPUT, "%s:%d: no column 'time_s' or 'Timestamp'", t->path,
                         t->line);
    if (!c->n) return error_set(err, ERR_INPUT, "%s:%d: no column of devices", t->path, t->line);
    out->n_types = c->n;
    out->most = ARENA_ARRAY(a, int64_t, (size_t)c->n);
    return OK;
}

static enum status spot_row(struct arena *a, const struct table *t, const struct spot_columns *c,
                            struct goodput_spot *out, double *seconds, struct goodput_change *row,
                            struct error *err)
{
    int64_t *devices = ARENA_ARRAY(a, int64_t, (size_t)c->n);
    if (c->time >= t->n_fields || !parse_time(t->field[c->time], seconds))
        return error_set(err, ERR_INPUT, "%s:%d: '%s' is not a time: seconds or YYYY-MM-DD hh:mm:ss",
                         t->path, t->line, c->time < t->n_fields ? t->field[c->time] : "");
    for (int i = 0; i < c->n; i++) {
        double x;
        TRY(number_in(t, c->column[i], out->types[i], &x, err));
        if (!(x >= 0 && x <= 1e9) || x != floor(x))
            return error_set(err, ERR_INPUT, "%s:%d: %g devices of %s", t->path, t->line, x,
                             out->types[i]);
        devices[i] = (int64_t)x;
        if (devices[i] > out->most[i]) out->most[i] = devices[i];
    }
    *row = (struct goodput_change){0, devices};
    return OK;
}

enum status goodput_read_spot(struct arena *a, const char *path, struct goodput_spot *out,
                              struct error *err)
{
    struct table t;
    struct spot_columns c;
    size_t capacity = 0;
    double first = 0;
    bool more = true;
    *out = (struct goodput_spot){0};
    TRY(open_table(a, path, &t, err));
    TRY(spot_header(a, &t, &c, out, err));
    for (;;) {
        struct goodput_change row;
        double seconds = 0;
        TRY(next_line(&t, &more, err));
        if (!more) break;
        TRY(spot_row(a, &t, &c, out, &seconds, &row, err));
        if (!out->n_changes) first = seconds;
        if (!(fabs(seconds - first) <= 1e9))
            return error_set(err, ERR_INPUT, "%s:%d: more than 31 years from the first row", path,
                             t.line);
        row.time_ns = units_ns_from_s(seconds - first);
        if (row.time_ns < out->end_ns)
            return error_set(err, ERR_INPUT, "%s:%d: earlier than the row above it", path, t.line);
        out->end_ns = row.time_ns;
        out->changes = arena_grow(a, out->changes, out->n_changes, &capacity, sizeof row);
        out->changes[out->n_changes++] = row;
    }
    return out->n_changes ? OK : error_set(err, ERR_INPUT, "%s: no rows after the header", path);
}
