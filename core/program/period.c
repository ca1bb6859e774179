#include "core/program/period.h"

#include "core/base/arena.h"
#include "core/base/units.h"

enum { STEPS_AFTER = 2 }; /* an exchange, that are simulated in front of the steady cycle */

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

int32_t period_cycle(const struct outer_optimizer *o)
{
    int32_t cycle = 1;
    for (int32_t i = 0; i < o->n_updates; i++) cycle *= period_of_update(o, i) / units_gcd(cycle, period_of_update(o, i));
    return cycle;
}

static int32_t quiet_steps(const bool *busy, int32_t from, int32_t every)
{
    int32_t n = 0;
    while (from + n < every && !busy[from + n]) n++;
    return n;
}

void period_make(struct arena *a, const struct outer_optimizer *o, bool whole, struct period *out)
{
    *out = (struct period){.every = o->every};
    if (!o->every) return;
    const bool *busy = exchanging(a, o);
    int32_t *step = ARENA_ARRAY(a, int32_t, (size_t)o->every), *times = ARENA_ARRAY(a, int32_t, (size_t)o->every), cycle = period_cycle(o);
    for (int32_t k = 0, quiet = 0; k < o->every; k++) {
        quiet = busy[k] ? 0 : quiet + 1;
        int32_t cycles = whole || quiet != STEPS_AFTER + cycle + 1 ? 0 : quiet_steps(busy, k, o->every) / cycle;
        for (int32_t i = 0; i < cycle && cycles; i++) times[out->n - cycle + i] += cycles;
        if (cycles)
            k += cycles * cycle - 1;
        else
            step[out->n] = k, times[out->n++] = 1;
    }
    out->step = step, out->times = times;
}
