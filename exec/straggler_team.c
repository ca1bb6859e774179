#include "exec/straggler_team.h"

#include "core/base/arena.h"

#include <stdlib.h>

enum { MARGIN = 2 }; /* rows of which a rank may write one while it is read */

void straggler_team_open(struct straggler_team *t, struct arena *a, int32_t n, int32_t n_nodes, bool emulated)
{
    *t = (struct straggler_team){.n = n, .n_nodes = n_nodes, .least_ns = emulated ? 0 : STRAGGLER_NS, .next = 1};
    t->members = ARENA_ARRAY(a, struct straggler_member, (size_t)n + 1);
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The header's median of n ratios, n >= 1. */
static double middle(double *ratios, int32_t n)
{
    qsort(ratios, (size_t)n, sizeof *ratios, ascending);
    double low = ratios[(n - 1) / 2], high = ratios[n / 2];
    return low >= 1 ? low : high <= 1 ? high : 1;
}

/* type -1: any. Returns how many ratios there are. */
static int32_t ratios_of_node(const struct straggler_team *t, int32_t node, int32_t type, double *ratios)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n; i++) {
        const struct straggler_member *m = &t->members[i];
        if (m->ratio > 0 && m->node == node && (type < 0 || m->type == type)) ratios[n++] = m->ratio;
    }
    return n;
}

static int32_t ratios_of_nodes(const struct straggler_team *t, int32_t type, double *ratios, int32_t *n_last)
{
    double of_node[LOCAL_RANKS_MAX];
    int32_t n = 0;
    for (int32_t k = 0; k < t->n_nodes; k++) {
        int32_t n_devices = ratios_of_node(t, k, type, of_node);
        if (!n_devices) continue;
        ratios[n++] = middle(of_node, n_devices);
        *n_last = k;
    }
    return n;
}

static double common_change(const struct straggler_team *t, int32_t type)
{
    double ratios[LOCAL_RANKS_MAX];
    int32_t node = 0, n = ratios_of_nodes(t, type, ratios, &node);
    if (n < 2) n = ratios_of_nodes(t, -1, ratios, &node);
    if (n == 1) n = ratios_of_node(t, node, -1, ratios);
    return n ? middle(ratios, n) : 1;
}

static void measure(struct straggler_member *m, const struct straggler_row *row)
{
    double operators = row->operators_ns, inputs = row->inputs_ns;
    m->slower = m->starved = false;
    m->ratio = 0;
    if (!(operators > 0)) return;
    m->ratio = straggler_base(&m->operators, operators);
    double step = !m->overlaps ? operators + inputs : inputs > operators ? inputs : operators;
    m->starved = straggler_add(&m->inputs, step / operators, row->end_ns, STRAGGLER_NS);
}

bool straggler_team_step(struct straggler_team *t, const struct straggler_row *rows)
{
    bool changed = false;
    for (int32_t i = 0; i < t->n; i++) measure(&t->members[i], &rows[i]);
    for (int32_t i = 0; i < t->n; i++) {
        struct straggler_member *m = &t->members[i];
        if (m->ratio > 0) m->slower = straggler_level(&m->operators, m->ratio / common_change(t, m->type), rows[i].end_ns, t->least_ns);
        changed |= m->slower || m->starved;
    }
    return changed;
}

bool straggler_team_next(struct straggler_team *t, const struct straggler_table *table, bool *changed)
{
    struct straggler_row rows[LOCAL_RANKS_MAX];
    int64_t first = INT64_MAX, last = 0;
    for (int32_t i = 0; i < t->n; i++) {
        int64_t ended = atomic_load(&table->ranks[i].ended);
        if (ended < first) first = ended;
        if (ended > last) last = ended;
    }
    *changed = false;
    if (t->next < last - STRAGGLER_ROWS + MARGIN) t->next = last - STRAGGLER_ROWS + MARGIN;
    if (t->next >= first) return false;
    for (int32_t i = 0; i < t->n; i++) rows[i] = table->ranks[i].rows[t->next % STRAGGLER_ROWS];
    t->next++;
    *changed = straggler_team_step(t, rows);
    return true;
}
