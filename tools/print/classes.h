/* tools/print/classes.h - folded tables: rows of equal text are printed as one line, a class.
 *
 * A row is a name and a text. A class lists its names as ranges (core/base/ranges.h). Up to PRINT_ROWS_ONE_BY_ONE rows, and all
 * rows with --all, are printed one by one. Devices of a plan that form more than PRINT_CLASSES_MOST classes are folded more coarsely: one line a
 * stage of a class of replicas, or, if there are more than PRINT_CLASSES_MOST, a device type of a class of replicas, or a class of replicas.
 */
#ifndef TOOLS_PRINT_CLASSES_H
#define TOOLS_PRINT_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct plan;
struct program;

enum { PRINT_ROWS_ONE_BY_ONE = 16, PRINT_CLASSES_MOST = 16 };

struct print_class {
    const char *names; /* "n0-319.0-7" */
    const char *text;
    int32_t n, *rows; /* ascending */
};
/* *out: the classes in the order of their first rows; returns their number. O(n log n). */
int32_t print_classes(struct arena *a, int32_t n, const char *const *names,
                      const char *const *texts, bool all, struct print_class **out);
/* The same for the devices of a program, one row each. merge: the text of several rows with different texts, for a part of a class of
 * replicas (plan_classes), which is then named "replicas 0-15, stage 3:". */
typedef const char *print_merge(struct arena *a, const void *user, const int32_t *rows, int32_t n);
int32_t print_device_classes(struct arena *a, const struct plan *plan, const struct program *p,
                             const char *const *texts, print_merge *merge, const void *user,
                             bool all, struct print_class **out);
/* Prints "name     text" and the number of rows of a class: "(2560 devices)". */
void print_class_lines(const struct print_class *x, int32_t n, const char *what);

/* The option --all of every verb that folds. */
#define OPTION_ALL                                                                                 \
    {                                                                                              \
        .name = "all", FLAG_AT(all), .help = "print one row per device and replica, without merging equal ones" \
    }

/* The text cut to at most `most` bytes at a character boundary, "…" for the rest. */
const char *print_cut(struct arena *a, const char *text, size_t most);

#endif
