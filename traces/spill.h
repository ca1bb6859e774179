/* traces/spill.h - spans that exceed a memory window: sorted runs in an unnamed file, merged when the trace is written.
 *
 * An external merge sort (Knuth, The Art of Computer Programming 3, 5.4). Spans of one run are stored as differences from the one
 * before, about 25 bytes each. The file has no name, so it disappears however the process ends. Memory: 32 KiB per run.
 */
#ifndef TRACES_SPILL_H
#define TRACES_SPILL_H

#include "traces/trace.h"

struct spill; /* opaque */

/* The file is created in the folder of `beside`; in TMPDIR or /tmp if that folder supports no unnamed file or beside is "-". */
struct spill *spill_new(struct arena *a, const char *beside);
void spill_run(struct spill *s, const struct span *spans, size_t n); /* in the order of the file */
size_t spill_spans(const struct spill *s);
/* to[device]: its new number, ascending; -1: drops spans of this device or with this peer. At most once per spill; reads all of it. */
void spill_renumber(struct spill *s, const int32_t *to, int32_t n_devices);
int spill_error(const struct spill *s); /* errno of the first failure; 0: none */
void spill_close(struct spill *s);      /* NULL: no effect */

/* Merges the runs with `tail`, (n_tail) spans added after all runs and sorted by `order` (n_tail; NULL: already sorted). Calls put for
 * each span. */
void spill_merge(struct spill *s, const struct span *tail, const size_t *order, size_t n_tail,
                 void (*put)(void *to, const struct span *x), void *to);

#endif
