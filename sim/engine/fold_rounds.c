/* Whom each member of a collective in rounds sends to. The rounds of a collective follow from its kind, algorithm, shape, cuts
 * and tiers, so they are listed once for all collectives in which these are equal. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"

static uint64_t hash_numbers(uint64_t h, const int64_t *numbers, int32_t n)
{
    for (int32_t i = 0; numbers && i < n; i++) h = fold_mix(h, (uint64_t)numbers[i]);
    return h;
}

static uint64_t hash_cut(uint64_t h, const struct collective_cut *c, int32_t n_members)
{
    h = fold_mix(fold_mix(h, (uint64_t)c->dimension), (uint64_t)c->n_runs);
    h = hash_numbers(h, c->first, c->n_runs * n_members);
    return hash_numbers(h, c->count, c->n_runs * n_members);
}

static uint64_t rounds_key(const struct collective *g)
{
    uint64_t h = fold_mix(fold_mix(9, (uint64_t)g->kind), (uint64_t)g->algorithm);
    h = fold_mix(fold_mix(h, (uint64_t)g->n_members), (uint64_t)dtype_bytes(g->dtype));
    h = hash_numbers(fold_mix(fold_mix(h, (uint64_t)g->elements), (uint64_t)g->whole.rank), g->whole.dim, g->whole.rank);
    h = hash_cut(hash_cut(h, &g->from, g->n_members), &g->to, g->n_members);
    for (int32_t i = 0; g->tier && i < g->n_members; i++) h = fold_mix(h, (uint64_t)g->tier[i]);
    return h;
}

/* The place of x in the list, after which it grows. */
static int32_t place_of(int32_t *list, int32_t first, int32_t *end, int32_t x)
{
    for (int32_t k = first; k < *end; k++)
        if (list[k] == x) return k - first;
    list[(*end)++] = x;
    return *end - 1 - first;
}

static struct folding_rounds *list_rounds(struct arena *a, const struct collective *g)
{
    int32_t n = g->n_members, steps = collective_steps(g), most = steps < n ? steps : n;
    size_t room = (size_t)n * (size_t)most;
    struct folding_rounds *r = ARENA_ARRAY(a, struct folding_rounds, 1);
    *r = (struct folding_rounds){
        ARENA_ARRAY(a, int32_t, (size_t)n + 1), ARENA_ARRAY(a, int32_t, room),
        ARENA_ARRAY(a, int32_t, (size_t)n + 1), ARENA_ARRAY(a, int32_t, room),
        ARENA_ARRAY(a, uint64_t, (size_t)n), 0};
    for (int32_t i = 0, to = 0, from = 0; i < n; i++) {
        r->first_to[i] = to, r->first_from[i] = from;
        for (int32_t k = 0; k < steps; k++) {
            struct collective_round x = collective_round(g, i, k);
            uint64_t h = fold_mix(fold_mix(r->colour[i], (uint64_t)x.send), (uint64_t)x.receive);
            if (x.to >= 0) h = fold_mix(h, (uint64_t)place_of(r->to, r->first_to[i], &to, x.to));
            if (x.from >= 0)
                h = fold_mix(h, (uint64_t)place_of(r->from, r->first_from[i], &from, x.from) << 32);
            r->colour[i] = h;
        }
        r->first_to[i + 1] = to, r->first_from[i + 1] = from;
        r->partners = fold_mix(fold_mix(r->partners, (uint64_t)to), (uint64_t)from);
        for (int32_t k = r->first_to[i]; k < to; k++)
            r->partners = fold_mix(r->partners, (uint64_t)r->to[k]);
        for (int32_t k = r->first_from[i]; k < from; k++)
            r->partners = fold_mix(r->partners, (uint64_t)r->from[k]);
    }
    return r;
}

static uint64_t traffic_key(const struct folding *f, int32_t group)
{
    const struct collective *g = &f->p->collectives[group];
    const struct folding_rounds *r = f->rounds[group];
    uint64_t h = fold_mix(fold_mix(12, (uint64_t)g->algorithm), r ? r->partners : 0);
    h = fold_mix(fold_mix(h, (uint64_t)(uintptr_t)g->link), (uint64_t)(uintptr_t)g->direction);
    h = fold_mix(fold_mix(h, (uint64_t)(uintptr_t)g->pair_link), (uint64_t)(uintptr_t)g->pair_direction);
    for (int32_t i = 0; i < g->n_members; i++) h = fold_mix(h, (uint64_t)g->members[i].stage);
    return h;
}

static void find_alike(struct folding *f)
{
    size_t n = (size_t)f->p->n_collectives;
    struct folding_names keys;
    int32_t *first = ARENA_ARRAY(f->scratch, int32_t, n);
    f->first_alike = ARENA_ARRAY(f->scratch, int32_t, n);
    f->first_traffic = ARENA_ARRAY(f->scratch, int32_t, n);
    int32_t n_members = 0;
    fold_names_new(f->scratch, n, &keys);
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        f->first_alike[i] = i;
        if (program_collective_in_rounds(&f->p->collectives[i]) && fold_moves(f, i)) {
            int32_t before = keys.count, at = fold_name(&keys, traffic_key(f, i));
            if (at == before) first[at] = i;
            f->first_alike[i] = first[at];
        }
        bool new = f->first_alike[i] == i;
        f->first_traffic[i] = new ? n_members : f->first_traffic[f->first_alike[i]];
        if (new) n_members += f->p->collectives[i].n_members;
    }
    f->sends = ARENA_ARRAY(f->scratch, uint64_t, (size_t)n_members);
    f->receives = ARENA_ARRAY(f->scratch, uint64_t, (size_t)n_members);
    f->traffic = ARENA_ARRAY(f->scratch, uint64_t, (size_t)n_members);
}

void fold_rounds(struct folding *f)
{
    size_t n = (size_t)f->p->n_collectives;
    struct folding_names keys;
    const struct folding_rounds **known = ARENA_ARRAY(f->scratch, const struct folding_rounds *, n);
    f->rounds = ARENA_ARRAY(f->scratch, const struct folding_rounds *, n);
    fold_names_new(f->scratch, n, &keys);
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        const struct collective *g = &f->p->collectives[i];
        if (!program_collective_in_rounds(g) || g->algorithm == ALGORITHM_RING || g->n_members < 2)
            continue;
        int32_t at = fold_name(&keys, rounds_key(g));
        if (!known[at]) known[at] = list_rounds(f->scratch, g);
        f->rounds[i] = known[at];
    }
    find_alike(f);
}
