/* The steps of a folding, and the lanes that it keeps separate. */
#include "sim/engine/fold_internal.h"

#include "core/base/arena.h"
#include "sim/collective/price.h"


/* --- names --- */

void fold_names_new(struct arena *a, size_t most, struct folding_names *out)
{
    *out = (struct folding_names){.capacity = 16};
    while (out->capacity < 2 * most) out->capacity *= 2;
    out->at = ARENA_ARRAY(a, struct folding_name, out->capacity);
}

void fold_names_clear(struct folding_names *n)
{
    memset(n->at, 0, n->capacity * sizeof *n->at);
    n->count = 0;
}

static struct folding_name *find(const struct folding_names *n, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20);
    for (;; at++) {
        struct folding_name *x = &n->at[at & (n->capacity - 1)];
        if (!x->index || x->key == key) return x;
    }
}

int32_t fold_find(const struct folding_names *n, uint64_t key) { return find(n, key)->index - 1; }

int32_t fold_name(struct folding_names *n, uint64_t key)
{
    struct folding_name *x = find(n, key);
    if (!x->index) *x = (struct folding_name){key, ++n->count};
    return x->index - 1;
}

/* --- separate lanes --- */

static void pin(struct folding *f, int32_t lane)
{
    if (f->pinned[lane]) return;
    f->colour[lane] = fold_mix(2, (uint64_t)lane);
    f->pinned[lane] = true;
    f->n_pinned++;
}

static void pin_ends(struct folding *f, const struct folding_flow *x, void *with)
{
    (void)with;
    if (!(f->p->links[f->paths[x->path].link].compute_slowdown > 0)) return;
    pin(f, x->from_lane), pin(f, x->to_lane);
}

/* Lanes of one colour that are different members of a collective: one lane would be both. */
static void pin_twisted(struct folding *f)
{
    int32_t *group = ARENA_ARRAY(f->scratch, int32_t, 2 * (size_t)f->p->n_devices),
            *member =
                group +
                f->p->n_devices; /* by representative: the last one seen, + 1; as which member */
    for (int32_t i = 0; i < f->p->n_collectives; i++) {
        const struct collective *g = &f->p->collectives[i];
        const uint64_t *colour = &f->member[f->first_member[i]];
        for (int32_t m = 0; m < g->n_members && g->algorithm != ALGORITHM_LOCAL; m++) {
            int32_t lane = fold_lane_of(f, g, m), rep = f->rep[lane];
            if (group[rep] != i + 1) group[rep] = i + 1, member[rep] = m;
            if (colour[m] == colour[member[rep]]) continue;
            pin(f, lane), pin(f, fold_lane_of(f, g, member[rep]));
        }
    }
}

/* --- all --- */

static void find_lanes(struct folding *f)
{
    const struct program *p = f->p;
    f->lane_of_stage = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_stages);
    f->chunk_of_stage = ARENA_ARRAY(f->scratch, int32_t, (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++) {
            f->lane_of_stage[p->lanes[i].stages[c]] = i;
            f->chunk_of_stage[p->lanes[i].stages[c]] = c;
        }
}

static void set_up(struct folding *f)
{
    const struct program *p = f->p;
    size_t n = (size_t)p->n_devices, groups = (size_t)p->n_collectives, most = 0;
    find_lanes(f);
    f->first_member = ARENA_ARRAY(f->scratch, int32_t, groups + 1);
    f->price_ns = ARENA_ARRAY(f->scratch, int64_t, groups);
    for (size_t i = 0; i < groups; i++) {
        const struct collective *g = &p->collectives[i];
        f->first_member[i + 1] = f->first_member[i] + g->n_members;
        if ((size_t)g->n_members > most) most = (size_t)g->n_members;
        f->price_ns[i] = collective_price_ns(f->cost, p, g, NULL);
    }
    f->fixed = ARENA_ARRAY(f->scratch, uint64_t, groups);
    f->base = ARENA_ARRAY(f->scratch, uint64_t, most);
    f->member = ARENA_ARRAY(f->scratch, uint64_t, (size_t)f->first_member[groups]);
    f->channel = ARENA_ARRAY(f->scratch, uint64_t, (size_t)p->n_channels);
    f->colour = ARENA_ARRAY(f->scratch, uint64_t, n),
    f->next = ARENA_ARRAY(f->scratch, uint64_t, n);
    f->rep = ARENA_ARRAY(f->scratch, int32_t, 2 * n), f->pinned = ARENA_ARRAY(f->scratch, bool, n);
    fold_rounds(f);
    fold_paths(f);
    fold_lanes(f);
    size_t paths = (size_t)f->n_paths;
    fold_names_new(f->scratch, n > paths ? n : paths, &f->colours);
}

void fold_make(struct arena *a, const struct program *p, struct cost *k,
               const struct sim_scale *scale, struct fold *out)
{
    struct folding f = {.arena = a,
                        .scratch = arena_new(),
                        .p = p,
                        .cost = k,
                        .scale = scale,
                        .out = out};
    set_up(&f);
    fold_visit_all(&f, pin_ends, NULL);
    for (int32_t before = -1; f.n_pinned != before;) {
        before = f.n_pinned;
        fold_refine(&f);
        pin_twisted(&f);
    }
    out->of = ARENA_ARRAY(a, int32_t, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) out->of[i] = i;
    out->program = *p;
    out->scale = scale ? *scale : (struct sim_scale){0};
    if (fold_classes(&f) < p->n_devices) fold_quotient(&f);
    arena_free(f.scratch);
}
