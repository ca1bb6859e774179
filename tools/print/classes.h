/* tools/print/classes.h - many rows of which most are equal, one line a class.
 *
 * A row is a name and the text that is told of it. Rows of equal text are a class, with their names as ranges
 * (core/base/ranges.h). Few rows, and all where the user asks for them (--all), are printed one by one.
 */
#ifndef TOOLS_PRINT_CLASSES_H
#define TOOLS_PRINT_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum { PRINT_ROWS_ONE_BY_ONE = 16 };

struct print_class {
    const char *names; /* "n0-319.0-7" */
    const char *text;
    int32_t n, *rows; /* ascending */
};
/* In order of their first rows; returns their number. O(n log n). */
int32_t print_classes(struct arena *a, int32_t n, const char *const *names,
                      const char *const *texts, bool all, struct print_class **out);
/* "name     text", and behind it how many rows a class has: "(2560 devices)". */
void print_class_lines(const struct print_class *x, int32_t n, const char *what);

/* The row of the option, the same for all verbs that fold. */
#define OPTION_ALL                                                                                 \
    {                                                                                              \
        .name = "all", FLAG_AT(all), .help = "one row for each device and replica, equal ones too" \
    }

/* At most so many bytes of a text, whole characters, with "…" for the rest. */
const char *print_cut(struct arena *a, const char *text, size_t most);

#endif
