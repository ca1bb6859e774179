/* tools/team/add.c - adds a node: its devices, its own switches, and copies of the links of its model. */
#include "tools/team/edit.h"

#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "profiles/team.h"

#include <string.h>

/* A copy from the cluster of the model (the same cluster, or that of another file) to the new cluster. */
struct transfer {
    struct arena *a;
    const struct cluster *from;
    struct cluster *to;
    int32_t model, node; /* node of from; of to */
    int32_t *switch_of;  /* (from->n_switches) the copy in to; -1: not the model's own */
    bool same;           /* from and to are one cluster */
};

/* --- switches of the model's own --- */

static int32_t end_node(const struct cluster *c, const struct link *l, int k)
{
    return l->kind[k] == END_SWITCH   ? -1
           : l->kind[k] == END_DEVICE ? c->devices[l->end[k]].node
                                      : l->end[k];
}

enum { NOBODY = -1, SHARED = -2 };

/* The owner of each switch. A switch with links to a single node belongs to that node. A switch without links to nodes belongs
 * to the node that owns all its neighbours but one, the one towards the other nodes; if two nodes qualify, to both.
 * (The switches of a chain that joins only two nodes have no definite owner: all but the last one are counted as the
 * model's.) */
static int32_t *owners(struct arena *a, const struct cluster *c)
{
    int32_t *owner = ARENA_ARRAY(a, int32_t, (size_t)c->n_switches),
            *claim = ARENA_ARRAY(a, int32_t, (size_t)c->n_switches);
    for (int32_t s = 0; s < c->n_switches; s++) owner[s] = NOBODY;
    for (int32_t i = 0; i < c->n_links; i++)
        for (int k = 0; k < 2; k++) {
            const struct link *l = &c->links[i];
            int32_t node = end_node(c, l, !k);
            if (l->kind[k] != END_SWITCH || node < 0) continue;
            int32_t *o = &owner[l->end[k]];
            *o = *o == NOBODY || *o == node ? node : SHARED;
        }
    for (bool grown = true; grown;) {
        grown = false;
        for (int32_t s = 0; s < c->n_switches; s++) {
            int32_t others = 0, all = NOBODY;
            claim[s] = NOBODY;
            if (owner[s] != NOBODY) continue;
            for (int32_t i = 0; i < c->n_links; i++)
                for (int k = 0; k < 2; k++) {
                    const struct link *l = &c->links[i];
                    if (l->kind[0] != END_SWITCH || l->kind[1] != END_SWITCH || l->end[k] != s)
                        continue;
                    int32_t o = owner[l->end[!k]];
                    if (o < 0)
                        others++;
                    else
                        all = all == NOBODY || all == o ? o : SHARED;
                }
            if (all != NOBODY && (others <= 1 || all == SHARED)) claim[s] = all;
        }
        for (int32_t s = 0; s < c->n_switches; s++)
            if (claim[s] != NOBODY) owner[s] = claim[s], grown = true;
    }
    return owner;
}

static bool has_switch(const struct cluster *c, const char *name)
{
    for (int32_t s = 0; s < c->n_switches; s++)
        if (!strcmp(c->switches[s], name)) return true;
    return false;
}

/* In a file of one node the ownership of switches is undefined: a switch that this cluster has by the same name is shared. */
static void copy_switches(struct transfer *t)
{
    const struct cluster *from = t->from;
    struct cluster *to = t->to;
    int32_t *owner = owners(t->a, from);
    const char **names =
        ARENA_ARRAY(t->a, const char *, (size_t)to->n_switches + (size_t)from->n_switches);
    if (to->n_switches) memcpy(names, to->switches, (size_t)to->n_switches * sizeof *to->switches);
    to->switches = names;
    t->switch_of = ARENA_ARRAY(t->a, int32_t, (size_t)from->n_switches);
    for (int32_t s = 0; s < from->n_switches; s++) {
        t->switch_of[s] = -1;
        if (owner[s] != t->model) continue;
        if (from->n_nodes == 1 && has_switch(t->to, from->switches[s])) continue;
        t->switch_of[s] = to->n_switches;
        const char *name = team_free_name(t->a, to, from->switches[s]);
        to->switches[to->n_switches++] = name;
    }
}

/* --- links --- */

/* Maps an end of one of the model's links to the new cluster. is_new: it belongs to the new node. False: no counterpart. */
static bool map_end(const struct transfer *t, const struct link *l, int k, int32_t *end,
                    bool *is_new)
{
    const struct cluster *from = t->from, *to = t->to;
    int32_t e = l->end[k];
    *is_new = l->kind[k] == END_SWITCH ? t->switch_of[e] >= 0 : end_node(from, l, k) == t->model;
    *end = e;
    if (l->kind[k] == END_SWITCH) {
        if (*is_new) *end = t->switch_of[e];
        if (*is_new || t->same) return true;
        for (*end = 0; *end < to->n_switches; ++*end)
            if (!strcmp(to->switches[*end], from->switches[e])) return true;
        return false;
    }
    if (l->kind[k] == END_NODE) {
        *end = *is_new ? t->node : t->same ? e : team_node(to, from->nodes[e].name);
    } else if (*is_new) {
        *end = to->nodes[t->node].first_device + e - from->nodes[t->model].first_device;
    } else if (!t->same) {
        *end = cluster_device(to, from->devices[e].name);
    }
    return *end >= 0;
}

static void add_link(struct transfer *t, struct link l)
{
    l.name = team_free_name(t->a, t->to,
                            arena_printf(t->a, "%s-%s", l.name, t->to->nodes[t->node].name));
    t->to->links[t->to->n_links++] = l;
}

static bool all_joined(const struct cluster *c)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (link_of_every_pair(&c->links[i]) && c->links[i].kind[0] == END_ACROSS) return true;
    return false;
}

/* Joins the new node and this cluster's node of the model's name by a copy of the model's fastest link to another node,
 * because equal nodes are usually at one site. Nothing if the two have a link, or switches join them. */
static enum status join_model(struct transfer *t, int32_t twin, struct error *err)
{
    const struct cluster *c = t->from;
    const struct link *best = NULL;
    bool at_switch = false;
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *l = &c->links[i];
        if (link_of_every_pair(l)) continue;
        int32_t x = end_node(c, l, 0), y = end_node(c, l, 1);
        at_switch |= (x == t->model && l->kind[1] == END_SWITCH) ||
                     (y == t->model && l->kind[0] == END_SWITCH);
        if (x < 0 || y < 0 || x == y || (x != t->model && y != t->model)) continue;
        if (!best || l->bandwidth_Bps > best->bandwidth_Bps ||
            (l->bandwidth_Bps == best->bandwidth_Bps && l->latency_s < best->latency_s))
            best = l;
    }
    if (!best && at_switch && c->n_nodes > 1) return OK;
    if (!best)
        return error_set(err, ERR_INPUT,
                         "add %s: node %s has no link to another node that a copy could be joined "
                         "by; name a node of a cluster file instead: FILE:NODE",
                         c->nodes[t->model].name, c->nodes[t->model].name);
    struct link l = *best;
    l.kind[0] = l.kind[1] = END_NODE;
    l.end[0] = twin, l.end[1] = t->node;
    add_link(t, l);
    return OK;
}

static enum status copy_links(struct transfer *t, struct error *err)
{
    const struct cluster *from = t->from;
    struct cluster *to = t->to;
    struct link *links =
        ARENA_ARRAY(t->a, struct link, (size_t)to->n_links + (size_t)from->n_links + 1);
    int32_t n_from = from->n_links, n_joined = 0;
    if (to->n_links) memcpy(links, to->links, (size_t)to->n_links * sizeof *links);
    to->links = links;
    for (int32_t i = 0; i < n_from; i++) {
        struct link l = from->links[i];
        bool is_new[2];
        int32_t end[2];
        if (link_of_every_pair(&l)) continue;
        if (!map_end(t, &from->links[i], 0, &end[0], &is_new[0]) ||
            !map_end(t, &from->links[i], 1, &end[1], &is_new[1]) || (!is_new[0] && !is_new[1]))
            continue;
        l.end[0] = end[0], l.end[1] = end[1];
        n_joined += !is_new[0] || !is_new[1];
        add_link(t, l);
    }
    int32_t twin = team_node(to, from->nodes[t->model].name);
    if (all_joined(to)) return OK;
    if (twin >= 0 && twin != t->node) return join_model(t, twin, err);
    if (n_joined) return OK;
    return error_set(err, ERR_INPUT,
                     "add %s: none of its links ends at a node, device or switch of this cluster; "
                     "nodes here are: %s",
                     from->nodes[t->model].name, team_node_names(t->a, to));
}

/* --- devices --- */

/* The other cluster's type in this one: an existing one of equal name and content, else a new one with a free name. */
static int32_t carry_type(struct transfer *t, int32_t type)
{
    struct cluster *to = t->to;
    struct device_type made = t->from->types[type];
    if (t->same) return type;
    for (int n = 1;; n++) {
        const char *name = n == 1 ? t->from->types[type].name
                                  : arena_printf(t->a, "%s%d", t->from->types[type].name, n);
        int32_t i = 0;
        while (i < to->n_types && strcmp(to->types[i].name, name)) i++;
        if (i < to->n_types && cluster_same_type(&to->types[i], &made)) return i;
        if (i < to->n_types) continue;
        struct device_type *types = ARENA_ARRAY(t->a, struct device_type, (size_t)to->n_types + 1);
        memcpy(types, to->types, (size_t)to->n_types * sizeof *types);
        made.name = name;
        types[to->n_types] = made;
        to->types = types;
        return to->n_types++;
    }
}

static void copy_devices(struct transfer *t, const char *name)
{
    const struct node_spec model = t->from->nodes[t->model];
    struct cluster *to = t->to;
    size_t n = (size_t)to->n_devices;
    struct device *devices = ARENA_ARRAY(t->a, struct device, n + (size_t)model.n_devices);
    struct node_spec *nodes = ARENA_ARRAY(t->a, struct node_spec, (size_t)to->n_nodes + 1);
    memcpy(devices, to->devices, n * sizeof *devices);
    memcpy(nodes, to->nodes, (size_t)to->n_nodes * sizeof *nodes);
    nodes[to->n_nodes] = model;
    nodes[to->n_nodes].name = name;
    nodes[to->n_nodes].first_device = to->n_devices;
    for (int32_t i = 0; i < model.n_devices; i++) {
        struct device *d = &devices[to->n_devices++];
        *d = t->from->devices[model.first_device + i];
        d->type = carry_type(t, d->type);
        d->name = arena_printf(t->a, "%s.%d", name, (int)d->index);
        d->node = to->n_nodes;
    }
    to->devices = devices;
    to->nodes = nodes;
    t->node = to->n_nodes++;
}

/* --- the argument --- */

static bool good_name(const char *name)
{
    return *name && strlen(name) <= 100 && !strpbrk(name, " .\t\n\"'");
}

/* "[NAME=]NODE" or "[NAME=]FILE:NODE"; file NULL: none. */
static void split(struct arena *a, const char *text, const char **name, const char **file,
                  const char **node)
{
    char *words = arena_strdup(a, text), *equals = strchr(words, '='), *colon = strrchr(words, ':');
    *name = *file = NULL;
    if (equals && (!colon || equals < colon)) {
        *equals = 0;
        *name = words;
        words = equals + 1;
    }
    *node = words;
    if (!colon) return;
    *colon = 0;
    *file = words;
    *node = colon + 1;
}

enum status team_add(struct arena *a, const struct cluster *c, const char *text,
                     struct cluster *out, struct error *err)
{
    const char *name, *file, *node;
    struct cluster other, made = *c;
    split(a, text, &name, &file, &node);
    if (file) {
        TRY(cluster_read(a, file, &other, err));
        TRY(team_complete(&other, err));
        if (other.emulated != c->emulated)
            return error_set(err, ERR_INPUT,
                             "add %.200s: one cluster is emulated and the other is real", text);
    }
    struct transfer t = {.a = a, .from = file ? &other : c, .to = &made, .same = !file};
    t.model = team_node(t.from, node);
    if (t.model < 0)
        return error_set(err, ERR_INPUT, "add '%.100s': no such node%s%.100s; nodes are: %s", node,
                         file ? " in " : "", file ? file : "", team_node_names(a, t.from));
    if (!name) name = team_free_name(a, c, node);
    if (!good_name(name) || strcmp(team_free_name(a, c, name), name) != 0)
        return error_set(
            err, ERR_INPUT,
            "add %.200s: '%.100s' is not a name for a new node: it needs 1 to 100 letters without "
            "dots and spaces that no node, switch or link has; nodes are: %s",
            text, name, team_node_names(a, c));
    copy_devices(&t, name);
    copy_switches(&t);
    TRY(copy_links(&t, err));
    *out = made;
    return OK;
}
