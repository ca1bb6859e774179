/* exec/device_transport/watchdog.h - whether what was issued to a device still makes progress, and whether a rank has ended.
 *
 * A library may take long to see that a peer is gone, or never see it. Expired means: looks were taken for as long as the limit,
 * something was in flight, and nothing was issued or ended meanwhile. Only the time between looks is counted, and a pause
 * without looks is not: a device that computes for long, or a checkpoint between two steps, accuses nobody. Discarded: a deadline for
 * every message, which a slow peer's honest work would break.
 * A rank whose process has ended is seen on the ranks' board (exec/comm/watch.c) long before, because no rank ends while another one
 * still checks. It is reported at the second look at the board, so that the library, which knows the communicator, can report it first.
 */
#ifndef EXEC_DEVICE_TRANSPORT_WATCHDOG_H
#define EXEC_DEVICE_TRANSPORT_WATCHDOG_H

#include "exec/backend.h"
#include "exec/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* All fields belong to watchdog.c; zeroed at the start, but for limit_ns. */
struct watchdog {
    int64_t limit_ns;
    int64_t changes, seen_changes;      /* issued or ended: so far, and at the last look */
    int64_t silent_since_ns, looked_ns; /* the last change; the last look */
    bool in_flight;                     /* at the last look */
    int64_t ranks_looked_ns;            /* the last look at the ranks' board */
    bool rank_ended;                    /* one had, then */
};

/* Something was issued, or has ended. */
void watchdog_progress(struct watchdog *w);
/* Counts which of the numbers *done … issued - 1 have ended; event of number n: ended[n mod window]. A record that stands for a later
 * number is only done when the earlier one is. O(what has ended since). */
MUST_CHECK enum status watchdog_count(struct watchdog *w, struct backend *b, int64_t issued,
                                      int64_t *done, const int32_t *ended, int64_t window,
                                      struct error *err);
/* A look: whether it has expired. */
bool watchdog_expired(struct watchdog *w, bool in_flight);
/* Whether something was in flight at the last look. */
bool watchdog_under_algorithm(const struct watchdog *w);
bool watchdog_rank_ended(struct watchdog *w, struct comm *ranks);

#endif
