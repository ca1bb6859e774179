#include "profiles/link_model.h"

#include <math.h>

const char *source_name(enum source s)
{
    static const char *const names[] = {"measured", "fitted", "stated", "catalogue"};
    if ((int)s < 0 || s > SOURCE_CATALOGUE) BUG("source %d", (int)s);
    return names[s];
}

double link_model_Bps(const struct link_model *m, double bytes)
{
    const struct link_point *p = m->points;
    int32_t n = m->n_points, i = 0;
    if (!n) return m->bandwidth_Bps;
    while (i < n && p[i].bytes < bytes) i++;
    if (!i || i == n) return p[i ? n - 1 : 0].Bps;
    double x = log2(bytes / p[i - 1].bytes) / log2(p[i].bytes / p[i - 1].bytes);
    return p[i - 1].Bps + x * (p[i].Bps - p[i - 1].Bps);
}
