#include "tools/replan.h"

#include "core/arena.h"

#include <string.h>

static int32_t device_in(struct arena *a, const struct cluster *c, const char *name,
                         const char **missing)
{
    int32_t device = cluster_device(c, name);
    if (device >= 0) return device;
    if (!*missing)
        *missing = name;
    else if (strlen(*missing) < 80)
        *missing = arena_printf(a, "%s, %s", *missing, name);
    return -1;
}

static struct plan_stage carried(struct arena *a, const struct cluster *from,
                                 const struct plan_stage *s, const struct cluster *to,
                                 const char **missing)
{
    struct plan_stage x = *s;
    if (s->n_shards < 1) {
        x.device = device_in(a, to, from->devices[s->device].name, missing);
        return x;
    }
    int32_t *devices = ARENA_ARRAY(a, int32_t, (size_t)s->n_shards);
    for (int32_t k = 0; k < s->n_shards; k++)
        devices[k] = device_in(a, to, from->devices[s->devices[k]].name, missing);
    x.devices = devices, x.device = devices[0];
    return x;
}

void replan_carry(struct arena *a, const struct plan *p, const struct cluster *c, struct plan *out,
                  const char **missing)
{
    struct plan made = *p;
    *missing = NULL;
    made.cluster = *c;
    made.predicted_ns = 0;
    made.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        size_t n = (size_t)p->replicas[r].n_stages;
        made.replicas[r] = p->replicas[r];
        made.replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, n);
        for (size_t s = 0; s < n; s++)
            made.replicas[r].stages[s] =
                carried(a, &p->cluster, &p->replicas[r].stages[s], c, missing);
    }
    if (!*missing) *out = made;
}

enum status replan_team(struct arena *a, const struct plan *from, const struct profile *profile,
                        const struct texts *with, const struct texts *without, struct cluster *out,
                        struct error *err)
{
    struct cluster c = from->cluster;
    if (with->count) TRY(team_state_links(a, profile, &c, err));
    for (size_t i = 0; i < with->count; i++)
        TRY(team_edit(a, &c, &(struct team_change){TEAM_ADD, with->items[i], NULL}, &c, err));
    for (size_t i = 0; i < without->count; i++)
        TRY(team_edit(a, &c, &(struct team_change){TEAM_WITHOUT, without->items[i], NULL}, &c,
                      err));
    *out = c;
    return OK;
}
