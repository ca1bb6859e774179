/* core/cluster/links.c - the links of a cluster file. */
#include "core/cluster/internal.h"
#include "core/cluster/keys.h"

#include <inttypes.h>
#include <string.h>

#define BANDWIDTH_MAX_BPS 1e15
#define LATENCY_MIN_S 1e-9 /* the grain of simulated time */
#define LATENCY_MAX_S 1e3

static const char *node_names(const struct cluster_reader *r)
{
    const char *list = "";
    for (int32_t i = 0; i < r->c->n_nodes; i++)
        list = cluster_join(r->a, list, r->c->nodes[i].name);
    return list;
}

/* Error for a name of `count:` nodes or switches, which a link cannot name collectively. */
static enum status unknown_group(const struct cluster_reader *r, const struct node *n,
                                 const char *name, int64_t count)
{
    const char *last = count > 1 ? arena_printf(r->a, " … %.100s%" PRId64, name, count - 1) : "";
    return node_error(n, r->err,
                      "unknown name '%.100s'; known: %.100s0%s; name one of them, give "
                      "the link a `count: N`, which numbers its ends, or use `every: inside` or "
                      "`every: across` for links of every pair of devices",
                      name, name, last);
}

static enum status unknown_end(const struct cluster_reader *r, const struct node *n,
                               const char *name)
{
    int64_t members = cluster_numbered(r, name);
    if (members) return unknown_group(r, n, name, members);
    const char *list = node_names(r);
    if (!r->c->n_switches)
        return node_error(n, r->err, "unknown node '%.100s'; known: %s", name, list);
    for (int32_t i = 0; i < r->c->n_switches; i++)
        list = cluster_join(r->a, list, r->c->switches[i]);
    return node_error(n, r->err, "unknown node or switch '%.100s'; known: %s", name, list);
}

static enum status find_end(struct cluster_reader *r, const struct node *n, int32_t *out,
                            enum link_end *kind)
{
    const char *name;
    TRY(node_text(n, &name, r->err));
    if (!strchr(name, '.'))
        return cluster_indexed(r->c, name, strlen(name), kind, out) ? OK : unknown_end(r, n, name);
    *kind = END_DEVICE;
    *out = cluster_device(r->c, name);
    if (*out >= 0) return OK;
    int32_t node = cluster_node(r->c, name, strcspn(name, "."));
    if (node < 0) {
        const char *group = arena_strndup(r->a, name, strcspn(name, "."));
        int64_t members = cluster_numbered(r, group);
        if (members) return unknown_group(r, n, group, members);
        return node_error(n, r->err, "unknown device '%.100s': no such node; known: %s", name,
                          node_names(r));
    }
    const struct node_spec *at = &r->c->nodes[node];
    return node_error(n, r->err, "unknown device '%.100s'; node %s has %" PRId32 ", the last is %s",
                      name, at->name, at->n_devices,
                      r->c->devices[at->first_device + at->n_devices - 1].name);
}

static enum status same_end(const struct cluster_reader *r, const struct node *n,
                            const struct link *l)
{
    const char *name = n->members[0]->text;
    if (l->kind[0] == END_SWITCH) return node_error(n, r->err, "names switch %s twice", name);
    int32_t node = l->kind[0] == END_DEVICE ? r->c->devices[l->end[0]].node : l->end[0];
    return node_error(n, r->err, "names %s twice; [%s] is the link inside a node", name,
                      r->c->nodes[node].name);
}

static enum status read_ends(struct cluster_reader *r, const struct node *n, struct link *l)
{
    TRY(node_is(n, NODE_LIST, r->err));
    if (n->count < 1 || n->count > 2)
        return node_error(n, r->err, "must name one node or two ends, found %zu", n->count);
    l->n_ends = (int32_t)n->count;
    for (int32_t i = 0; i < l->n_ends; i++)
        TRY(find_end(r, n->members[i], &l->end[i], &l->kind[i]));
    if (l->n_ends == 1) {
        l->end[1] = l->end[0];
        l->kind[1] = l->kind[0];
        return l->kind[0] == END_NODE
                   ? OK
                   : node_error(n, r->err,
                                "a single end must be a node; a link of devices has two ends");
    }
    if (l->kind[0] == l->kind[1]) return l->end[0] == l->end[1] ? same_end(r, n, l) : OK;
    if (l->kind[0] != END_SWITCH && l->kind[1] != END_SWITCH)
        return node_error(n, r->err,
                          "must be two nodes or two devices, not one of each; a switch may join "
                          "any two");
    return OK;
}

static enum status read_speed(struct cluster_reader *r, const struct node *n, struct link *l)
{
    const struct node *bandwidth = cluster_given(n, "bandwidth"),
                      *latency = cluster_given(n, "latency");
    bool at_switch = l->kind[0] == END_SWITCH || l->kind[1] == END_SWITCH;
    if ((r->c->emulated || at_switch) && !bandwidth)
        return node_error(n, r->err, "link '%s' needs a bandwidth: links %s", l->name,
                          r->c->emulated ? "of an emulated cluster cannot be measured" : "at a switch state it, also if they are measured later");
    if (!bandwidth != !latency)
        return node_error(
            n, r->err, "link '%s' has a %s and no %s; both are stated or both are measured",
            l->name, bandwidth ? "bandwidth" : "latency", bandwidth ? "latency" : "bandwidth");
    if (!bandwidth) return OK;
    l->stated = true;
    TRY(node_quantity(bandwidth, QUANTITY_BYTES_PER_S, 1, BANDWIDTH_MAX_BPS, &l->bandwidth_Bps,
                      r->err));
    return node_quantity(latency, QUANTITY_SECONDS, LATENCY_MIN_S, LATENCY_MAX_S, &l->latency_s,
                         r->err);
}

/* `between` or `every`. */
static enum status read_place(struct cluster_reader *r, const struct node *n, struct link *l)
{
    static const char *const choices[] = {"across", "inside", NULL};
    const struct node *every = cluster_given(n, "every"), *between = cluster_given(n, "between");
    int which = 0;
    if (!every) {
        TRY(node_need(n, "between", &between, r->err));
        return read_ends(r, between, l);
    }
    TRY(node_choice(every, choices, &which, r->err));
    if (between)
        return node_error(between, r->err, "link '%s' has `every`, which excludes `between`",
                          l->name);
    if (r->c->emulated)
        return node_error(every, r->err,
                          "links of emulated devices must be listed one by one, without `every`");
    l->kind[0] = l->kind[1] = which ? END_INSIDE : END_ACROSS;
    return OK;
}

/* NCCL settings. */
static enum status read_nccl(struct cluster_reader *r, const struct node *n, struct link *l)
{
    const struct node *ctas = cluster_given(n, "maxCTAs"), *net = cluster_given(n, "netName");
    int64_t most = 0;
    if ((ctas || net) && r->c->emulated)
        return node_error(ctas ? ctas : net, r->err, "links of emulated devices do not use NCCL");
    if (ctas) TRY(node_int(ctas, 1, LINK_CTAS_MAX, &most, r->err));
    l->max_ctas = (int32_t)most;
    if (!net) return OK;
    TRY(canonical_label(net, &l->net_name, r->err));
    return strlen(l->net_name) <= LINK_NET_MAX
               ? OK
               : node_error(net, r->err,
                            "a netName is at most %d bytes long, for example IB or Socket",
                            LINK_NET_MAX);
}

static enum status read_link(struct cluster_reader *r, const struct node *n, struct link *l)
{
    static const char *const duplexes[] = {"full", "half", NULL}, *const sharings[] = {
                                                                      "fifo", "fair", "fluid",
                                                                      NULL};
    const struct node *slowdown;
    int duplex = 0, sharing = 0;
    bool overlap = true;
    TRY(document_keys(n, cluster_link_keys, r->err));
    TRY(cluster_need_name(n, &l->name, r->err));
    TRY(read_place(r, n, l));
    TRY(read_speed(r, n, l));
    TRY(node_get_bool(n, "overlap", &overlap, r->err));
    l->blocking = !overlap;
    if (l->blocking && r->c->emulated)
        return node_error(node_get(n, "overlap"), r->err,
                          "links of emulated devices always overlap with computation");
    slowdown = cluster_given(n, "compute_slowdown");
    if (slowdown) TRY(node_double(slowdown, 0, CLUSTER_SLOWDOWN_MAX, &l->compute_slowdown, r->err));
    if (l->compute_slowdown > 0 && r->c->emulated)
        return node_error(slowdown, r->err, "links of emulated devices have no compute_slowdown");
    TRY(read_nccl(r, n, l));
    if (cluster_given(n, "duplex"))
        TRY(node_choice(node_get(n, "duplex"), duplexes, &duplex, r->err));
    if (cluster_given(n, "sharing"))
        TRY(node_choice(node_get(n, "sharing"), sharings, &sharing, r->err));
    l->half_duplex = duplex == 1;
    l->sharing = (enum link_sharing)sharing;
    if (l->sharing == LINK_FLUID && r->c->emulated)
        return node_error(node_get(n, "sharing"), r->err,
                          "links of emulated devices are fifo or fair; fluid is simulated only");
    return OK;
}

/* Each pair of ends has one link at most, whichever end is named first. */
static enum status unique_pairs(struct cluster_reader *r, const struct node *list)
{
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct link *l = &r->c->links[i];
        int low = l->kind[0] != l->kind[1] ? l->kind[0] > l->kind[1] : l->end[0] > l->end[1];
        const char *key =
            link_of_every_pair(l)
                ? arena_printf(r->a, "of every pair of devices %s", cluster_link_end(r->c, l, 0))
            : l->n_ends == 1
                ? arena_printf(r->a, "inside %s", cluster_link_end(r->c, l, 0))
                : arena_printf(r->a, "between %s and %s", cluster_link_end(r->c, l, low),
                               cluster_link_end(r->c, l, !low));
        const char *place = link_of_every_pair(l) ? "every" : "between";
        e[i] = (struct canonical_entry){key, node_get(list->members[i], place), (int32_t)i};
    }
    return canonical_unique(e, list->count, "a link", r->err);
}

enum status cluster_read_links(struct cluster_reader *r, const struct node *root)
{
    const struct node *list = cluster_given(root, "links");
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, r->err));
    TRY(cluster_repeat(r, list, &list));
    r->c->n_links = (int32_t)list->count;
    r->c->links = ARENA_ARRAY(r->a, struct link, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(read_link(r, list->members[i], &r->c->links[i]));
    TRY(cluster_unique_names(r, list, "link"));
    return unique_pairs(r, list);
}
