#include "core/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both format into a buffer of their own first, so that err->text itself may be an argument. */

enum status error_set(struct error *err, enum status code, const char *fmt, ...)
{
    if (!err) return code;
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(err->text, text, sizeof text);
    err->code = code;
    return code;
}

enum status error_wrap(struct error *err, enum status code, const char *fmt, ...)
{
    if (!err) return code;
    /* The context may take half of the room, so that the cause stays readable. */
    char where[sizeof err->text / 2], cause[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    memcpy(cause, err->text, sizeof cause);
    cause[sizeof cause - 1] = 0;
    size_t used = strlen(where), room = sizeof err->text - used;
    memcpy(err->text, where, used);
    int n = snprintf(err->text + used, room, ": %s", cause);
    (void)n; /* a cause that does not fit is cut at the end */
    err->code = code;
    return code;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    fprintf(stderr, "BUG at %s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
