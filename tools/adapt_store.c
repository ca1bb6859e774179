/* tools/adapt_store.c - what a run has learned of speeds, as the next generation of its profile. */
#include "tools/adapt.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "profiles/device_speed.h"
#include "profiles/store.h"
#include "tools/common.h"

static const char *add(struct arena *a, const char *list, const char *kind, const char *name, double factor)
{
    return arena_printf(a, "%s%s%s%s x %.3g", list, *list ? ", " : "", kind, name, factor);
}

static enum status append(struct adapt *x, struct store *s, const struct cluster *c, struct profile *p, const char **what, struct error *err)
{
    struct arena *a = x->restart->a;
    const struct cluster *now = &x->plan->cluster; /* may have fewer devices */
    uint64_t hash = common_cluster_hash(a, c);
    int64_t id;
    bool exact;
    TRY(store_latest(s, hash, c, &id, &exact, err));
    TRY(store_load(s, a, id, p, err));
    const char *provenance = arena_printf(a, "run:%s", x->plan->name);
    for (int32_t d = 0; d < now->n_devices; d++) {
        if (x->device[d] == 1) continue;
        device_speed_scale(a, p, now->devices[d].name, x->device[d], STRAGGLER_FACTOR, provenance);
        *what = add(a, *what, "operators of ", now->devices[d].name, x->device[d]);
    }
    for (int32_t i = 0; i < now->n_links; i++) {
        if (x->link[i] == 1) continue;
        TRY(device_speed_scale_link(a, p, now, i, x->link[i], err));
        *what = add(a, *what, "link ", now->links[i].name, x->link[i]);
    }
    p->parent = id, p->id = 0;
    p->cluster_hash = hash;
    p->calibrated_on = arena_printf(a, "a run of %s with --adapt: %s", x->plan->name, *what);
    return store_append(s, p, err);
}

void adapt_store(struct adapt *x)
{
    struct store *s = NULL;
    struct profile p;
    struct error err;
    const char *what = "";
    bool any = false;
    if (!x->mode || !x->plan || !x->restart->db) return;
    for (int32_t d = 0; d < x->plan->cluster.n_devices; d++) any |= x->device[d] != 1;
    for (int32_t i = 0; i < x->plan->cluster.n_links; i++) any |= x->link[i] != 1;
    if (!any) return;
    enum status st = store_open(x->restart->a, x->restart->db, false, &s, &err);
    if (st == OK) st = append(x, s, &x->restart->plan.cluster, &p, &what, &err);
    store_close(s);
    if (st == OK)
        log_warn("profile %lld in %s, from profile %lld: %s", (long long)p.id, x->restart->db, (long long)p.parent, what);
    else
        log_warn("the changed speeds are not stored: %s", err.text);
}
