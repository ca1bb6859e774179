/* planner/spmd_stage/layouts.c - device lines of a cluster, all their cuts, and estimates. */
#include "core/base/arena.h"
#include "planner/spmd_stage/groups_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DEAL_TURNS = 50, LAYOUT_NS = 3000 /* measured cost of an estimate in ns */ };

/* --- shares --- */

/* Microbatches of replica r until `end`. */
static int64_t until(int64_t end, int64_t end_ns, int64_t slow_ns, int32_t share, int32_t least)
{
    int64_t more =
        end >= end_ns ? (end - end_ns) / slow_ns : -((end_ns - end + slow_ns - 1) / slow_ns);
    return share + more > least ? share + more : least;
}

void groups_deal(int32_t n, const int64_t *end_ns, const int64_t *slow_ns, int32_t *share,
                 int64_t all, int32_t least)
{
    int64_t low = 0, high = 1;
    for (int32_t r = 0; r < n; r++)
        if (end_ns[r] + all * slow_ns[r] > high) high = end_ns[r] + all * slow_ns[r];
    for (int turn = 0; turn < DEAL_TURNS && low < high; turn++) {
        int64_t end = low + (high - low) / 2, sum = 0;
        for (int32_t r = 0; r < n; r++) sum += until(end, end_ns[r], slow_ns[r], share[r], least);
        if (sum >= all)
            high = end;
        else
            low = end + 1;
    }
    int64_t sum = 0;
    for (int32_t r = 0; r < n; r++) {
        share[r] = (int32_t)until(high, end_ns[r], slow_ns[r], share[r], least);
        sum += share[r];
    }
    for (int32_t r = n - 1; sum > all; r = r ? r - 1 : n - 1) /* surplus: one less each */
        if (share[r] > least) share[r]--, sum--;
}

/* --- estimate of a layout --- */

static int64_t link_ns(const struct groups *g, int32_t from, int32_t to, int64_t bytes)
{
    const struct cost_link *l = space_link(g->s, from, to);
    return l ? cost_occupancy_ns(l, bytes) : INT64_MAX / 16;
}

/* Gradient all-reduces between replicas: each stage's parameters over the route from its first device to the next replica's. */
static int64_t reduce_ns(const struct groups *g, const struct layout *x, int32_t replicas)
{
    int64_t most = 0;
    for (int32_t i = 0; i < x->n && replicas > 1; i++) {
        const struct line_part *p = &x->part[i], *next = &x->part[(i + 1) % x->n];
        const struct device_line *l = p->device_line;
        for (int32_t k = 0; k < p->line_cut->n; k++) {
            int32_t first = k ? p->line_cut->cut.last[k - 1] + 1 : 0, u = p->line_cut->first[k];
            int64_t bytes =
                g->parameter_bytes[p->line_cut->cut.last[k] + 1] - g->parameter_bytes[first];
            int32_t from = l->device[u][0], to = x->n > 1
                                                     ? next->device_line->device[next->first][0]
                                                     : l->device[u][(l->copies - 1) * l->n[u]];
            if (from == to) continue;
            int64_t ns = link_ns(g, from, to, 2 * bytes / replicas * (replicas - 1));
            if (ns > most) most = ns;
        }
    }
    return most;
}

/* Sets shares and the estimate; false: some replica gets no microbatch. */
static bool estimate(struct groups *g, struct layout *x)
{
    int64_t end[PARTS_MAX], slow[PARTS_MAX], low = 0, high = 0;
    int32_t replicas = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const struct spmd_stage_cut *c = &x->part[i].line_cut->cut;
        slow[i] = c->slowest_ns > 0 ? c->slowest_ns : 1;
        end[i] = c->sum_ns;
        replicas += x->part[i].device_line->copies;
        if (end[i] + g->s->microbatches * slow[i] > high)
            high = end[i] + g->s->microbatches * slow[i];
    }
    if (replicas > g->s->microbatches) return false;
    scorer_charge(g->t->scorer, LAYOUT_NS);
    for (int turn = 0; turn < DEAL_TURNS && low < high; turn++) {
        int64_t t = low + (high - low) / 2, sum = 0;
        for (int32_t i = 0; i < x->n; i++)
            sum += x->part[i].device_line->copies * until(t, end[i], slow[i], 1, 0);
        if (sum >= g->s->microbatches)
            high = t;
        else
            low = t + 1;
    }
    for (int32_t i = 0; i < x->n; i++)
        if ((x->part[i].share = (int32_t)until(high, end[i], slow[i], 1, 0)) < 1) return false;
    x->ns = high + reduce_ns(g, x, replicas);
    return true;
}

/* Inserts among the best; of equal estimates (reversed lines, other copies) the first stays. */
static void insert_layout(struct groups *g, struct layout *x)
{
    x->s = g->s;
    if (!estimate(g, x)) return;
    int32_t at = g->n_layouts;
    while (at > 0 && g->layouts[at - 1].ns > x->ns) at--;
    if (at == LAYOUTS_MAX) return;
    for (int32_t i = at; i > 0 && g->layouts[i - 1].ns == x->ns; i--)
        if (g->layouts[i - 1].s == x->s) return;
    int32_t behind = g->n_layouts - at;
    if (g->n_layouts == LAYOUTS_MAX)
        behind--;
    else
        g->n_layouts++;
    memmove(&g->layouts[at + 1], &g->layouts[at], (size_t)behind * sizeof *x);
    g->layouts[at] = *x;
}

/* --- every cut of a device line --- */

/* Each boundary between two units: same group, next stage, or next replica. */
static enum status cut_all(struct groups *g, struct device_line *l, struct error *err)
{
    int32_t codes = 1;
    for (int32_t u = 1; u < l->n_units; u++) codes *= 3;
    for (int32_t code = 0; code < codes && !search_context_over(g->t); code++) {
        struct layout x = {.n = 0};
        int32_t first = 0, mask = 0, left = code;
        bool possible = true;
        for (int32_t u = 0; u < l->n_units && possible; u++, left /= 3) {
            int cut = u + 1 == l->n_units ? 2 : left % 3;
            if (cut == 1) mask |= 1 << (u - first);
            if (cut < 2) continue;
            const struct line_cut *p;
            TRY(groups_line_cut(g, l, first, u, mask, &p, err));
            possible = p != NULL;
            x.part[x.n++] = (struct line_part){l, first, u, mask, p, 0};
            first = u + 1, mask = 0;
        }
        if (possible) insert_layout(g, &x);
    }
    return OK;
}

/* --- device lines --- */

static void add_partition(struct groups *g, struct device_line *const *device_line, int32_t n, bool cells)
{
    if (!n || g->n_partitions == DEVICE_LINES_MAX) return;
    struct line_partition *w = &g->partition[g->n_partitions++];
    w->cells = cells, w->n = n;
    memcpy(w->device_line, device_line, (size_t)n * sizeof *device_line);
}

/* Units and copies from the devices of nodes, each node in equal parts; none if a node is not divisible. */
static void sliced(struct groups *g, const struct node_spec *const *nodes, int32_t n,
                   int32_t slices)
{
    for (int32_t u = 0; u < n; u++)
        if (nodes[u]->n_devices % slices) return;
    struct device_line *l = groups_device_line(g, n, slices);
    if (!l) return;
    for (int32_t u = 0; u < n; u++) {
        int32_t *device = ARENA_ARRAY(g->arena, int32_t, (size_t)nodes[u]->n_devices);
        for (int32_t k = 0; k < nodes[u]->n_devices; k++) device[k] = nodes[u]->first_device + k;
        l->n[u] = nodes[u]->n_devices / slices, l->device[u] = device;
    }
    l->together = slices;
    add_partition(g, &l, 1, false);
}

/* All devices as single units, on few devices. */
static void single(struct groups *g, bool back)
{
    int32_t n = g->cluster->n_devices;
    struct device_line *l = groups_device_line(g, n, 1);
    for (int32_t u = 0; l && u < n; u++) {
        int32_t d = back ? n - 1 - u : u;
        l->n[u] = 1, l->device[u] = arena_copy(g->arena, &d, sizeof d);
    }
    if (l) add_partition(g, &l, 1, false);
}

/* Nodes as units, with slices from one per device down by halves; also in reverse order. */
static void list_nodes(struct groups *g)
{
    const struct cluster *c = g->cluster;
    const struct node_spec *nodes[2][SPMD_STAGE_LINE_MAX];
    int32_t n = 0, most = 1;
    for (int32_t i = 0; i < c->n_nodes; i++) {
        if (!c->nodes[i].n_devices) continue;
        if (n == SPMD_STAGE_LINE_MAX) return;
        nodes[0][n++] = &c->nodes[i];
        if (c->nodes[i].n_devices > most) most = c->nodes[i].n_devices;
    }
    for (int32_t i = 0; i < n; i++) nodes[1][i] = nodes[0][n - 1 - i];
    for (int32_t slices = most; slices >= 1; slices /= 2)
        for (int back = 0; back < (n > 2 ? 2 : 1); back++)
            if (n > 1) sliced(g, nodes[back], n, slices);
}

/* --- cells --- */

/* Nodes of one class: equal numbers of devices of equal types. */
static bool same_class(const struct cluster *c, const struct node_spec *x, const struct node_spec *y)
{
    if (x->n_devices != y->n_devices) return false;
    for (int32_t k = 0; k < x->n_devices; k++)
        if (c->devices[x->first_device + k].type != c->devices[y->first_device + k].type)
            return false;
    return true;
}

/* Cells of `each` nodes of one class with one unit per node, or of one node in parts; remaining nodes form one more cell. */
static void cells_of(struct groups *g, const struct node_spec *const *nodes, int32_t n,
                     int32_t each, int32_t parts, struct device_line **out, int32_t *n_out)
{
    int32_t size = nodes[0]->n_devices / parts;
    for (int32_t at = 0; at < n;) {
        int32_t units = each < n - at ? each : n - at, copies = (n - at) / units;
        struct device_line *l = groups_device_line(g, each == 1 ? parts : units, copies);
        if (!l) return;
        for (int32_t u = 0; u < l->n_units; u++) {
            int32_t *device = ARENA_ARRAY(g->arena, int32_t, (size_t)(copies * size));
            for (int32_t c = 0; c < copies; c++)
                for (int32_t k = 0; k < size; k++)
                    device[c * size + k] =
                        nodes[at + c * units + (each == 1 ? 0 : u)]->first_device +
                        (each == 1 ? u * size : 0) + k;
            l->n[u] = size, l->device[u] = device;
        }
        out[(*n_out)++] = l;
        at += units * copies;
    }
}

/* The best cut of a cell with a number of groups (0: any), by microbatches per second; NULL: none. */
static enum status best_cell(struct groups *g, struct device_line *l, int32_t n_groups,
                             struct line_part *out, struct error *err)
{
    *out = (struct line_part){.device_line = NULL};
    for (int32_t mask = 0; mask < 1 << (l->n_units - 1); mask++) {
        const struct line_cut *p;
        TRY(groups_line_cut(g, l, 0, l->n_units - 1, mask, &p, err));
        if (!p || (n_groups && p->n != n_groups)) continue;
        if (!out->device_line || p->cut.ns < out->line_cut->cut.ns)
            *out = (struct line_part){l, 0, l->n_units - 1, mask, p, 0};
    }
    return OK;
}

/* Layouts of these cells: the best cut of each, and those with one number of groups everywhere. */
static enum status cut_cells(struct groups *g, struct device_line *const *cell, int32_t n,
                             struct error *err)
{
    for (int32_t groups = 0; groups <= SPMD_STAGE_LINE_MAX && n && !search_context_over(g->t);
         groups++) {
        struct layout x = {.n = 0};
        for (int32_t i = 0; i < n && x.n == i; i++) {
            int32_t most = cell[i]->n_units;
            TRY(best_cell(g, cell[i], groups < most ? groups : most, &x.part[x.n], err));
            x.n += x.part[x.n].device_line != NULL;
        }
        if (x.n == n) insert_layout(g, &x);
    }
    return OK;
}

struct class_nodes {
    int32_t n;
    const struct node_spec **node;
};

static int32_t classes_of(struct groups *g, struct class_nodes *device_class)
{
    const struct cluster *c = g->cluster;
    int32_t classes = 0;
    for (int32_t i = 0; i < c->n_nodes; i++) {
        int32_t k = 0;
        if (!c->nodes[i].n_devices) continue;
        while (k < classes && !same_class(c, device_class[k].node[0], &c->nodes[i])) k++;
        if (k == PARTS_MAX / 2) return 0; /* too many */
        if (k == classes) {
            device_class[k].n = 0, classes++;
            device_class[k].node = ARENA_ARRAY(g->arena, const struct node_spec *, (size_t)c->n_nodes);
        }
        device_class[k].node[device_class[k].n++] = &c->nodes[i];
    }
    return classes;
}

/* Cells of one node in parts, then of increasing numbers of nodes. */
static void list_classes(struct groups *g)
{
    struct class_nodes device_class[PARTS_MAX / 2 + 1];
    int32_t classes = classes_of(g, device_class);
    for (int32_t parts = SPMD_STAGE_LINE_MAX; parts >= 1; parts /= 2) {
        bool any = parts == 1;
        for (int32_t k = 0; k < classes; k++) any |= device_class[k].node[0]->n_devices % parts == 0;
        if (!any) continue;
        struct device_line *cell[PARTS_MAX];
        int32_t n = 0;
        for (int32_t k = 0; k < classes; k++) {
            int32_t size = device_class[k].node[0]->n_devices, mine = parts;
            while (size % mine) mine /= 2;
            cells_of(g, device_class[k].node, device_class[k].n, 1, mine, cell, &n);
        }
        add_partition(g, cell, n, true);
    }
    for (int32_t each = 2; each <= SPMD_STAGE_LINE_MAX; each *= 2) {
        struct device_line *cell[PARTS_MAX];
        int32_t n = 0;
        for (int32_t k = 0; k < classes; k++) cells_of(g, device_class[k].node, device_class[k].n, each, 1, cell, &n);
        add_partition(g, cell, n, true);
    }
}

/* --- all of them --- */

struct turn { /* a group to solve */
    int32_t nodes, devices, place;
    struct device_line *device_line;
    int32_t first, last;
};

static struct turn turn_of(const struct groups *g, struct device_line *l, int32_t first,
                           int32_t last)
{
    struct turn x = {.device_line = l, .first = first, .last = last};
    for (int32_t u = first, node = -1; u <= last; u++)
        for (int32_t k = 0; k < l->n[u]; k++, x.devices++) {
            int32_t at = g->cluster->devices[l->device[u][k]].node;
            x.nodes += at != node, node = at;
        }
    return x;
}

/* Fewest nodes first, then fewest devices, then in order of the list. */
static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->nodes != y->nodes) return x->nodes < y->nodes ? -1 : 1;
    if (x->devices != y->devices) return x->devices < y->devices ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static enum status query_groups(struct groups *g, struct error *err)
{
    enum { RANGES = SPMD_STAGE_LINE_MAX * (SPMD_STAGE_LINE_MAX + 1) / 2 };
    struct turn *turn = ARENA_ARRAY(g->arena, struct turn, (size_t)(g->n_lineups * RANGES + 1));
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_lineups; i++)
        for (int32_t first = 0; first < g->device_line[i].n_units; first++)
            for (int32_t last = first; last < g->device_line[i].n_units; last++) {
                turn[n] = turn_of(g, &g->device_line[i], first, last);
                turn[n].place = n, n++;
            }
    qsort(turn, (size_t)n, sizeof *turn, by_turn);
    for (int32_t i = 0; i < n && !search_context_over(g->t); i++) {
        struct device_group *x;
        TRY(groups_query(g, turn[i].device_line, turn[i].first, turn[i].last, &x, err));
    }
    return OK;
}

/* Groups are solved within the work limit of tables, those on fewest nodes first, then the smallest, because most good plans
 * consist of them; operators sharded over slow links are the slowest to solve and rarely useful. */
enum status groups_layouts(struct groups *g, struct error *err)
{
    int64_t tenths = g->cluster->n_devices > SPMD_STAGE_LINE_MAX ? 7 : 8;
    g->n_lineups = g->n_partitions = 0;
    g->tables_end = g->begin + g->mine / 10 * tenths;
    list_classes(g);
    list_nodes(g);
    for (int back = 0; back < 2 && g->cluster->n_devices <= SPMD_STAGE_LINE_MAX; back++)
        single(g, back);
    TRY(query_groups(g, err));
    for (int32_t i = 0; i < g->n_partitions; i++) {
        const struct line_partition *w = &g->partition[i];
        TRY(w->cells ? cut_cells(g, w->device_line, w->n, err)
                     : cut_all(g, w->device_line[0], err));
    }
    return OK;
}
