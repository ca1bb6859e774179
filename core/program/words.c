/* core/program/words.c - words of a program file (core/program/words.h). */
#include "core/program/words.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status words_broken(const struct reader *r, const char *fmt, ...)
{
    char message[ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    error_format(message, sizeof message, fmt, ap);
    va_end(ap);
    return error_set(r->err, ERR_INPUT, "%s:%d: %s", r->file, r->line, message);
}

static bool ends_word(const struct reader *r)
{
    return r->at == r->end || *r->at == ' ' || *r->at == '\n';
}

static enum status get_word(struct reader *r, const char **word, size_t *n)
{
    while (r->at < r->end && *r->at == ' ') r->at++;
    *word = r->at;
    while (!ends_word(r)) r->at++;
    *n = (size_t)(r->at - *word);
    return *n ? OK : words_broken(r, "the line ends too soon");
}

enum status words_short(struct reader *r, char *buffer, size_t size)
{
    const char *word;
    size_t n;
    TRY(get_word(r, &word, &n));
    if (n >= size || memchr(word, 0, n))
        return words_broken(r, "'%.*s' is neither a number nor a known word", (int)(n < 40 ? n : 40), word);
    memcpy(buffer, word, n);
    buffer[n] = '\0';
    return OK;
}

enum status words_int64(struct reader *r, int64_t min, int64_t max, int64_t *out)
{
    char text[32], *end;
    TRY(words_short(r, text, sizeof text));
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (*end || errno || end == text) return words_broken(r, "'%s' is not an integer", text);
    if (x < min || x > max)
        return words_broken(r, "%s is not from %" PRId64 " to %" PRId64, text, min, max);
    *out = x;
    return OK;
}

enum status words_int(struct reader *r, int64_t min, int64_t max, int32_t *out)
{
    int64_t x = 0;
    TRY(words_int64(r, min, max, &x));
    *out = (int32_t)x;
    return OK;
}

enum status words_bool(struct reader *r, bool *out)
{
    int32_t x = 0;
    TRY(words_int(r, 0, 1, &x));
    *out = x;
    return OK;
}

enum status words_count(struct reader *r, int32_t *out)
{
    int64_t most = (r->end - r->at) / 2;
    return words_int(r, 0, most < PROGRAM_ITEMS_MAX ? most : PROGRAM_ITEMS_MAX, out);
}

enum status words_uint64(struct reader *r, int base, uint64_t *out)
{
    char text[32], *end;
    TRY(words_short(r, text, sizeof text));
    errno = 0;
    *out = strtoull(text, &end, base);
    return !isxdigit((unsigned char)*text) || *end || errno
               ? words_broken(r, "'%s' is not an integer", text)
               : OK;
}

enum status words_double(struct reader *r, double *out)
{
    char text[64];
    TRY(words_short(r, text, sizeof text));
    return units_parse_number(text, out) ? OK : words_broken(r, "'%s' is not a number", text);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

enum status words_name(struct reader *r, const char **out)
{
    const char *word;
    size_t n, k = 0;
    TRY(get_word(r, &word, &n));
    char *name = arena_alloc(r->a, n + 1, 1);
    if (n == 1 && *word == '%') n = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)word[i];
        if (c == '%') {
            c = i + 2 < n && hex(word[i + 1]) >= 0 && hex(word[i + 2]) >= 0
                    ? hex(word[i + 1]) * 16 + hex(word[i + 2])
                    : 0;
            i += 2;
        } else if (c < ' ' || c == 0x7f) {
            c = 0;
        }
        if (!c) return words_broken(r, "a name with a byte that is not allowed");
        name[k++] = (char)c;
    }
    *out = name;
    return OK;
}

enum status words_choice(struct reader *r, const char *const *names, int n, int *out)
{
    char text[64];
    TRY(words_short(r, text, sizeof text));
    for (*out = 0; *out < n; (*out)++)
        if (!strcmp(text, names[*out])) return OK;
    return words_broken(r, "unknown word '%s'", text);
}

enum status words_phase(struct reader *r, const char *allowed, enum phase *out)
{
    char text[8];
    TRY(words_short(r, text, sizeof text));
    if (text[1] || !strchr(allowed, *text))
        return words_broken(r, "'%s' is not one of %s", text, allowed);
    *out = (enum phase) * text;
    return OK;
}

enum status words_dtype(struct reader *r, enum dtype *out)
{
    char text[32];
    TRY(words_short(r, text, sizeof text));
    return dtype_parse(text, out) ? OK : words_broken(r, "unknown dtype '%s'", text);
}

enum status words_list(struct reader *r, int32_t n, int64_t max, int32_t *out)
{
    for (int32_t i = 0; i < n; i++) TRY(words_int(r, -1, max, &out[i]));
    return OK;
}

enum status words_shape(struct reader *r, struct shape *s)
{
    *s = (struct shape){0};
    TRY(words_int(r, 0, SHAPE_RANK_MAX, &s->rank));
    for (int32_t i = 0; i < s->rank; i++) TRY(words_int64(r, 0, INT64_C(1) << 40, &s->dim[i]));
    return OK;
}

bool words_next_is(const struct reader *r, const char *word)
{
    const char *at = r->at + (r->line > 0);
    size_t n = strlen(word);
    return at < r->end && (size_t)(r->end - at) > n && !strncmp(at, word, n) &&
           (at[n] == ' ' || at[n] == '\n');
}

enum status words_start(struct reader *r, const char *word)
{
    char text[32];
    if (r->line && (r->at == r->end || *r->at != '\n'))
        return words_broken(r, r->at == r->end ? "the file ends too soon" : "too many words");
    r->at += r->line > 0;
    r->line++;
    if (r->at == r->end) return words_broken(r, "the file ends too soon, '%s' was expected", word);
    TRY(words_short(r, text, sizeof text));
    return strcmp(text, word) ? words_broken(r, "'%s' was expected, not '%s'", word, text) : OK;
}
