/* traces/trace_scan.h - fast, validating parser of one line of a trace file. */
#ifndef TRACES_TRACE_SCAN_H
#define TRACES_TRACE_SCAN_H

#include "core/base/error.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_scan; /* opaque; interns names in the trace's arena */

/* t: with devices and n_stages set, against which indices are checked; scratch: lives as long as the scanner. */
struct trace_scan *trace_scan_new(struct trace *t, struct arena *scratch);
/* n bytes, no newline. ERR_INPUT with column or field and the expected value. O(n). */
MUST_CHECK enum status trace_scan_span(struct trace_scan *s, const char *text, size_t n,
                                       struct span *out, struct error *err);
/* 16 hexadecimal digits, lower case. */
bool trace_scan_hex(const char *text, size_t n, uint64_t *out);

#endif
