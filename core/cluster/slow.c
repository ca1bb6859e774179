#include "core/cluster/slow.h"

#include "core/base/arena.h"

#include <string.h>

void cluster_slow(struct arena *a, const struct cluster *c, int32_t first, int32_t n, double factor, struct cluster *out)
{
    struct cluster made = *c;
    made.types = ARENA_ARRAY(a, struct device_type, (size_t)(c->n_types + n));
    made.devices = ARENA_ARRAY(a, struct device, (size_t)c->n_devices);
    memcpy(made.types, c->types, (size_t)c->n_types * sizeof *c->types);
    memcpy(made.devices, c->devices, (size_t)c->n_devices * sizeof *c->devices);
    for (int32_t d = first, type = -1; d < first + n; d++) {
        int32_t old = c->devices[d].type;
        if (type < 0 || c->devices[d - 1].type != old) {
            struct device_type *slow = &made.types[type = made.n_types++];
            *slow = c->types[old];
            slow->name = arena_printf(a, "%s-%s", slow->name, c->devices[d].name);
            slow->slowdown = (slow->slowdown > 0 ? slow->slowdown : 1) * factor;
        }
        made.devices[d].type = type;
    }
    *out = made;
}
