/* tools/script_goodput.h - goodput of a run of hours or less with a fault script: prediction, for `musher goodput PLAN --faults FILE`.
 *
 * The simulation is that of months (sim/goodput/goodput.h) with the script's events in place of random causes. Each device is a type of
 * its own, because a script names devices. Speeds of slow devices and links, and of the plans after a loss, are simulated step times
 * relative to the plan's. A cost of the machine is given, measured by an earlier run (--measured), or assumed; the output says which.
 */
#ifndef TOOLS_SCRIPT_GOODPUT_H
#define TOOLS_SCRIPT_GOODPUT_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct script_request {
    const char *plan, *script;
    const char *measured; /* --json of a run; NULL: none */
    const char *db;
    int64_t profile;
    int64_t steps, save_every, memory_every, max_restarts;
    bool elastic;
    /* ns; -1: not given */
    int64_t step_ns, checkpoint_ns, detect_ns, restart_ns, replan_ns, memory_ns, memory_copy_ns, memory_restart_ns;
};
/* Prints the prediction. ERR_INPUT: the plan, the script or the measured run cannot be read, or the script needs other options. */
MUST_CHECK enum status script_goodput(struct arena *a, const struct script_request *q, bool as_json, struct error *err);

#endif
