#include "exec/worker/early_stop.h"

#include "exec/clock.h"

#define LOOK_NS 100000

void early_stop_request(struct early_stop *s, int32_t n, bool final)
{
    int64_t most = 1;
    if (final) atomic_store(&s->final, true);
    if (atomic_exchange(&s->requested, true)) return;
    for (int32_t i = 0; i < n; i++) {
        int64_t begun = atomic_load(&s->begun[i]);
        if (begun > most) most = begun;
    }
    atomic_store(&s->steps, most);
}

bool early_stop_cancel(struct early_stop *s, int32_t n)
{
    if (atomic_load(&s->final)) return false;
    atomic_store(&s->steps, 0);
    atomic_store(&s->requested, false);
    if (atomic_load(&s->final)) early_stop_request(s, n, true); /* it came meanwhile, and was taken for a repeated one */
    return true;
}

bool early_stop_requested(const struct early_stop *s) { return atomic_load(&s->requested); }

bool early_stop_begins(struct early_stop *s, int32_t rank, int64_t step)
{
    int64_t steps;
    atomic_store(&s->begun[rank], step + 1);
    if (!atomic_load(&s->requested)) return true;
    while (!(steps = atomic_load(&s->steps))) clock_sleep_until(clock_wall_ns() + LOOK_NS);
    return step < steps;
}
