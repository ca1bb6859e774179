/* core/cluster/repeat.c - `count: N` of a switch or a link: expands to N entries, numbered from 0.
 *
 * A link's ends are numbered with it. An end NAME that matches NAME0 … NAME(M-1) and no bare NAME in the file is number
 * i · M / N for the i-th link: one to one if the counts are equal, else in runs, the first nodes at the first switch.
 */
#include "core/cluster/internal.h"

#include <inttypes.h>
#include <string.h>

static bool is_known(const struct cluster *c, const char *name)
{
    if (cluster_node(c, name, strlen(name)) >= 0) return true;
    for (int32_t i = 0; i < c->n_switches; i++)
        if (!strcmp(c->switches[i], name)) return true;
    return false;
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

/* A copy of a list of ends, those with a number given theirs. have: (ends) how many there are of each, 0: no numbers. */
static struct node *number_ends(struct arena *a, const struct node *ends, const int64_t *have,
                                int64_t i, int64_t count)
{
    struct node *x = renamed(a, ends, ends->text);
    x->members = ARENA_ARRAY(a, struct node *, ends->count);
    for (size_t e = 0; e < ends->count; e++) {
        const struct node *end = ends->members[e];
        x->members[e] = renamed(
            a, end,
            have[e] ? arena_printf(a, "%s%" PRId64, end->text, i * have[e] / count) : end->text);
    }
    return x;
}

/* The i-th of `count` entries that n stands for, without its count. */
static struct node *repeat(struct arena *a, const struct node *n, const int64_t *have, int64_t i,
                           int64_t count)
{
    struct node *x = renamed(a, n, n->text);
    x->members = ARENA_ARRAY(a, struct node *, n->count);
    x->count = 0;
    for (size_t k = 0; k < n->count; k++) {
        struct node *m = n->members[k];
        if (!strcmp(m->key, "count")) continue;
        if (!strcmp(m->key, "name") && m->text)
            m = renamed(a, m, arena_printf(a, "%s%" PRId64, m->text, i));
        else if (!strcmp(m->key, "between") && m->kind == NODE_LIST)
            m = number_ends(a, m, have, i, count);
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
        int64_t count = 1, have[2] = {0, 0};
        if (many) TRY(node_get_int(n, "count", 1, CLUSTER_DEVICES_MAX, &count, r->err));
        for (size_t e = 0; many && ends && ends->kind == NODE_LIST && e < ends->count && e < 2; e++)
            if (ends->members[e]->text && !is_known(r->c, ends->members[e]->text))
                have[e] = cluster_numbered(r, ends->members[e]->text);
        if (many && ends && ends->kind == NODE_LIST && ends->count > 2) many = false;
        for (int64_t k = 0; k < count; k++) {
            x->members = arena_grow(r->a, x->members, x->count, &capacity, sizeof *x->members);
            x->members[x->count++] = many ? repeat(r->a, n, have, k, count) : n;
        }
    }
    *out = x;
    return OK;
}
