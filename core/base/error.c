#include "core/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char ellipsis[] = "\xE2\x80\xA6";

/* Cuts `text`, of which n bytes are there, so that the ellipsis follows a word. A word that fills the whole text is cut
 * between characters. */
static size_t cut_at_word(char *text, size_t size, size_t n)
{
    size_t room = size - sizeof ellipsis, end = n < room ? n : room;
    while (end && text[end] != ' ') end--;
    if (!end) end = n < room ? n : room;
    while (end && ((text[end] & 0xC0) == 0x80 || text[end - 1] == ' ')) end--;
    memcpy(text + end, ellipsis, sizeof ellipsis);
    return end + sizeof ellipsis - 1;
}

size_t error_format(char *out, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(out, size, fmt, ap);
    if (n >= 0 && (size_t)n < size) return (size_t)n;
    return cut_at_word(out, size, strlen(out));
}

/* Both format into a buffer of their own first, so that err->text itself may be an argument. */

enum status error_set(struct error *err, enum status code, const char *fmt, ...)
{
    if (!err) return code;
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    error_format(text, sizeof text, fmt, ap);
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
    size_t used = error_format(where, sizeof where, fmt, ap);
    va_end(ap);
    memcpy(cause, err->text, sizeof cause);
    cause[sizeof cause - 1] = 0;
    memcpy(err->text, where, used);
    size_t room = sizeof err->text - used, length = strlen(cause) + 2;
    int n = snprintf(err->text + used, room, ": %s", cause);
    if (n < 0 || length >= room) cut_at_word(err->text, sizeof err->text, strlen(err->text));
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
