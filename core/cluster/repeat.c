/* core/cluster/repeat.c - `count: N` of a switch or a link: expands to N entries, numbered from 0.
 *
 * A link's ends are numbered with it. An end NAME that matches NAME0 … NAME(M-1) and no bare NAME in the file is number
 * i · M / N for the i-th link: one to one if the counts are equal, else in runs, the first nodes at the first switch. NAME.K
 * is device K of these nodes, and NAME.* each of their M devices in turn: the ports of NVSwitches are one entry.
 */
#include "core/cluster/internal.h"

#include <inttypes.h>
#include <string.h>

static bool is_known(const struct cluster *c, const char *name)
{
    enum link_end kind;
    int32_t at;
    return cluster_indexed(c, name, strlen(name), &kind, &at);
}

int64_t cluster_numbered(const struct cluster_reader *r, const char *name)
{
    int64_t n = 0;
    while (is_known(r->c, arena_printf(r->a, "%s%" PRId64, name, n))) n++;
    return n;
}

static struct node *renamed(struct arena *a, const struct node *n, const char *text)
{
    struct node *x = ARENA_ARRAY(a, struct node, 1);
    *x = *n;
    x->text = text;
    return x;
}

/* How an end is numbered. */
struct numbered {
    const char *stem;   /* of the node or switch */
    const char *device; /* of every node: ".3"; "": none */
    int64_t have;       /* numbers, or all devices; 0: the end is as it is */
    const char **every; /* (have) devices of NAME.*; NULL: another end */
};

/* Of the node of this name, if it is one. */
static bool add_devices(const struct cluster_reader *r, struct numbered *x, const char *name,
                        size_t *capacity)
{
    enum link_end kind;
    int32_t node;
    if (!cluster_indexed(r->c, name, strlen(name), &kind, &node) || kind != END_NODE) return false;
    const struct node_spec *at = &r->c->nodes[node];
    for (int32_t d = 0; d < at->n_devices; d++) {
        x->every = arena_grow(r->a, x->every, (size_t)x->have, capacity, sizeof *x->every);
        x->every[x->have++] = r->c->devices[at->first_device + d].name;
    }
    return true;
}

static void find_devices(const struct cluster_reader *r, struct numbered *x)
{
    size_t capacity = 0;
    if (add_devices(r, x, x->stem, &capacity)) return;
    for (int64_t k = 0, nodes = cluster_numbered(r, x->stem); k < nodes; k++)
        (void)add_devices(r, x, arena_printf(r->a, "%s%" PRId64, x->stem, k), &capacity);
}

static struct numbered numbered_end(const struct cluster_reader *r, const char *text)
{
    size_t stem = strcspn(text, ".");
    struct numbered x = {.stem = arena_strndup(r->a, text, stem), .device = text + stem};
    if (!strcmp(x.device, ".*"))
        find_devices(r, &x);
    else if (!is_known(r->c, x.stem))
        x.have = cluster_numbered(r, x.stem);
    return x;
}

/* A copy of a list of ends for the i-th of `count` links. */
static struct node *number_ends(const struct cluster_reader *r, const struct node *ends,
                                const struct numbered *x, int64_t i, int64_t count)
{
    struct node *out = renamed(r->a, ends, ends->text);
    out->members = ARENA_ARRAY(r->a, struct node *, ends->count);
    for (size_t e = 0; e < ends->count; e++) {
        int64_t k = x[e].have ? i * x[e].have / count : 0;
        const char *text = ends->members[e]->text;
        if (x[e].every)
            text = x[e].every[k];
        else if (x[e].have)
            text = arena_printf(r->a, "%s%" PRId64 "%s", x[e].stem, k, x[e].device);
        out->members[e] = renamed(r->a, ends->members[e], text);
    }
    return out;
}

/* The i-th of `count` entries that n stands for, without its count. */
static struct node *repeat(const struct cluster_reader *r, const struct node *n,
                           const struct numbered *ends, int64_t i, int64_t count)
{
    struct arena *a = r->a;
    struct node *x = renamed(a, n, n->text);
    x->members = ARENA_ARRAY(a, struct node *, n->count);
    x->count = 0;
    for (size_t k = 0; k < n->count; k++) {
        struct node *m = n->members[k];
        if (!strcmp(m->key, "count")) continue;
        if (!strcmp(m->key, "name") && m->text)
            m = renamed(a, m, arena_printf(a, "%s%" PRId64, m->text, i));
        else if (!strcmp(m->key, "between") && m->kind == NODE_LIST)
            m = number_ends(r, m, ends, i, count);
        x->members[x->count++] = m;
    }
    return x;
}

enum status cluster_repeat(struct cluster_reader *r, const struct node *list,
                           const struct node **out)
{
    struct node *x = renamed(r->a, list, list->text);
    size_t capacity = 0;
    x->members = NULL, x->count = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct node *n = list->members[i];
        const struct node *ends = n->kind == NODE_MAP ? cluster_given(n, "between") : NULL;
        bool many = n->kind == NODE_MAP && cluster_given(n, "count");
        struct numbered numbered[2] = {{.have = 0}, {.have = 0}};
        int64_t count = 1;
        if (many) TRY(node_get_int(n, "count", 1, CLUSTER_DEVICES_MAX, &count, r->err));
        for (size_t e = 0; many && ends && ends->kind == NODE_LIST && e < ends->count && e < 2; e++)
            if (ends->members[e]->text) numbered[e] = numbered_end(r, ends->members[e]->text);
        if (many && ends && ends->kind == NODE_LIST && ends->count > 2) many = false;
        for (int64_t k = 0; k < count; k++) {
            x->members = arena_grow(r->a, x->members, x->count, &capacity, sizeof *x->members);
            x->members[x->count++] = many ? repeat(r, n, numbered, k, count) : n;
        }
    }
    *out = x;
    return OK;
}
