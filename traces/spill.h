/* traces/spill.h - spans beyond a window of memory: sorted runs in an unnamed file, merged when the trace is written.
 *
 * An external merge sort (Knuth, The Art of Computer Programming 3, 5.4). Spans of one run are stored as differences from the one
 * before, about 25 bytes each. The file has no name, so nothing is left of it however the process ends. Memory: 32 KiB a run.
 */
#ifndef TRACES_SPILL_H
#define TRACES_SPILL_H

#include "traces/trace.h"

struct spill; /* opaque */

/* beside: the file in whose folder there is room; where that folder takes no unnamed file, or beside is "-", TMPDIR or /tmp does. */
struct spill *spill_new(struct arena *a, const char *beside);
void spill_run(struct spill *s, const struct span *spans, size_t n); /* in the order of the file */
size_t spill_spans(const struct spill *s);
/* to[device]: its number from now on, ascending, or -1: spans of it, or with such a peer, are left out. Once a spill; reads it through. */
void spill_renumber(struct spill *s, const int32_t *to, int32_t n_devices);
int spill_error(const struct spill *s); /* errno of the first failure; 0: none */
void spill_close(struct spill *s);      /* NULL is fine */

/* Merged with `tail`, (n_tail) spans behind all runs, sorted through order (n_tail; NULL: as they are). Calls put for each span. */
void spill_merge(struct spill *s, const struct span *tail, const size_t *order, size_t n_tail,
                 void (*put)(void *to, const struct span *x), void *to);

#endif
