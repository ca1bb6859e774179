#include "tools/team/edit.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "core/cluster/slow.h"

#include <string.h>

enum { NAMES_SHOWN = 8 }; /* ranges of devices in a message */

int32_t team_node(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_nodes; i++)
        if (!strcmp(c->nodes[i].name, name)) return i;
    return -1;
}

static int32_t find_link(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (!strcmp(c->links[i].name, name)) return i;
    return -1;
}

bool team_in_family(const char *name, const char *family)
{
    size_t n = strlen(family), digits = strlen(name) > n ? strspn(name + n, "0123456789") : 0;
    return !strncmp(name, family, n) && digits && !name[n + digits];
}

static int32_t find_switch(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_switches; i++)
        if (!strcmp(c->switches[i], name)) return i;
    return -1;
}

/* "a, b, c", cut to the size of an error text. */
static const char *join(struct arena *a, const char *list, const char *name)
{
    if (strlen(list) > 200)
        return strcmp(list + strlen(list) - 3, "...") ? arena_printf(a, "%s, ...", list) : list;
    return *list ? arena_printf(a, "%s, %s", list, name) : name;
}

const char *team_node_names(struct arena *a, const struct cluster *c)
{
    const char *list = "";
    for (int32_t i = 0; i < c->n_nodes; i++) list = join(a, list, c->nodes[i].name);
    return list;
}

static const char *device_names(struct arena *a, const struct cluster *c)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1);
    for (int32_t i = 0; i < c->n_devices; i++) names[i] = c->devices[i].name;
    return ranges_of_names(a, names, (size_t)c->n_devices, NAMES_SHOWN);
}

static const char *link_names(struct arena *a, const struct cluster *c)
{
    const char *list = "";
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *l = &c->links[i];
        int last = l->n_ends > 1;
        list = join(a, list,
                    link_of_every_pair(l)
                        ? arena_printf(a, "%s (every %s)", l->name, cluster_link_end(c, l, 0))
                        : arena_printf(a, "%s (%s:%s)", l->name, cluster_link_end(c, l, 0),
                                       cluster_link_end(c, l, last)));
    }
    return list;
}

const char *team_free_name(struct arena *a, const struct cluster *c, const char *word)
{
    const char *name = word;
    for (int n = 2; team_node(c, name) >= 0 || find_switch(c, name) >= 0 || find_link(c, name) >= 0;
         n++)
        name = arena_printf(a, "%s%d", word, n);
    return name;
}

enum status team_state_links(struct arena *a, const struct profile *p, struct cluster *c,
                             struct error *err)
{
    struct link *links = ARENA_ARRAY(a, struct link, (size_t)c->n_links);
    for (int32_t i = 0; i < c->n_links; i++) {
        struct link_model m;
        links[i] = c->links[i];
        if (links[i].stated || link_of_every_pair(&links[i])) continue;
        TRY(profile_link(p, c, i, &m, err));
        links[i].bandwidth_Bps = m.bandwidth_Bps;
        links[i].latency_s = m.latency_s > 1e-9 ? m.latency_s : 1e-9; /* minimum of the file format */
        links[i].stated = true;
    }
    c->links = links;
    return OK;
}

/* --- fewer devices --- */

void team_part(struct arena *a, const struct cluster *c, const bool *keep, struct cluster *out)
{
    struct cluster part = *c;
    int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices);
    int32_t *node = ARENA_ARRAY(a, int32_t, (size_t)c->n_nodes);
    part.devices = ARENA_ARRAY(a, struct device, (size_t)c->n_devices);
    part.nodes = ARENA_ARRAY(a, struct node_spec, (size_t)c->n_nodes);
    part.links = ARENA_ARRAY(a, struct link, (size_t)c->n_links);
    part.n_devices = part.n_nodes = part.n_links = 0;
    for (int32_t n = 0; n < c->n_nodes; n++) {
        struct node_spec spec = c->nodes[n];
        spec.first_device = part.n_devices;
        for (int32_t d = c->nodes[n].first_device, i = 0; i < c->nodes[n].n_devices; i++, d++) {
            device[d] = keep[d] ? part.n_devices : -1;
            if (!keep[d]) continue;
            part.devices[part.n_devices] = c->devices[d];
            part.devices[part.n_devices++].node = part.n_nodes;
        }
        spec.n_devices = part.n_devices - spec.first_device;
        node[n] = spec.n_devices ? part.n_nodes : -1;
        if (spec.n_devices) part.nodes[part.n_nodes++] = spec;
    }
    for (int32_t i = 0; i < c->n_links; i++) {
        struct link l = c->links[i];
        bool there = true;
        for (int k = 0; k < 2; k++) {
            if (l.kind[k] == END_NODE) l.end[k] = node[l.end[k]];
            if (l.kind[k] == END_DEVICE) l.end[k] = device[l.end[k]];
            there &= l.end[k] >= 0;
        }
        if (there) part.links[part.n_links++] = l;
    }
    *out = part;
}

/* A name for all devices of a node. Returns how many; *first -1: unknown. */
static int32_t find_devices(const struct cluster *c, const char *name, int32_t *first)
{
    int32_t node = team_node(c, name);
    *first = node >= 0 ? c->nodes[node].first_device : cluster_device(c, name);
    return node >= 0 ? c->nodes[node].n_devices : 1;
}

static enum status without(struct arena *a, const struct cluster *c, const char *text,
                           struct cluster *out, struct error *err)
{
    bool *keep = ARENA_ARRAY(a, bool, (size_t)c->n_devices);
    int32_t left = c->n_devices;
    for (int32_t d = 0; d < c->n_devices; d++) keep[d] = true;
    for (char *at = arena_strdup(a, text), *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma) *comma++ = 0;
        int32_t first, n = find_devices(c, at, &first);
        if (first < 0)
            return error_set(err, ERR_INPUT,
                             "without '%.100s': no such device or node; devices are: %s", at,
                             device_names(a, c));
        for (int32_t d = first; d < first + n; d++) left -= keep[d], keep[d] = false;
    }
    if (!left)
        return error_set(err, ERR_INPUT, "without %.200s: no device would remain; devices are: %s", text,
                         device_names(a, c));
    team_part(a, c, keep, out);
    return OK;
}

/* --- slower devices --- */

static enum status slow(struct arena *a, const struct cluster *c, const char *text, struct cluster *out, struct error *err)
{
    char *name = arena_strdup(a, text), *sign = strchr(name, '=');
    int32_t first, n;
    double factor = 0;
    if (sign) *sign++ = 0;
    if (!sign || !units_parse_number(sign, &factor) || !(factor >= 0.01 && factor <= 100))
        return error_set(err, ERR_INPUT, "slow '%.100s': expected DEVICE=FACTOR with a factor of 0.01 to 100, such as b.0=2", text);
    n = find_devices(c, name, &first);
    if (first < 0)
        return error_set(err, ERR_INPUT, "slow '%.100s': no such device or node; devices are: %s", name, device_names(a, c));
    cluster_slow(a, c, first, n, factor, out);
    return OK;
}

/* --- another link --- */

static enum status find_end(struct arena *a, const struct cluster *c, const char *name,
                            enum link_end *kind, int32_t *out, struct error *err)
{
    *kind = strchr(name, '.') ? END_DEVICE : END_NODE;
    *out = *kind == END_DEVICE ? cluster_device(c, name) : team_node(c, name);
    if (*out >= 0) return OK;
    *kind = END_SWITCH;
    *out = find_switch(c, name);
    if (*out >= 0) return OK;
    return error_set(err, ERR_INPUT,
                     "link: no node, device or switch '%.100s'; nodes are: %s; links are: %s", name,
                     team_node_names(a, c), link_names(a, c));
}

static bool same_ends(const struct link *x, const struct link *y)
{
    if (x->n_ends != y->n_ends) return false;
    for (int turn = 0; turn < 2; turn++)
        if (x->kind[0] == y->kind[turn] && x->end[0] == y->end[turn] &&
            x->kind[1] == y->kind[!turn] && x->end[1] == y->end[!turn])
            return true;
    return false;
}

/* If so far only a link of every pair joins the nodes or devices of l: *l becomes a copy of it, with l's ends and name. */
static void part_of_every(const struct cluster *c, struct link *l)
{
    if (l->kind[0] == END_SWITCH || (l->n_ends > 1 && l->kind[1] == END_SWITCH)) return;
    bool inside = l->n_ends == 1;
    if (l->kind[0] == END_DEVICE) {
        int32_t direction, at = cluster_link(c, l->end[0], l->end[1], &direction);
        if (at < 0 || !link_of_every_pair(&c->links[at])) return; /* their nodes' link joins them */
        inside = c->links[at].kind[0] == END_INSIDE;
    }
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *every = &c->links[i];
        if (!link_of_every_pair(every) || (every->kind[0] == END_INSIDE) != inside) continue;
        struct link own = *every;
        own.name = l->name, own.n_ends = l->n_ends;
        memcpy(own.kind, l->kind, sizeof own.kind);
        memcpy(own.end, l->end, sizeof own.end);
        *l = own;
    }
}

/* The link of the text before '='. *at: its index; -1: there is none yet, and *l has its ends, or the text names a family. */
static enum status find_pair(struct arena *a, const struct cluster *c, char *words, struct link *l,
                             int32_t *at, bool *family, struct error *err)
{
    char *colon = strchr(words, ':');
    *at = -1;
    *family = false;
    if (!colon) {
        *at = find_link(c, words);
        for (int32_t i = 0; *at < 0 && i < c->n_links; i++)
            *family |= team_in_family(c->links[i].name, words);
        if (*at >= 0 || *family) return OK;
        return error_set(err, ERR_INPUT, "link '%.100s': no such link; links are: %s", words,
                         link_names(a, c));
    }
    *colon = 0;
    const char *name[2] = {words, colon + 1};
    *l = (struct link){.n_ends = strcmp(name[0], name[1]) ? 2 : 1};
    for (int k = 0; k < 2; k++) TRY(find_end(a, c, name[k], &l->kind[k], &l->end[k], err));
    if ((l->n_ends == 1 && l->kind[0] != END_NODE) ||
        (l->kind[0] != l->kind[1] && l->kind[0] != END_SWITCH && l->kind[1] != END_SWITCH))
        return error_set(err, ERR_INPUT,
                         "link %s:%s: its ends are two nodes, two devices, one node twice, or a "
                         "switch and anything else",
                         name[0], name[1]);
    for (int32_t i = 0; i < c->n_links; i++)
        if (same_ends(&c->links[i], l)) *at = i;
    l->name = team_free_name(a, c, arena_printf(a, "%s-%s", name[0], name[1]));
    for (char *dot; (dot = strchr(l->name, '.'));) *dot = '-'; /* names have no dots */
    part_of_every(c, l);
    return OK;
}

/* latency_s <= 0: the old one */
static enum status set_speed(const char *text, double Bps, double latency_s, struct link *l,
                             struct error *err)
{
    l->stated = true;
    l->bandwidth_Bps = Bps;
    if (latency_s > 0) l->latency_s = latency_s;
    if (l->latency_s > 0) return OK;
    return error_set(
        err, ERR_INPUT,
        "link %.200s: the old latency is measured, not stated; state one, such as %.200s,10us", text,
        text);
}

static enum status relink(struct arena *a, const struct cluster *c, const char *text,
                          const char *latency, struct cluster *out, struct error *err)
{
    char *words = arena_strdup(a, text), *speed = strchr(words, '='), *comma;
    struct link l = {0};
    int32_t at;
    bool family;
    double Bps, s = -1;
    char hint[UNITS_HINT];
    if (!speed)
        return error_set(err, ERR_INPUT, "link '%.100s': expected A:B=25GB/s, or LINK=25GB/s",
                         text);
    *speed++ = 0;
    if ((comma = strchr(speed, ','))) *comma++ = 0, latency = comma;
    if (!units_parse_bytes_per_s(speed, &Bps) || !(Bps >= 1) || Bps > 1e15)
        return error_set(
            err, ERR_INPUT,
            "link %.100s: '%.60s' is not a bandwidth; expected 1 B/s … 1e15 B/s, such as 25GB/s%s",
            words, speed, units_hint(hint, QUANTITY_BYTES_PER_S, speed));
    if (latency && (!units_parse_seconds(latency, &s) || !(s >= 1e-9) || s > 1e3))
        return error_set(
            err, ERR_INPUT,
            "link %.100s: '%.60s' is not a latency; expected 1 ns … 1000 s, such as 10us%s", words,
            latency, units_hint(hint, QUANTITY_SECONDS, latency));
    TRY(find_pair(a, c, words, &l, &at, &family, err));
    if (at < 0 && !family && !latency && !(l.latency_s > 0))
        return error_set(
            err, ERR_INPUT,
            "link %.150s: these two have no link of their own yet, and a new link needs a latency, "
            "such as %.150s,10us; links are: %s",
            text, text, link_names(a, c));
    *out = *c;
    out->links = ARENA_ARRAY(a, struct link, (size_t)c->n_links + 1);
    memcpy(out->links, c->links, (size_t)c->n_links * sizeof *c->links);
    for (int32_t i = 0; family && i < c->n_links; i++) {
        struct link *member = &out->links[i];
        if (!team_in_family(member->name, words)) continue;
        TRY(set_speed(text, Bps, s, member, err));
        member->name = team_free_name(a, c, arena_printf(a, "%s-", member->name));
    }
    if (family) return OK;
    struct link *changed = &out->links[at < 0 ? out->n_links++ : at];
    if (at < 0)
        *changed = l;
    else
        changed->name = team_free_name(a, c, changed->name);
    return set_speed(text, Bps, s, changed, err);
}

/* "TYPE" or "TYPE:activations"; without a type, `optimizer` or `activations` of all. */
static enum status offload(struct arena *a, const struct cluster *c, const char *text, struct cluster *out, struct error *err)
{
    const char *colon = strrchr(text, ':'), *what = colon ? colon + 1 : text;
    bool activations = !strcmp(what, "activations"), optimizer = !strcmp(what, "optimizer");
    const char *type = colon ? arena_printf(a, "%.*s", (int)(colon - text), text) : activations || optimizer ? "all" : text;
    struct nearest near = nearest_to(type);
    char hint[NEAREST_HINT];
    bool all = !strcmp(type, "all"), found = all;
    if (colon && !activations && !optimizer)
        return error_set(err, ERR_INPUT, "offload: '%.100s': behind a type `optimizer` or `activations`, found '%.40s'", text, what);
    *out = *c;
    out->types = ARENA_ARRAY(a, struct device_type, (size_t)c->n_types);
    memcpy(out->types, c->types, (size_t)c->n_types * sizeof *c->types);
    for (int32_t i = 0; i < c->n_types; i++) {
        nearest_try(&near, c->types[i].name);
        if (!all && strcmp(c->types[i].name, type)) continue;
        *(activations ? &out->types[i].offloads_activations : &out->types[i].offloads) = found = true;
    }
    if (found) return OK;
    const char *known = "";
    for (int32_t i = 0; i < c->n_types; i++) known = join(a, known, c->types[i].name);
    nearest_hint(&near, hint);
    return error_set(err, ERR_INPUT, "offload: no device type '%.100s' in cluster '%s'%s known: %s; `all` means every type", type, c->name,
                     *hint ? hint : ";", known);
}

enum status team_edit(struct arena *a, const struct cluster *c, const struct team_change *change,
                      struct cluster *out, struct error *err)
{
    struct cluster made;
    switch (change->kind) {
    case TEAM_WITHOUT:
        TRY(without(a, c, change->text, &made, err));
        break;
    case TEAM_ADD:
        TRY(team_add(a, c, change->text, &made, err));
        break;
    case TEAM_LINK:
        TRY(relink(a, c, change->text, change->latency, &made, err));
        break;
    case TEAM_OFFLOAD:
        TRY(offload(a, c, change->text, &made, err));
        break;
    case TEAM_SLOW:
        TRY(slow(a, c, change->text, &made, err));
        break;
    }
    *out = made;
    return OK;
}

enum status team_relink(struct arena *a, const struct profile *profile, const struct cluster *c,
                        const struct team_change *change, struct cluster *out, struct error *err)
{
    struct cluster stated = *c, made;
    TRY(team_state_links(a, profile, &stated, err));
    TRY(team_edit(a, &stated, change, &made, err));
    for (int32_t i = 0; i < c->n_links; i++)
        if (!strcmp(made.links[i].name, c->links[i].name)) made.links[i] = c->links[i];
    *out = made;
    return OK;
}
