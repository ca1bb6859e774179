#include "profiles/device_speed.h"

#include "core/base/arena.h"
#include "core/cluster/slow.h"

#include <string.h>

#define PREFIX "device:"

static struct factor_row *row_of(const struct profile *p, const char *device)
{
    for (size_t i = 0; i < p->n_factors; i++)
        if (!strncmp(p->factors[i].type, PREFIX, strlen(PREFIX)) && !strcmp(p->factors[i].type + strlen(PREFIX), device)) return &p->factors[i];
    return NULL;
}

static bool is_stated(const struct profile *p)
{
    for (size_t i = 0; i < p->n_factors; i++)
        if (!strncmp(p->factors[i].type, PREFIX, strlen(PREFIX))) return true;
    return false;
}

void device_speed_apply(struct arena *a, const struct profile *p, const struct cluster *c, struct cluster *out)
{
    struct cluster now = *c;
    for (int32_t d = 0; d < c->n_devices && p->n_factors; d++) {
        const struct factor_row *row = row_of(p, c->devices[d].name);
        if (row) cluster_slow(a, &now, d, 1, row->factor, &now);
    }
    *out = now;
}

const struct plan *device_speed_plan(struct arena *a, const struct plan *p, const struct profile *profile)
{
    if (!is_stated(profile)) return p;
    struct plan *now = arena_copy(a, p, sizeof *p);
    device_speed_apply(a, profile, &p->cluster, &now->cluster);
    return now;
}

void device_speed_scale(struct arena *a, struct profile *p, const char *device, double factor, double least, const char *provenance)
{
    struct factor_row *old = row_of(p, device), *rows = ARENA_ARRAY(a, struct factor_row, p->n_factors + 1);
    size_t n = 0;
    if (old) factor *= old->factor;
    for (size_t i = 0; i < p->n_factors; i++)
        if (&p->factors[i] != old) rows[n++] = p->factors[i];
    if (factor >= least || factor <= 1 / least)
        rows[n++] = (struct factor_row){
            .type = arena_printf(a, PREFIX "%s", device), .kind = -1, .factor = factor, .samples = 1, .provenance = provenance};
    p->factors = rows, p->n_factors = n;
}

enum status device_speed_scale_link(struct arena *a, struct profile *p, const struct cluster *c, int32_t link, double factor, struct error *err)
{
    struct link_model m;
    TRY(profile_link(p, c, link, &m, err));
    m.bandwidth_Bps /= factor;
    for (int32_t i = 0; i < m.n_points; i++) m.points[i].Bps /= factor;
    m.source = SOURCE_MEASURED; /* takes precedence over what the cluster states */
    profile_set_link(a, p, c->links[link].name, &m);
    return OK;
}
