/* exec/kernel_name.h - readable names of kernels from their mangled symbols.
 *
 * Profilers report symbols as mangled by the C++ compiler (Itanium ABI). The readable name is the function and its
 * template arguments if they are plain: named types, numbers, booleans. Parameters, and the namespaces that nvcc
 * generates per file, are dropped. Anything else becomes "...". Rejected: the C++ library's demangler, because its
 * output is several lines for a matrix product and a C program does not link it.
 */
#ifndef EXEC_KERNEL_NAME_H
#define EXEC_KERNEL_NAME_H

#include <stddef.h>

enum { KERNEL_NAME_MAX = 160 };

/* "_Z4rowsIfLi4EEvPKf" → "rows<float, 4>". Other names are copied without enclosing parentheses. The result is
 * printable ASCII, cut to n - 1 characters. Returns out. */
const char *kernel_name(const char *symbol, char *out, size_t n);

#endif
