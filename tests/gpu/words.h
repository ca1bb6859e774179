/* tests/gpu/words.h - reads numbers in the lists of GPU programs; an error names the line and the valid range. */
#ifndef TESTS_GPU_WORDS_H
#define TESTS_GPU_WORDS_H

#include "core/base/error.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>

struct words { /* where a word stands */
    const char *list;
    int line; /* 1-based */
};

/* word: NULL where the line has ended. ERR_INPUT: no whole number from low to high. */
static inline enum status words_number(struct words at, const char *what, const char *word,
                                       int64_t low, int64_t high, int64_t *out, struct error *err)
{
    char *end = NULL;
    *out = word ? strtoll(word, &end, 10) : 0;
    if (word && end != word && !*end && *out >= low && *out <= high) return OK;
    return error_set(err, ERR_INPUT, "%s:%d: %s: '%s', expected a number from %" PRId64 " to %" PRId64,
                     at.list, at.line, what, word ? word : "", low, high);
}

#endif
