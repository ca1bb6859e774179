#include "core/base/stop.h"

#include <stddef.h>

static _Thread_local const volatile sig_atomic_t *watched;

const volatile sig_atomic_t *stop_watch(const volatile sig_atomic_t *flag)
{
    const volatile sig_atomic_t *before = watched;
    watched = flag;
    return before;
}

bool stop_requested(void)
{
    return watched && *watched;
}

enum status stop_check(struct error *err)
{
    return stop_requested() ? error_set(err, ERR_INTERRUPTED, "interrupted") : OK;
}
