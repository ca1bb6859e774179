/* Output of musher validate --plans. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/common.h"
#include "tools/validate/plans.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_share(struct json *j, const char *key, double share)
{
    if (isnan(share))
        json_put_null(j, key);
    else
        json_put_double(j, key, share);
}

static void put_row(struct json *j, const struct validated_row *r)
{
    json_put_object_line(j, NULL);
    json_put_text(j, "row", r->name);
    if (r->why) json_put_text(j, "not_predicted", r->why);
    if (r->note) json_put_text(j, "note", r->note);
    if (!r->why) {
        json_put_double(j, "predicted_s", r->seconds);
        put_share(j, "error_main", validated_error(r, VALIDATED_MAIN));
        put_share(j, "error_other", validated_error(r, VALIDATED_OTHER));
        put_share(j, "error_mean", validated_error(r, VALIDATED_MEAN));
        json_put_int(j, "predicted_bytes", r->bytes);
        put_share(j, "memory_error_main", validated_memory_error(r, VALIDATED_MAIN));
        put_share(j, "memory_error_other", validated_memory_error(r, VALIDATED_OTHER));
        put_share(j, "memory_error_mean", validated_memory_error(r, VALIDATED_MEAN));
    }
    json_close(j);
}

static void print_json(const struct validated_row *rows, const struct validated_summary *s)
{
    struct json j;
    common_json_begin(&j);
    json_put_list(&j, "rows");
    for (int32_t i = 0; i < s->rows; i++) put_row(&j, &rows[i]);
    json_close(&j);
    json_put_int(&j, "n_rows", s->rows);
    json_put_int(&j, "n_predicted", s->predicted);
    json_put_int(&j, "n_timed", s->timed);
    json_put_int(&j, "n_weighed", s->weighed);
    json_put_double(&j, "time_error_mean", s->time[VALIDATED_MEAN]);
    json_put_double(&j, "time_error_main", s->time[VALIDATED_MAIN]);
    json_put_double(&j, "time_error_other", s->time[VALIDATED_OTHER]);
    json_put_double(&j, "time_bias", s->time_bias);
    json_put_double(&j, "time_error_p90", s->time_p90);
    json_put_double(&j, "time_rank_correlation", s->time_rank);
    json_put_double(&j, "memory_error_mean", s->memory[VALIDATED_MEAN]);
    json_put_double(&j, "memory_error_main", s->memory[VALIDATED_MAIN]);
    json_put_double(&j, "memory_error_other", s->memory[VALIDATED_OTHER]);
    json_put_double(&j, "memory_bias", s->memory_bias);
    json_put_double(&j, "noise", s->noise);
    common_json_end(&j);
}

static const char *percent(char buffer[16], double share)
{
    if (isnan(share))
        snprintf(buffer, 16, "-");
    else
        snprintf(buffer, 16, "%+.1f", 100 * share);
    return buffer;
}

static void print_rows(const struct validated_row *rows, int32_t n)
{
    printf("%-36s %12s %6s %6s %6s   %12s %6s %6s\n", "errors in %", "predicted", "main", "other",
           "mean", "memory", "main", "mean");
    for (int32_t i = 0; i < n; i++) {
        const struct validated_row *r = &rows[i];
        char text[5][16], time[32], bytes[32];
        if (r->why) {
            printf("%-36s not predicted: %s\n", r->name, r->why);
            continue;
        }
        printf("%-36s %12s %6s %6s %6s   %12s %6s %6s%s%s\n", r->name,
               units_print_ns(time, units_ns_from_s(r->seconds)),
               percent(text[0], validated_error(r, VALIDATED_MAIN)),
               percent(text[1], validated_error(r, VALIDATED_OTHER)),
               percent(text[2], validated_error(r, VALIDATED_MEAN)),
               units_print_bytes(bytes, (double)r->bytes),
               percent(text[3], validated_memory_error(r, VALIDATED_MAIN)),
               percent(text[4], validated_memory_error(r, VALIDATED_MEAN)), r->note ? "  " : "",
               r->note ? r->note : "");
    }
}

static void print_text(const struct validated_row *rows, const struct validated_summary *s)
{
    print_rows(rows, s->rows);
    printf("%d rows, %d predicted\n", (int)s->rows, (int)s->predicted);
    if (s->timed)
        printf(
            "iteration time, %d rows: mean abs error %.1f %% against the mean of two runs (%.1f %% "
            "main, %.1f %% other), bias %+.1f %%, P90 %.1f %%, rank correlation %.3f; the runs "
            "differ by %.1f %%\n",
            (int)s->timed, 100 * s->time[VALIDATED_MEAN], 100 * s->time[VALIDATED_MAIN],
            100 * s->time[VALIDATED_OTHER], 100 * s->time_bias, 100 * s->time_p90, s->time_rank,
            100 * s->noise);
    if (s->weighed)
        printf("peak memory, %d rows: mean abs error %.1f %% (%.1f %% main, %.1f %% other), bias "
               "%+.1f %%\n",
               (int)s->weighed, 100 * s->memory[VALIDATED_MEAN], 100 * s->memory[VALIDATED_MAIN],
               100 * s->memory[VALIDATED_OTHER], 100 * s->memory_bias);
}

enum status validate_plans_print(struct arena *a, const char *csv, const char *db,
                                 const char *models, bool as_json, struct error *err)
{
    struct validated_row *rows;
    struct validated_summary summary;
    const char *slash = strrchr(db, '/');
    const char *folder = models  ? models
                         : slash ? arena_strndup(a, db, (size_t)(slash - db) + 1)
                                 : ".";
    TRY(validate_plans(a, csv, db, folder, &rows, &summary, err));
    if (as_json)
        print_json(rows, &summary);
    else
        print_text(rows, &summary);
    return OK;
}
