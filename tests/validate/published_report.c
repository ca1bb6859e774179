#include "tests/validate/published_report.h"

#include "core/base/arena.h"
#include "sim/explain/footprint.h"
#include "tests/validate/published_internal.h"
#include "tools/common.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double HALF_WITH_SUMS = 18; /* bytes per parameter, footprint_parameters */

/* File names of the predicted tables; the folder's other tables have other data. */
static const char *const tables[] = {"megatron_sc21_table1.csv", "korthikanti_mlsys23_table5.csv",
                                     "vtrain_ground_truth_single.csv",
                                     "zero_bubble_tables_3_4_5_9.csv"};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Rows are identified by content, not by file name. (n_rows of c): true if a training row is equal. */
static enum status find_trained(struct arena *a, const struct csv *c,
                                const struct published_fit *fit, const char *trained_on,
                                const bool **out, int32_t *n, struct error *err)
{
    struct csv t;
    bool *trained = ARENA_ARRAY(a, bool, (size_t)c->n_rows + 1);
    *out = trained, *n = 0;
    if (!fit->every) return OK;
    TRY(csv_read(a, trained_on, &t, err));
    for (int32_t i = 0; i < c->n_rows && t.n_columns == c->n_columns; i++)
        for (int32_t k = 0; k < t.n_rows && !trained[i]; k += fit->every) {
            int32_t same = 0;
            while (same < c->n_columns &&
                   !strcmp(c->field[i * c->n_columns + same], t.field[k * t.n_columns + same]))
                same++;
            trained[i] = same == c->n_columns;
            *n += trained[i];
        }
    return OK;
}

/* --- rows that are plans --- */

/* Subsets of rows that are reported separately, because the overall mean would hide their errors. */
static const char *part_of(struct arena *a, enum published_format f, const struct published_row *r)
{
    if (f == PUBLISHED_KORTHIKANTI)
        return r->recompute == RECOMPUTE_BLOCKS ? "full recomputation" : "less recomputation";
    return arena_printf(a, "tensor parallel %" PRId64, r->tp);
}

static const char *label_of(struct arena *a, const struct published_row *r)
{
    return arena_printf(
        a, "%s t%" PRId64 " p%" PRId64 "x%" PRId64 " d%" PRId64 " b%" PRId64 "/%" PRId64 "%s",
        r->name, r->tp, r->stages, r->chunks, r->replicas, r->microbatch, r->global_batch,
        r->recompute == RECOMPUTE_BLOCKS      ? " full"
        : r->recompute == RECOMPUTE_SELECTIVE ? " selective"
                                              : "");
}

/* The paper's own figures of one GPU beside the closed forms. */
static void add_memory(struct arena *a, const struct published_row *r, int32_t line,
                       struct published_report *out)
{
    struct footprint_step s = {.block = {.sequence = r->sequence,
                                         .microbatch = r->microbatch,
                                         .hidden = r->hidden,
                                         .heads = r->heads,
                                         .tp = (int32_t)r->tp},
                               .layers = r->layers,
                               .stages = r->stages,
                               .chunks = r->chunks};
    struct footprint_step selective = s;
    selective.block.recompute = RECOMPUTE_SELECTIVE;
    selective.block.sequence_parallel = true;
    const struct {
        const char *name;
        double measured, predicted;
    } rows[] = {
        {"parameters and states", r->parameters_bytes, footprint_parameters(&s, HALF_WITH_SUMS)},
        {"activations", r->activations_none_bytes, footprint_activations(&s)},
        {"activations, selective", r->activations_selective_bytes,
         footprint_activations(&selective)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].measured > 0)
            out->memory[out->n_memory++] =
                (struct published_line){.line = line,
                                        .name = arena_printf(a, "%s %s", r->name, rows[i].name),
                                        .part = rows[i].name,
                                        .measured = rows[i].measured,
                                        .predicted = rows[i].predicted};
}

static enum status predict_rows(struct arena *a, const struct csv *c, enum published_format f,
                                const struct published_fit *fit, const bool *trained, int32_t every,
                                struct published_report *out, struct error *err)
{
    struct arena *scratch = arena_new();
    enum status status = OK;
    out->lines = ARENA_ARRAY(a, struct published_line, (size_t)c->n_rows);
    out->memory = ARENA_ARRAY(a, struct published_line, 3 * (size_t)c->n_rows);
    for (int32_t i = 0; i < c->n_rows && status == OK; i += every) {
        struct published_row *row = ARENA_ARRAY(a, struct published_row, 1);
        struct published_case one;
        struct error why = {0};
        double seconds = NAN;
        status = published_row(a, c, f, i, row, err);
        if (status != OK) break;
        enum status laid = published_case(scratch, row, fit, &one, &why);
        if (laid == OK) laid = published_seconds(&one, fit, &seconds, &why);
        out->n_without += laid != OK;
        out->lines[out->n++] =
            (struct published_line){.line = c->line[i],
                                    .name = label_of(a, row),
                                    .part = part_of(a, f, row),
                                    .measured = row->measured_s,
                                    .predicted = seconds,
                                    .trained = trained[i],
                                    .why = laid != OK ? arena_strdup(a, why.text) : NULL};
        add_memory(a, row, c->line[i], out);
        arena_reset(scratch);
    }
    arena_free(scratch);
    return status;
}

static enum status predict_parts(struct arena *a, const struct csv *c,
                                 const struct published_fit *fit, const bool *trained,
                                 int32_t every, struct published_report *out, struct error *err)
{
    int32_t schedules = published_parts_schedules();
    size_t cells = (size_t)schedules * (size_t)c->n_rows;
    out->lines = ARENA_ARRAY(a, struct published_line, cells);
    out->memory = ARENA_ARRAY(a, struct published_line, cells);
    for (int32_t row = 0; row < c->n_rows; row += every)
        for (int32_t s = 0; s < schedules; s++) {
            struct published_case one;
            struct published_line *line = &out->lines[out->n],
                                  *memory = &out->memory[out->n_memory];
            bool measured;
            TRY(published_parts_case(a, c, row, s, &one, line, memory, &measured, err));
            if (!measured) continue;
            TRY(published_seconds(&one, fit, &line->predicted, err));
            line->trained = trained[row];
            out->n++;
            out->n_memory += memory->measured > 0;
        }
    return OK;
}

enum status published_report_training(struct arena *a, const char *table,
                                      const struct published_fit *fit, struct published_case **out,
                                      int32_t *n, struct error *err)
{
    struct csv *c = ARENA_ARRAY(a, struct csv, 1);
    enum published_format f;
    TRY(csv_read(a, table, c, err));
    TRY(published_recognise(c, &f, err));
    bool parts = f == PUBLISHED_ZERO_BUBBLE;
    int32_t cells = parts ? published_parts_schedules() : 1;
    *out = ARENA_ARRAY(a, struct published_case, (size_t)cells * (size_t)c->n_rows);
    *n = 0;
    for (int32_t i = 0; i < c->n_rows; i += fit->every) {
        struct published_row *row = ARENA_ARRAY(a, struct published_row, 1);
        struct published_line line, memory;
        if (!parts) {
            TRY(published_row(a, c, f, i, row, err));
            TRY(published_case(a, row, fit, &(*out)[(*n)++], err));
        }
        for (int32_t s = 0; s < cells && parts; s++) {
            bool measured;
            TRY(published_parts_case(a, c, i, s, &(*out)[*n], &line, &memory, &measured, err));
            *n += measured;
        }
    }
    return OK;
}

/* Leave-one-out errors of the training rows. */
static enum status leave_out(struct arena *a, const char *table, const struct published_fit *fit,
                             double *out, struct error *err)
{
    struct published_case *cases;
    struct published_fit copy = *fit;
    int32_t n;
    TRY(published_report_training(a, table, fit, &cases, &n, err));
    double *ratio = ARENA_ARRAY(a, double, (size_t)n);
    TRY(published_fit(cases, n, &copy, 0, ratio, err));
    *out = 0;
    for (int32_t i = 0; i < n; i++) *out += fabs(exp(ratio[i]) - 1) / n;
    return OK;
}

/* --- scores --- */

/* Scores of the rows of a subset (NULL: all); held: without the training rows. */
static struct published_score score_of(struct arena *a, const struct published_line *lines,
                                       int32_t n, const char *part, bool held)
{
    double *predicted = ARENA_ARRAY(a, double, (size_t)n),
           *measured = ARENA_ARRAY(a, double, (size_t)n);
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        if ((part && strcmp(part, lines[i].part) != 0) || (held && lines[i].trained) ||
            lines[i].why)
            continue;
        predicted[used] = lines[i].predicted;
        measured[used++] = lines[i].measured;
    }
    return published_score(a, predicted, measured, used);
}

static void score(struct arena *a, struct published_report *r)
{
    r->all = score_of(a, r->lines, r->n, NULL, false);
    r->held = score_of(a, r->lines, r->n, NULL, true);
    r->memory_score = score_of(a, r->memory, r->n_memory, NULL, false);
    for (int32_t i = 0; i < r->n; i++) {
        int32_t k = 0;
        while (k < r->n_parts && strcmp(r->parts[k].name, r->lines[i].part) != 0) k++;
        if (k < r->n_parts || k == PUBLISHED_PARTS_MAX) continue;
        r->parts[r->n_parts++].name = r->lines[i].part;
    }
    for (int32_t k = 0; k < r->n_parts; k++)
        r->parts[k].score = score_of(a, r->lines, r->n, r->parts[k].name, true);
}

enum status published_report_evaluate(struct arena *a, const char *table, const char *fits,
                                      int32_t every, struct published_report *out,
                                      struct error *err)
{
    struct csv c;
    enum published_format f;
    struct published_fit fit;
    TRY(csv_read(a, table, &c, err));
    TRY(published_recognise(&c, &f, err));
    TRY(published_fit_read(a, fits, f == PUBLISHED_ZERO_BUBBLE ? "zero-bubble-1" : "a100-1", &fit,
                           err));
    const char *trained_on = arena_printf(a, "%.*s%s", (int)(base_name(fits) - fits), fits,
                                          fit.every ? fit.trained_on : "");
    const bool *trained;
    int32_t n_trained;
    TRY(find_trained(a, &c, &fit, trained_on, &trained, &n_trained, err));
    *out = (struct published_report){.file = table,
                                     .format = published_format_name(f),
                                     .fit = fit.prior.fit,
                                     .trains = n_trained > 0,
                                     .every = every,
                                     .left_out = NAN};
    if (f == PUBLISHED_ZERO_BUBBLE)
        TRY(predict_parts(a, &c, &fit, trained, every, out, err));
    else
        TRY(predict_rows(a, &c, f, &fit, trained, every, out, err));
    if (out->trains && every == 1) TRY(leave_out(a, trained_on, &fit, &out->left_out, err));
    score(a, out);
    return OK;
}

/* --- printing --- */

static double percent(double ratio) { return 100 * ratio; }

static void print_score(const char *what, const struct published_score *s)
{
    if (!s->n) return;
    printf("  %-28s %4" PRId32 " rows: MAPE %5.2f %%, bias %+6.2f %%, P90 %5.2f %%, most %5.2f %%",
           what, s->n, percent(s->mape), percent(s->bias), percent(s->p90), percent(s->most));
    if (!isnan(s->spearman)) printf(", rank correlation %.4f", s->spearman);
    putchar('\n');
}

static void print_fit(const struct published_fit *f)
{
    printf("fit %s: ", f->prior.fit);
    for (int32_t i = 0; i < f->n_fitted; i++)
        printf("%s%s %.6g", i ? ", " : "", f->fitted[i],
               *published_constant((struct published_fit *)f, f->fitted[i]));
    printf("; trained on every %" PRId32 ". row of %s, from the first\n", f->every, f->trained_on);
}

static void print_report(const struct published_report *r)
{
    printf("%s (%s), fit %s%s\n", base_name(r->file), r->format, r->fit,
           r->trains ? ", * trained on" : ", trained on none of these rows");
    for (int32_t i = 0; i < r->n; i++) {
        const struct published_line *l = &r->lines[i];
        if (l->why) {
            printf("  %4" PRId32 "   %-40s not predicted: %s\n", l->line, l->name, l->why);
            continue;
        }
        printf("  %4" PRId32 " %c %-40s measured %10.4f s, predicted %10.4f s, %+6.2f %%\n",
               l->line, l->trained ? '*' : ' ', l->name, l->measured, l->predicted,
               percent(l->predicted / l->measured - 1));
    }
    for (int32_t i = 0; i < r->n_memory; i++) {
        const struct published_line *l = &r->memory[i];
        printf("  %4" PRId32 "   %-40s published %8.4f GiB, computed %8.4f GiB, %+6.2f %%\n",
               l->line, l->name, l->measured / 1073741824.0, l->predicted / 1073741824.0,
               percent(l->predicted / l->measured - 1));
    }
    if (r->n_without) printf("  %" PRId32 " rows not predicted, in no figure\n", r->n_without);
    print_score(r->trains ? "all, training included" : "all", &r->all);
    if (r->trains) print_score("held out", &r->held);
    if (!isnan(r->left_out))
        printf("  %-28s MAPE %5.2f %%\n", "rows of training, left out", percent(r->left_out));
    for (int32_t i = 0; i < r->n_parts; i++) print_score(r->parts[i].name, &r->parts[i].score);
    print_score("memory", &r->memory_score);
}

static void put_score(struct json *j, const char *key, const struct published_score *s)
{
    json_put_object_line(j, key);
    json_put_int(j, "rows", s->n);
    json_put_double(j, "mape", s->mape);
    json_put_double(j, "bias", s->bias);
    json_put_double(j, "p90", s->p90);
    json_put_double(j, "most", s->most);
    json_put_double(j, "spearman", s->spearman);
    json_close(j);
}

static void put_lines(struct json *j, const char *key, const struct published_line *lines,
                      int32_t n)
{
    json_put_list(j, key);
    for (int32_t i = 0; i < n; i++) {
        json_put_object_line(j, NULL);
        json_put_int(j, "line", lines[i].line);
        json_put_text(j, "name", lines[i].name);
        json_put_text(j, "part", lines[i].part);
        json_put_double(j, "measured", lines[i].measured);
        json_put_double(j, "predicted", lines[i].predicted);
        json_put_double(j, "error", lines[i].predicted / lines[i].measured - 1);
        json_put_bool(j, "trained", lines[i].trained);
        if (lines[i].why) json_put_text(j, "not_predicted", lines[i].why);
        json_close(j);
    }
    json_close(j);
}

static void put_report(struct json *j, const struct published_report *r)
{
    json_put_object(j, NULL);
    json_put_text(j, "file", base_name(r->file));
    json_put_text(j, "format", r->format);
    json_put_text(j, "fit", r->fit);
    json_put_bool(j, "trained_on_some", r->trains);
    json_put_int(j, "not_predicted", r->n_without);
    put_score(j, "all", &r->all);
    put_score(j, "held_out", &r->held);
    json_put_double(j, "left_out_mape", r->left_out);
    json_put_object(j, "parts");
    for (int32_t i = 0; i < r->n_parts; i++) put_score(j, r->parts[i].name, &r->parts[i].score);
    json_close(j);
    put_score(j, "memory", &r->memory_score);
    put_lines(j, "rows", r->lines, r->n);
    put_lines(j, "memory_rows", r->memory, r->n_memory);
    json_close(j);
}

static bool is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* fits.csv is beside the tables; for a table of another folder, that of the published tables. */
static const char *find_fits(struct arena *a, const char *table)
{
    const char *fits = arena_printf(a, "%.*sfits.csv", (int)(base_name(table) - table), table);
    return is_file(fits) ? fits : PUBLISHED_FOLDER "/fits.csv";
}

static enum status print_fits(struct arena *a, const char *fits, struct error *err)
{
    static const char *const ids[] = {"a100-1", "zero-bubble-1"};
    for (int i = 0; i < 2; i++) {
        struct published_fit fit;
        TRY(published_fit_read(a, fits, ids[i], &fit, err));
        print_fit(&fit);
    }
    return OK;
}

enum status validate_published(struct arena *a, const char *folder_or_table, bool json,
                               struct error *err)
{
    struct published_report reports[sizeof tables / sizeof *tables];
    struct stat s;
    int32_t n = 0;
    bool folder = stat(folder_or_table, &s) == 0 && S_ISDIR(s.st_mode);
    const char *fits = arena_printf(a, "%s/fits.csv", folder_or_table);
    if (!folder) fits = find_fits(a, folder_or_table);
    if (!folder) TRY(published_report_evaluate(a, folder_or_table, fits, 1, &reports[n++], err));
    for (size_t i = 0; folder && i < sizeof tables / sizeof *tables; i++)
        TRY(published_report_evaluate(a, arena_printf(a, "%s/%s", folder_or_table, tables[i]), fits,
                                      1, &reports[n++], err));
    if (!json) {
        TRY(print_fits(a, fits, err));
        for (int32_t i = 0; i < n; i++) print_report(&reports[i]);
        return OK;
    }
    struct json j;
    common_json_begin(&j);
    json_put_list(&j, "tables");
    for (int32_t i = 0; i < n; i++) put_report(&j, &reports[i]);
    json_close(&j);
    common_json_end(&j);
    return OK;
}
