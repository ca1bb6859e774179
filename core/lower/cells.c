/* core/lower/cells.c - gradient all-reduces over devices that keep parameters in different shards.
 *
 * Owners (the stages that hold a use of a parameter, one per replica; or the two stages of a replica that use a tied one) each
 * keep it in their own shards, by rows or columns, contiguous or not. Along each dimension the bounds of all
 * shards define intervals; intervals in the same devices' shards form one *class*, which may have
 * several runs (packed sections, unequal ratios). A *cell* is a class of each dimension: the common refinement of all cuts. Its
 * holders are the devices whose shards contain it, at least one of each owner. Cells of all parameters of a bucket
 * with the same holders form one group.
 *
 * Contributions. A device's gradient is a partial value under its key (core/lower/shards.c); devices of another key of the same
 * owner that also hold the cell have the same sum of partial values. Of each owner, therefore, the first holder and those of its
 * key contribute; the others contribute zero. If every holder already has its owner's reduced gradient (summed), the first contributes.
 *
 * Owners with equal shards, as the same stage of equal replicas, are of one *kind*: a refinement is that of one owner of each kind. Two
 * exchanges with owners of the same kinds, as the two stages of a tied parameter in each of many equal replicas, share one.
 *
 * Cost: O(cells · devices of one owner of each kind) a parameter of each distinct refinement, cells the product of the numbers of classes,
 * and O(members) a group; zero except in plans of mixed replicas or with sharded tied parameters.
 */
#include "core/lower/cells.h"

#include "core/collective/tensor_shard.h"
#include "core/lower/param_uses.h"
#include "core/lower/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct holder { /* of one owner of each kind */
    const struct stage_build *b;
    int32_t kind;
};

struct class
{                 /* of a dimension */
    uint64_t *in; /* holders */
    int32_t n_runs;
    size_t capacity;
    struct run *run; /* of the full dimension, ascending */
};

struct cell_group { /* cells with the same holders */
    uint64_t *in, *silent;
    int32_t n; /* segments */
    size_t param_use_capacity, region_capacity;
    int32_t *param_use;
    struct region *within; /* (n, holders) */
    struct cells cells;    /* but for the members' places */
    int64_t elements;
};

/* Refinements that a new one is compared with, the latest first: replicas of one kind usually follow one another. */
enum { COMPARED_MAX = 8 };

struct known_cells {
    struct group_plan plan;
    int32_t n_holders, n_groups;
    const struct holder *holders;
    struct cell_group *groups;
    struct known_cells *next;
};

struct maker {
    struct lowering *l;
    bool summed;
    int32_t n_owners;
    const struct stage_build *const *owner; /* (n_owners) the first device of each */
    int32_t *first_holder;                  /* (n_owners) of its kind */
    int32_t n_holders, n_words;
    struct holder *holders;
    int32_t n_groups;
    size_t capacity;
    struct cell_group *groups;
    /* of the current parameter use */
    int32_t param_use;
    struct shape whole;
    int32_t n_classes[SHAPE_RANK_MAX];
    struct class *classes[SHAPE_RANK_MAX];
    const struct class *cell[SHAPE_RANK_MAX];
};

static bool has(const uint64_t *set, int32_t i) { return set[i / 64] >> (i % 64) & 1; }
static void put(uint64_t *set, int32_t i) { set[i / 64] |= UINT64_C(1) << (i % 64); }
static size_t set_bytes(const struct maker *m) { return (size_t)m->n_words * sizeof(uint64_t); }

/* The holder's runs of a dimension; the full dimension if its shard does not cut it. */
static int32_t runs_of(const struct maker *m, int32_t holder, int32_t dim, const struct run **run,
                       struct run *all)
{
    const struct tensor_shard *p = lower_parameter_shard(m->holders[holder].b, m->param_use);
    for (int32_t c = 0; c < p->n_cuts; c++)
        if (p->cut[c].dim == dim) {
            *run = p->cut[c].run;
            return p->cut[c].n_runs;
        }
    *all = (struct run){0, m->whole.dim[dim]};
    *run = all;
    return 1;
}

static int ascending(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Bounds of all holders' runs, ascending; returns their number. */
static int32_t find_bounds(const struct maker *m, int32_t dim, int64_t **out)
{
    int64_t *at =
        ARENA_ARRAY(m->l->tables, int64_t, 2 * (size_t)RUNS_MAX * (size_t)m->n_holders + 2);
    int32_t n = 0, unique = 0;
    for (int32_t h = 0; h < m->n_holders; h++) {
        const struct run *run;
        struct run all;
        int32_t n_runs = runs_of(m, h, dim, &run, &all);
        for (int32_t k = 0; k < n_runs; k++)
            at[n++] = run[k].first, at[n++] = run[k].first + run[k].n;
    }
    qsort(at, (size_t)n, sizeof *at, ascending);
    for (int32_t i = 0; i < n; i++)
        if (!unique || at[unique - 1] != at[i]) at[unique++] = at[i];
    *out = at;
    return unique;
}

static void note_run(const struct maker *m, struct class *c, int64_t first, int64_t last)
{
    struct run *before = c->n_runs ? &c->run[c->n_runs - 1] : NULL;
    if (before && before->first + before->n == first) {
        before->n += last - first;
        return;
    }
    c->run = arena_grow(m->l->tables, c->run, (size_t)c->n_runs, &c->capacity, sizeof *c->run);
    c->run[c->n_runs++] = (struct run){first, last - first};
}

static void find_classes(struct maker *m, int32_t dim)
{
    int64_t *at;
    int32_t n = find_bounds(m, dim, &at);
    struct class *all = m->classes[dim] = ARENA_ARRAY(m->l->tables, struct class, (size_t)n + 1);
    m->n_classes[dim] = 0;
    for (int32_t i = 0; i + 1 < n; i++) {
        uint64_t *in = ARENA_ARRAY(m->l->tables, uint64_t, (size_t)m->n_words);
        for (int32_t h = 0; h < m->n_holders; h++) {
            const struct run *run;
            struct run whole;
            int32_t n_runs = runs_of(m, h, dim, &run, &whole);
            for (int32_t k = 0; k < n_runs; k++)
                if (run[k].first <= at[i] && at[i + 1] <= run[k].first + run[k].n) put(in, h);
        }
        int32_t k = 0;
        while (k < m->n_classes[dim] && memcmp(all[k].in, in, set_bytes(m)) != 0) k++;
        if (k == m->n_classes[dim]) all[m->n_classes[dim]++] = (struct class){.in = in};
        note_run(m, &all[k], at[i], at[i + 1]);
    }
}

/* The cell's class along a dimension in the holder's own indices; false: all that the holder has. */
static bool runs_within(const struct maker *m, int32_t holder, int32_t dim, struct region *out)
{
    const struct class *c = m->cell[dim];
    const struct run *run;
    struct run all;
    int32_t n_runs = runs_of(m, holder, dim, &run, &all), n = 0;
    int64_t *first = ARENA_ARRAY(m->l->a, int64_t, (size_t)c->n_runs),
            *count = ARENA_ARRAY(m->l->a, int64_t, (size_t)c->n_runs), own = 0;
    for (int32_t k = 0; k < n_runs; k++) {
        for (int32_t i = 0; i < c->n_runs; i++) {
            int64_t low = c->run[i].first - run[k].first, high = low + c->run[i].n;
            low = low < 0 ? 0 : low, high = high > run[k].n ? run[k].n : high;
            if (low >= high) continue;
            if (n && first[n - 1] + count[n - 1] == own + low)
                count[n - 1] += high - low;
            else
                first[n] = own + low, count[n++] = high - low;
        }
        own += run[k].n;
    }
    if (n == 1 && count[0] == own) return false;
    out->dim[out->n_dims].dimension = dim, out->dim[out->n_dims].n_runs = n;
    out->dim[out->n_dims].first = first, out->dim[out->n_dims++].count = count;
    return true;
}

/* Of the parameter use's gradient on any stage with the parameter, whichever of its uses the stage has. */
static const struct shape *shape_on(const struct stage_build *b, int32_t param_use)
{
    return &b->v->g->tensors[b->v->param_uses[param_use].parameter].shape;
}

static struct region region_of(const struct maker *m, int32_t holder)
{
    const struct stage_build *b = m->holders[holder].b;
    struct region r = {.shape = *shape_on(b, m->param_use)};
    for (int32_t d = 0; d < r.shape.rank; d++) (void)runs_within(m, holder, d, &r);
    return r;
}

static void find_silent(const struct maker *m, const uint64_t *in, uint64_t *silent)
{
    int32_t first = -1, kind = -1;
    for (int32_t h = 0; h < m->n_holders; h++) { /* devices of one owner are consecutive */
        if (!has(in, h)) continue;
        int32_t key = m->summed ? h : lower_shard_key(m->holders[h].b, m->param_use);
        if (m->holders[h].kind != kind) kind = m->holders[h].kind, first = key;
        if (key != first) put(silent, h);
    }
}

static struct cell_group *group_of(struct maker *m, const uint64_t *in)
{
    uint64_t *silent = ARENA_ARRAY(m->l->tables, uint64_t, (size_t)m->n_words);
    find_silent(m, in, silent);
    for (int32_t i = 0; i < m->n_groups; i++)
        if (!memcmp(m->groups[i].in, in, set_bytes(m)) &&
            !memcmp(m->groups[i].silent, silent, set_bytes(m)))
            return &m->groups[i];
    m->groups =
        arena_grow(m->l->tables, m->groups, (size_t)m->n_groups, &m->capacity, sizeof *m->groups);
    m->groups[m->n_groups] =
        (struct cell_group){.in = arena_copy(m->l->tables, in, set_bytes(m)), .silent = silent};
    return &m->groups[m->n_groups++];
}

static void add_cell(struct maker *m, const uint64_t *in)
{
    struct cell_group *g = group_of(m, in);
    g->param_use = arena_grow(m->l->tables, g->param_use, (size_t)g->n, &g->param_use_capacity,
                              sizeof *g->param_use);
    g->param_use[g->n] = m->param_use;
    for (int32_t h = 0; h < m->n_holders; h++) {
        g->within = arena_grow(m->l->tables, g->within, (size_t)(g->n * m->n_holders + h),
                               &g->region_capacity, sizeof *g->within);
        g->within[g->n * m->n_holders + h] = has(in, h) ? region_of(m, h) : (struct region){0};
    }
    g->n++;
}

/* All choices of a class for each dimension from d on with a common holder. */
static void find_cells(struct maker *m, int32_t d, const uint64_t *in)
{
    if (d == m->whole.rank) {
        add_cell(m, in);
        return;
    }
    uint64_t *both = ARENA_ARRAY(m->l->tables, uint64_t, (size_t)m->n_words);
    for (int32_t k = 0; k < m->n_classes[d]; k++) {
        uint64_t any = 0;
        m->cell[d] = &m->classes[d][k];
        for (int32_t w = 0; w < m->n_words; w++) any |= both[w] = in[w] & m->cell[d]->in[w];
        if (any) find_cells(m, d + 1, both);
    }
}

/* Of each holder its own regions, one after the other. */
static void set_cells(const struct maker *m, struct cell_group *x)
{
    size_t n = (size_t)m->n_holders * (size_t)x->n;
    int32_t first = 0;
    x->cells = (struct cells){
        .n = x->n, .param_use = x->param_use, .within = ARENA_ARRAY(m->l->a, struct region, n)};
    for (int32_t h = 0; h < m->n_holders; h++)
        for (int32_t k = 0; has(x->in, h) && k < x->n; k++)
            x->cells.within[h * x->n + k] = x->within[k * m->n_holders + h];
    while (!has(x->in, first)) first++;
    for (int32_t k = 0; k < x->n; k++)
        x->elements += region_elements(&x->cells.within[first * x->n + k]);
}

static int32_t members_of(const struct maker *m, const struct cell_group *g)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_owners; i++)
        for (int32_t k = 0; k < m->owner[i]->n_shards; k++) n += has(g->in, m->first_holder[i] + k);
    return n;
}

/* The members, and which holder's regions each has. */
static void set_members(const struct maker *m, const struct cell_group *from, struct collective *g,
                        int32_t *place)
{
    int32_t at = 0;
    for (int32_t i = 0; i < m->n_owners; i++)
        for (int32_t k = 0, h; k < m->owner[i]->n_shards; k++) {
            if (!has(from->in, h = m->first_holder[i] + k)) continue;
            place[at] = h;
            g->members[at++] = (struct collective_member){
                .stage = m->owner[i]->index + k, .chain_ring = -1, .silent = has(from->silent, h)};
        }
}

static enum status make_group(const struct maker *m, const struct cell_group *from,
                              const char *name, struct group_plan plan, struct error *err)
{
    int32_t n = members_of(m, from);
    if (n < 2) BUG("%s: what one device alone keeps", name);
    struct cells *cells = arena_copy(m->l->tables, &from->cells, sizeof *cells);
    int32_t *place = ARENA_ARRAY(m->l->tables, int32_t, (size_t)n);
    cells->place = place, plan.cells = cells;
    struct collective *g = lower_group_new(m->l, name, ALGORITHM_RING, n, plan);
    set_members(m, from, g, place);
    g->elements = from->elements;
    return lower_group_join(m->l, m->l->p->n_collectives - 1, err);
}

/* The view of a device determines what it keeps of each parameter, and its key. */
static bool same_refinement(const struct known_cells *x, const struct maker *m,
                            const struct group_plan *plan)
{
    bool same = x->n_holders == m->n_holders && x->plan.tied == plan->tied &&
                x->plan.n_uses == plan->n_uses &&
                !memcmp(x->plan.uses, plan->uses, (size_t)plan->n_uses * sizeof *plan->uses);
    for (int32_t h = 0; same && h < m->n_holders; h++)
        same = x->holders[h].kind == m->holders[h].kind && x->holders[h].b->v == m->holders[h].b->v;
    return same;
}

static bool find_refinement(struct maker *m, const struct group_plan *plan)
{
    int32_t n = 0;
    for (const struct known_cells *x = m->l->groups->cells; x && n < COMPARED_MAX; x = x->next, n++)
        if (same_refinement(x, m, plan)) {
            m->n_groups = x->n_groups, m->groups = x->groups;
            return true;
        }
    return false;
}

static void add_refinement(const struct maker *m, const struct group_plan *plan)
{
    struct known_cells *x = ARENA_ARRAY(m->l->tables, struct known_cells, 1);
    *x = (struct known_cells){.plan = *plan,
                              .n_holders = m->n_holders,
                              .n_groups = m->n_groups,
                              .holders = m->holders,
                              .groups = m->groups,
                              .next = m->l->groups->cells};
    m->l->groups->cells = x;
}

static void refine(struct maker *m, const struct stage_build *first, const struct group_plan *plan,
                   const uint64_t *all)
{
    int32_t n = plan->tied ? 1 : plan->n_uses;
    for (int32_t i = 0; i < n; i++) {
        m->param_use = plan->uses[i];
        m->whole = tensor_shard_whole(shape_on(first, m->param_use),
                                      lower_parameter_shard(first, m->param_use));
        for (int32_t d = 0; d < m->whole.rank; d++) find_classes(m, d);
        find_cells(m, 0, all);
    }
    for (int32_t i = 0; i < m->n_groups; i++) set_cells(m, &m->groups[i]);
}

static bool same_shards(const struct stage_build *x, const struct stage_build *y)
{
    bool same = x->n_shards == y->n_shards;
    for (int32_t k = 0; same && k < x->n_shards; k++) same = x[k].v == y[k].v;
    return same;
}

/* Kinds in the order of their first owners; an owner usually is of the kind of the one before. O(owners · kinds). */
static void find_kinds(struct maker *m)
{
    int32_t *known = ARENA_ARRAY(m->l->tables, int32_t, (size_t)m->n_owners), n_kinds = 0,
            devices = 0;
    for (int32_t i = 0; i < m->n_owners; i++) devices += m->owner[i]->n_shards;
    m->holders = ARENA_ARRAY(m->l->tables, struct holder, (size_t)devices);
    m->first_holder = ARENA_ARRAY(m->l->tables, int32_t, (size_t)m->n_owners);
    for (int32_t i = 0; i < m->n_owners; i++) {
        int32_t k = n_kinds - 1;
        while (k >= 0 && !same_shards(m->owner[known[k]], m->owner[i])) k--;
        m->first_holder[i] = k < 0 ? m->n_holders : m->first_holder[known[k]];
        if (k >= 0) continue;
        for (int32_t s = 0; s < m->owner[i]->n_shards; s++)
            m->holders[m->n_holders++] = (struct holder){m->owner[i] + s, n_kinds};
        known[n_kinds++] = i;
    }
}

enum status lower_cells(struct lowering *l, const struct stage_build *const *owner,
                        int32_t n_owners, const char *name, struct group_plan plan,
                        struct error *err)
{
    struct maker m = {.l = l, .summed = plan.tied, .n_owners = n_owners, .owner = owner};
    find_kinds(&m);
    m.n_words = (m.n_holders + 63) / 64;
    uint64_t *all = ARENA_ARRAY(l->tables, uint64_t, (size_t)m.n_words);
    for (int32_t h = 0; h < m.n_holders; h++) put(all, h);
    if (!find_refinement(&m, &plan)) {
        refine(&m, owner[0], &plan, all);
        add_refinement(&m, &plan);
    }
    for (int32_t i = 0; i < m.n_groups; i++)
        TRY(make_group(&m, &m.groups[i], arena_printf(l->a, "%s.%" PRId32, name, i), plan, err));
    return OK;
}
