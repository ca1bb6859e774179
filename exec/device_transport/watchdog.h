/* exec/device_transport/watchdog.h - detects that issued device work makes no progress, or that a rank has ended.
 *
 * A library may notice a dead peer late or never. The watchdog expires if, over limit_ns of polling, work was in
 * flight and nothing was issued or completed. Only time between polls counts, so a long computation or a checkpoint
 * between two steps does not expire it. Rejected: a deadline per message, because a slow but live peer would miss it.
 * A rank whose process has ended is seen much earlier on the ranks' board (exec/comm/watch.c), because no rank ends
 * while another still polls. It is reported at the second look at the board, so that the library, which can name the
 * communicator, reports first.
 */
#ifndef EXEC_DEVICE_TRANSPORT_WATCHDOG_H
#define EXEC_DEVICE_TRANSPORT_WATCHDOG_H

#include "exec/backend.h"
#include "exec/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* All fields belong to watchdog.c; zero at the start, except limit_ns. */
struct watchdog {
    int64_t limit_ns;
    int64_t changes, seen_changes;      /* issued or completed operations: so far, and at the last poll */
    int64_t silent_since_ns, looked_ns; /* the last change; the last poll */
    bool in_flight;                     /* at the last poll */
    int64_t ranks_looked_ns;            /* the last look at the ranks' board */
    bool rank_ended;                    /* a rank had ended at that look */
};

/* An operation was issued or completed. */
void watchdog_progress(struct watchdog *w);
/* Counts the completed operations among *done … issued - 1; operation n has event ended[n mod window]. An event
 * re-recorded for a later number completes only after the earlier one. O(operations completed since). */
MUST_CHECK enum status watchdog_count(struct watchdog *w, struct backend *b, int64_t issued,
                                      int64_t *done, const int32_t *ended, int64_t window,
                                      struct error *err);
/* Polls: true if expired. */
bool watchdog_expired(struct watchdog *w, bool in_flight);
/* Whether work was in flight at the last poll. */
bool watchdog_under_algorithm(const struct watchdog *w);
bool watchdog_rank_ended(struct watchdog *w, struct comm *ranks);

#endif
