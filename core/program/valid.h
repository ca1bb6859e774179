/* core/program/valid.h - what the files of the validation share; for core/program/valid*.c alone. */
#ifndef CORE_PROGRAM_VALID_H
#define CORE_PROGRAM_VALID_H

#include "core/program/internal.h"

enum { VALID_ALIGN_BYTES = 64 };

struct valid {
    const struct program *p;
    const struct program_stage *s; /* the stage at hand */
    struct program_place where;
    struct error *err;
};

enum status valid_complain(const struct valid *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) return valid_complain(c, __VA_ARGS__);                                   \
    } while (0)

static inline bool valid_index(int64_t i, int64_t n) { return i >= 0 && i < n; }
static inline bool valid_index_or_none(int64_t i, int64_t n) { return i >= -1 && i < n; }

/* A group of the program: indices, sizes, links, classes and dtypes of what it sums or gathers. */
MUST_CHECK enum status valid_collective(struct valid *c, int32_t index);

#endif
