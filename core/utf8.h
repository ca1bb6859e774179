/* core/utf8.h - which bytes are a character, asked by whoever reads or prints foreign text. */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the well-formed UTF-8 sequence at s, of which n bytes may be read; 0 where there
 * is none: cut short, overlong, a surrogate, beyond U+10FFFF. *code is the character, may be NULL. */
size_t utf8_next(const char *s, size_t n, uint32_t *code);

#endif
