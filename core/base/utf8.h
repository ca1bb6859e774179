/* core/base/utf8.h - UTF-8 decoding of untrusted text, and its control characters. */
#ifndef CORE_BASE_UTF8_H
#define CORE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the well-formed UTF-8 sequence at s, of which n bytes may be read; 0: malformed (truncated,
 * overlong, a surrogate, beyond U+10FFFF). *code is the character, may be NULL. */
size_t utf8_next(const char *s, size_t n, uint32_t *code);

/* A character that controls a terminal or reorders the surrounding text: C0, DEL, C1 (U+009B is equivalent to ESC [), line
 * and paragraph separators, directional overrides and isolates. */
bool utf8_is_control(uint32_t c);
/* Bytes of s before its first control character or malformed sequence; n: none. */
size_t utf8_plain(const char *s, size_t n);

#endif
