/* core/base/stop.h - the request to end a long computation early: a signal, or a time limit.
 *
 * A search whose partial result is useful watches its flag on each of its threads while it runs. Loops that may take longer than a
 * tenth of a second without a result (simulation, lowering, searches, linear programs) check it at counted steps and end
 * with ERR_INTERRUPTED, or with the best result so far. Nothing is watched by default, so the other verbs end at the signal.
 */
#ifndef CORE_BASE_STOP_H
#define CORE_BASE_STOP_H

#include "core/base/error.h"

#include <signal.h>
#include <stdbool.h>

/* The calling thread watches *flag (nonzero: stop) until its next call; NULL: none. Returns the flag watched before. */
const volatile sig_atomic_t *stop_watch(const volatile sig_atomic_t *flag);
/* Cost: two loads. */
bool stop_requested(void);
/* ERR_INTERRUPTED if a stop is requested. */
MUST_CHECK enum status stop_check(struct error *err);

#endif
