/* tools/print/kernels.h - table of operators and their CUDA kernels, for `show` and `compare`. */
#ifndef TOOLS_PRINT_KERNELS_H
#define TOOLS_PRINT_KERNELS_H

#include "core/document/json.h"
#include "traces/trace.h"

struct arena;

/* One row per kind of operator: number of spans, time, and its kernels if the trace has them. out: adds the list "operators" to
 * the open object; NULL: prints to stdout. */
void print_kernels(struct arena *a, const struct trace *t, struct json *out);

#endif
