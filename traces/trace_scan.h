/* traces/trace_scan.h - one line of a trace file into one span, fast and trusting nothing. */
#ifndef TRACES_TRACE_SCAN_H
#define TRACES_TRACE_SCAN_H

#include "core/base/error.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_scan; /* opaque; keeps one copy of each name in the trace's arena */

/* t: has its devices and n_stages, against which indices are checked; scratch: lives as long as the scanner. */
struct trace_scan *trace_scan_new(struct trace *t, struct arena *scratch);
/* n bytes, no newline. ERR_INPUT with the column or the field and what it should be. O(n). */
MUST_CHECK enum status trace_scan_span(struct trace_scan *s, const char *text, size_t n,
                                       struct span *out, struct error *err);
/* 16 hexadecimal digits, lower case. */
bool trace_scan_hex(const char *text, size_t n, uint64_t *out);

#endif
