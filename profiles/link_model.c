#include "profiles/link_model.h"

const char *source_name(enum source s)
{
    static const char *const names[] = {"measured", "fitted", "stated", "catalogue"};
    if ((int)s < 0 || s > SOURCE_CATALOGUE) BUG("source %d", (int)s);
    return names[s];
}
