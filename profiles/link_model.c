#include "profiles/link_model.h"

const char *source_name(enum source s)
{
    static const char *const names[] = {"measured", "fitted", "stated", "catalogue"};
    if ((int)s < 0 || s > SOURCE_CATALOGUE) BUG("source %d", (int)s);
    return names[s];
}

double link_model_seconds(const struct link_model *m, int64_t bytes)
{
    return m->latency_s + (double)bytes / m->bandwidth_Bps;
}
