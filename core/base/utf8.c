#include "core/base/utf8.h"

/* The Unicode Standard, table 3-7: the second byte carries all the special cases. */
size_t utf8_next(const char *s, size_t n, uint32_t *code)
{
    const unsigned char *b = (const unsigned char *)s;
    if (!n) return 0;
    uint32_t c = b[0], low = 0x80, high = 0xBF;
    size_t length;
    if (c < 0x80) {
        if (code) *code = c;
        return 1;
    }
    if (c >= 0xC2 && c <= 0xDF) {
        length = 2;
        c &= 0x1F;
    } else if (c >= 0xE0 && c <= 0xEF) {
        length = 3;
        if (c == 0xE0) low = 0xA0;
        if (c == 0xED) high = 0x9F;
        c &= 0x0F;
    } else if (c >= 0xF0 && c <= 0xF4) {
        length = 4;
        if (c == 0xF0) low = 0x90;
        if (c == 0xF4) high = 0x8F;
        c &= 0x07;
    } else
        return 0;
    if (n < length || b[1] < low || b[1] > high) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (b[i] & 0x3F);
    }
    if (code) *code = c;
    return length;
}

bool utf8_is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

size_t utf8_plain(const char *s, size_t n)
{
    uint32_t c = 0;
    size_t i = 0;
    for (size_t length; i < n; i += length)
        if (!(length = utf8_next(s + i, n - i, &c)) || utf8_is_control(c)) break;
    return i;
}
