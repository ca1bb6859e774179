#include "tools/print/outcome.h"

#include "core/base/units.h"

#include <math.h>

struct outcome outcome_of(const struct plan *p, int64_t iteration_ns, int64_t lower_bound_ns)
{
    struct outcome o = {.iteration_s = units_s_from_ns(iteration_ns), .gap = NAN};
    bool images = model_pixels(&p->job.model) > 0;
    if (iteration_ns > 0) o.samples_per_s = (double)p->job.global_batch / o.iteration_s;
    if (!images) o.tokens_per_s = o.samples_per_s * (double)p->job.sequence_length;
    o.cost = plan_cost(p, iteration_ns);
    if (lower_bound_ns > 0)
        o.gap = (double)(iteration_ns - lower_bound_ns) / (double)lower_bound_ns;
    return o;
}
