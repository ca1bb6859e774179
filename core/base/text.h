/* core/base/text.h - a string built as a stream and returned in an arena.
 *
 *     struct text t;
 *     FILE *out = text_begin(&t);
 *     fprintf(out, ...);
 *     char *whole = text_end(a, &t, NULL);
 */
#ifndef CORE_BASE_TEXT_H
#define CORE_BASE_TEXT_H

#include <stddef.h>
#include <stdio.h>

struct arena;

struct text {
    FILE *stream;
    char *buffer; /* libc's, until text_end */
    size_t n;
};

FILE *text_begin(struct text *t);
char *text_end(struct arena *a, struct text *t,
               size_t *n); /* *n: bytes before the 0; may be NULL */

#endif
