/* tools/print/kernels.h - what ran in operators, as `show` and `compare` tell it. */
#ifndef TOOLS_PRINT_KERNELS_H
#define TOOLS_PRINT_KERNELS_H

#include "core/document/json.h"
#include "traces/trace.h"

struct arena;

/* A table by kind of operator: a column of what ran where the trace has kernels. out: a list "operators" of the open object; NULL:
 * to stdout. */
void print_kernels(struct arena *a, const struct trace *t, struct json *out);

#endif
