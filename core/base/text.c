#include "core/base/text.h"

#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

FILE *text_begin(struct text *t)
{
    memset(t, 0, sizeof *t);
    t->stream = open_memstream(&t->buffer, &t->n);
    if (!t->stream) arena_exhausted(BUFSIZ);
    return t->stream;
}

char *text_end(struct arena *a, struct text *t, size_t *n)
{
    int failed = ferror(t->stream);
    if (fclose(t->stream) || failed) arena_exhausted(t->n); /* no other reason in memory */
    char *text = arena_strndup(a, t->buffer, t->n);
    free(t->buffer); /* open_memstream's, not the arena's */
    if (n) *n = t->n;
    memset(t, 0, sizeof *t);
    return text;
}
