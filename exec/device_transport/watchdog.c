#include "exec/device_transport/watchdog.h"

#include "exec/clock.h"

#define PAUSE_PART 16               /* of the limit: a longer pause between two polls does not count */
#define RANKS_NS INT64_C(100000000) /* between two looks at the ranks' board */

void watchdog_progress(struct watchdog *w) { w->changes++; }

enum status watchdog_count(struct watchdog *w, struct backend *b, int64_t issued, int64_t *done,
                           const int32_t *ended, int64_t window, struct error *err)
{
    bool over = true;
    while (*done < issued) {
        TRY(b->event_done(b, ended[*done % window], &over, err));
        if (!over) break;
        ++*done;
        watchdog_progress(w);
    }
    return OK;
}

bool watchdog_under_algorithm(const struct watchdog *w) { return w->in_flight; }

bool watchdog_expired(struct watchdog *w, bool in_flight)
{
    int64_t now_ns = clock_wall_ns(), pause_ns = now_ns - w->looked_ns;
    w->in_flight = in_flight;
    if (!in_flight || w->changes != w->seen_changes || !w->silent_since_ns) {
        w->seen_changes = w->changes;
        w->silent_since_ns = now_ns;
    } else if (pause_ns > w->limit_ns / PAUSE_PART) {
        w->silent_since_ns += pause_ns;
    }
    w->looked_ns = now_ns;
    return now_ns - w->silent_since_ns > w->limit_ns;
}

bool watchdog_rank_ended(struct watchdog *w, struct comm *ranks)
{
    int64_t now_ns = clock_wall_ns();
    if (now_ns - w->ranks_looked_ns < RANKS_NS) return false;
    w->ranks_looked_ns = now_ns;
    bool before = w->rank_ended;
    w->rank_ended = comm_ended(ranks) >= 0;
    return before && w->rank_ended;
}
