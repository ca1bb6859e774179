/* exec/kernel_name.h - what a kernel's symbol is to people.
 *
 * Profilers tell symbols as the C++ compiler made them (Itanium's rules). Of one the function's name and its template arguments are
 * wanted, as far as they are plain: types by name, numbers, truth values; not the parameters, and not the namespaces that nvcc makes
 * for a file. Where it is not plain the rest is "...". The C++ library's own demangler was rejected: it tells all of it, lines long
 * for a matrix product, and is no part of what a C program is linked with.
 */
#ifndef EXEC_KERNEL_NAME_H
#define EXEC_KERNEL_NAME_H

#include <stddef.h>

enum { KERNEL_NAME_MAX = 160 };

/* "_Z4rowsIfLi4EEvPKf" → "rows<float, 4>"; a name that is no such symbol as it is, without parentheses around all of it. Printable
 * ASCII in any case, cut to n - 1 characters. Returns out. */
const char *kernel_name(const char *symbol, char *out, size_t n);

#endif
