#include "tools/print/outcome.h"

#include "core/base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct outcome outcome_of(const struct plan *p, int64_t iteration_ns, int64_t lower_bound_ns)
{
    struct outcome o = {.iteration_s = units_s_from_ns(iteration_ns), .gap = NAN};
    o.rate = metrics_rate(&p->job, iteration_ns);
    o.cost = plan_priced(p) ? plan_cost(p, iteration_ns) : NAN;
    if (lower_bound_ns > 0)
        o.gap = (double)(iteration_ns - lower_bound_ns) / (double)lower_bound_ns;
    return o;
}

const char *outcome_number(char buffer[32], double value)
{
    char digits[32];
    if (!(value >= 1000 && value < 1e15)) {
        snprintf(buffer, 32, "%.4g", value);
        return buffer;
    }
    snprintf(digits, sizeof digits, "%.0f", value);
    size_t n = strlen(digits), at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) buffer[at++] = ',';
        buffer[at++] = digits[i];
    }
    buffer[at] = 0;
    return buffer;
}
