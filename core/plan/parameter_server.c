/* core/plan/parameter_server.c - `parameter_server` of a plan file: read, checked, written and described. */
#include "core/base/arena.h"
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>

enum { BOUND_MAX = 1000000, STALENESS_MAX = 1000000 }; /* clocks; updates */
static const char *const mode_names[] = {"bsp", "ssp", "asp", NULL};
static const char *const rate_names[] = {"constant", "inverse", NULL};

/* Keys that only some modes have. */
static enum status read_staleness(const struct node *map, struct parameter_server *x, struct error *err)
{
    const struct node *bound = node_get(map, "bound"), *rate = node_get(map, "rate"), *drop = node_get(map, "drop_above"), *n = NULL;
    int64_t number = 0;
    int choice = SERVER_CONSTANT;
    x->drop_above = -1;
    if (bound && x->mode != SERVER_SSP)
        return node_error(bound, err, "only mode: ssp has a bound; this mode is %s", mode_names[x->mode]);
    if (x->mode == SERVER_SSP) {
        TRY(node_need(map, "bound", &n, err));
        TRY(node_int(n, 0, BOUND_MAX, &number, err));
        x->bound = (int32_t)number;
    }
    n = rate ? rate : drop;
    if (n && (x->mode == SERVER_BSP || (x->mode == SERVER_SSP && !x->bound)))
        return node_error(n, err, "%s has no stale gradients; remove the key, or choose mode: asp, or ssp with a bound above 0",
                          x->mode == SERVER_BSP ? "mode: bsp" : "mode: ssp with bound: 0");
    if (rate) TRY(node_choice(rate, rate_names, &choice, err));
    x->rate = (enum server_rate)choice;
    if (!drop) return OK;
    TRY(node_int(drop, 0, STALENESS_MAX, &number, err));
    x->drop_above = (int32_t)number;
    return OK;
}

enum status plan_read_servers(struct arena *a, const struct node *root, plan_find_device *find, const void *reader,
                              struct plan *p, struct error *err)
{
    const struct node *map = node_get(root, "parameter_server"), *n;
    struct parameter_server *x = &p->servers.rule;
    int mode = SERVER_BSP;
    if (!map || map->kind == NODE_NULL) return OK;
    TRY(document_keys(map, plan_server_keys, err));
    TRY(node_need(map, "servers", &n, err));
    TRY(node_is(n, NODE_LIST, err));
    if (!n->count) return node_error(n, err, "must not be empty");
    if (n->count > (size_t)p->cluster.n_devices)
        return node_error(n, err, "%zu devices, but the cluster has %" PRId32, n->count, p->cluster.n_devices);
    int32_t *devices = ARENA_ARRAY(a, int32_t, n->count);
    for (size_t i = 0; i < n->count; i++) TRY(find(reader, n->members[i], &devices[i]));
    p->servers.devices = devices;
    x->n = (int32_t)n->count;
    if ((n = node_get(map, "mode"))) TRY(node_choice(n, mode_names, &mode, err));
    x->mode = (enum server_mode)mode;
    return read_staleness(map, x, err);
}

static enum status check_worker(const struct plan_place *at)
{
    const struct plan_replica *r = &at->p->replicas[at->replica];
    const struct plan_stage *s = &r->stages[0];
    if (r->n_stages > 1)
        return plan_complain(at, "parameter_server: a worker is a replica of one stage, this one has %" PRId32, r->n_stages);
    if (s->n_shards || s->sharding)
        return plan_complain(at, "parameter_server: a worker is one device, the stage of this one has %" PRId32, plan_stage_devices(s));
    if (s->zero) return plan_complain(at, "zero: parameter_server holds the state already");
    return OK;
}

/* owner: (n_devices) of the cluster, not 0 for those with a stage. */
static enum status check_servers(const struct plan *p, const int32_t *owner, const struct plan_place *whole)
{
    for (int32_t i = 0; i < p->servers.rule.n; i++) {
        int32_t device = p->servers.devices[i];
        if (device < 0 || device >= p->cluster.n_devices)
            return plan_complain(whole, "parameter_server: there is no device %" PRId32 "; the cluster has %" PRId32, device,
                                 p->cluster.n_devices);
        const char *name = p->cluster.devices[device].name;
        if (owner[device])
            return plan_complain(whole, "parameter_server: %s has a stage of a replica; a server is a device of its own", name);
        for (int32_t k = 0; k < i; k++)
            if (p->servers.devices[k] == device) return plan_complain(whole, "parameter_server: %s is named twice", name);
    }
    return OK;
}

enum status plan_check_servers(const struct plan *p, const int32_t *owner, struct error *err)
{
    struct plan_place whole = {p, -1, -1, err};
    if (!p->servers.rule.n) return OK;
    TRY(check_servers(p, owner, &whole));
    for (int32_t r = 0; r < p->n_replicas; r++) TRY(check_worker(&(struct plan_place){p, r, -1, err}));
    if (p->local_sgd.outer.every)
        return plan_complain(&whole, "local_sgd: its islands add gradients of their own; with parameter_server the servers have all");
    if (p->compression.gradients.kind)
        return plan_complain(&whole, "compression.gradients: is of all-reduces; parameter_server has none");
    if (p->deterministic)
        return plan_complain(&whole, "deterministic: promises the same bits for every plan; a server adds the gradients of each worker apart");
    if (dtype_is_half(p->job.precision))
        return plan_complain(&whole, "parameter_server: precision %s; it takes fp32 or fp64", dtype_name(p->job.precision));
    if (p->job.model.measured)
        return plan_complain(&whole, "parameter_server: measured layers have no parameters by name");
    return OK;
}

void plan_write_servers(FILE *out, const struct plan *p)
{
    const struct parameter_server *x = &p->servers.rule;
    if (!x->n) return;
    fputs("parameter_server:\n  servers: [", out);
    for (int32_t i = 0; i < x->n; i++) {
        if (i) fputs(", ", out);
        canonical_text(out, p->cluster.devices[p->servers.devices[i]].name);
    }
    fprintf(out, "]\n  mode: %s\n", mode_names[x->mode]);
    if (x->mode == SERVER_SSP) fprintf(out, "  bound: %" PRId32 "\n", x->bound);
    if (x->rate != SERVER_CONSTANT) fprintf(out, "  rate: %s\n", rate_names[x->rate]);
    if (x->drop_above >= 0) fprintf(out, "  drop_above: %" PRId32 "\n", x->drop_above);
}

const char *plan_describe_servers(struct arena *a, const struct parameter_server *x)
{
    static const char *const modes[] = {"bulk synchronous", "stale synchronous", "asynchronous"};
    if (!x->n) return NULL;
    const char *bound = x->mode == SERVER_SSP ? arena_printf(a, ", bound %" PRId32, x->bound) : "";
    const char *drop = x->drop_above >= 0 ? arena_printf(a, ", dropped above staleness %" PRId32, x->drop_above) : "";
    return arena_printf(a, "%s%s on %" PRId32 " server%s%s%s", modes[x->mode], bound, x->n, x->n > 1 ? "s" : "",
                        x->rate == SERVER_INVERSE ? ", rate lr / (staleness + 1)" : "", drop);
}
