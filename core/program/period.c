#include "core/program/period.h"

#include "core/base/arena.h"

enum { QUIET_STEPS = 3 }; /* simulated between two exchanges at most */

int32_t period_first(const struct outer_optimizer *o, int32_t fragment)
{
    return (int32_t)((int64_t)(fragment + 1) * o->every / o->fragments);
}

bool period_in_flight(const struct outer_optimizer *o, int32_t fragment, int64_t steps)
{
    int64_t since = steps - period_first(o, fragment);
    return since >= 0 && since % o->every < o->delay;
}

/* By step of the period: whether a sum starts, moves or is applied. */
static bool *exchanging(struct arena *a, const struct outer_optimizer *o)
{
    bool *busy = ARENA_ARRAY(a, bool, (size_t)o->every);
    for (int32_t f = 0; f < o->fragments; f++)
        for (int32_t k = 0; k <= o->delay; k++) busy[(period_first(o, f) - 1 + k) % o->every] = true;
    return busy;
}

void period_make(struct arena *a, const struct outer_optimizer *o, bool whole, struct period *out)
{
    *out = (struct period){.every = o->every};
    if (!o->every) return;
    const bool *busy = exchanging(a, o);
    int32_t *step = ARENA_ARRAY(a, int32_t, (size_t)o->every), *times = ARENA_ARRAY(a, int32_t, (size_t)o->every);
    for (int32_t k = 0, quiet = 0; k < o->every; k++) {
        quiet = busy[k] ? 0 : quiet + 1;
        if (quiet > QUIET_STEPS && !whole)
            times[out->n - 1]++;
        else
            step[out->n] = k, times[out->n++] = 1;
    }
    out->step = step, out->times = times;
}
