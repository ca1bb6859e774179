#include "sim/collective/price.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/base/units.h"
#include "sim/collective/steps.h"

#include <inttypes.h>
#include <string.h>

const char *collective_price_name(enum collective_price from)
{
    static const char *const names[] = {
#define X(id, name) name,
        COLLECTIVE_PRICES(X)
#undef X
    };
    return names[from];
}

/* --- where members stand --------------------------------------------------------------------- */

struct members {
    int32_t n, n_nodes;
    int32_t each;     /* members of a node; 0: unequally many, or a device twice */
    int32_t *device;  /* (n) by node, else as they were given */
    const char *type; /* collective_table_device */
    bool alike;       /* of one type */
};

static struct members stand(struct arena *a, const struct cluster *c, const int32_t *device,
                            int32_t n)
{
    struct members m = {.n = n, .type = collective_table_device(a, c, device, n)};
    int32_t *here = ARENA_ARRAY(a, int32_t, (size_t)c->n_nodes);
    bool *seen = ARENA_ARRAY(a, bool, (size_t)c->n_devices), twice = false;
    for (int32_t i = 0; i < n; i++) {
        const struct device *d = &c->devices[device[i]];
        m.n_nodes += !here[d->node]++;
        twice |= seen[device[i]];
        seen[device[i]] = true;
    }
    m.alike = !strcmp(m.type, c->types[c->devices[device[0]].type].catalogue);
    m.each = twice || n % m.n_nodes ? 0 : n / m.n_nodes;
    for (int32_t k = 0, at = 0; k < c->n_nodes; k++) {
        if (here[k] && here[k] != m.each) m.each = 0;
        int32_t count = here[k];
        here[k] = at;
        at += count;
    }
    m.device = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) m.device[here[c->devices[device[i]].node]++] = device[i];
    return m;
}

/* Of the cluster, or -1 where it is emulated or is not there. */
static int32_t member_device(const struct cluster *c, const struct program *p,
                             const struct collective_member *m)
{
    const struct program_device *d = &p->devices[p->stages[m->stage].device];
    return d->slowdown > 0 ? -1 : cluster_device(c, d->name);
}

/* --- NCCL ------------------------------------------------------------------------------------ */

#define NETWORK_BYTES INT64_C(1000000000000) /* latencies are nothing beside it */

struct flows { /* messages of NETWORK_BYTES */
    struct steps steps;
    int32_t *device;
};

static void add_flow(struct flows *f, int32_t from, int32_t to)
{
    f->steps.transfers[f->steps.n++] =
        (struct step_transfer){.from = from, .to = to, .bytes = NETWORK_BYTES};
}

/* The other devices of every node, each to one of the next node. */
static void add_others(struct arena *a, const struct cluster *c, const struct members *m,
                       struct flows *f)
{
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)m->n_nodes + 1);
    for (int32_t k = 0; k < m->n_nodes; k++) {
        const struct node_spec *at = &c->nodes[c->devices[m->device[k * m->each]].node];
        first[k] = f->steps.n_members;
        for (int32_t d = at->first_device; d < at->first_device + at->n_devices; d++) {
            bool member = false;
            for (int32_t i = 0; i < m->each; i++) member |= m->device[k * m->each + i] == d;
            if (!member) f->device[f->steps.n_members++] = d;
        }
    }
    first[m->n_nodes] = f->steps.n_members;
    for (int32_t k = 0; k < m->n_nodes; k++) {
        int32_t next = (k + 1) % m->n_nodes, n_next = first[next + 1] - first[next];
        for (int32_t i = first[k], j = 0; i < first[k + 1]; i++, j++)
            add_flow(f, i, n_next ? first[next] + j % n_next : next * m->each + j % m->each);
    }
}

/* What a node's network carries for the members of one: the i-th of every node sends to the i-th of the next, all at once; with
 * others: beside the other devices of those nodes, which send first. 0: they cannot. */
static double network_Bps(struct arena *a, struct cost *k, const struct members *m, bool others)
{
    const struct cluster *c = cost_cluster(k);
    size_t most = (size_t)c->n_devices;
    struct flows f = {.steps = {.n_members = m->n}, .device = ARENA_ARRAY(a, int32_t, most)};
    f.steps.transfers = ARENA_ARRAY(a, struct step_transfer, most);
    memcpy(f.device, m->device, (size_t)m->n * sizeof *m->device);
    if (others) add_others(a, c, m, &f);
    for (int32_t i = 0; i < m->n; i++) add_flow(&f, i, (i + m->each) % m->n);
    struct steps_play p = {.steps = &f.steps,
                           .device = f.device,
                           .end_ns = ARENA_ARRAY(a, int64_t, (size_t)f.steps.n_members)};
    int64_t last = 0;
    if (steps_run(c, k, &p, 1, NULL) != OK) return 0;
    for (int32_t i = 0; i < m->n; i++)
        if (p.end_ns[i] > last) last = p.end_ns[i];
    return last > 0 ? m->each * (double)NETWORK_BYTES / units_s_from_ns(last) : 0;
}

static enum status choose(struct arena *a, struct cost *k, const char *version,
                          enum collective_kind kind, const struct members *m, double Bps,
                          int64_t bytes, struct nccl_choice *out, struct error *err)
{
    struct nccl_system s;
    if (!m->alike) return error_set(err, ERR_INPUT, "devices of several types");
    if (!m->each)
        return error_set(err, ERR_INPUT, "%" PRId32 " ranks do not fill %" PRId32 " nodes evenly",
                         m->n, m->n_nodes);
    if (Bps < 0) Bps = m->n_nodes > 1 ? network_Bps(a, k, m, false) : 0;
    TRY(nccl_system_of(m->type, m->n, m->n_nodes, Bps, &s, err));
    return nccl_choose(version, &s, kind, bytes, out, err);
}

enum status collective_nccl(struct cost *k, const char *version, enum collective_kind kind,
                            const int32_t *device, int32_t n, int64_t bytes,
                            struct nccl_choice *out, struct error *err)
{
    struct arena *a = arena_new();
    struct members m = stand(a, cost_cluster(k), device, n);
    enum status st = choose(a, k, version, kind, &m, -1, bytes, out, err);
    arena_free(a);
    return st;
}

/* Bytes a second of a node's network that the members have to themselves; 0: others take of it, or there is none. */
static int64_t own_network_Bps(struct arena *a, struct cost *k, const struct members *m,
                               uint64_t key)
{
    int64_t Bps = 0;
    if (m->n_nodes < 2 || cost_recall(k, key, &Bps)) return Bps;
    double alone = network_Bps(a, k, m, false);
    if (network_Bps(a, k, m, true) > .999 * alone) Bps = (int64_t)alone;
    cost_remember(k, key, Bps);
    return Bps;
}

static int64_t nccl_ns(struct arena *a, struct cost *k, enum collective_kind kind,
                       const struct members *m, int64_t bytes)
{
    const struct cluster *c = cost_cluster(k);
    struct nccl_choice choice;
    if (!c->nccl || !m->each || !m->alike || bytes < 1) return -1;
    uint64_t set = hash_map_key(7, m->device, (size_t)m->n * sizeof *m->device), key = set;
    int64_t what[] = {kind, bytes}, ns;
    key = hash_map_key(key, what, sizeof what);
    if (cost_recall(k, key, &ns)) return ns;
    ns = choose(a, k, c->nccl, kind, m, (double)own_network_Bps(a, k, m, set), bytes, &choice,
                NULL) == OK
             ? units_ns_from_s(choice.seconds)
             : -1;
    cost_remember(k, key, ns);
    return ns;
}

/* --- prices ---------------------------------------------------------------------------------- */

int64_t collective_price_devices_ns(struct cost *k, enum collective_kind kind,
                                    enum collective_algorithm algorithm, const int32_t *device,
                                    int32_t n, int64_t bytes, enum collective_price *from)
{
    const struct cluster *c = cost_cluster(k);
    enum collective_price none;
    if (!from) from = &none;
    *from = COLLECTIVE_PRICE_LINKS;
    if (!cost_prices_collectives(k) || c->emulated || n < 2) return -1;
    struct arena *a = arena_new();
    struct members m = stand(a, c, device, n);
    int64_t ns = -1;
    if (m.each) ns = cost_collective_ns(k, kind, algorithm, m.type, n, m.n_nodes, bytes);
    if (ns >= 0) *from = COLLECTIVE_PRICE_TABLE;
    if (ns < 0 && collective_native(kind, algorithm)) {
        ns = nccl_ns(a, k, kind, &m, bytes);
        if (ns >= 0) *from = COLLECTIVE_PRICE_NCCL;
    }
    arena_free(a);
    return ns;
}

int64_t collective_price_ns(struct cost *k, const struct program *p, const struct collective *c,
                            enum collective_price *from)
{
    if (from) *from = COLLECTIVE_PRICE_LINKS;
    if (c->stands_for) return c->stands_ns;
    if (!cost_prices_collectives(k) || c->n_members < 2 || c->algorithm == ALGORITHM_LOCAL ||
        c->kind == COLLECTIVE_ALL_TO_ALL)
        return -1;
    int64_t elements = c->elements, ns = 0;
    if (collective_of_tensor(c) && c->algorithm == ALGORITHM_RING &&
        c->kind != COLLECTIVE_ALL_REDUCE)
        elements = c->n_members * c->most;
    struct arena *a = arena_new();
    int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)c->n_members);
    for (int32_t i = 0; i < c->n_members && ns >= 0; i++) {
        device[i] = member_device(cost_cluster(k), p, &c->members[i]);
        if (device[i] < 0) ns = -1;
    }
    if (ns >= 0)
        ns = collective_price_devices_ns(k, c->kind, c->algorithm, device, c->n_members,
                                         elements * dtype_bytes(c->dtype), from);
    arena_free(a);
    return ns;
}
