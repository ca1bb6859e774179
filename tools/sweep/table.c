#include "tools/sweep/table.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/units.h"
#include "core/base/utf8.h"
#include "core/document/json.h"
#include "planner/candidate/types.h"
#include "tools/csv.h"
#include "tools/print/classes.h"

#include <math.h>
#include <string.h>

enum { TEXT_MAX = 96, CSV_MAX = 1 << 28, FIELDS_MAX = 64 };
static const char *const columns[TABLE_COLUMN_COUNT] = {
#define X(name) #name,
    TABLE_COLUMNS(X)
#undef X
};

static bool is_number(enum table_column c)
{
    return c <= TABLE_baseline_s || c == TABLE_exact || c == TABLE_evaluated;
}

/* NAN: unknown */
static double number(const struct sweep_point *x, enum table_column c)
{
    const struct outcome *o = &x->outcome;
    switch (c) {
    case TABLE_iteration_s:
        return o->iteration_s;
    case TABLE_samples_per_s:
        return o->rate.samples_per_s;
    case TABLE_tokens_per_s:
        return o->rate.tokens_per_s > 0 ? o->rate.tokens_per_s : NAN;
    case TABLE_cost:
        return o->cost;
    case TABLE_lower_bound_s:
        return x->lower_bound_ns ? units_s_from_ns(x->lower_bound_ns) : NAN;
    case TABLE_gap:
        return o->gap;
    case TABLE_devices:
        return x->devices;
    case TABLE_devices_used:
        return x->devices_used;
    case TABLE_strategy_s:
        return x->strategy ? units_s_from_ns(x->strategy_ns) : NAN;
    case TABLE_baseline_s:
        return x->baseline ? units_s_from_ns(x->baseline_ns) : NAN;
    case TABLE_exact:
        return x->exact;
    case TABLE_evaluated:
        return (double)x->evaluated;
    default:
        return NAN;
    }
}

static const char *text(const struct sweep_point *x, enum table_column c)
{
    const char *t = c == TABLE_why        ? x->why
                    : c == TABLE_plan     ? x->plan
                    : c == TABLE_stopped  ? x->stopped
                    : c == TABLE_baseline ? x->baseline
                    : c == TABLE_strategy ? x->strategy
                                          : NULL;
    return t ? t : "";
}

/* --- lines: strategies and textbook plans --- */

int32_t table_lines(struct arena *a, const struct sweep_grid *s, const char ***out)
{
    int32_t n = 0;
    size_t capacity = 0;
    *out = NULL;
    for (int64_t i = 0; i < s->n_points; i++)
        for (int32_t k = 0; s->points[i].done && k < s->points[i].n_lines; k++) {
            int32_t at = 0;
            while (at < n && strcmp((*out)[at], s->points[i].lines[k].name) != 0) at++;
            if (at < n) continue;
            *out = arena_grow(a, *out, (size_t)n, &capacity, sizeof **out);
            (*out)[n++] = s->points[i].lines[k].name;
        }
    return n;
}

const struct sweep_line *table_line(const struct sweep_point *x, const char *name)
{
    for (int32_t k = 0; !x->why && k < x->n_lines; k++)
        if (!strcmp(x->lines[k].name, name)) return &x->lines[k];
    return NULL;
}

/* --- text --- */

/* Columns between the axes and the plan. */
enum { SHOWN = 8 };
static const char *const shown_heads[SHOWN] = {"time", "samples/s",    "tokens/s", "cost",
                                               "gap",  "devices used", "--allow",  "its time"};

static const char *cell(struct arena *a, const struct sweep_point *x, int column)
{
    char buffer[32];
    const struct outcome *o = &x->outcome;
    if (x->why) return "-";
    switch (column) {
    case 0:
        return arena_strdup(a, units_print_ns(buffer, x->iteration_ns));
    case 1:
        return arena_strdup(a, outcome_number(buffer, o->rate.samples_per_s));
    case 2:
        return arena_strdup(a, outcome_number(buffer, o->rate.tokens_per_s));
    case 3:
        return isfinite(o->cost) ? arena_printf(a, "%.4g", o->cost) : "-";
    case 4:
        return isfinite(o->gap) ? arena_printf(a, "%.1f %%", 100 * o->gap) : "-";
    case 5:
        return arena_printf(a, "%d of %d", (int)x->devices_used, (int)x->devices);
    case 6:
        return x->strategy ? arena_strndup(a, x->strategy, strcspn(x->strategy, ":")) : "-";
    default:
        return x->strategy ? arena_strdup(a, units_print_ns(buffer, x->strategy_ns)) : "-";
    }
}

/* tokens/s of models of images, costs without prices and strategies that are not allowed have no column. */
static bool is_shown(const struct sweep_grid *s, int column)
{
    for (int64_t i = 0; i < s->n_points; i++) {
        const struct sweep_point *x = &s->points[i];
        if (x->done && !x->why &&
            (column == 2   ? x->outcome.rate.tokens_per_s > 0
             : column == 3 ? isfinite(x->outcome.cost)
             : column > 5  ? x->strategy != NULL
                           : true))
            return true;
    }
    return false;
}

static void pad(const char *word, int width) { printf("  %*s", width, word); }

static const char *reason_of(const struct sweep_point *x)
{
    size_t n = strlen(SEARCH_NO_PLAN);
    return strncmp(x->why, SEARCH_NO_PLAN, n) ? x->why : x->why + n;
}

void table_print(struct arena *a, const struct sweep_grid *s, bool all)
{
    int *width = ARENA_ARRAY(a, int, (size_t)s->n_axes + SHOWN);
    bool shown[SHOWN];
    for (int32_t k = 0; k < s->n_axes; k++) {
        width[k] = (int)strlen(s->axes[k].name);
        for (int32_t i = 0; i < s->axes[k].n; i++)
            if ((int)strlen(s->axes[k].texts[i]) > width[k])
                width[k] = (int)strlen(s->axes[k].texts[i]);
    }
    for (int c = 0; c < SHOWN; c++) {
        shown[c] = is_shown(s, c);
        width[s->n_axes + c] = (int)strlen(shown_heads[c]);
        for (int64_t i = 0; shown[c] && i < s->n_points; i++) {
            int n = (int)strlen(cell(a, &s->points[i], c));
            if (s->points[i].done && n > width[s->n_axes + c]) width[s->n_axes + c] = n;
        }
    }
    for (int32_t k = 0; k < s->n_axes; k++) pad(s->axes[k].name, width[k]);
    for (int c = 0; c < SHOWN; c++)
        if (shown[c]) pad(shown_heads[c], width[s->n_axes + c]);
    puts("  plan");
    for (int64_t i = 0; i < s->n_points; i++) {
        const struct sweep_point *x = &s->points[i];
        if (!x->done) continue;
        for (int32_t k = 0; k < s->n_axes; k++) pad(s->axes[k].texts[x->at[k]], width[k]);
        for (int c = 0; c < SHOWN; c++)
            if (shown[c]) pad(cell(a, x, c), width[s->n_axes + c]);
        const char *last = x->why ? arena_printf(a, "no plan: %s", reason_of(x)) : x->plan;
        printf("  %s\n", all ? last : print_cut(a, last, TEXT_MAX));
    }
}

/* --- JSON --- */

static void put_lines(struct json *j, const struct sweep_point *x)
{
    json_put_list(j, "strategies");
    for (int32_t i = 0; i < x->n_lines; i++) {
        json_put_object_line(j, NULL);
        json_put_text(j, "name", x->lines[i].name);
        json_put_int(j, "iteration_ns", x->lines[i].ns);
        json_put_double(j, "progress", x->lines[i].progress);
        json_put_text(j, "plan", x->lines[i].plan);
        json_close(j);
    }
    json_close(j);
}

void table_json(const struct sweep_grid *s, struct json *j)
{
    json_put_list(j, "points");
    for (int64_t i = 0; i < s->n_points; i++) {
        const struct sweep_point *x = &s->points[i];
        if (!x->done) continue;
        json_put_object(j, NULL);
        json_put_object_line(j, "at");
        for (int32_t k = 0; k < s->n_axes; k++)
            json_put_double(j, s->axes[k].name, s->axes[k].values[x->at[k]]);
        json_close(j);
        json_put_text(j, "why", x->why);
        if (!x->why) {
            json_put_int(j, "iteration_ns", x->iteration_ns);
            if (x->baseline) json_put_int(j, "baseline_ns", x->baseline_ns);
            for (int c = TABLE_samples_per_s; c <= TABLE_devices_used; c++)
                json_put_double(j, columns[c], number(x, (enum table_column)c));
            json_put_bool(j, "exact", x->exact);
            json_put_int(j, "evaluated", x->evaluated);
            json_put_text(j, "baseline", x->baseline);
            json_put_text(j, "stopped", x->stopped);
            json_put_text(j, "plan", x->plan);
            if (x->strategy) {
                json_put_text(j, "strategy", x->strategy);
                json_put_int(j, "strategy_ns", x->strategy_ns);
            }
            if (x->n_lines) put_lines(j, x);
        }
        json_close(j);
    }
    json_close(j);
}

/* --- CSV --- */

void table_csv(FILE *out, struct arena *a, const struct sweep_grid *s)
{
    char buffer[32];
    const char **lines;
    int32_t n_lines = table_lines(a, s, &lines);
    for (int32_t k = 0; k < s->n_axes; k++) {
        const struct axis *x = &s->axes[k];
        csv_put(out, *x->unit ? arena_printf(a, "%s [%s]", x->name, x->unit) : x->name);
        fputc(',', out);
    }
    for (int c = 0; c < TABLE_COLUMN_COUNT; c++) fprintf(out, "%s%s", c ? "," : "", columns[c]);
    for (int32_t k = 0; k < n_lines; k++) fprintf(out, ",%s_s,%s_progress", lines[k], lines[k]);
    fputc('\n', out);
    for (int64_t i = 0; i < s->n_points; i++) {
        const struct sweep_point *x = &s->points[i];
        if (!x->done) continue;
        for (int32_t k = 0; k < s->n_axes; k++)
            fprintf(out, "%s,", json_number(buffer, s->axes[k].values[x->at[k]]));
        for (int c = 0; c < TABLE_COLUMN_COUNT; c++) {
            double value = x->why ? NAN : number(x, (enum table_column)c);
            if (!is_number((enum table_column)c))
                csv_put(out, text(x, (enum table_column)c));
            else if (isfinite(value))
                fputs(json_number(buffer, value), out);
            if (c + 1 < TABLE_COLUMN_COUNT) fputc(',', out);
        }
        for (int32_t k = 0; k < n_lines; k++) {
            const struct sweep_line *l = table_line(x, lines[k]);
            fprintf(out, ",%s", l ? json_number(buffer, units_s_from_ns(l->ns)) : "");
            fprintf(out, ",%s", l ? json_number(buffer, l->progress) : "");
        }
        fputc('\n', out);
    }
}

void table_make(struct arena *a, const struct sweep_grid *s, struct sweep_table *out)
{
    struct table_axis *axes = ARENA_ARRAY(a, struct table_axis, (size_t)s->n_axes);
    double *at = ARENA_ARRAY(a, double, (size_t)s->n_points *(size_t)s->n_axes),
           *values = ARENA_ARRAY(a, double, (size_t)s->n_points *TABLE_plan);
    *out = (struct sweep_table){.n_axes = s->n_axes, .axes = axes, .at = at, .values = values};
    out->n_lines = table_lines(a, s, &out->lines);
    double *line_s = ARENA_ARRAY(a, double, (size_t)s->n_points *(size_t)out->n_lines + 1);
    out->line_s = line_s;
    for (int32_t k = 0; k < s->n_axes; k++)
        axes[k] = (struct table_axis){s->axes[k].name, s->axes[k].unit};
    for (int64_t i = 0; i < s->n_points; i++) {
        const struct sweep_point *x = &s->points[i];
        if (!x->done) continue;
        for (int32_t k = 0; k < s->n_axes; k++) *at++ = s->axes[k].values[x->at[k]];
        for (int c = 0; c < TABLE_plan; c++)
            *values++ = x->why ? NAN : number(x, (enum table_column)c);
        for (int32_t k = 0; k < out->n_lines; k++) {
            const struct sweep_line *l = table_line(x, out->lines[k]);
            *line_s++ = l ? units_s_from_ns(l->ns) / l->progress : NAN;
        }
        out->n_rows++;
    }
}

bool table_is(const char *path)
{
    char head[4096];
    size_t n = file_head(path, head, sizeof head - 1);
    head[n] = 0;
    head[strcspn(head, "\n")] = 0;
    const char *at = strstr(head, ",iteration_s,");
    return at && strstr(at, ",plan,strategy,why");
}

/* "link:lan [B/s]" */
static struct table_axis read_axis(struct arena *a, const char *head)
{
    const char *unit = strstr(head, " [");
    size_t n = strlen(head);
    if (!unit || head[n - 1] != ']') return (struct table_axis){head, ""};
    return (struct table_axis){arena_strndup(a, head, (size_t)(unit - head)),
                               arena_strndup(a, unit + 2, strlen(unit) - 3)};
}

/* An empty field: NAN. */
static enum status read_number(const char *path, int32_t line, const char *column, const char *field, double *out, struct error *err)
{
    *out = NAN;
    if (!*field || units_parse_number(field, out)) return OK;
    return error_set(err, ERR_INPUT, "%s:%d: %.60s '%.60s' is not a number", path, (int)line, column, field);
}

static enum status read_row(const char *path, int32_t line, char *const *fields, const struct sweep_table *t, double *at, double *values,
                            double *line_s, struct error *err)
{
    for (int32_t i = 0; i < t->n_axes; i++)
        if (!units_parse_number(fields[i], &at[i]))
            return error_set(err, ERR_INPUT, "%s:%d: '%.60s' is not a number", path, (int)line,
                             fields[i]);
    for (int c = 0; c < TABLE_plan; c++) {
        values[c] = NAN;
        if (is_number((enum table_column)c)) TRY(read_number(path, line, columns[c], fields[t->n_axes + c], &values[c], err));
    }
    for (int32_t k = 0; k < t->n_lines; k++) {
        double progress;
        char *const *field = &fields[t->n_axes + TABLE_COLUMN_COUNT + 2 * k];
        TRY(read_number(path, line, t->lines[k], field[0], &line_s[k], err));
        TRY(read_number(path, line, t->lines[k], field[1], &progress, err));
        line_s[k] /= progress;
    }
    return OK;
}

/* "NAME" of the columns NAME_s, NAME_progress; NULL: they are others. */
static const char *read_line_name(struct arena *a, const char *seconds, const char *progress)
{
    size_t n = strlen(seconds);
    if (n < 3 || strcmp(seconds + n - 2, "_s") != 0) return NULL;
    const char *name = arena_strndup(a, seconds, n - 2);
    return strcmp(progress, arena_printf(a, "%s_progress", name)) != 0 ? NULL : name;
}

/* Its names are printed, and written to SVG. */
static bool plain_head(char *const *fields, int n)
{
    for (int i = 0; i < n; i++)
        if (utf8_plain(fields[i], strlen(fields[i])) != strlen(fields[i])) return false;
    return true;
}

static bool read_head(struct arena *a, char *const *fields, int n, struct sweep_table *out)
{
    int n_axes = 0;
    while (n_axes < n && strcmp(fields[n_axes], columns[0]) != 0) n_axes++;
    int rest = n - n_axes - TABLE_COLUMN_COUNT;
    bool good = n_axes >= 1 && rest >= 0 && rest % 2 == 0;
    for (int c = 0; good && c < TABLE_COLUMN_COUNT; c++)
        good = !strcmp(fields[n_axes + c], columns[c]);
    if (!good) return false;
    struct table_axis *axes = ARENA_ARRAY(a, struct table_axis, (size_t)n_axes);
    for (int k = 0; k < n_axes; k++) axes[k] = read_axis(a, arena_strdup(a, fields[k]));
    *out = (struct sweep_table){.n_axes = n_axes, .axes = axes, .n_lines = rest / 2, .lines = ARENA_ARRAY(a, const char *, (size_t)rest + 1)};
    for (int32_t k = 0; k < out->n_lines && good; k++) {
        char *const *field = &fields[n_axes + TABLE_COLUMN_COUNT + 2 * k];
        out->lines[k] = read_line_name(a, field[0], field[1]);
        good = out->lines[k] != NULL;
    }
    return good;
}

enum status table_read(struct arena *a, const char *path, struct sweep_table *out,
                       struct error *err)
{
    char *text_of_file, *fields[FIELDS_MAX];
    size_t bytes;
    TRY(file_read(a, path, CSV_MAX, &text_of_file, &bytes, err));
    char *at = text_of_file;
    int n = csv_split(&at, fields, FIELDS_MAX);
    if (!plain_head(fields, n)) return error_set(err, ERR_INPUT, "%s:1: a name has a control character or is not UTF-8", path);
    if (!read_head(a, fields, n, out))
        return error_set(err, ERR_INPUT,
                         "%s:1: not a table of sweep: expected its axes, then %s to %s, then NAME_s and NAME_progress of each strategy", path,
                         columns[0], columns[TABLE_COLUMN_COUNT - 1]);
    size_t rows = 1, axes = (size_t)out->n_axes, lines = (size_t)out->n_lines;
    for (const char *c = at; *c; c++) rows += *c == '\n';
    double *places = ARENA_ARRAY(a, double, rows *axes), *values = ARENA_ARRAY(a, double, rows *TABLE_plan),
           *line_s = ARENA_ARRAY(a, double, rows *lines + 1);
    out->at = places, out->values = values, out->line_s = line_s;
    for (int32_t line = 2; *at; line++) {
        size_t row = (size_t)out->n_rows;
        if (csv_split(&at, fields, FIELDS_MAX) != n)
            return error_set(err, ERR_INPUT, "%s:%d: expected %d fields", path, (int)line, n);
        TRY(read_row(path, line, fields, out, places + row * axes, values + row * TABLE_plan, line_s + row * lines, err));
        out->n_rows++;
    }
    if (!out->n_rows) return error_set(err, ERR_INPUT, "%s: no rows", path);
    return OK;
}
