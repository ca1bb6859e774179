/* tests/validate/published_report.h - prediction errors against published measurements.
 *
 * Errors are (predicted - measured) / measured. MAPE: their mean without sign; bias: with it; P90: nearest rank; rank
 * correlation: Spearman's, ties share ranks. `held` excludes the rows that a fit was trained on; `left_out` is the leave-one-out
 * MAPE of those rows (tests/validate/published.h). Tests assert the present figures as upper limits.
 */
#ifndef TESTS_VALIDATE_PUBLISHED_REPORT_H
#define TESTS_VALIDATE_PUBLISHED_REPORT_H

#include "core/base/error.h"
#include "tests/validate/published.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct published_score {
    int32_t n;
    double mape, bias, p90, most, spearman; /* NAN of no rows; spearman of fewer than 3 */
};
/* predicted, measured: (n), > 0. O(n log n). */
struct published_score published_score(struct arena *a, const double *predicted,
                                       const double *measured, int32_t n);

struct published_line { /* one prediction */
    int32_t line;       /* of the file */
    const char *name, *part;
    double measured, predicted; /* seconds of an iteration, or bytes; predicted NAN: see why */
    bool trained;
    const char *why; /* reason if the row cannot be predicted; else NULL */
};
struct published_part {
    const char *name;
    struct published_score score;
};
enum { PUBLISHED_PARTS_MAX = 16 };
struct published_report {
    const char *file, *format, *fit;
    bool trains;   /* the fit was trained on some of these rows */
    int32_t every; /* only rows 1, 1 + every … were predicted */
    int32_t n;
    struct published_line *lines;
    int32_t n_without; /* lines without a prediction, in no score */
    struct published_score all, held;
    double left_out; /* NAN where it was not asked for */
    int32_t n_parts;
    struct published_part parts[PUBLISHED_PARTS_MAX]; /* of the rows that were held out */
    int32_t n_memory;
    struct published_line *memory; /* bytes of one GPU, closed form (sim/explain/footprint) */
    struct published_score memory_score;
};
/* The training rows of a fit. */
MUST_CHECK enum status published_report_training(struct arena *a, const char *table,
                                                 const struct published_fit *fit,
                                                 struct published_case **out, int32_t *n,
                                                 struct error *err);
/* Predicts every `every`-th row of a table, from the first; 1: all. fits: path of fits.csv. */
MUST_CHECK enum status published_report_evaluate(struct arena *a, const char *table,
                                                 const char *fits, int32_t every,
                                                 struct published_report *out, struct error *err);
/* Folder of the tables and fits.csv, from the root of the tree. */
#define PUBLISHED_FOLDER "tests/validate/published"
/* Prints to stdout the reports of all predicted tables of a folder, or of one table. */
MUST_CHECK enum status validate_published(struct arena *a, const char *folder_or_table, bool json,
                                          struct error *err);

#endif
