/* traces/export_chrome.h - a trace as Chrome trace JSON, for Perfetto and chrome://tracing.
 *
 * A process is a device, a thread a stream. Messages have one thread per peer, and more if they overlap (a message
 * occupies its link until it has left and arrives a latency later), because events of one thread must nest. Flow arrows
 * lead from a send to its receive; the end of each step is an instant event. Times are microseconds with three decimals: exact.
 */
#ifndef TRACES_EXPORT_CHROME_H
#define TRACES_EXPORT_CHROME_H

#include "core/base/error.h"
#include "traces/trace.h"

/* ERR_RESOURCE if the file cannot be written. O(n log n) in spans. */
MUST_CHECK enum status export_chrome(const struct trace *t, const char *path, struct error *err);

#endif
